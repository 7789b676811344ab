"""The embedded stores of a history, which outlive the gateway, and one life's view of them.

A call takes a while, before its effect and after it. It may fail before or after the effect, and its result
may be lost. When the life ends by a crash, calls under way have had their effect or never will; what a write
of batches left without having returned may be lost, since it was not synced.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from adapters.open import open_journal
from adapters.segments.memory import MemorySegments
from gateway.world import StoreOpener
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.ports import BlobInfo, Capabilities, ImageStore, PutOutcome, Unknown, Versioned, Won
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rates:
    """How likely each fault is at a call, and how slow calls are."""

    before: float = 0.0
    after: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    slow_s: float = 0.004
    overlapping: bool = False


class Disk:
    """What survives a crash, and all that was ever written to it, in order."""

    def __init__(self, seed: int) -> None:
        self.metadata = MemoryMetadata()
        self.segments = MemorySegments(random=random.Random(f"locators {seed}").randbytes)
        self.blobs = MemoryBlobs()
        self.written: list[tuple[str, bytes]] = []


class Fate:
    """What happens to the calls of one life."""

    def __init__(self, choose: random.Random, rates: Rates) -> None:
        self.choose = choose
        self.rates = rates
        self.is_calm = self.is_dead = False
        self._calls_left = 0
        self._crash: Callable[[], None] | None = None

    def crash_after(self, calls: int, crash: Callable[[], None]) -> None:
        """Crash while this change is under way, or shortly after it."""
        self._calls_left, self._crash = calls, crash

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.choose.random() < probability

    async def wait(self) -> None:
        await asyncio.sleep(self.choose.uniform(0.0001, self.rates.slow_s))
        if self.is_dead:
            raise StoreUnavailable("the process is dead")

    async def read(self, effect: Callable[[], Awaitable[T]]) -> T:
        await self.wait()
        if self.happens(self.rates.before):
            raise StoreUnavailable("drawn, at a read")
        return await effect()

    async def change(self, effect: Callable[[], Awaitable[T]]) -> T:
        self._calls_left -= 1
        if not self._calls_left and self._crash is not None:
            within_s = self.choose.uniform(0, 3 * self.rates.slow_s)
            asyncio.get_running_loop().call_later(within_s, self._crash)
        await self.wait()
        if self.happens(self.rates.before):
            raise StoreUnavailable("drawn, before the effect")
        result = await effect()
        await self.wait()
        if self.happens(self.rates.after):
            raise OutcomeUnknown("drawn, after the effect")
        return result


class LivedMetadata:
    exclusive = True
    unique_versions = True
    durable_ack = True

    def __init__(self, disk: Disk, fate: Fate) -> None:
        self._disk = disk
        self._fate = fate
        self._late: set[asyncio.Task[PutOutcome]] = set()

    async def get(self, key: str) -> Versioned | None:
        return await self._fate.read(lambda: self._disk.metadata.get(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._fate.read(lambda: self._disk.metadata.scan(prefix, start, limit))

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        async def effect() -> PutOutcome:
            outcome = await self._disk.metadata.put(key, value, expect)
            if isinstance(outcome, Won):
                self._disk.written.append((key, value))
            return outcome

        async def later() -> PutOutcome:
            await self._fate.wait()
            return await effect()

        if self._fate.happens(self._fate.rates.late):
            arriving = asyncio.create_task(later())
            arriving.add_done_callback(forgotten)
            self._late.add(arriving)
            return Unknown("drawn, late")
        outcome = await self._fate.change(effect)
        return Unknown("drawn, response lost") if self._fate.happens(self._fate.rates.lost) else outcome

    async def delete(self, keys: Sequence[str]) -> None:
        await self._fate.change(lambda: self._disk.metadata.delete(keys))

    async def close(self) -> None:
        return None


class LivedSegments:
    def __init__(self, disk: Disk, fate: Fate) -> None:
        self._disk = disk
        self._fate = fate
        self.capabilities = Capabilities(
            deletes=True, atomic=True, durable_ack=True, overlapping=fate.rates.overlapping
        )

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        kept = [one._replace(data=bytes(one.data)) for one in batches]
        placed: list[Placement] = []

        async def effect() -> Placement:
            placed.append(await self._disk.segments.write(kept, created_ms, feature_level))
            self._disk.written.append((placed[0].locator, b"".join(one.data for one in kept)))
            return placed[0]

        try:
            return await self._fate.change(effect)
        except BaseException:
            if placed and self._fate.is_dead and self._fate.choose.random() < 0.5:
                await self._disk.segments.delete([placed[0].locator])
            raise

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._fate.read(lambda: self._disk.segments.read(positions))

    async def abandon(self, locator: str) -> None:
        return None

    async def delete(self, locators: Sequence[str]) -> None:
        await self._fate.change(lambda: self._disk.segments.delete(locators))

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._fate.read(lambda: self._disk.segments.objects(after, limit))

    async def close(self) -> None:
        return None


class LivedBlobs:
    durable_ack = True

    def __init__(self, disk: Disk, fate: Fate) -> None:
        self._disk = disk
        self._fate = fate

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        kept = [bytes(part) for part in parts]

        async def effect() -> None:
            await self._disk.blobs.put(key, kept)
            self._disk.written.append((key, b"".join(kept)))

        await self._fate.change(effect)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._fate.read(lambda: self._disk.blobs.get(key, start, size))

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._fate.read(lambda: self._disk.blobs.list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._fate.change(lambda: self._disk.blobs.delete(keys))

    async def close(self) -> None:
        return None


def opener(disk: Disk, fate: Fate) -> StoreOpener:
    def no_image(_: str) -> ImageStore:
        raise AssertionError("a journal in memory has no image")

    return StoreOpener(
        metadata=lambda _, **__: LivedMetadata(disk, fate),
        segments=lambda _, **__: LivedSegments(disk, fate),
        blobs=lambda _, **__: LivedBlobs(disk, fate),
        image=no_image,
        journal=open_journal,
    )


def forgotten(arriving: asyncio.Future[PutOutcome]) -> None:
    """Its error, if it has one, concerns no caller."""
    if not arriving.cancelled():
        arriving.exception()
