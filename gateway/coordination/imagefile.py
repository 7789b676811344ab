"""The image: the durable state written behind into a SQLite file, for a fast restart.

Rows and the number of the last applied entry change in one transaction. The file may be deleted at any
time; a damaged or foreign one is put aside and the journal read instead.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from typing import Any, Final, Generic, TypeVar

import structlog

from gateway.datadir import FILE_MODE
from ledger.errors import StoreDamaged
from ledger.image import Row

log = structlog.get_logger(__name__)
Result = TypeVar("Result")

DEADLINE_S: Final = 300.0
"""For reading or writing an image of any size."""
CLOSE_DEADLINE_S: Final = 5.0
MOST_CALLS: Final = 16
"""That wait for the thread: of those that were cancelled too, which the disk still has to do."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    section INTEGER, key BLOB, value BLOB, PRIMARY KEY (section, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY CHECK (id = 0), nonce BLOB);
"""
_UPSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM rows WHERE section = ? AND key = ?"


class ImageOverdue(sqlite3.OperationalError):
    """The disk below the image hangs: what was asked for did not end in time, and may yet have its effect."""


class _Call(Generic[Result]):
    """What the thread is asked for."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[Result] = self._loop.create_future()
        self.is_over = False

    def run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, result)

    def _tell(self, settle: Callable[[Any], None], outcome: object) -> None:
        self.is_over = True
        try:
            self._loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            # The loop has ended, and with it whoever asked.
            return

    def _succeed(self, result: Result) -> None:
        if not self.answered.done():
            self.answered.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


class ImageFile:
    """One SQLite file and the thread that alone uses it. Every call may raise ImageOverdue."""

    def __init__(self, path: Path, deadline_s: float = DEADLINE_S) -> None:
        self.path = path
        self._deadline_s = deadline_s
        self._calls: Queue[_Call[Any] | None] = Queue(MOST_CALLS)
        self._thread: threading.Thread | None = None
        self._overdue: _Call[Any] | None = None
        self._db: sqlite3.Connection | None = None

    async def load(self) -> tuple[list[Row], bytes] | None:
        """(rows, nonce of the last applied entry), or None if there is no image. StoreDamaged if it cannot be
        read."""
        return await self._call(self._load)

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        """Bring the image up to the entry with this nonce. sqlite3.Error if that fails."""
        await self._call(lambda: self._write(rows, nonce))

    async def clear(self) -> None:
        """Begin an empty image, whatever was there."""
        await self._call(self._clear)

    async def remove(self) -> None:
        """There is no image any more, until one is written."""
        await self._call(self._remove)

    async def rows(self) -> tuple[list[Row], bytes]:
        """What the image holds now."""
        return await self._call(self._rows)

    async def close(self) -> None:
        """Idempotent. With a disk that hangs the file stays open until the process ends."""
        if self._thread is None:
            return
        try:
            await self._call(self._close, CLOSE_DEADLINE_S)
        except ImageOverdue as error:
            log.warning("image.not_closed", path=str(self.path), error=str(error))
        self._thread = None
        with suppress(Full):  # Else the disk hangs, and the thread ends with the process.
            self._calls.put_nowait(None)

    async def _call(self, function: Callable[[], Result], deadline_s: float | None = None) -> Result:
        if self._overdue is not None and not self._overdue.is_over:
            raise ImageOverdue(f"{self.path}: the disk has not yet done what it was asked for before")
        if self._thread is None:
            # A daemon: a disk that hangs for ever must not keep the process from ending.
            self._thread = threading.Thread(target=_serve, args=(self._calls,), name="image", daemon=True)
            self._thread.start()
        call = _Call(function)
        try:
            self._calls.put_nowait(call)
        except Full as error:
            raise ImageOverdue(f"{self.path}: too many calls wait for the disk") from error
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        try:
            async with asyncio.timeout(limit_s):
                return await call.answered
        except TimeoutError as error:
            self._overdue = call
            raise ImageOverdue(f"{self.path}: the disk did not answer within {limit_s:g} s") from error

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            # SQLite gives its other files the mode of this one.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # A power cut may take the newest transactions, never part of one: the journal fills the gap.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        return self._db

    def _load(self) -> tuple[list[Row], bytes] | None:
        if not self.path.exists():
            return None
        try:
            rows, nonce = self._rows()
        except (sqlite3.Error, TypeError) as error:
            raise StoreDamaged(f"the image {self.path} cannot be read: {error}") from error
        return (rows, nonce) if rows else None

    def _rows(self) -> tuple[list[Row], bytes]:
        db = self._open()
        db.execute("BEGIN")
        try:
            rows = [Row(*row) for row in db.execute("SELECT section, key, value FROM rows")]
            found = db.execute("SELECT nonce FROM head").fetchone()
        finally:
            db.execute("COMMIT")
        return rows, bytes(found[0]) if found is not None else b""

    def _write(self, rows: Sequence[Row], nonce: bytes) -> None:
        db = self._open()
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

    def _clear(self) -> None:
        self._remove()
        self._open()

    def _remove(self) -> None:
        self._close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _serve(calls: "Queue[_Call[Any] | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
        # Waiting for the next one holds on to nothing of this one.
        del call
