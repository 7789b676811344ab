"""Stores that can be held, and stores whose process dies: wrappers around real backends."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ledger.ports import BlobInfo, Blobs, MetadataStore, PutOutcome, Versioned
from ledger.types import Buffer
from tests.support.faulty import Call, Fault, Faults

T = TypeVar("T")
HELD_S = 20.0


class Death(BaseException):
    """The process ends here, as far as the code under test can see."""


class Deaths(Faults):
    """The process dies in the chosen call: before its effect, after it (ERROR_AFTER), or before one that
    happens at `arrive` (LATE)."""

    async def _fail(
        self,
        call: Call,
        effect: Callable[[], Awaitable[T]],
        unknown: Callable[[str], T] | None,
        conflict: Callable[[str], T] | None,
    ) -> T:
        if self._fault is Fault.ERROR_AFTER:
            await effect()
        if self._fault is Fault.LATE:
            self._late.append((sys.maxsize, effect))
        raise Death(f"in call {call.number}, {call.store}.{call.method}({call.key})")


class Gate:
    """Lets calls go, or holds them from the one after the next `free` on."""

    def __init__(self) -> None:
        self._free: int | None = None
        self._opened = asyncio.Event()
        self._reached = asyncio.Event()

    def shut(self, free: int = 0) -> None:
        self._free = free
        self._opened.clear()
        self._reached.clear()

    def open(self) -> None:
        self._free = None
        self._opened.set()

    async def until_held(self) -> None:
        """Until a call is held."""
        async with asyncio.timeout(HELD_S):
            await self._reached.wait()

    async def passed(self) -> None:
        if self._free is None:
            return
        if self._free > 0:
            self._free -= 1
            return
        self._reached.set()
        await self._opened.wait()


class HeldMetadata:
    """A MetadataStore whose puts wait while `hold` was called last, and not `release`. Scans have a gate of
    their own."""

    def __init__(self, store: MetadataStore, *, exclusive: bool | None = None) -> None:
        self._store = store
        self._exclusive = exclusive
        self._may_go = asyncio.Event()
        self._may_go.set()
        self._is_held = asyncio.Event()
        self.put_keys: list[str] = []
        """Of all puts that were begun."""
        self.read_keys: list[str] = []
        self.scans = Gate()

    def hold(self) -> None:
        self._may_go.clear()
        self._is_held.clear()

    def release(self) -> None:
        self._may_go.set()

    async def until_held(self) -> None:
        """Until a put waits."""
        async with asyncio.timeout(HELD_S):
            await self._is_held.wait()

    @property
    def exclusive(self) -> bool:
        return self._store.exclusive if self._exclusive is None else self._exclusive

    @property
    def unique_versions(self) -> bool:
        return self._store.unique_versions

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def get(self, key: str) -> Versioned | None:
        self.read_keys.append(key)
        return await self._store.get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        await self.scans.passed()
        return await self._store.scan(prefix, start, limit)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.put_keys.append(key)
        self._is_held.set()
        await self._may_go.wait()
        return await self._store.put(key, value, expect)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


class HeldBlobs:
    """Blobs whose puts of archives wait at a gate."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.archives = Gate()

    @property
    def durable_ack(self) -> bool:
        return self._blobs.durable_ack

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if key.startswith("archive/"):
            await self.archives.passed()
        await self._blobs.put(key, parts)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._blobs.get(key, start, size)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._blobs.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._blobs.delete(keys)

    async def close(self) -> None:
        await self._blobs.close()
