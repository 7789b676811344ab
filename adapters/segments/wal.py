"""Batches in local files: `wal/{shard}/{uuidv7}.wal`, appended a frame at a time and synced.

One file per process incarnation and shard, never appended to by a later process, rolled before a write
that would take it beyond its size or its age. Files are small on a small file system: each goes as a whole,
so it must be a small part of what a full disk can give back.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from adapters.disk import verify_readable
from adapters.segments.file_ranges import read_ranges
from adapters.segments.wal_files import WalReader, WalWriter
from adapters.threads import DEADLINE_S, NewThreads, Overdue, StoreThreads
from ledger.errors import StoreUnavailable
from ledger.ports import Capabilities
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

ROLL_AGE_MS = 15 * 60 * 1000
OPEN_FILES = 128
READ_THREADS = 4


class WalSegments:
    """A SegmentStore in a local directory. Not atomic: a torn frame at a file's end is an orphan."""

    capabilities = Capabilities(deletes=True, atomic=False, durable_ack=True, keeps_reads=True)

    def __init__(  # noqa: PLR0913 - what the disk and the world decide
        self,
        directory: str | os.PathLike[str],
        *,
        shard: int = 0,
        roll_bytes: int | None = None,
        roll_age_ms: int = ROLL_AGE_MS,
        deadline_s: float = DEADLINE_S,
        random: Callable[[int], bytes] = os.urandom,
        threads: NewThreads = StoreThreads,
    ) -> None:
        """Open `directory`, creating it if its parent is there. `roll_bytes` None: what suits the disk.
        `roll_age_ms` is a quarter of the orphan grace at most. StoreUnavailable and StoreTooNew with one
        sentence for the operator."""
        root = Path(directory)
        name = f"the WAL in {root}"
        self._writer = WalWriter(root, shard, roll_bytes, roll_age_ms, random)
        self._reader = WalReader(root, OPEN_FILES)
        self._writing = threads(name, 1, deadline_s)
        self._reading = threads(name, READ_THREADS, deadline_s)
        try:
            self._writing.run_now(self._writer.open)
        except BaseException:
            self.shut()
            raise

    def shut(self) -> None:
        """Close from plain code, before any call was made."""
        self._writing.shut()
        self._reading.shut()

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        """StoreUnavailable on every failure: no caller got a position, so bytes that may be there are
        orphans. The batches' bytes must not change before this returns."""
        try:
            return await self._writing.run(self._writer.write, batches, created_ms, feature_level)
        except Overdue as error:
            raise StoreUnavailable(str(error)) from error

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await read_ranges(self._reader, self._reading, positions)

    async def abandon(self, locator: str) -> None:
        await self._writing.run(self._writer.abandon, locator)

    async def delete(self, locators: Sequence[str]) -> None:
        try:
            await self._writing.run(self._writer.delete, locators)
        finally:
            # After the unlink, so that no reader opens the file again and keeps its bytes on the disk.
            self._reader.forget(locators)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._reading.read(self._reader.objects, after, limit)

    async def close(self) -> None:
        await self._writing.close(self._writer.abandon)
        await self._reading.close(self._reader.close)


class WalFilesRead:
    """The WAL files of a gateway, read by another process: nothing is written or locked."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        deadline_s: float = DEADLINE_S,
        threads: NewThreads = StoreThreads,
    ) -> None:
        """StoreUnavailable if there is no such directory."""
        root = Path(directory)
        verify_readable(root)
        self._reader = WalReader(root, OPEN_FILES)
        self._reading = threads(f"the WAL in {root}", READ_THREADS, deadline_s)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await read_ranges(self._reader, self._reading, positions)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._reading.read(self._reader.objects, after, limit)

    async def close(self) -> None:
        await self._reading.close(self._reader.close)
