"""A bound on the bytes that all fetches together hold, from before they are read until they are sent.

Fairness. While there is enough, a fetch gets its bytes at once. When fetches have to wait, the next grant
goes to the next address in rotation, and among the connections of an address by weighted fair queueing:
each fetch has a tag, the bytes that its address had been granted when the wait began, plus the bytes that it
waits for, plus those that its connection still holds in unsent responses. The lowest tag is next, so that a
small fetch passes large ones, a connection that holds nothing passes one that does not read, and no fetch is
passed for ever.

An eighth is a reserve for small fetches of connections that hold nothing: large fetches cannot use up the
whole budget, and a consumer at the end of its partitions is served while other clients leave responses
unread.
"""

import asyncio
from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

from gateway.scheduling.client_network import network_of
from gateway.scheduling.slices import Owner

NO_OWNER: Final = Owner(0, "")
SMALL_BYTES: Final = 64 * 1024
"""The largest fetch that may use the reserve."""
RESERVE_FRACTION: Final = 8
FAIR_FLOOR_BYTES: Final = 1024 * 1024
"""A fetch may have this much even while other fetches wait."""
MAX_REMEMBERED: Final = 10_000
"""Connections of an address that keep their place in the queue after a wait that ended without a grant."""

MAX_DEAD: Final = 64
"""Fetches that have left an address's queue before its heap is cleared of them."""


class Share:
    """Bytes of the budget that one fetch holds."""

    __slots__ = ("_budget", "_is_reserved", "connection_id", "size")

    def __init__(self, budget: "FetchBudget", connection_id: int, size: int, is_reserved: bool) -> None:
        self._budget = budget
        self._is_reserved = is_reserved
        self.connection_id = connection_id
        self.size = size

    def release(self, keep: int = 0) -> None:
        """Free all of it but `keep` bytes."""
        freed = self.size - keep
        if freed > 0:
            self.size = keep
            self._budget.release(self.connection_id, freed, self._is_reserved)

    def grow(self, size: int) -> bool:
        """Make it `size` bytes large, if that is possible without a wait."""
        more = size - self.size
        if more > 0:
            if self._is_reserved and size > SMALL_BYTES:
                return False
            if not self._budget.take_more(self.connection_id, more, self._is_reserved):
                return False
            self.size = size
        return True


