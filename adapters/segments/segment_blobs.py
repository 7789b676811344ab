"""Segments in Blobs: a `.kfs` and the `.index` next to it are one object, with the name of the `.kfs`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from adapters.segments.blob_ranges import BlobRanges, put_new
from adapters.segments.file_ranges import FileRanges
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads
from ledger.keys import SEGMENT_PREFIX, created_ms, index_locator, segment_name, segment_of_index
from ledger.ports import Blobs
from ledger.types import Buffer, Position, StoredObject

LIST_PAGE = 1000
OPEN_FILES = 128
READ_THREADS = 4


class Ranges(Protocol):
    """How ranges of segments are read."""

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]: ...

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

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        return await self._threads.read(self._files.read, positions)

    def forget(self, locators: Sequence[str]) -> None:
        self._files.forget(locators)

    async def close(self) -> None:
        await self._threads.close(self._files.close)


class SegmentBlobs:
    """Segments in blobs, which it closes with itself."""

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

    async def read(self, positions: Sequence[Position]) -> list[Buffer | None]:
        """Of segments, and of indexes by their own keys."""
        return await self._ranges.read(positions)

    async def delete(self, locators: Sequence[str]) -> None:
        """Each segment with its index."""
        names = [locator for locator in locators if segment_name(locator) is not None]
        keys = [key for name in names for key in (name, index_locator(name))]
        try:
            if keys:
                await self._blobs.delete(keys)
        finally:
            # After the unlink, so that no reader opens the file again and keeps its bytes on the disk.
            self._ranges.forget(keys)

    async def objects(self, after: str, limit: int) -> list[StoredObject]:
        """Ascending by locator. An index without its segment is one without bytes: a job may be about to
        write it, or has died before it could."""
        found: list[StoredObject] = []
        lone = ""
        """The segment of the index that was listed last: its own key is the next one, if it is there."""
        while len(found) < limit:
            page = await self._blobs.list(SEGMENT_PREFIX, after, LIST_PAGE)
            for info in page:
                if lone and info.key != lone:
                    found.append(StoredObject(lone, created_ms(lone), 0))
                lone = segment_of_index(info.key) or ""
                if (name := segment_name(info.key)) is not None:
                    found.append(StoredObject(info.key, name.created_ms, info.size))
            if not page:
                break
            after = page[-1].key
        if lone:
            found.append(StoredObject(lone, created_ms(lone), 0))
        return found[: max(limit, 0)]

    async def close(self) -> None:
        await self._ranges.close()
        await self._blobs.close()


def is_readable(key: str) -> bool:
    """Whether this is the key of a segment or of an index."""
    return segment_name(key) is not None or segment_of_index(key) is not None
