"""Files of a local log that is none any more, read as the objects that they are too: where a ledger was moved
to, or in a directory whose log was replaced by a restored journal.

No entry in them counts. Their batches are read until the ledger needs none of them; then they are deleted.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from adapters.disk import delete_files, explain
from adapters.segments.blob_ranges import BlobRanges
from adapters.segments.file_ranges import FileRanges
from adapters.segments.locators import log_created_ms
from adapters.segments.wal_and_segments import LogFiles, StoredWal
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads
from ledger.keys import LOG_PREFIX
from ledger.ports import Blobs
from ledger.types import Buffer, Position, StoredObject

LIST_PAGE: Final = 1000
OPEN_FILES: Final = 32
READ_THREADS: Final = 2
REPLACED_DIRECTORY: Final = "replaced"
"""In a data directory: here an operator moves `log/` before a restore, whose journal takes its place."""


class LogsInBlobs:
    """LogFiles under their own keys. It closes the blobs with itself."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._ranges = BlobRanges(blobs, _is_known)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._ranges.read(positions)

    async def abandon(self, locator: str) -> None:
        """Nothing is written into them."""

    async def delete(self, locators: Sequence[str]) -> None:
        await self._blobs.delete([locator for locator in locators if _is_known(locator)])

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        found: list[StoredObject] = []
        while len(found) < limit and (page := await self._blobs.list(LOG_PREFIX, after, LIST_PAGE)):
            after = page[-1].key
            for info in page:
                created = log_created_ms(info.key)
                if created is not None:
                    found.append(StoredObject(info.key, created, info.size))
        return found[: max(limit, 0)]

    async def close(self) -> None:
        await self._blobs.close()


class ReplacedLogs:
    """LogFiles below a directory, with their locators as paths."""

    def __init__(
        self, root: Path, deadline_s: float = DEADLINE_S, threads: NewThreads = StoreThreads
    ) -> None:
        """`root`: a data directory. Nothing is created or opened."""
        self._root = root / REPLACED_DIRECTORY
        self._files = FileRanges(self._root, OPEN_FILES, _is_known)
        self._threads = threads(f"the replaced log in {self._root}", READ_THREADS, deadline_s)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._threads.read(self._files.read, positions)

    async def abandon(self, locator: str) -> None:
        """Nothing is written into them."""

    async def delete(self, locators: Sequence[str]) -> None:
        try:
            await self._threads.run(self._delete, [locator for locator in locators if _is_known(locator)])
        finally:
            self._files.forget(locators)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._threads.read(self._objects, after, limit)

    async def close(self) -> None:
        await self._threads.close(self._files.close)

    def _delete(self, locators: Sequence[str]) -> None:
        delete_files([self._root / locator for locator in locators], "file")

    def _objects(self, after: str, limit: int) -> list[StoredObject]:
        names: list[str] = []
        try:
            for shard in os.listdir(self._root / LOG_PREFIX):
                with suppress(NotADirectoryError):
                    found = (
                        f"{LOG_PREFIX}{shard}/{name}" for name in os.listdir(self._root / LOG_PREFIX / shard)
                    )
                    names.extend(name for name in found if _is_known(name) and name > after)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, "list the files in", self._root) from error
        listed = (self._listed(name) for name in sorted(names)[: max(limit, 0)])
        return [stored for stored in listed if stored is not None]

    def _listed(self, locator: str) -> StoredObject | None:
        created = log_created_ms(locator)
        with suppress(FileNotFoundError):
            size = (self._root / locator).stat().st_size
            return StoredObject(locator, created, size) if created is not None else None
        return None


class ReadLogAndReplaced:
    """The files of a local log, and of the ones that it has replaced, for reading."""

    def __init__(self, log: StoredWal, replaced: StoredWal) -> None:
        """Both are closed with it."""
        self._stored_log = log
        self._stored_replaced = replaced

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        found = await self._stored_log.read(positions)
        missing = [i for i, data in enumerate(found) if data is None]
        if not missing:
            return found
        replaced = await self._stored_replaced.read([positions[i] for i in missing])
        there = dict(zip(missing, replaced, strict=True))
        return [there.get(i) if data is None else data for i, data in enumerate(found)]

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        log = await self._stored_log.objects(after, limit)
        replaced = await self._stored_replaced.objects(after, limit)
        return sorted([*log, *replaced], key=lambda stored: stored.locator)[: max(limit, 0)]

    async def close(self) -> None:
        try:
            await self._stored_log.close()
        finally:
            await self._stored_replaced.close()


class LogAndReplaced(ReadLogAndReplaced):
    """The same as LogFiles."""

    def __init__(self, log: LogFiles, replaced: LogFiles) -> None:
        super().__init__(log, replaced)
        self._log = log
        self._replaced = replaced

    async def abandon(self, locator: str) -> None:
        await self._log.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        await self._log.delete(locators)
        await self._replaced.delete(locators)


def _is_known(locator: str) -> bool:
    return log_created_ms(locator) is not None
