"""The files of the local WAL store: the one that grows, and the ones that are read. Plain blocking calls."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adapters.disk import (
    FILE_MODE,
    Directories,
    check_writable,
    delete_files,
    explain,
    sync_data,
    sync_directory,
    write_all,
)
from adapters.segments.file_ranges import FileRanges
from adapters.segments.locators import WAL_PREFIX, WalLocators, wal_created_ms
from adapters.segments.wal_version import check_newest
from ledger.formats.wal import encode_frame, frame_version
from ledger.types import DraftBatch, Placement, StoredObject

ENDING = ".wal"
ROLL_BYTES = 64 * 1024 * 1024
MIN_ROLL_BYTES = 1024 * 1024
ROLL_SHARE = 32
"""A file grows to this part of its file system at most (but for the two bounds above)."""


@dataclass(slots=True)
class GrowingFile:
    """The file that this process appends to."""

    locator: str
    fd: int
    created_ms: int
    size: int = 0


class WalWriter:
    """Appends frames to a file of its own; used by one thread, so frames are in the order of the calls."""

    def __init__(
        self, root: Path, shard: int, roll_bytes: int | None, roll_age_ms: int, random: Callable[[int], bytes]
    ) -> None:
        self._root = root
        self._shard = shard
        self._directory = root / WAL_PREFIX.rstrip("/") / str(shard)
        self._directories = Directories(root)
        self._locators = WalLocators(shard, random, ENDING)
        self._roll_bytes = roll_bytes
        self._roll_age_ms = roll_age_ms
        self._file: GrowingFile | None = None

    def open(self) -> None:
        """Make the directories, durably. StoreUnavailable with the reason if that fails; StoreTooNew
        if they were last written by a newer version."""
        self._directories.open_root()
        try:
            self._directories.ensure(self._directory)
            check_newest(self._root, self._shard, ENDING)
            check_writable(self._directory)
            if self._roll_bytes is None:
                self._roll_bytes = _roll_bytes(self._root)
        except OSError as error:
            raise explain(error, "write to the directory", self._directory) from error

    def write(self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int) -> Placement:
        """One frame, synced. After any error nothing more is appended to the file."""
        if not batches:
            raise ValueError("a draft without batches has no place in a WAL object")
        frame = encode_frame(batches, frame_version(feature_level))
        try:
            file = self._file_for(frame.size, created_ms)
            write_all(file.fd, frame.buffers)
            sync_data(file.fd)
        except BaseException as error:
            # It is unknown what the file holds after its last good frame, and after a failed sync a second
            # one may succeed without having written anything.
            self._give_up()
            if isinstance(error, OSError):
                raise explain(error, "append to a WAL file in", self._directory) from error
            raise
        base, file.size = file.size, file.size + frame.size
        return Placement(file.locator, [base + start for start in frame.starts], file.size)

    def abandon(self, locator: str | None = None) -> None:
        """Append no more to `locator`. None: to the file that is growing."""
        file = self._file
        if file is not None and locator in (None, file.locator):
            self._file = None
            with suppress(OSError):
                os.close(file.fd)

    def delete(self, locators: Sequence[str]) -> None:
        """Unlink, durably."""
        known = [locator for locator in locators if wal_created_ms(locator, ENDING) is not None]
        for locator in known:
            self.abandon(locator)
        delete_files([self._root / locator for locator in known], "WAL file")

    def _give_up(self) -> None:
        """Append no more to the file. One without a frame is removed: a full disk must not fill with them."""
        file = self._file
        self.abandon()
        if file is not None and not file.size:
            with suppress(OSError):
                (self._root / file.locator).unlink()

    def _file_for(self, size: int, now_ms: int) -> GrowingFile:
        self._locators.see(now_ms)
        file = self._file
        if file is not None and file.size:
            is_full = file.size + size > (self._roll_bytes or ROLL_BYTES)
            if is_full or self._locators.newest_ms - file.created_ms >= self._roll_age_ms:
                self.abandon()
        if self._file is None:
            self._file = self._create()
        return self._file

    def _create(self) -> GrowingFile:
        locator = self._locators.new()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self._root / locator, flags, FILE_MODE)
        try:
            sync_directory(self._directory)
        except BaseException:
            os.close(fd)
            # A disk that cannot sync its names must not fill with empty files.
            with suppress(OSError):
                (self._root / locator).unlink()
            raise
        return GrowingFile(locator, fd, self._locators.newest_ms)


def _roll_bytes(root: Path) -> int:
    status = os.statvfs(root)
    return min(ROLL_BYTES, max(MIN_ROLL_BYTES, status.f_blocks * status.f_frsize // ROLL_SHARE))


class WalReader(FileRanges):
    """Reads and lists WAL files."""

    def __init__(self, root: Path, max_open: int) -> None:
        super().__init__(root, max_open, lambda locator: wal_created_ms(locator, ENDING) is not None)

    def is_written(self, locator: str) -> bool:
        """Any of them may be."""
        return True

    def objects(self, after: str, limit: int) -> list[StoredObject]:
        """The WAL files of all shards, ascending by locator."""
        base = self._root / WAL_PREFIX.rstrip("/")
        names: list[tuple[str, int]] = []
        try:
            for shard in os.listdir(base):
                names.extend(self._in_shard(shard, after))
            names.sort()
            sized = ((name, created, self._size(name)) for name, created in names[: max(limit, 0)])
            return [StoredObject(name, created, size) for name, created, size in sized if size is not None]
        except OSError as error:
            raise explain(error, "list the WAL files in", base) from error

    def _in_shard(self, shard: str, after: str) -> list[tuple[str, int]]:
        if not shard.isdecimal():
            return []
        found = []
        for name in os.listdir(self._root / WAL_PREFIX / shard):
            locator = f"{WAL_PREFIX}{shard}/{name}"
            created = wal_created_ms(locator, ENDING)
            if created is not None and locator > after:
                found.append((locator, created))
        return found

    def _size(self, locator: str) -> int | None:
        with suppress(FileNotFoundError):
            return (self._root / locator).stat().st_size
        return None
