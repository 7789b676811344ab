"""Slices: heavy requests share the event loop, one slice an iteration, in turn by address and connection.

A request that counts a few hundred elements is worked off at once and pays nothing. One that counts more
goes on in slices of `SLICE_SECONDS`; between two of them the event loop serves everybody else. A hundred
heavy requests of one address so get together what one request of another address gets alone.

    async for topic in context.slices.paced(request.topics):    # a loop that awaits between elements
        ...
    for partition in topic.partitions:                           # the same, counted by hand
        if slices.is_due():
            await slices.turn()
    message = await slices.drive(decoding)                       # a generator that yields its weight
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, NamedTuple, TypeVar

SLICE_SECONDS: Final = 0.004
"""A slice ends at the first check after so long."""
CHECK_EVERY: Final = 256
"""Units of weight between two looks at the clock. A unit is about as much work as reading one name and
looking it up: 1 to 5 us."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Owner(NamedTuple):
    """The connection whose work it is, and the address at its other end."""

    connection_id: int
    host: str


class SliceScheduler:
    """Grants at most one slice in each iteration of the event loop. Of one event loop alone."""

    def __init__(self) -> None:
        # Both in the order in which they are next; none of them is empty.
        self._hosts: dict[str, dict[int, deque[asyncio.Future[None]]]] = {}
        self._is_granting = False

    @property
    def waiting(self) -> int:
        """Requests that wait for a slice, as a gauge."""
        return sum(len(queue) for connections in self._hosts.values() for queue in connections.values())

    async def turn(self, owner: Owner) -> None:
        """Returns when the next slice is this owner's. What the caller then does until it awaits again is
        the slice."""
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        connections = self._hosts.setdefault(owner.host, {})
        connections.setdefault(owner.connection_id, deque()).append(granted)
        if not self._is_granting:
            self._is_granting = True
            loop.call_soon(self._grant, loop)
        await granted

    def drop(self, connection_id: int) -> None:
        """The connection is gone: what waits for it is cancelled."""
        for host, connections in list(self._hosts.items()):
            for granted in connections.pop(connection_id, ()):
                granted.cancel()
            if not connections:
                del self._hosts[host]

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        granted = self._next()
        if granted is None:
            self._is_granting = False
            return
        granted.set_result(None)
        # The slice runs in the next iteration, and before this does: no two of them run in one.
        loop.call_soon(self._grant, loop)

    def _next(self) -> asyncio.Future[None] | None:
        """The next that still waits; its address and connection go to the end of their lines."""
        while self._hosts:
            host = next(iter(self._hosts))
            connections = self._hosts.pop(host)
            connection_id = next(iter(connections))
            queue = connections.pop(connection_id)
            granted = queue.popleft()
            if queue:
                connections[connection_id] = queue
            if connections:
                self._hosts[host] = connections
            if not granted.done():  # else its request was cancelled meanwhile
                return granted
        return None


class Slices:
    """The slices of one request. It begins outside of any: the first few hundred units go at once."""

    __slots__ = ("_ends_at", "_left", "_owner", "_scheduler", "_weight")

    def __init__(self, scheduler: SliceScheduler, owner: Owner) -> None:
        self._scheduler = scheduler
        self._owner = owner
        self._left = CHECK_EVERY
        self._weight = 0
        self._ends_at = 0.0

    @property
    def weight(self) -> int:
        """Units worked off so far."""
        return self._weight + CHECK_EVERY - self._left

    def is_due(self, weight: int = 1) -> bool:
        """Counts these units. True: `await turn()` before they are worked off."""
        self._left -= weight
        return self._left <= 0 and self._is_over()

    async def turn(self) -> None:
        """Returns when the next slice is this request's."""
        await self._scheduler.turn(self._owner)
        self._ends_at = time.perf_counter() + SLICE_SECONDS

    async def paced(self, items: Iterable[Item], weight: int = 1) -> AsyncIterator[Item]:
        """The items, with a wait for the next slice between two of them where one is due."""
        for item in items:
            if self.is_due(weight):
                await self.turn()
            yield item

    async def drive(self, work: Generator[int, None, Result]) -> Result:
        """Runs a generator to its end. It yields the units that it has worked off since it last did."""
        while True:
            try:
                weight = next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
            if self.is_due(weight):
                await self.turn()

    def _is_over(self) -> bool:
        self._weight += CHECK_EVERY - self._left
        self._left = CHECK_EVERY
        return time.perf_counter() >= self._ends_at
