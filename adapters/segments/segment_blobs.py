"""What jobs write, in Blobs: a segment, or a settled ledger, is one object with all of its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from adapters.segments.blob_ranges import BlobRanges, put_new
from adapters.segments.file_ranges import FileRanges, read_ranges
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads
from ledger.keys import (
    JOB_PREFIXES,
    created_ms,
    index_locator,
    job_object_keys,
    job_object_of,
    segment_name,
    settled_keys_of,
    settled_name,
)
from ledger.ports import Blobs
from ledger.types import Buffer, Position, StoredObject

LIST_PAGE = 1000
OPEN_FILES = 128
READ_THREADS = 4


class Ranges(Protocol):
    """How ranges of these files are read."""

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]: ...

    def forget(self, locators: Sequence[str]) -> None: ...

    async def close(self) -> None: ...


class LocalRanges:
    """Of blobs in a local directory: several ranges with one call, and files that stay open."""

    def __init__(
        self, directory: Path, deadline_s: float = DEADLINE_S, threads: NewThreads = StoreThreads
    ) -> None:
        """`directory` of the blobs."""
        self._files = FileRanges(directory, OPEN_FILES, is_readable)
        self._threads = threads(f"the segments in {directory}", READ_THREADS, deadline_s)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await read_ranges(self._files, self._threads, positions)

    def forget(self, locators: Sequence[str]) -> None:
        self._files.forget(locators)

    async def close(self) -> None:
        await self._threads.close(self._files.close)


class SegmentBlobs:
    """Segments and settled ledgers in blobs, which it closes with itself."""

    def __init__(self, blobs: Blobs, ranges: Ranges | None = None) -> None:
        """`ranges`: of the same blobs, if there is a better way to read them than theirs."""
        self._blobs = blobs
        self._ranges = ranges or BlobRanges(blobs, is_readable)

    @property
    def durable_ack(self) -> bool:
        return self._blobs.durable_ack

    async def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        """Create-only. The `.index` comes first, so that no `.kfs` is ever without it. StoreUnavailable on
        every failure: the caller writes again under another key."""
        if segment_name(locator) is None:
            raise ValueError(f"{locator!r} is not the key of a segment")
        await put_new(self._blobs, index_locator(locator), [index])
        await put_new(self._blobs, locator, buffers)

    async def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        """Create-only. The `.json` comes last, so that a reader that finds it finds the others.
        StoreUnavailable on every failure: the caller writes again under another key."""
        if settled_name(locator) is None:
            raise ValueError(f"{locator!r} is not the key of a settled ledger")
        keys = settled_keys_of(locator)
        await put_new(self._blobs, keys.index_key, [index])
        await put_new(self._blobs, keys.log_key, log)
        await put_new(self._blobs, keys.meta_key, [meta])

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """Of objects, and of their other files by the keys of these."""
        return await self._ranges.read(positions)

    async def delete(self, locators: Sequence[str]) -> None:
        """Each object with all of its files."""
        keys = [key for locator in locators for key in job_object_keys(locator)]
        try:
            if keys:
                await self._blobs.delete(keys)
        finally:
            # After the unlink, so that no reader opens the file again and keeps its bytes on the disk.
            self._ranges.forget(keys)

    async def objects(self, after: str, limit: int) -> list[StoredObject]:
        """Ascending by locator. One of which only other files are there has no bytes: a job may be about to
        write it, or has died before it could."""
        found: list[StoredObject] = []
        for prefix in JOB_PREFIXES:
            if len(found) < limit and not (after > prefix and not after.startswith(prefix)):
                begin = after if after.startswith(prefix) else ""
                found += await self._objects_below(prefix, begin, limit - len(found))
        return found[: max(limit, 0)]

    async def _objects_below(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        found: list[StoredObject] = []
        lone = ""
        """The object of the file that was listed last: its own key is the last of them, if it is there."""
        while len(found) < limit:
            page = await self._blobs.list(prefix, after, LIST_PAGE)
            for info in page:
                locator = job_object_of(info.key) or ""
                if lone not in ("", locator):
                    found.append(StoredObject(lone, created_ms(lone), 0))
                lone = locator
                if info.key == locator:
                    found.append(StoredObject(locator, created_ms(locator), info.size))
                    lone = ""
            if not page:
                break
            after = page[-1].key
        if lone:
            found.append(StoredObject(lone, created_ms(lone), 0))
        return found

    async def close(self) -> None:
        await self._ranges.close()
        await self._blobs.close()


def is_readable(key: str) -> bool:
    """Whether this is the key of a file that jobs write."""
    return job_object_of(key) is not None
