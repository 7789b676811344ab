"""Slices: heavy requests share the event loop, one slice an iteration, in turn by address and connection.

A request that counts a few hundred elements is worked off at once and pays nothing. One that counts more
goes on in slices of `SLICE_SECONDS`; between two of them the event loop serves everybody else. A hundred
heavy requests of one address so get together what one request of another address gets alone.

Heavy requests also share memory. Before its first slice a request *enters* with all the bytes that it may
take, for what it is decoded to and for its response in the making, and it leaves when the response is
encoded. It enters once, so that none waits for more while it holds some.

    async for topic in context.slices.paced(request.topics):    # a loop that awaits between elements
        ...
    for partition in topic.partitions:                           # the same, counted by hand
        if slices.is_due():
            await slices.turn()
    edits = await slices.drive(checking_edits(given))            # a generator that yields its weight

What a heavy request was decoded to, and what it made of that, is let go in slices too, after its end
(`SliceScheduler.free`); its memory is given back when that is done.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gateway.scheduling.freeing import Kept, freeing
from gateway.wire.connection import CloseConnection
from gateway.wire.primitives import SHORT_ITEMS

SLICE_SECONDS: Final = 0.004
"""A slice ends at the first check after so long."""
CHECK_EVERY: Final = 256
"""Units of weight between two looks at the clock. A unit is about as much work as reading one name and
looking it up: 1 to 5 us."""

AT_ONCE: Final = 100
"""Calls of one request that are under way at once."""
CALL_UNITS: Final = 5
"""What such a call weighs, with its task."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Memory of heavy requests together, where nothing else is said."""
NO_CONNECTION: Final = -1
"""Frees what requests have left, whatever became of their connections."""
RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""What a request enters with whose own size is small: its response is what makes it heavy."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Container = TypeVar("Container", list[Any], dict[Any, Any])


class Owner(NamedTuple):
    """The connection whose work it is, and the address at its other end."""

    connection_id: int
    host: str


class _Line(Generic[Item]):
    """Those who wait, taken in turn by address and then by connection."""

    def __init__(self) -> None:
        # Both in the order in which they are next; none of them is empty.
        self._hosts: dict[str, dict[int, deque[Item]]] = {}
        self.length = 0

    def add(self, owner: Owner, item: Item) -> None:
        connections = self._hosts.setdefault(owner.host, {})
        connections.setdefault(owner.connection_id, deque()).append(item)
        self.length += 1

    def put_back(self, owner: Owner, item: Item) -> None:
        """What was just taken is next again."""
        connections = self._hosts.pop(owner.host, {})
        queue = connections.pop(owner.connection_id, deque())
        queue.appendleft(item)
        self._hosts = {owner.host: {owner.connection_id: queue} | connections} | self._hosts
        self.length += 1

    def take(self) -> tuple[Owner, Item] | None:
        """The next; its address and connection go to the end of their lines."""
        if not self._hosts:
            return None
        host = next(iter(self._hosts))
        connections = self._hosts.pop(host)
        connection_id = next(iter(connections))
        queue = connections.pop(connection_id)
        item = queue.popleft()
        if queue:
            connections[connection_id] = queue
        if connections:
            self._hosts[host] = connections
        self.length -= 1
        return Owner(connection_id, host), item

    def drop(self, connection_id: int) -> list[Item]:
        """All that this connection has in the line, which leaves it."""
        dropped = list[Item]()
        for host, connections in list(self._hosts.items()):
            dropped += connections.pop(connection_id, ())
            if not connections:
                del self._hosts[host]
        self.length -= len(dropped)
        return dropped


