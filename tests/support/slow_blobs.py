"""Blobs as far away as a bucket: every call takes time, constant or with a tail; calls are counted.

    blobs = SlowBlobs(MemoryBlobs(), put=constant(0.05), get=with_tail(0.1, 0.5, every=100), bytes_a_s=80e6)

The time passes by `asyncio.sleep`, so on a virtual clock too. The effect of a call is at the end of its time.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from ledger.ports import BlobInfo, Blobs
from ledger.types import Buffer

Delay = Callable[[], float]
"""The seconds that the next call takes, without its bytes."""


def constant(seconds: float) -> Delay:
    return lambda: seconds


def with_tail(usual_s: float, slow_s: float, every: int) -> Delay:
    """The last one of every `every` calls takes `slow_s`."""
    calls = 0

    def delay() -> float:
        nonlocal calls
        calls += 1
        return usual_s if calls % every else slow_s

    return delay


class SlowBlobs:
    """Blobs over others. All calls are independent of each other, like connections of their own."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        put: Delay | None = None,
        get: Delay | None = None,
        bytes_a_s: float = math.inf,
    ) -> None:
        """`put` and `get`: None = no time. `bytes_a_s`: how fast the bytes of one call come."""
        self._blobs = blobs
        self.put_delay = put or constant(0.0)
        self.get_delay = get or constant(0.0)
        self._bytes_a_s = bytes_a_s
        self.puts: list[tuple[str, int]] = []
        """Key and size of every put that was begun."""
        self.gets: list[tuple[str, int, int | None]] = []
        """Key, start and size of every get that was begun."""
        self.bytes_read = 0
        self.under_way: Counter[str] = Counter()
        """Calls that have not ended, by method."""
        self.most_under_way: Counter[str] = Counter()
        self._held: dict[str, asyncio.Event] = {}

    @property
    def durable_ack(self) -> bool:
        return self._blobs.durable_ack

    @contextmanager
    def hanging(self, key: str) -> Iterator[None]:
        """Meanwhile gets of this key have no answer."""
        self._held[key] = released = asyncio.Event()
        try:
            yield
        finally:
            del self._held[key]
            released.set()

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        size = sum(len(part) for part in parts)
        self.puts.append((key, size))
        async with self._call("put"):
            await asyncio.sleep(self.put_delay() + size / self._bytes_a_s)
            await self._blobs.put(key, parts)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self.gets.append((key, start, size))
        async with self._call("get"):
            if (held := self._held.get(key)) is not None:
                await held.wait()
            await asyncio.sleep(self.get_delay())
            data = await self._blobs.get(key, start, size)
            await asyncio.sleep(len(data) / self._bytes_a_s)
        self.bytes_read += len(data)
        return data

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._blobs.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._blobs.delete(keys)

    async def close(self) -> None:
        await self._blobs.close()

    @asynccontextmanager
    async def _call(self, method: str) -> AsyncIterator[None]:
        self.under_way[method] += 1
        self.most_under_way[method] = max(self.most_under_way[method], self.under_way[method])
        try:
            yield
        finally:
            self.under_way[method] -= 1
