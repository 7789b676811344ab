"""The image: the durable state written behind into a SQLite file, for a fast restart.

Rows and the number of the last applied entry change in one transaction. The file may be deleted at any
time; a damaged or foreign one is put aside and the journal read instead.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from ledger.image import META, Row

log = structlog.get_logger(__name__)
Result = TypeVar("Result")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    section INTEGER, key BLOB, value BLOB, PRIMARY KEY (section, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY CHECK (id = 0), nonce BLOB);
"""
_UPSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM rows WHERE section = ? AND key = ?"


class ImageFile:
    """One SQLite file and the thread that alone uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="image")
        self._db: sqlite3.Connection | None = None

    async def load(self) -> tuple[list[Row], bytes] | None:
        """(rows, nonce of the last applied entry), or None if there is no usable image."""
        return await self._call(self._load)

    async def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        """Bring the image up to the entry with this nonce. sqlite3.Error if that fails."""
        await self._call(lambda: self._write(rows, nonce))

    async def clear(self) -> None:
        """Begin an empty image, whatever was there."""
        await self._call(self._clear)

    async def rows(self) -> tuple[list[Row], bytes]:
        """What the image holds now."""
        return await self._call(self._rows)

    async def close(self) -> None:
        await self._call(self._close)
        self._thread.shutdown(wait=True)

    async def _call(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
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
            log.warning("image.unreadable", path=str(self.path), error=str(error))
            return None
        return (rows, nonce) if any(row.section == META for row in rows) else None

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
        self._close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._open()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
