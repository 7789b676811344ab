"""Responses that are kept encoded, because many clients request the same one repeatedly."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, NamedTuple

MAX_RESPONSES: Final = 8
MAX_BYTES: Final = 64 * 1024 * 1024


class Encoded(NamedTuple):
    """A response that its handler returns encoded."""

    body: bytes
    begins_with_throttle_time: bool
    rest: Sequence[bytes] = ()
    """The body after that."""


class EncodedResponses:
    """A cache (LRU) of at most `max_responses` and `max_bytes`."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._making: dict[Hashable, asyncio.Future[None]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The response of this key. The key must name everything on which the response depends. One caller
        makes it for all that wait; if that one is cancelled or fails, the next makes it."""
        while (body := self._kept.get(key)) is None:
            making = self._making.get(key)
            if making is None:
                return await self._make(key, make)
            await asyncio.wait([making])
        self._kept.move_to_end(key)
        return body

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        done = self._making[key] = asyncio.get_running_loop().create_future()
        try:
            body = await make()
            self._keep(key, body)
            return body
        finally:
            del self._making[key]
            done.set_result(None)

    def _keep(self, key: Hashable, body: bytes) -> None:
        if len(body) > self._max_bytes:
            return
        self._kept[key] = body
        self._kept_bytes += len(body)
        while len(self._kept) > self._max_responses or self._kept_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)
