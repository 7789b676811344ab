"""Accepts the requests of a connection in the order of their arrival, also where one takes long."""

import asyncio
from dataclasses import dataclass, field


class ArrivalOrder:
    """A queue for each connection of which a request is being accepted in slices."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}

    def has(self, connection_id: int) -> bool:
        """Whether a request of this connection is not yet accepted: then a new one waits for it."""
        return connection_id in self._queues

    def enter(self, connection_id: int) -> None:
        """To be called when a request arrives, before it awaits the lock."""
        self._queues.setdefault(connection_id, _Queue()).length += 1

    def lock(self, connection_id: int) -> asyncio.Lock:
        """To be held while a request is accepted. Requests get it in the order in which they await it."""
        return self._queues[connection_id].lock

    def fail(self, connection_id: int) -> None:
        """The request that holds the lock has failed, and its connection closes: no later one is accepted."""
        self._queues[connection_id].has_failed = True

    def has_failed(self, connection_id: int) -> bool:
        """Whether a request before this one has failed."""
        return self._queues[connection_id].has_failed

    def leave(self, connection_id: int) -> None:
        """The request is accepted, has failed or was cancelled."""
        queue = self._queues[connection_id]
        queue.length -= 1
        if not queue.length:
            del self._queues[connection_id]


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0
    has_failed: bool = False
