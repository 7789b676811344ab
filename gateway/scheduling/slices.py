"""Slices: heavy requests share the event loop, one slice an iteration, round-robin by address and connection.

A request of a few hundred elements is processed at once, without any cost. A larger one continues in slices
of `SLICE_SECONDS`; between two slices the event loop serves all other requests. A hundred heavy requests of
one address together get as much time as one request of another address.

Heavy requests also share memory. Before its first slice a request *enters* with all the bytes that it may
take, for its decoded form and for its response, and it leaves when the response is encoded. It enters once,
so that no request waits for more memory while it holds some.

    async for topic in context.slices.paced(request.topics):    # a loop that awaits between elements
        ...
    for partition in topic.partitions:                           # the same, counted by hand
        if slices.is_due():
            await slices.next_slice()
    edits = await slices.drive(checking_edits(given))            # a generator that yields its weight

The decoded form of a heavy request, and all that was made of it, is freed in slices too, after its end
(`SliceScheduler.free`); only then it leaves.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gateway.host import Seconds, precise_s
from gateway.scheduling.freeing import Kept, freeing
from gateway.wire.connection import CloseConnection
from gateway.wire.primitives import SHORT_ITEMS

SLICE_SECONDS: Final = 0.004
"""A slice ends at the first check after this time."""
CHECK_EVERY: Final = 256
"""Units of weight between two checks of the clock. A unit is about the work of reading one name and looking
it up: 1 to 5 us."""

AT_ONCE: Final = 100
"""Calls of one request that are under way at once."""
CALL_UNITS: Final = 5
"""The weight of such a call, with its task."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""Memory of all heavy requests together, by default."""
NO_CONNECTION: Final = -1
"""The connection of slices that free memory: these continue when the request's connection is lost."""
RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""The bytes with which a small request enters: its response makes it heavy."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Container = TypeVar("Container", list[Any], dict[Any, Any])


class Owner(NamedTuple):
    """The connection of a request, and the address of its client."""

    connection_id: int
    host: str


class _RoundRobin(Generic[Item]):
    """A queue that serves addresses round-robin, and the connections of each address round-robin."""

    def __init__(self) -> None:
        # Addresses and their connections in the order in which they are served; none of them is empty.
        self._hosts: dict[str, dict[int, deque[Item]]] = {}
        self.length = 0

    def add(self, owner: Owner, item: Item) -> None:
        connections = self._hosts.setdefault(owner.host, {})
        connections.setdefault(owner.connection_id, deque()).append(item)
        self.length += 1

    def put_back(self, owner: Owner, item: Item) -> None:
        """Undo the last `take`: the item is the next again."""
        connections = self._hosts.pop(owner.host, {})
        queue = connections.pop(owner.connection_id, deque())
        queue.appendleft(item)
        self._hosts = {owner.host: {owner.connection_id: queue} | connections} | self._hosts
        self.length += 1

    def take(self) -> tuple[Owner, Item] | None:
        """The next item. Its address and its connection are served last from then on."""
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
        """Remove and return all items of this connection."""
        dropped = list[Item]()
        for host, connections in list(self._hosts.items()):
            dropped += connections.pop(connection_id, ())
            if not connections:
                del self._hosts[host]
        self.length -= len(dropped)
        return dropped


