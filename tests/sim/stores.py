"""The embedded stores of a history, which outlive the gateway, and one life's view of them.

A call takes a while, before its effect and after it. It may fail before or after the effect, and its result
may be lost. When the life ends by a crash, calls under way have had their effect or never will; in memory,
what a write of batches left without having returned may be lost, since it was not synced. The stores in a
directory are local files, with the journal in a local log or in SQLite, without threads.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from adapters.blobs.files import Access, FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.images.sqlite import SqliteImage
from adapters.journals.memory_log import MemoryLog, MemoryLogFiles
from adapters.local_log.opening import open_local_log
from adapters.log_directory import open_log_directory
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.sqlite import SqliteMetadata
from adapters.open import BLOBS_DIRECTORY, open_journal
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import LocalRanges, SegmentBlobs
from adapters.segments.wal import WalSegments
from adapters.segments.wal_and_segments import LogFiles, WalAndSegments
from gateway.world import JournalInLog, StoreOpener
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.ports import (
    AppendOutcome,
    BlobInfo,
    Blobs,
    ImageStore,
    Journal,
    MetadataStore,
    PutOutcome,
    SegmentStore,
    Unknown,
    Versioned,
    Won,
)
from ledger.records import FIRST_LEVEL
from ledger.rows import Row
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject
from tests.sim.host import BEGUN_MS, now_ms
from tests.sim.local_log import LOG_ROLL_BYTES, WRITES_TAKE_S, InlineThreads, LivedLog, LogThreads

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
    shared: bool = False
    """The metadata store does not say that one process alone can write it: appends are proved."""
    placing: bool = False
    """The journal takes most drafts: they are in files with their entries."""


class Disk:
    """What survives a crash, and all that was ever written to it, in order."""

    def __init__(self, seed: int, directory: Path | None) -> None:
        """Without a directory all is in memory."""
        self.directory = directory
        self.written: list[tuple[str, bytes]] = []
        self._randbytes = random.Random(f"locators {seed}").randbytes
        self._metadata = MemoryMetadata()
        self._segments = MemorySegments(random=self._randbytes)
        self._blobs = MemoryBlobs()
        self.logs = MemoryLogFiles()

    def opener(self, fate: "Fate") -> StoreOpener:
        """The stores as one life sees them."""
        return StoreOpener(
            metadata=lambda url, **_: LivedMetadata(self._open_metadata(url), self, fate),
            segments=lambda url, roll_age_ms, far, logs=None: LivedSegments(
                self._open_segments(url, roll_age_ms, logs), self, fate
            ),
            blobs=lambda url, far: LivedBlobs(self._open_blobs(url), self, fate),
            image=lambda url: LivedImage(SqliteImage(_path_of(url), threads=InlineThreads), self, fate),
            journal=partial(self._open_journal, fate),
            log=partial(self._open_log, fate),
        )

    def _open_metadata(self, url: str) -> MetadataStore:
        if self.directory is None:
            return self._metadata
        return SqliteMetadata(_path_of(url), threads=InlineThreads)

    def _open_journal(self, fate: "Fate", metadata: MetadataStore, random: Callable[[int], bytes]) -> Journal:
        if not fate.rates.placing:
            return open_journal(metadata, random=random)
        return NotedLog(metadata, self.logs, fate, self.written, random)

    async def _open_log(self, fate: "Fate", directory: Path, **more: Any) -> JournalInLog:
        readings = count(0.0, fate.choose.choice(WRITES_TAKE_S))
        open_log = partial(
            open_local_log,
            clock=lambda: BEGUN_MS + now_ms(),
            precise_s=lambda: next(readings),
            roll_bytes=fate.choose.choice(LOG_ROLL_BYTES),
        )
        opened = await open_log_directory(
            directory, open_log=open_log, threads=partial(LogThreads, fate), **more
        )
        return LivedLog(opened, self.written)

    def _open_segments(self, url: str, roll_age_ms: int, logs: LogFiles | None) -> SegmentStore:
        if self.directory is None:
            return WalAndSegments(self._segments, SegmentBlobs(self._blobs), logs=self.logs)
        root, threads = _path_of(url), InlineThreads
        wal = WalSegments(root, roll_age_ms=roll_age_ms, random=self._randbytes, threads=threads)
        directory = root / BLOBS_DIRECTORY
        blobs = FileBlobs(directory, access=Access.SHARED, threads=threads)
        segments = SegmentBlobs(blobs, LocalRanges(directory, threads=threads))
        return WalAndSegments(wal, segments, logs=logs)

    def _open_blobs(self, url: str) -> Blobs:
        if self.directory is None:
            return self._blobs
        return FileBlobs(_path_of(url) / BLOBS_DIRECTORY, threads=InlineThreads)


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

    def count_change(self) -> None:
        """Another change is under way."""
        self._calls_left -= 1
        if not self._calls_left and self._crash is not None:
            within_s = self.choose.uniform(0, 3 * self.rates.slow_s)
            asyncio.get_running_loop().call_later(within_s, self._crash)

    async def change(self, effect: Callable[[], Awaitable[T]]) -> T:
        self.count_change()
        await self.wait()
        if self.happens(self.rates.before):
            raise StoreUnavailable("drawn, before the effect")
        result = await effect()
        await self.wait()
        if self.happens(self.rates.after):
            raise OutcomeUnknown("drawn, after the effect")
        return result


class LivedMetadata:
    unique_versions = True
    durable_ack = True

    def __init__(self, store: MetadataStore, disk: Disk, fate: Fate) -> None:
        self.exclusive = not fate.rates.shared
        self._store = store
        self._written = disk.written
        self._fate = fate
        self._late: set[asyncio.Task[PutOutcome]] = set()

    async def get(self, key: str) -> Versioned | None:
        return await self._fate.read(lambda: self._store.get(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._fate.read(lambda: self._store.scan(prefix, start, limit))

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        async def effect() -> PutOutcome:
            outcome = await self._store.put(key, value, expect)
            if isinstance(outcome, Won):
                self._written.append((key, value))
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
        await self._fate.change(lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()


class NotedLog(MemoryLog):
    """Its files are smaller in some lives, and some drafts are too large for it. What fails is the metadata
    store, in which the entries are."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: MemoryLogFiles,
        fate: Fate,
        written: list[tuple[str, bytes]],
        random: Callable[[int], bytes],
    ) -> None:
        roll_bytes = fate.choose.choice([1, 20_000, 1_000_000])
        super().__init__(
            metadata, 0, files, lambda: BEGUN_MS + now_ms(), roll_bytes=roll_bytes, random=random
        )
        self._fate = fate
        self._largest = fate.choose.choice([300, 1_000, 1_000_000])
        self._written = written
        self._locator = ""
        """Of what was placed last."""

    def takes(self, batches: int, size: int) -> bool:
        return size <= self._largest

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        placed = super().place(number, batches)
        assert placed is not None
        self._locator = placed.locator
        return placed

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        if self._fate.is_dead:
            raise StoreUnavailable("the process is dead")
        if batches:
            self._written.append((self._locator, b"".join(bytes(batch.data) for batch in batches)))
        return await super().append(number, entry, batches)


