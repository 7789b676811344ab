"""An image in one SQLite file, reached through one thread of its own.

Rows and the nonce of the last applied entry change in one transaction. The file may be deleted at any time; a
damaged or foreign one is replaced, and the journal read instead.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import structlog

from adapters.disk import FILE_MODE, explain
from adapters.threads import NewThreads, Overdue, StoreThreads
from ledger.errors import OutcomeUnknown, StoreDamaged, StoreError, StoreUnavailable
from ledger.rows import Row

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger(__name__)

DEADLINE_S: Final = 300.0
"""For reading or writing an image of any size."""
CLOSE_DEADLINE_S: Final = 5.0
MAX_WAITING: Final = 16
"""Calls in the queue of the thread. Each may hold the rows of a whole image."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    section INTEGER, key BLOB, value BLOB, PRIMARY KEY (section, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY CHECK (id = 0), nonce BLOB);
"""
_UPSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM rows WHERE section = ? AND key = ?"


class SqliteImage:
    """An ImageStore in one file. While the disk hangs in a call that is overdue, further calls are refused at
    once."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        deadline_s: float = DEADLINE_S,
        threads: NewThreads = StoreThreads,
    ) -> None:
        """Nothing is opened before the first call."""
        self.location = os.fspath(path)
        self._file = ImageFile(Path(path))
        self._threads = threads(f"the image {self.location}", 1, deadline_s, MAX_WAITING)
        self._running: object | None = None
        """The call that the thread executes."""
        self._hung: object | None = None
        """The call that it executed when a deadline passed."""

    async def load(self) -> tuple[list[Row], bytes] | None:
        return await self._read(self._file.load)

    async def rows(self) -> tuple[list[Row], bytes]:
        return await self._read(self._file.rows)

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        await self._run(self._file.write, rows, nonce)

    async def clear(self) -> None:
        await self._run(self._file.clear)

    async def remove(self) -> None:
        await self._run(self._file.remove)

    async def close(self) -> None:
        """Idempotent. If the disk hangs, the file stays open until the process ends."""
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._threads.close(self._file.close)
        except TimeoutError:
            reason = f"the disk did not close it within {CLOSE_DEADLINE_S:g} s"
            log.warning("image.not_closed", path=self.location, error=reason)
        except StoreError as error:
            log.warning("image.not_closed", path=self.location, error=str(error))
        finally:
            self._threads.shut()

    async def _read(self, call: Callable[[], T]) -> T:
        try:
            return await self._run(call)
        except Overdue as error:
            raise StoreUnavailable(str(error)) from error

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._hung is not None and self._hung is self._running:
            raise StoreUnavailable(f"the image {self.location}: the disk has not yet ended an earlier call")
        try:
            return await self._threads.run(self._execute, partial(call, *args, **kwargs))
        except Overdue:
            self._hung = self._running
            raise

    def _execute(self, call: Callable[[], T]) -> T:
        """In the thread."""
        self._running = object()
        try:
            return call()
        finally:
            self._running = None


class ImageFile:
    """The blocking calls, for one thread. Each opens the file if it is not open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def load(self) -> tuple[list[Row], bytes] | None:
        if not self._path.exists():
            return None
        rows, nonce = self.rows()
        return (rows, nonce) if rows else None

    def rows(self) -> tuple[list[Row], bytes]:
        try:
            return self._select()
        except (sqlite3.Error, TypeError) as error:
            raise StoreDamaged(f"the image {self._path} cannot be read: {error}") from error

    def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        try:
            self._update(self._open(), rows, nonce)
        except sqlite3.Error as error:
            raise OutcomeUnknown(f"the image {self._path} cannot be written: {error}") from error

    def clear(self) -> None:
        self.remove()
        try:
            self._open()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the image {self._path} cannot be created: {error}") from error

    def remove(self) -> None:
        try:
            self.close()
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the image {self._path} cannot be closed: {error}") from error
        except OSError as error:
            raise explain(error, "remove the image", self._path) from error

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._create()
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # Loss of power may take the newest transactions, never part of one: the journal fills the gap.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        return self._db

    def _create(self) -> None:
        """Unless the file exists. SQLite gives its other files the mode of this one."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        except FileExistsError:
            return
        except OSError as error:
            raise explain(error, "create the image", self._path) from error

    def _select(self) -> tuple[list[Row], bytes]:
        db = self._open()
        db.execute("BEGIN")
        try:
            rows = [Row(*row) for row in db.execute("SELECT section, key, value FROM rows")]
            found = db.execute("SELECT nonce FROM head").fetchone()
        finally:
            db.execute("COMMIT")
        return rows, bytes(found[0]) if found is not None else b""

    def _update(self, db: sqlite3.Connection, rows: Sequence[Row], nonce: bytes) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany(_UPSERT, [row for row in rows if row.value is not None])
            db.executemany(_REMOVE, [row[:2] for row in rows if row.value is None])
            db.execute("INSERT OR REPLACE INTO head VALUES (0, ?)", (nonce,))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
