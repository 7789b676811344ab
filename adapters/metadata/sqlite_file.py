"""The SQLite file of a metadata store: WAL journal, synchronous=FULL, used by one thread.

Table `entry`: key, version, value. A version is `incarnation << 40 | counter`, where the incarnation in
table `store` grows by one at every open: no version is ever given twice, not even after a delete.
"""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from adapters.disk import FILE_MODE, check_writable, explain, sync_directory
from ledger.errors import (
    OutcomeUnknown,
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreTooNew,
    StoreUnavailable,
)
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, Unknown, Versioned, Won

FORMAT_VERSION = 1
CONTINUED_VERSION = 2
"""Of a store whose journal goes on elsewhere: a build that does not know where refuses it."""
APPLICATION_ID = 0x4447_4D31
COUNTER_BITS = 40
BUSY_TIMEOUT_S = 1.0
# A checkpoint runs within the put that crosses this many 4 KiB pages, so it must be a short one.
AUTOCHECKPOINT_PAGES = 1000
# The check reads the whole file; in a larger one, damage of pages shows where they are read.
CHECK_MAX_BYTES = 64 * 1024 * 1024

_SCHEMA = (
    "CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), incarnation INTEGER NOT NULL)",
    # The version is before the value, so that comparing it does not read a large value.
    "CREATE TABLE entry (key TEXT PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID",
    "INSERT INTO store VALUES (1, 0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)
_CREATE = "INSERT INTO entry VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
_REPLACE = "UPDATE entry SET version = ?, value = ? WHERE key = ? AND CAST(version AS TEXT) = ?"
_REASONS = {
    "SQLITE_FULL": "no space is left; free some or choose another place with --data-dir",
    "SQLITE_READONLY": "it is read-only; make it writable or choose another place with --data-dir",
    "SQLITE_IOERR": "the disk reports an I/O error; check it (dmesg) or choose another place with --data-dir",
    "SQLITE_CANTOPEN": "it cannot be opened; check the directory's permissions and the limit of open files",
    "SQLITE_NOMEM": "memory is used up; give this process more",
}


class SqliteFile:
    """Plain calls for one thread. Before COMMIT an error means no effect; in COMMIT it may be unknown."""

    def __init__(self, path: Path, *, may_be_continued: bool = False) -> None:
        """`may_be_continued`: the caller reads on where the journal goes on."""
        self._path = path
        self._may_be_continued = may_be_continued
        self._db: sqlite3.Connection | None = None
        self._version = 0
        self._is_unused = False
        """This open created the file, and nothing was ever put into it."""

    def open(self, *, thorough: bool = False) -> None:
        """Open or create the file, take it for this process, and make durable all that can be read.
        `thorough`: check its structure however large it is, also after a clean end."""
        check_openable(self._path)
        try:
            self._open(thorough)
        except BaseException as error:
            self._drop()
            if isinstance(error, sqlite3.Error):
                raise self._failure("open", error) from error
            if isinstance(error, OSError):
                raise explain(error, "open the metadata store", self._path) from error
            raise

    def get(self, key: str) -> Versioned | None:
        try:
            row = (
                self._connection()
                .execute("SELECT version, value FROM entry WHERE key = ?", (key,))
                .fetchone()
            )
        except sqlite3.Error as error:
            raise self._failure("read", error) from error
        return None if row is None else Versioned(row[1], str(row[0]))

    def scan(self, prefix: str, start: str, limit: int) -> list[tuple[str, Versioned]]:
        found: list[tuple[str, Versioned]] = []
        size = 0
        try:
            rows = self._connection().execute(
                "SELECT key, version, value FROM entry WHERE key >= ? ORDER BY key LIMIT ?",
                (max(prefix, start), max(limit, 0)),
            )
            for key, version, value in rows:
                if not key.startswith(prefix):
                    break
                found.append((key, Versioned(value, str(version))))
                size += len(value)
                if size >= SCAN_BYTES:
                    break
        except sqlite3.Error as error:
            raise self._failure("read", error) from error
        return found

    def last(self, prefix: str) -> tuple[str, Versioned] | None:
        """The last key with this prefix, which ends with a slash."""
        end = prefix[:-1] + chr(ord("/") + 1)
        try:
            row = (
                self._connection()
                .execute(
                    "SELECT key, version, value FROM entry WHERE key >= ? AND key < ? "
                    "ORDER BY key DESC LIMIT 1",
                    (prefix, end),
                )
                .fetchone()
            )
        except sqlite3.Error as error:
            raise self._failure("read", error) from error
        return None if row is None else (row[0], Versioned(row[2], str(row[1])))

    def mark_continued(self) -> None:
        """Durably: from now on it is opened only by what knows where the journal goes on."""
        try:
            self._connection().execute(f"PRAGMA user_version = {CONTINUED_VERSION}")
        except sqlite3.Error as error:
            raise self._failure("write to", error) from error

    def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        """Compare and set in one transaction, durable when Won."""
        version = self._version + 1
        db = self._connection()
        try:
            db.execute("BEGIN IMMEDIATE")
            if expect is None:
                put = db.execute(_CREATE, (key, version, value))
            else:
                put = db.execute(_REPLACE, (version, value, key, expect))
            if not put.rowcount:
                db.execute("ROLLBACK")
                return Lost()
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failure("write to", error) from error
        # Also a put of unknown outcome uses its version up.
        self._version = version
        self._is_unused = False
        try:
            self._commit()
        except OutcomeUnknown as error:
            return Unknown(str(error))
        return Won(str(version))

    def delete(self, keys: list[str]) -> None:
        db = self._connection()
        try:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM entry WHERE key = ?", [(key,) for key in keys])
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failure("delete from", error) from error
        self._commit()

    def close(self) -> None:
        """Also removes a file into which nothing was ever put: it would be taken for a ledger."""
        if not self._is_unused or self._db is None:
            return self._drop()
        # Before the locks are released, and the file itself last: afterwards another process may create
        # files of these names. SQLite unlinks nothing when it closes a file that is gone.
        for suffix in ("-wal", "-shm", ""):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
        self._drop()

    def _open(self, thorough: bool) -> None:
        unclean = self._wal.exists() and self._wal.stat().st_size > 0
        db = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._db = db
        # A second process that wrote here would break every promise of `exclusive`.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        is_new = self._check_format(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        # On macOS, whose fsync leaves bytes in the cache of the drive; without effect elsewhere.
        db.execute("PRAGMA fullfsync = 1")
        db.execute("PRAGMA checkpoint_fullfsync = 1")
        db.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        if not is_new:
            self._check_order(db)
        if thorough or (unclean and self._path.stat().st_size <= CHECK_MAX_BYTES):
            self._check_structure(db)
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA if is_new else ():
            db.execute(statement)
        (incarnation,) = db.execute("UPDATE store SET incarnation = incarnation + 1 RETURNING incarnation")
        db.execute("COMMIT")
        self._version = incarnation[0] << COUNTER_BITS
        self._is_unused = is_new
        # A process that was killed between write and fsync left commits that can be read but are not
        # durable, and later entries depend on them: the checkpoint syncs the WAL, then the file. The WAL is
        # not cut off: of a file that is being cut, a loss of power may leave the first frames alone, whose
        # older pages would hide those of the database.
        db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        sync_directory(self._path.parent)

    @property
    def _wal(self) -> Path:
        return self._path.with_name(self._path.name + "-wal")

    def _check_format(self, db: sqlite3.Connection) -> bool:
        """True if the file is still empty."""
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not application and not tables:
            return True
        if application != APPLICATION_ID:
            raise StoreDamaged(
                f"the metadata store {self._path} is a database of another program; choose another file"
            )
        if version > CONTINUED_VERSION:
            raise StoreTooNew(
                f"the metadata store {self._path} has format version {version}, this build knows up to "
                f"{CONTINUED_VERSION}; start it with the version of Dragoman that wrote it"
            )
        if version == CONTINUED_VERSION and not self._may_be_continued:
            raise StoreUnavailable(
                f"the journal in {self._path} goes on in the local log next to it: name its directory with "
                f"--metadata file:{self._path.parent}"
            )
        return False

    def _check_order(self, db: sqlite3.Connection) -> None:
        """Compare the keys in stored order. A key that was changed by damage is mostly out of order, and then
        a search for a later key may fail."""
        last = b""
        for (key,) in db.execute("SELECT CAST(key AS BLOB) FROM entry"):
            if key <= last:
                raise StoreDamaged(
                    self._damaged(f"the key {_shown(key)} is after {_shown(last)}, so one of them is wrong")
                )
            last = key

    def _check_structure(self, db: sqlite3.Connection) -> None:
        # Unlike quick_check it also finds rows that are not in the order of their keys.
        (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise StoreDamaged(self._damaged(verdict))

    def _commit(self) -> None:
        """StoreUnavailable if nothing can have been committed, OutcomeUnknown if something may have."""
        try:
            self._connection().execute("COMMIT")
        except sqlite3.Error as error:
            rolled_back = self._roll_back()
            failure = self._failure("commit to", error)
            # Out of space is a failed write, before the frame that seals the transaction was whole. Any
            # other error may be one of the sync after it, and a restart may find the sealing frame.
            if rolled_back and primary_code(error) == "SQLITE_FULL":
                raise failure from error
            raise OutcomeUnknown(str(failure)) from error

    def _roll_back(self) -> bool:
        with suppress(sqlite3.Error):
            db = self._connection()
            if db.in_transaction:
                db.execute("ROLLBACK")
            return True
        return False

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreUnavailable(f"the metadata store {self._path} is closed")
        return self._db

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _failure(self, tried: str, error: sqlite3.Error) -> StoreError:
        code = primary_code(error)
        if code in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return StoreDamaged(self._damaged(str(error)))
        if code in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return StoreLocked(f"the metadata store {self._path} is held by another process; stop that one")
        reason = _REASONS.get(code) or f"{error} ({code})"
        return StoreUnavailable(f"cannot {tried} the metadata store {self._path}: {reason}")

    def _damaged(self, detail: str) -> str:
        return f"the metadata store {self._path} is damaged ({detail}); restore it from a backup"


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))


def primary_code(error: sqlite3.Error) -> str:
    """`SQLITE_IOERR` of an error named, say, SQLITE_IOERR_FSYNC; empty if Python's own."""
    return "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])


def check_openable(path: Path) -> None:
    """SQLite says only that it cannot open a file; this says why. StoreUnavailable."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if not path.exists():
            # Never opened when it is there: closing it would drop the locks of a process that has it open.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        else:
            check_writable(path)
            check_writable(path.parent)
    except OSError as error:
        raise explain(error, "open the metadata store", path) from error
