"""What a connection sends is taken up in the order in which it came, also where one request takes long."""

import asyncio
from dataclasses import dataclass, field


class ArrivalOrder:
    """A line for each connection of which a request is being taken up in slices."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    def has(self, connection_id: int) -> bool:
        """Whether a request of this connection waits: then a request that comes now waits after it."""
        return connection_id in self._lines

    def enter(self, connection_id: int) -> None:
        """To be called when a request comes, before it awaits its turn."""
        self._lines.setdefault(connection_id, _Line()).length += 1

    def turn(self, connection_id: int) -> asyncio.Lock:
        """To be held while the request is taken up: those who await it get it in the order in which they
        began to."""
        return self._lines[connection_id].lock

    def break_off(self, connection_id: int) -> None:
        """The request whose turn it was has failed, and its connection closes: none behind it is taken up."""
        self._lines[connection_id].is_broken = True

    def is_broken(self, connection_id: int) -> bool:
        """Whether a request before this one has failed."""
        return self._lines[connection_id].is_broken

    def leave(self, connection_id: int) -> None:
        """The request is taken up, or nobody wants it any more."""
        line = self._lines[connection_id]
        line.length -= 1
        if not line.length:
            del self._lines[connection_id]


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0
    is_broken: bool = False
