"""A disk of which direct reads are noted, and that can refuse, fail or shorten them."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.disk import BLOCK_BYTES, is_resident
from adapters.segments.direct_reads import MAX_BYTES

DIRECT_FLAG: Final = getattr(os, "O_DIRECT", 0)


class NotedReads:
    """Not every file system has direct reads, so those of a test go through the page cache, and leave nothing
    there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directs: list[tuple[int, int]] = []
        """Position and bytes of each."""
        self.opened: list[str] = []
        """Paths of the files that were opened for them."""
        self.open_error = 0
        self.error = 0
        self.longest = 2 * MAX_BYTES
        self.listings = 0
        """Of directories."""
        self.listing_error = 0
        self._fds: set[int] = set()
        self._open, self._preadv, self._listdir = os.open, os.preadv, os.listdir
        monkeypatch.setattr(os, "open", self._opened)
        monkeypatch.setattr(os, "preadv", self._read)
        monkeypatch.setattr(os, "listdir", self._listed)

    def _opened(self, path: Any, flags: int, *more: Any) -> int:
        # Not those of direct writes.
        is_direct = bool(flags & DIRECT_FLAG) and not flags & os.O_WRONLY
        if is_direct and self.open_error:
            raise OSError(self.open_error, os.strerror(self.open_error))
        fd = self._open(path, flags & ~DIRECT_FLAG if is_direct else flags, *more)
        self._fds.discard(fd)
        if is_direct:
            self._fds.add(fd)
            self.opened.append(os.fspath(path))
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # as nothing is read ahead
        return fd

    def _listed(self, path: Any) -> list[str]:
        if self.listing_error:
            raise OSError(self.listing_error, os.strerror(self.listing_error))
        self.listings += 1
        return self._listdir(path)

    def _read(self, fd: int, buffers: Any, at: int, *flags: int) -> int:
        if fd not in self._fds:
            return self._preadv(fd, buffers, at, *flags)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        (buffer,) = buffers
        assert at % BLOCK_BYTES == 0 == len(buffer) % BLOCK_BYTES
        self.directs.append((at, len(buffer)))
        count = self._preadv(fd, [buffer[: self.longest]], at)
        os.posix_fadvise(fd, at, len(buffer), os.POSIX_FADV_DONTNEED)
        return count


def forget_pages(path: Path) -> bool:
    """The page cache shall have nothing of the file. False where it has nevertheless, as a file system in
    memory does, or where it does not say."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return is_resident(file.fileno(), 0, 1) is False