class FetchBudget:
    """A fetch that needs more than the budget gets all of it, without the reserve."""

    def __init__(self, max_bytes: int) -> None:
        reserve_bytes = max_bytes // RESERVE_FRACTION
        # A small budget has no reserve.
        self._reserve_bytes = reserve_bytes if reserve_bytes >= 2 * SMALL_BYTES else 0
        self.max_bytes = max_bytes - self._reserve_bytes
        """The most that one fetch can get."""
        self._used = 0
        self._used_of_reserve = 0
        self._held: dict[int, int] = {}
        """Bytes by connection. One that holds none is not here."""
        self._small = _FairQueue()
        """Waiting fetches that may use the reserve."""
        self._large = _FairQueue()
        self._waiting: dict[_Waiter, None] = {}
        """In order of arrival."""
        self._stuck_since = 0.0

    @property
    def held_bytes(self) -> int:
        return self._used + self._used_of_reserve

    @property
    def stuck_since(self) -> float:
        """If some wait: since when (loop time) none has been granted bytes. Else 0. Waits that end without a
        grant make no difference: a client that repeats its fetch starves too; nor do grants from the reserve
        while large fetches wait."""
        return self._stuck_since if self._waiting else 0.0

    @property
    def waiting_since(self) -> float:
        """If some wait: since when the first of them has. Else 0."""
        return next(iter(self._waiting)).since if self._waiting else 0.0

    @property
    def missing_bytes(self) -> int:
        """Bytes that the waiting fetches need in addition to the free ones, without the reserve."""
        return max(0, sum([waiter.size for waiter in self._waiting]) + self._used - self.max_bytes)

    @property
    def fair_bytes(self) -> int:
        """What a fetch may have while others wait: an equal share for each."""
        sharing = len(self._held) + len(self._waiting) + 1
        return max(self.max_bytes // sharing, min(FAIR_FLOOR_BYTES, self.max_bytes))

    def acquire_now(self, size: int, owner: Owner = NO_OWNER) -> Share | None:
        """Bytes to release later; None if the caller has to wait for them."""
        size = min(size, self.max_bytes)
        connection_id = owner.connection_id
        if not self._waiting and self._used + size <= self.max_bytes:
            return self._take(connection_id, size, False)
        if self._is_small(connection_id, size) and not self._small and self._fits_reserve(size):
            return self._take(connection_id, size, True)
        return None

    async def acquire(self, size: int, deadline: float, owner: Owner = NO_OWNER) -> Share:
        """As `acquire_now`, and waits. TimeoutError at the deadline (loop time)."""
        if (share := self.acquire_now(size, owner)) is not None:
            return share
        loop = asyncio.get_running_loop()
        waiter = _Waiter(min(size, self.max_bytes), owner, loop.create_future(), loop.time())
        is_small = self._is_small(owner.connection_id, waiter.size)
        queue = self._small if is_small else self._large
        queue.add(waiter, self._held.get(owner.connection_id, 0))
        self._waiting[waiter] = None
        self._stuck_since = self._stuck_since or waiter.since
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled():
                waiter.granted.result().release()
            else:
                waiter.granted.cancel()
                del self._waiting[waiter]
                queue.leave(waiter, keeps_place=isinstance(error, TimeoutError))
                self._grant()
            raise

    def take_more(self, connection_id: int, size: int, is_reserved: bool) -> bool:
        """For a `Share` that is to grow."""
        if is_reserved:
            is_free = not self._small and self._fits_reserve(size)
        else:
            is_free = not self._waiting and self._used + size <= self.max_bytes
        if is_free:
            self._count(connection_id, size, is_reserved)
        return is_free

    def release(self, connection_id: int, size: int, is_reserved: bool) -> None:
        """For a `Share` that shrinks."""
        self._count(connection_id, -size, is_reserved)
        if self._waiting:
            self._grant()

    def _is_small(self, connection_id: int, size: int) -> bool:
        return bool(self._reserve_bytes) and size <= SMALL_BYTES and connection_id not in self._held

    def _fits_reserve(self, size: int) -> bool:
        return self._used_of_reserve + size <= self._reserve_bytes

    def _take(self, connection_id: int, size: int, is_reserved: bool) -> Share:
        self._count(connection_id, size, is_reserved)
        if not self._waiting:
            self._stuck_since = 0.0
        return Share(self, connection_id, size, is_reserved)

    def _count(self, connection_id: int, size: int, is_reserved: bool) -> None:
        if is_reserved:
            self._used_of_reserve += size
        else:
            self._used += size
        held = self._held.get(connection_id, 0) + size
        if held:
            self._held[connection_id] = held
        else:
            self._held.pop(connection_id, None)

    def _grant(self) -> None:
        while (first := self._small.first()) is not None:
            is_reserved = self._fits_reserve(first.size)
            if not is_reserved and (self._large or self._used + first.size > self.max_bytes):
                break
            self._grant_to(self._small, first, is_reserved)
        while (first := self._large.first()) is not None:
            if self._used + first.size > self.max_bytes:
                break
            self._grant_to(self._large, first, False)

    def _grant_to(self, queue: "_FairQueue", waiter: "_Waiter", is_reserved: bool) -> None:
        queue.granted(waiter)
        del self._waiting[waiter]
        waiter.granted.set_result(self._take(waiter.owner.connection_id, waiter.size, is_reserved))
        if not (is_reserved and self._large):
            self._stuck_since = waiter.granted.get_loop().time()


class _Waiter:
    __slots__ = ("granted", "network", "owner", "since", "size", "start", "tag")

    def __init__(self, size: int, owner: Owner, granted: "asyncio.Future[Share]", since: float) -> None:
        self.size = size
        self.owner = owner
        self.network = network_of(owner.host)
        self.granted = granted
        self.since = since
        self.start = 0
        self.tag = 0


class _Address:
    """The waiting fetches of one address, by tag."""

    __slots__ = ("heap", "remembered", "served", "waiting")

    def __init__(self) -> None:
        self.served = 0
        """The tag of the last grant."""
        self.waiting = 0
        self.heap: list[tuple[int, int, _Waiter]] = []
        """Some of these may have left."""
        self.remembered: dict[int, int] = {}
        """The tag at which each connection began to wait, if it has been granted nothing since."""


class _FairQueue:
    """Waiting fetches: addresses in rotation, the lowest tag of each. Falsy when there are none."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def add(self, waiter: _Waiter, held: int) -> None:
        address = self._addresses.get(waiter.network)
        if address is None:
            address = self._addresses[waiter.network] = _Address()
        waiter.start = address.remembered.pop(waiter.owner.connection_id, address.served)
        # Even the smallest fetch increases the tag, so that small ones do not pass a large one for ever.
        waiter.tag = waiter.start + held + max(waiter.size, SMALL_BYTES)
        address.waiting += 1
        self._added += 1
        heappush(address.heap, (waiter.tag, self._added, waiter))

    def first(self) -> _Waiter | None:
        """The next to be granted its bytes."""
        for address in self._addresses.values():
            heap = address.heap
            while heap and heap[0][2].granted.done():
                heappop(heap)
            if heap:
                return heap[0][2]
        return None

    def granted(self, waiter: _Waiter) -> None:
        """The first is granted its bytes now, and the next address is first."""
        address = self._addresses[waiter.network]
        heappop(address.heap)
        address.served = max(address.served, waiter.tag)
        self._addresses.move_to_end(waiter.network)
        self._removed(waiter.network, address)

    def leave(self, waiter: _Waiter, keeps_place: bool) -> None:
        """The fetch waits no longer. With `keeps_place` the next fetch of its connection gets its place."""
        address = self._addresses[waiter.network]
        if keeps_place and len(address.remembered) < MAX_REMEMBERED:
            address.remembered[waiter.owner.connection_id] = waiter.start
        self._removed(waiter.network, address)

    def _removed(self, network: str, address: _Address) -> None:
        address.waiting -= 1
        if not address.waiting:
            del self._addresses[network]
        elif len(address.heap) > 2 * address.waiting + MAX_DEAD:
            address.heap = [entry for entry in address.heap if not entry[2].granted.done()]
            heapify(address.heap)
