"""The journal of a data directory in a local log, and before it the one that the directory had in SQLite.

A directory of format 1 has its journal in `metadata.db`. When it is opened with a log, the file is marked as
one that goes on elsewhere; the first file of the log names the entry after its last one, and its nonce; and
`metadata.db` is only read from then on, until a prune has passed all of it. Then the next opening removes it
(docs/decisions/0059). The caller has raised the format of the directory before, and holds its lock.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import structlog

from adapters.disk import explain, sync_directory
from adapters.journals.continued import ContinuedJournal
from adapters.journals.inline import InlineFrames
from adapters.journals.metadata import MetadataJournal, entry_prefix
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.inline_and_objects import InlineAndObjects
from adapters.segments.log_objects import LogAndReplaced, ReplacedLogs
from adapters.segments.wal_and_segments import LogFiles
from adapters.threads import NewThreads, StoreThreads
from ledger.errors import StoreDamaged
from ledger.formats.local_log import ID_BYTES
from ledger.formats.local_log_chain import LogBeginning
from ledger.journal import NONCE_BYTES, REMEDY, nonce_of
from ledger.ports import Journal, SegmentStore
from ledger.wrapped_journal import EntriesAlone

log = structlog.get_logger(__name__)

METADATA_FILE: Final = "metadata.db"
LOG_DIRECTORY: Final = "log"


class LogWithFiles(Protocol):
    """A local log as it is opened (`adapters/local_log/opening.py`)."""

    @property
    def journal(self) -> Journal: ...

    @property
    def wal(self) -> LogFiles:
        """It is closed with the log."""
        ...

    @property
    def first_entry(self) -> int:
        """Of the oldest file that is there; else where the log will begin."""
        ...

    @property
    def ahead_bytes(self) -> int: ...

    async def close(self) -> None: ...


OpenLog = Callable[..., LogWithFiles]


class LogDirectory:
    """What is open of it."""

    def __init__(
        self, journal: Journal, opened: LogWithFiles, files: LogFiles, older: SqliteMetadata | None
    ) -> None:
        self.journal = journal
        self.files = files
        """Of the log, and of a log that a restored journal has replaced. Close them apart."""
        self._log = opened
        self._older = older

    def with_older_batches(self, segments: SegmentStore) -> SegmentStore:
        """The same store, which also reads the batches inside of entries of the part before the log. Closed
        with `segments`."""
        if self._older is None:
            return segments
        return InlineAndObjects(segments, InlineFrames(self._older, self.journal.shard))

    @property
    def ahead_bytes(self) -> int:
        """Of its files, made ahead and not used yet: they count as free."""
        return self._log.ahead_bytes

    async def close(self) -> None:
        try:
            await self._log.close()
        finally:
            if self._older is not None:
                await self._older.close()


async def open_log_directory(  # noqa: PLR0913 - what the ledger, the disk and the world decide
    directory: Path,
    *,
    open_log: OpenLog,
    shard: int = 0,
    cluster_id: bytes = b"",
    takes_batches: bool = True,
    thorough: bool = False,
    random: Callable[[int], bytes] = os.urandom,
    threads: NewThreads = StoreThreads,
) -> LogDirectory:
    """Open or create the log in `directory`, which must exist. `cluster_id`: 16 bytes that name the ledger,
    if they are known. Without `takes_batches` entries alone go into the log: the records are elsewhere.
    `thorough`: after a check of the structure of `metadata.db`. StoreUnavailable, StoreDamaged, StoreTooNew,
    StoreLocked with one sentence for the operator."""
    older = _opened_older(directory, thorough=thorough, threads=threads)
    try:
        beginning = await _beginning_after(older, shard, cluster_id or bytes(ID_BYTES))
        opened = open_log(directory, shard=shard, after=beginning, random=random, threads=threads)
    except BaseException:
        if older is not None:
            await older.close()
        raise
    try:
        journal = opened.journal
        if older is not None and beginning is not None:
            path = directory / METADATA_FILE
            if await journal.start() >= opened.first_entry > 0:
                await _remove_older(older, path)
                older = None
            else:
                journal = _joined(older, opened, beginning, path)
        files = LogAndReplaced(opened.wal, ReplacedLogs(directory, threads=threads))
        return LogDirectory(journal if takes_batches else EntriesAlone(journal), opened, files, older)
    except BaseException:
        await opened.close()
        if older is not None:
            await older.close()
        raise


def has_log(directory: Path) -> bool:
    """Whether a journal is in a local log here, or was begun there."""
    return (directory / LOG_DIRECTORY).is_dir()


def _opened_older(directory: Path, *, thorough: bool, threads: NewThreads) -> SqliteMetadata | None:
    path = directory / METADATA_FILE
    if not path.exists():
        # Of a removal that was cut short.
        _remove(path)
        return None
    return SqliteMetadata(path, thorough=thorough, may_be_continued=True, threads=threads)


async def _beginning_after(
    older: SqliteMetadata | None, shard: int, cluster_id: bytes
) -> LogBeginning | None:
    """Where the log goes on. Marks the store before anything can be in the log."""
    if older is None:
        return None
    last = await older.last(entry_prefix(shard))
    start = await MetadataJournal(older, shard).start()
    if last is None and not start:
        return None
    await older.mark_continued()
    if last is None:
        return LogBeginning(start, bytes(NONCE_BYTES), cluster_id)
    key, found = last
    digits = key.removeprefix(entry_prefix(shard))
    if not digits.isdecimal():
        raise StoreDamaged(f"the journal has a key {key!r}, which is not that of an entry: {REMEDY}")
    return LogBeginning(int(digits) + 1, nonce_of(found.value), cluster_id)


def _joined(older: SqliteMetadata, opened: LogWithFiles, beginning: LogBeginning, path: Path) -> Journal:
    """The two parts as one journal. StoreDamaged if they are not of one."""
    first, journal = opened.first_entry, opened.journal
    if first != beginning.number:
        raise StoreDamaged(
            f"the journal in {path} ends before entry {beginning.number}, and the log next to it begins with "
            f"entry {first}: they are not of one journal; {REMEDY}"
        )
    return ContinuedJournal(MetadataJournal(older, journal.shard), journal, first)


async def _remove_older(older: SqliteMetadata, path: Path) -> None:
    """The log has all that is needed."""
    await older.close()
    await asyncio.to_thread(_remove, path)
    log.info("journal.older_part_removed", path=str(path))


def _remove(path: Path) -> None:
    """The database first: what is left without it is nothing that SQLite would read."""
    there = [found for end in ("", "-wal", "-shm") if (found := path.with_name(path.name + end)).exists()]
    try:
        for one in there:
            one.unlink(missing_ok=True)
        if there:
            sync_directory(path.parent)
    except OSError as error:
        raise explain(error, "remove", path) from error
