"""A response on its way to its client."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ledger.types import Buffer

Buffers: TypeAlias = Sequence[Buffer]


class Response:
    """The buffers of a response: of its body, and from the router on with its header before them.

    `on_sent`, if any, releases what the response takes of a budget. The holder of the response calls it
    once: when all bytes are sent, or when it is certain that they never will be.
    """

    __slots__ = ("buffers", "on_sent")

    def __init__(self, buffers: Buffers, on_sent: Callable[[], None] | None = None) -> None:
        self.buffers = buffers
        self.on_sent = on_sent