class SliceScheduler:
    """Grants at most one slice in each iteration of the event loop, and memory to at most `max_bytes`. Of one
    event loop alone."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._turns = _Line[asyncio.Future[None]]()
        self._entering = _Line[tuple[int, asyncio.Future[None]]]()
        self._is_granting = False

    @property
    def waiting(self) -> int:
        """Requests that wait for memory or for a slice."""
        return self._turns.length + self._entering.length

    async def enter(self, owner: Owner, size: int, deadline: float) -> int:
        """Bytes to give back by `leave`, waiting for them: at most all that there are. TimeoutError at the
        deadline (loop time)."""
        size = min(size, self.max_bytes)
        if not self._entering.length and self.held_bytes + size <= self.max_bytes:
            self.held_bytes += size
            return size
        granted = asyncio.get_running_loop().create_future()
        self._entering.add(owner, (size, granted))
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.leave(size)
            else:
                granted.cancel()
                self._admit()
            raise
        return size

    def leave(self, size: int) -> None:
        self.held_bytes -= size
        self._admit()

    async def turn(self, owner: Owner) -> None:
        """Returns when the next slice is this owner's. What the caller then does until it awaits again is
        the slice."""
        await self._next_turn(owner)

    def free(self, host: str, kept: Kept, held: int) -> None:
        """Let go of what a request has left behind, in slices of its address; then gives its memory back."""
        owner, work = Owner(NO_CONNECTION, host), freeing(kept)

        def go_on(granted: asyncio.Future[None]) -> None:
            ends_at = time.perf_counter() + SLICE_SECONDS
            for _ in work:
                if time.perf_counter() >= ends_at and not granted.cancelled():
                    self._next_turn(owner).add_done_callback(go_on)
                    return
            self.leave(held)

        self._next_turn(owner).add_done_callback(go_on)

    def drop(self, connection_id: int) -> None:
        """The connection is gone: what waits for it is cancelled."""
        for granted in self._turns.drop(connection_id):
            granted.cancel()
        for _, admitted in self._entering.drop(connection_id):
            admitted.cancel()
        self._admit()

    def _next_turn(self, owner: Owner) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        self._turns.add(owner, granted)
        if not self._is_granting:
            self._is_granting = True
            loop.call_soon(self._grant, loop)
        return granted

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        while (taken := self._turns.take()) is not None:
            _, granted = taken
            if not granted.done():  # else its request was cancelled meanwhile
                granted.set_result(None)
                # The slice runs in the next iteration, and before this does: no two of them run in one.
                loop.call_soon(self._grant, loop)
                return
        self._is_granting = False

    def _admit(self) -> None:
        while (taken := self._entering.take()) is not None:
            owner, (size, granted) = taken
            if granted.done():
                continue
            if self.held_bytes + size > self.max_bytes:
                self._entering.put_back(owner, (size, granted))
                return
            self.held_bytes += size
            granted.set_result(None)


class Slices:
    """The slices of one request. It begins outside of any: the first few hundred units go at once."""

    __slots__ = (
        "_deadline",
        "_ends_at",
        "_held",
        "_least_s",
        "_left",
        "_owner",
        "_scheduler",
        "_weight",
        "bytes",
        "kept",
    )

    def __init__(
        self, scheduler: SliceScheduler, owner: Owner, deadline: float = math.inf, least_s: float = 0.0
    ) -> None:
        """At the deadline (loop time) it waits for memory no longer; but for `least_s` each time, since the
        deadline may have passed while it waited for its turn, for records, or for other members."""
        self._scheduler = scheduler
        self._owner = owner
        self._deadline = deadline
        self._least_s = least_s
        self._left = CHECK_EVERY
        self._weight = 0
        self._ends_at = 0.0
        self._held = 0
        self.bytes = RESPONSE_BYTES
        """What it enters with, if it has to."""
        self.kept: Kept = []
        """All that is let go in slices when the request has ended."""

    @property
    def weight(self) -> int:
        """Units worked off so far."""
        return self._weight + CHECK_EVERY - self._left

    def is_due(self, weight: int = 1) -> bool:
        """Counts these units. True, and then at every call: `await turn()` before they are worked off."""
        self._left -= weight
        return self._left <= 0 and self._is_over()

    async def turn(self) -> None:
        """Returns when the next slice is this request's. CloseConnection if there was no memory for it until
        its deadline."""
        if not self._held:
            latest = asyncio.get_running_loop().time() + self._least_s
            try:
                self._held = await self._scheduler.enter(self._owner, self.bytes, max(self._deadline, latest))
            except TimeoutError:
                raise CloseConnection("no memory for a large request within its time") from None
        await self._scheduler.turn(self._owner)
        self._begin_count()
        self._ends_at = time.perf_counter() + SLICE_SECONDS

    async def drive_heavy(self, work: Generator[int, None, Result]) -> Result:
        """The same from the next slice on, where it is known to be long."""
        await self.turn()
        return await self.drive(work)

    def leave(self) -> None:
        """Gives its memory back. To be called when the request is done, and before a wait for other clients;
        the next slice enters again."""
        held, self._held = self._held, 0
        if held:
            self._scheduler.leave(held)

    def keep(self, made: Container) -> Container:
        """What is made for each element of the request: it is let go in slices."""
        if len(made) > SHORT_ITEMS:
            self.kept.append(made)
        return made

    def end(self) -> None:
        """The request is done, and nothing but this refers to what is kept of it."""
        if sum(map(len, self.kept)) <= CHECK_EVERY:
            self.leave()
            return
        kept, self.kept = self.kept, []
        held, self._held = self._held, 0
        self._scheduler.free(self._owner.host, kept, held)

    async def paced(self, items: Iterable[Item], weight: int = 1) -> AsyncIterator[Item]:
        """The items, with a wait for the next slice between two of them where one is due."""
        for item in items:
            if self.is_due(weight):
                await self.turn()
            yield item

    async def gather(
        self, work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], weight: int = CALL_UNITS
    ) -> list[Result]:
        """The results of `work` for each item, in order: `AT_ONCE` of them go on at once."""
        results = list[Result]()
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            if self.is_due(weight * len(part)):
                await self.turn()
            results += await asyncio.gather(*map(work, part))
        return results

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
        if time.perf_counter() < self._ends_at:
            self._begin_count()
            return False
        # It stays due until the next turn, also where the caller has no place to wait.
        self._weight -= self._left
        self._left = 0
        return True

    def _begin_count(self) -> None:
        """Until the next look at the clock."""
        self._weight += CHECK_EVERY - self._left
        self._left = CHECK_EVERY


def paced(slices: Slices | None, items: Iterable[Item]) -> AsyncIterator[Item]:
    """As `Slices.paced`; without slices, for what is always few, all at once."""
    return _at_once(items) if slices is None else slices.paced(items)


async def _at_once(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item