class SliceScheduler:
    """Grants at most one slice in each iteration of the event loop, and at most `max_bytes` of memory. Used
    by one event loop."""

    def __init__(self, max_bytes: int = MAX_BYTES, precise: Seconds = precise_s) -> None:
        self.max_bytes = max_bytes
        self.precise_s = precise
        self.held_bytes = 0
        self._slices = _RoundRobin[asyncio.Future[None]]()
        self._entering = _RoundRobin[tuple[int, asyncio.Future[None]]]()
        self._is_granting = False

    @property
    def waiting(self) -> int:
        """Requests that wait for memory or for a slice."""
        return self._slices.length + self._entering.length

    async def enter(self, owner: Owner, size: int, deadline: float) -> int:
        """Waits until `size` bytes, or `max_bytes` if that is less, are granted. Returns the number to
        release by `leave`. TimeoutError at the deadline (loop time)."""
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

    async def next_slice(self, owner: Owner) -> None:
        """Returns at the beginning of this owner's next slice, which lasts until the caller awaits again."""
        await self._queued(owner)

    def free(self, host: str, kept: Kept, held: int) -> None:
        """Free what an ended request has kept, in slices of its address; then release its memory."""
        owner, work = Owner(NO_CONNECTION, host), freeing(kept)

        def resume(granted: asyncio.Future[None]) -> None:
            ends_at = self.precise_s() + SLICE_SECONDS
            for _ in work:
                if self.precise_s() >= ends_at and not granted.cancelled():
                    self._queued(owner).add_done_callback(resume)
                    return
            self.leave(held)

        self._queued(owner).add_done_callback(resume)

    def drop(self, connection_id: int) -> None:
        """The connection is lost: cancel its requests that wait here."""
        for granted in self._slices.drop(connection_id):
            granted.cancel()
        for _, admitted in self._entering.drop(connection_id):
            admitted.cancel()
        self._admit()

    def _queued(self, owner: Owner) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        self._slices.add(owner, granted)
        if not self._is_granting:
            self._is_granting = True
            loop.call_soon(self._grant, loop)
        return granted

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        while (taken := self._slices.take()) is not None:
            _, granted = taken
            if not granted.done():  # otherwise its request was cancelled meanwhile
                granted.set_result(None)
                # The slice runs in the next iteration, before this does: no two slices run in one iteration.
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
    """The slices of one request, which begins without one: its first few hundred units are done at once."""

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
        """A request waits for memory until its deadline (loop time), but at least for `least_s` each time,
        since the deadline may have passed while it waited for its slices, for records, or for other
        members."""
        self._scheduler = scheduler
        self._owner = owner
        self._deadline = deadline
        self._least_s = least_s
        self._left = CHECK_EVERY
        self._weight = 0
        self._ends_at = 0.0
        self._held = 0
        self.bytes = RESPONSE_BYTES
        """The bytes with which it enters, if it has to."""
        self.kept: Kept = []
        """Freed in slices when the request has ended."""

    @property
    def weight(self) -> int:
        """Units counted so far."""
        return self._weight + CHECK_EVERY - self._left

    def is_due(self, weight: int = 1) -> bool:
        """Counts these units. True, also at every further call, if the caller must await `next_slice` before
        it processes them."""
        self._left -= weight
        return self._left <= 0 and self._is_over()

    async def next_slice(self) -> None:
        """Returns at the beginning of this request's next slice. CloseConnection if there was no memory for
        it until its deadline."""
        if not self._held:
            latest = asyncio.get_running_loop().time() + self._least_s
            try:
                self._held = await self._scheduler.enter(self._owner, self.bytes, max(self._deadline, latest))
            except TimeoutError:
                raise CloseConnection("no memory for a large request within its time") from None
        await self.next_charged()

    async def next_charged(self) -> None:
        """The same without entering, for work whose memory is charged elsewhere."""
        await self._scheduler.next_slice(self._owner)
        self._begin_count()
        self._ends_at = self._scheduler.precise_s() + SLICE_SECONDS

    async def drive_heavy(self, work: Generator[int, None, Result]) -> Result:
        """The same for work that is known to be long: begins in a slice."""
        await self.next_slice()
        return await self.drive(work)

    def leave(self) -> None:
        """Releases its memory. To be called when the request is done, and before a wait for other clients;
        the next slice enters again."""
        held, self._held = self._held, 0
        if held:
            self._scheduler.leave(held)

    def keep(self, made: Container) -> Container:
        """Keeps a container with an item for each element of the request, to be freed in slices."""
        if len(made) > SHORT_ITEMS:
            self.kept.append(made)
        return made

    def end(self) -> None:
        """The request is done, and nothing else refers to what it has kept."""
        if sum(map(len, self.kept)) <= CHECK_EVERY:
            self.leave()
            return
        kept, self.kept = self.kept, []
        held, self._held = self._held, 0
        self._scheduler.free(self._owner.host, kept, held)

    async def paced(self, items: Iterable[Item], weight: int = 1) -> AsyncIterator[Item]:
        """The items, with a wait for the next slice between two items where that is due."""
        for item in items:
            if self.is_due(weight):
                await self.next_slice()
            yield item

    async def gather(
        self, work: Callable[[Item], Awaitable[Result]], items: Sequence[Item], weight: int = CALL_UNITS
    ) -> list[Result]:
        """The results of `work` for each item, in order; `AT_ONCE` calls are under way at once."""
        results = list[Result]()
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            if self.is_due(weight * len(part)):
                await self.next_slice()
            results += await asyncio.gather(*map(work, part))
        return results

    async def drive(self, work: Generator[int, None, Result]) -> Result:
        """Runs a generator to its end. It yields the units done since its last yield."""
        while True:
            try:
                weight = next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
            if self.is_due(weight):
                await self.next_slice()

    def _is_over(self) -> bool:
        if self._scheduler.precise_s() < self._ends_at:
            self._begin_count()
            return False
        # A wait stays due until the next slice, also where the caller has no place to wait.
        self._weight -= self._left
        self._left = 0
        return True

    def _begin_count(self) -> None:
        """Count units until the next check of the clock."""
        self._weight += CHECK_EVERY - self._left
        self._left = CHECK_EVERY


def paced(slices: Slices | None, items: Iterable[Item]) -> AsyncIterator[Item]:
    """As `Slices.paced`. Without slices all items at once, for callers that have few."""
    return _at_once(items) if slices is None else slices.paced(items)


async def _at_once(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item
