"""Files of a local log as objects with record batches: read by position, listed and freed."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from adapters.disk import explain, read_at, verify_readable
from adapters.local_log.parts import ID_AT
from adapters.local_log.writer import LogWriter
from adapters.segments.file_ranges import FileRanges, RangeReader, read_ranges
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads, Threads
from ledger.formats.local_log import ID_BYTES
from ledger.keys import LOG_PREFIX, created_ms, log_file_id
from ledger.types import Buffer, Position, StoredObject

OPEN_FILES: Final = 128
READ_THREADS: Final = 4
ENTRY_GAP_BYTES: Final = 4 * 1024
"""Between the batches of two frames are heads, a table and an entry: of small frames a job reads them too,
so that it reads several at once. Fetches do not: their responses would keep more in memory than they say."""
UNENDED_FILES: Final = 2
"""Of a log, the newest: the one that is written, and one that may have been prepared to follow it."""
FREED_AT_ONCE: Final = 4
"""Appends wait while files are removed, which takes milliseconds for each of 64 MiB."""


class LogRanges(FileRanges):
    """Reads and lists files of the logs of a directory. Used by many threads."""

    def __init__(self, root: Path, is_written: Callable[[str], bool], max_gap: int = 0) -> None:
        """`is_written`: whether the file of this locator may be the one that is written."""
        super().__init__(root, OPEN_FILES, lambda locator: log_file_id(locator) is not None, max_gap)
        self._is_written = is_written

    def is_written(self, locator: str) -> bool:
        return self._is_written(locator)

    def is_still(self, fd: int, locator: str, read: RangeReader = read_at) -> bool | None:
        """A header is durable before the first frame of another file is written over what was read."""
        found = read(fd, ID_AT, ID_BYTES)
        return None if found is None else found == log_file_id(locator)

    def objects(self, after: str, limit: int) -> list[StoredObject]:
        """The files of all shards, ascending by locator."""
        base = self._root / LOG_PREFIX.rstrip("/")
        try:
            names = sorted(name for shard in _listed(base) for name in _in_shard(base, shard, after))
            sized = ((name, self._size(name)) for name in names[: max(limit, 0)])
            return [StoredObject(name, created_ms(name), size) for name, size in sized if size is not None]
        except OSError as error:
            raise explain(error, "list the log files in", base) from error

    def _size(self, locator: str) -> int | None:
        with suppress(FileNotFoundError):
            return (self._root / locator).stat().st_size
        return None


class _Ended:
    """Which files of a log another process has ended. Used by many threads."""

    def __init__(self, root: Path) -> None:
        self._base = root / LOG_PREFIX.rstrip("/")
        self._ended: dict[str, tuple[int, frozenset[str]]] = {}
        """By shard, and when its directory was changed last."""

    def may_be_written(self, locator: str) -> bool:
        """It has ended if UNENDED_FILES are newer. Names are in the order of their files, unless a clock was
        set back: then a read may make the writer wait."""
        shard = locator.split("/")[1]
        changed_ns, ended = self._ended.get(shard, (0, frozenset[str]()))
        if locator in ended:
            return False
        try:
            now_ns = os.stat(self._base / shard).st_mtime_ns
            if now_ns != changed_ns:
                ended = frozenset(sorted(_in_shard(self._base, shard, ""))[:-UNENDED_FILES])
                self._ended[shard] = now_ns, ended
        except OSError:
            # What is open can be read without it.
            return True
        return locator not in ended


def _listed(directory: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(directory)
    return []


def _in_shard(base: Path, shard: str, after: str) -> list[str]:
    names = (f"{LOG_PREFIX}{shard}/{name}" for name in _listed(base / shard)) if shard.isdecimal() else ()
    return [name for name in names if name > after and log_file_id(name) is not None]


class LogFiles:
    """Log files as a store of what was produced: of `log/` alone. Written by the journal."""

    def __init__(self, writer: LogWriter, writing: Threads, reading: Threads) -> None:
        self._writer = writer
        self._writing = writing
        self._reading = reading
        self._ranges = LogRanges(writer.directory.root, self._is_active)
        self._active: tuple[bytes | None, str] = (None, "")
        """The file that is written, by its id: its locator."""

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await read_ranges(self._ranges, self._reading, positions)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        """As `SegmentStore.objects`; the file that is written has the size of its frames."""
        found = await self._reading.read(self._ranges.objects, after, limit)
        tail = self._writer.tail
        active = self._locator(tail.file_id)
        return [replace(one, size=tail.position) if one.locator == active else one for one in found]

    async def abandon(self, locator: str) -> None:
        """Has no effect: the log goes on in a file whatever the ledger says of its runs."""

    async def delete(self, locators: Sequence[str]) -> None:
        """As `SegmentStore.delete`. StoreUnavailable for a file that the journal holds."""
        try:
            for at in range(0, len(locators), FREED_AT_ONCE):
                await self._writing.run(self._writer.free, locators[at : at + FREED_AT_ONCE])
        finally:
            self._ranges.forget(locators)

    async def close(self) -> None:
        """The log is closed by its opener."""

    def close_files(self) -> None:
        self._ranges.close()

    def _is_active(self, locator: str) -> bool:
        return locator == self._locator(self._writer.tail.file_id)

    def _locator(self, file_id: bytes | None) -> str:
        """Of the file that is written; "" without one."""
        known, active = self._active
        if file_id != known:
            # This is called for each range that is read, and the file is another one only after megabytes.
            active = self._writer.directory.locator(file_id) if file_id is not None else ""
            self._active = file_id, active
        return active


class LogFilesRead:
    """The log files of a gateway, read by another process: nothing is written or locked."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        deadline_s: float = DEADLINE_S,
        threads: NewThreads = StoreThreads,
    ) -> None:
        """StoreUnavailable if there is no such directory. It need not have a log."""
        root = Path(directory)
        verify_readable(root)
        self._ranges = LogRanges(root, _Ended(root).may_be_written, ENTRY_GAP_BYTES)
        self._reading = threads(f"the local log in {root}", READ_THREADS, deadline_s)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await read_ranges(self._ranges, self._reading, positions)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._reading.read(self._ranges.objects, after, limit)

    async def close(self) -> None:
        await self._reading.close(self._ranges.close)