class LivedSegments:
    def __init__(self, store: SegmentStore, disk: Disk, fate: Fate) -> None:
        self._store = store
        self._written = disk.written
        self._may_lose = disk.directory is None
        """Whether an object is one draft, which is lost if it was not synced."""
        self._fate = fate
        rates = fate.rates
        self.capabilities = replace(
            store.capabilities,
            durable_ack=True,
            overlapping=rates.overlapping and self._may_lose,
            # Files of a log grow, so that ranges of them are read.
            keeps_reads=store.capabilities.keeps_reads or rates.placing,
        )

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        kept = [one._replace(data=bytes(one.data)) for one in batches]
        placed: list[Placement] = []

        async def effect() -> Placement:
            placed.append(await self._store.write(kept, created_ms, feature_level))
            self._written.append((placed[0].locator, b"".join(bytes(one.data) for one in kept)))
            return placed[0]

        try:
            return await self._fate.change(effect)
        except BaseException:
            if placed and not self._fate.is_dead:
                await self._store.abandon(placed[0].locator)
            elif placed and self._may_lose and self._fate.choose.random() < 0.5:
                await self._store.delete([placed[0].locator])
            raise

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._fate.read(lambda: self._store.read(positions))

    async def abandon(self, locator: str) -> None:
        await self._fate.change(lambda: self._store.abandon(locator))

    async def delete(self, locators: Sequence[str]) -> None:
        await self._fate.change(lambda: self._store.delete(locators))

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._fate.read(lambda: self._store.objects(after, limit))

    async def close(self) -> None:
        await self._store.close()


class LivedBlobs:
    durable_ack = True

    def __init__(self, store: Blobs, disk: Disk, fate: Fate) -> None:
        self._store = store
        self._written = disk.written
        self._fate = fate

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        kept = [bytes(part) for part in parts]

        async def effect() -> None:
            await self._store.put(key, kept)
            self._written.append((key, b"".join(kept)))

        await self._fate.change(effect)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._fate.read(lambda: self._store.get(key, start, size))

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._fate.read(lambda: self._store.list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._fate.change(lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()


class LivedImage:
    location = "the image"

    def __init__(self, store: ImageStore, disk: Disk, fate: Fate) -> None:
        self._store = store
        self._written = disk.written
        self._fate = fate

    async def load(self) -> tuple[Sequence[Row], bytes] | None:
        return await self._fate.read(self._store.load)

    async def rows(self) -> tuple[Sequence[Row], bytes]:
        return await self._fate.read(self._store.rows)

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        async def effect() -> None:
            await self._store.write(rows, nonce)
            self._written.append(("image", b"%d rows " % len(rows) + nonce))

        await self._fate.change(effect)

    async def clear(self) -> None:
        await self._fate.change(self._store.clear)

    async def remove(self) -> None:
        await self._fate.change(self._store.remove)

    async def close(self) -> None:
        await self._store.close()


def forgotten(arriving: asyncio.Future[PutOutcome]) -> None:
    """Its error, if it has one, concerns no caller."""
    if not arriving.cancelled():
        arriving.exception()


def _path_of(url: str) -> Path:
    return Path(url.partition(":")[2])
