"""Blobs as local files: a key is the path below one directory."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import NoReturn

from adapters.disk import (
    FILE_MODE,
    OTHER_PLACE,
    Directories,
    check_writable,
    delete_files,
    explain,
    give_to_owner,
    read_at,
    sync_data,
    sync_directory,
    write_all,
)
from adapters.names import check_key
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreUnavailable
from ledger.ports import BlobInfo
from ledger.types import Buffer

THREADS = 4
# No key has a component that begins with a dot.
INCOMING = ".incoming-"
LEFTOVER_S = 600.0
"""An unfinished put that was listed so long ago is removed: none takes that long, or it is made again."""
MAX_LEFTOVERS = 1_000
"""Of which it is known since when; others have their turn after these."""
MAX_CLEANED = 20
"""How often the directory of a put may be removed under it. A gateway that starts removes those that are
empty, one level after the other."""


class Access(Enum):
    """What opening may do to a directory."""

    OWNED = "no other gateway uses it, as a lock says: leftovers are removed, and jobs put theirs again"
    SHARED = "other processes may be putting: their unfinished puts are left alone, unless they are old"
    READ_ONLY = "nothing is written or created"


class FileBlobs:
    """Blobs in a local directory. A key that is a folder of another one is a ValueError."""

    durable_ack = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        deadline_s: float = DEADLINE_S,
        access: Access = Access.OWNED,
        threads: NewThreads = StoreThreads,
        other: str = OTHER_PLACE,
    ) -> None:
        """Open `directory`, creating it if its parent is there. StoreUnavailable with one sentence for
        the operator, who may choose `other` instead."""
        self._files = _BlobFiles(Path(directory), access, other)
        self._threads = threads(f"the blobs in {os.fspath(directory)}", THREADS, deadline_s)
        try:
            self._threads.run_now(self._files.open)
        except BaseException:
            self._threads.shut()
            raise

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._threads.run(self._files.put, check_key(key), parts)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._threads.read(self._files.get, check_key(key), start, size)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._threads.read(self._files.list, prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._threads.run(self._files.delete, [check_key(key) for key in keys])

    async def close(self) -> None:
        await self._threads.close(lambda: None)


class _BlobFiles:
    """Plain blocking calls, from many threads."""

    def __init__(self, root: Path, access: Access, other: str) -> None:
        self._root = root
        self._access = access
        self._other = other
        self._directories = Directories(root, other)
        self._leftovers = _Leftovers()

    def open(self) -> None:
        """Every directory is synced: a process that died between a link and the sync after it left a blob
        that can be read but is not durable."""
        if self._access is Access.READ_ONLY:
            return self._open_for_reading()
        self._directories.open_root()
        try:
            for path, _, names in os.walk(self._root, topdown=False):
                if self._access is Access.SHARED or not self._clean(path, names):
                    with suppress(FileNotFoundError):
                        sync_directory(path)
            check_writable(self._root)
        except OSError as error:
            raise explain(error, "write to the directory", self._root, self._other) from error

    def _open_for_reading(self) -> None:
        try:
            with suppress(FileNotFoundError):
                # If permission is missing, the error of this call has the reason.
                os.scandir(self._root).close()
        except OSError as error:
            raise explain(error, "read the directory", self._root, self._other) from error

    def _clean(self, path: str, names: list[str]) -> bool:
        """Remove leftovers of unfinished puts. True if the directory itself is gone."""
        for name in names:
            if name.startswith(INCOMING):
                # A job of the gateway before may still be putting.
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(path, name))
        if Path(path) == self._root:
            return False
        with suppress(OSError):
            os.rmdir(path)
            return True
        return False

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self._check_writes()
        path = self._root / key
        incoming = path.with_name(f"{INCOMING}{os.urandom(12).hex()}")
        try:
            self._put_again(path, incoming, parts)
        except FileExistsError as error:
            self._refuse_existing(key, path, incoming, error)
        except OSError as error:
            self._discard(incoming)
            if error.errno in (errno.ENOTDIR, errno.EISDIR):
                raise ValueError(f"blob key {key!r} is below another key") from error
            raise explain(error, "write the blob", path, self._other) from error
        self._discard(incoming)
        self._sync(path.parent, key)

    def _put_again(self, path: Path, incoming: Path, parts: Sequence[Buffer]) -> None:
        for _ in range(MAX_CLEANED):
            try:
                return self._put(path, incoming, parts)
            except FileNotFoundError:
                # Another process has cleaned the directory, or removed it while it was empty.
                self._directories.forget(path.parent)
        self._put(path, incoming, parts)

    def _put(self, path: Path, incoming: Path, parts: Sequence[Buffer]) -> None:
        self._directories.ensure(path.parent)
        self._write_synced(incoming, parts)
        # Unlike a rename, a link never replaces an existing file.
        os.link(incoming, path)

    def get(self, key: str, start: int, size: int | None) -> bytes:
        path = self._root / key
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                length = os.fstat(fd).st_size
                end = length if size is None else start + size
                data = read_at(fd, start, end - start) if 0 <= start <= end <= length else None
            finally:
                os.close(fd)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"there is no blob {path}") from error
        except OSError as error:
            raise explain(error, "read the blob", path, self._other) from error
        if data is None or len(data) != end - start:
            raise NotFound(f"blob {path} has {length} bytes, no range from {start} to {end}")
        return data

    def list(self, prefix: str, after: str, limit: int) -> list[BlobInfo]:
        try:
            return list(islice(self._walk(self._root, "", prefix, after), max(limit, 0)))
        except OSError as error:
            raise explain(error, "list the blobs in", self._root, self._other) from error

    def delete(self, keys: Sequence[str]) -> None:
        self._check_writes()
        delete_files([self._root / key for key in keys], "blob", self._other)

    def _check_writes(self) -> None:
        if self._access is Access.READ_ONLY:
            raise StoreUnavailable(f"the blobs in {self._root} are only read here")

    def _write_synced(self, path: Path, parts: Sequence[Buffer]) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            give_to_owner(fd, path.parent)
            write_all(fd, parts)
            sync_data(fd)
        finally:
            os.close(fd)

    def _refuse_existing(self, key: str, path: Path, incoming: Path, error: OSError) -> NoReturn:
        self._discard(incoming)
        if path.is_dir():
            raise ValueError(f"blob key {key!r} is above another key") from error
        # The process that put it may not have synced it yet, and the caller will rely on the blob.
        self._sync(path.parent, key)
        raise AlreadyExists(f"blob {path} is there already") from error

    def _discard(self, incoming: Path) -> None:
        with suppress(OSError):
            incoming.unlink()

    def _sync(self, directory: Path, key: str) -> None:
        try:
            sync_directory(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise OutcomeUnknown(
                f"{explain(error, 'sync the directory', directory, self._other)} ({key})"
            ) from error

    def _walk(self, directory: Path, base: str, prefix: str, after: str) -> Iterator[BlobInfo]:
        """Blobs in the order of their keys: a directory sorts as its name followed by `/`."""
        entries: list[tuple[str, os.DirEntry[str]]] = []
        with suppress(FileNotFoundError), os.scandir(directory) as scan:
            for entry in scan:
                name = f"{base}{entry.name}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
                if not entry.name.startswith("."):
                    entries.append((name, entry))
                elif self._access is not Access.READ_ONLY and entry.name.startswith(INCOMING):
                    self._leftovers.saw(entry.path)
        for name, entry in sorted(entries, key=lambda pair: pair[0]):
            if not name.endswith("/"):
                if name.startswith(prefix) and name > after:
                    with suppress(FileNotFoundError):
                        yield BlobInfo(name, entry.stat(follow_symlinks=False).st_size)
            elif _may_hold(name, prefix, after):
                yield from self._walk(directory / entry.name, name, prefix, after)


class _Leftovers:
    """Unfinished puts of processes that may have been killed: listings find them, and see them again."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def saw(self, path: str) -> None:
        """Remove it, if it was seen long ago."""
        now_s = monotonic()
        seen_s = self._seen.get(path)
        if seen_s is None:
            self._note(path, now_s)
        elif now_s - seen_s >= LEFTOVER_S:
            self._seen.pop(path, None)
            with suppress(OSError):
                os.unlink(path)

    def _note(self, path: str, now_s: float) -> None:
        if len(self._seen) >= MAX_LEFTOVERS:
            # Most were puts under way, and are over.
            known = list(self._seen.items())
            self._seen = {name: at_s for name, at_s in known if now_s - at_s < 2 * LEFTOVER_S}
        if len(self._seen) < MAX_LEFTOVERS:
            self._seen[path] = now_s


def _may_hold(directory: str, prefix: str, after: str) -> bool:
    under_prefix = directory.startswith(prefix) or prefix.startswith(directory)
    return under_prefix and (directory > after or after.startswith(directory))
