"""Opening a local log: one set of files, seen as a journal and as objects."""

import hashlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from adapters.local_log.files import LogDirectory
from adapters.local_log.journal import LocalLogJournal
from adapters.local_log.loop_writes import LoopWrites
from adapters.local_log.objects import READ_THREADS, LogFiles
from adapters.local_log.writer import LogWriter
from adapters.threads import DEADLINE_S, NewThreads, StoreThreads
from adapters.undelayed_clock import UndelayedClock
from ledger.formats.local_log import NO_BOOT
from ledger.formats.local_log_chain import LogBeginning

FILL_THREADS: Final = 1
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LocalLog:
    """The local log of one shard, open for writing. `journal` and `wal` share it, and are closed with it."""

    def __init__(self, writer: LogWriter, name: str, deadline_s: float, threads: NewThreads) -> None:
        """Nothing is opened yet."""
        self._writer = writer
        self._writing = threads(name, 1, deadline_s)
        self._reading = threads(name, READ_THREADS, deadline_s)
        self._filling = threads(name, FILL_THREADS, deadline_s)
        self._after: LogBeginning | None = None
        self.journal = LocalLogJournal(writer, self._writing, self._reading, self._filling)
        self.wal = LogFiles(writer, self._writing, self._reading)

    def open(self, after: LogBeginning | None) -> None:
        self._after = after
        self._writing.run_now(self._writer.open, after)

    @property
    def first_entry(self) -> int:
        """Of the oldest file with entries that are not pruned. What is before is elsewhere, if anywhere."""
        parts = self._writer.entries.parts
        if parts:
            return parts[0].first
        return self._after.number if self._after is not None else 0

    @property
    def end(self) -> int:
        """One past the last entry."""
        return self._writer.tail.number

    @property
    def ahead_bytes(self) -> int:
        """Space on the disk that is taken and not yet used: the log grows into it."""
        return self._writer.ahead_bytes

    def shut(self) -> None:
        """Close from plain code, before any call was made."""
        self._writer.close()
        for threads in (self._writing, self._reading, self._filling):
            threads.shut()

    async def close(self) -> None:
        await self.journal.close()
        await self._filling.close(lambda: None)
        await self._writing.close(self._writer.close)
        await self._reading.close(self.wal.close_files)


def boot_of(directory: Path) -> bytes:
    """Which start of the host this is, and which directory of which device, in 16 bytes; NO_BOOT where that
    is not known. So a copy of the files, or of the disk that they are on, is none of what was written here in
    this start: of it may be missing what a loss of power takes."""
    try:
        boot, there = uuid.UUID(BOOT_ID.read_text().strip()).bytes, directory.stat()
    except (OSError, ValueError):
        return NO_BOOT
    place = there.st_dev.to_bytes(8, "big") + there.st_ino.to_bytes(8, "big")
    return hashlib.blake2b(boot + place, digest_size=len(NO_BOOT)).digest()


def open_local_log(  # noqa: PLR0913 - what the disk and the world decide
    directory: str | os.PathLike[str],
    *,
    shard: int = 0,
    after: LogBeginning | None = None,
    roll_bytes: int | None = None,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    deadline_s: float = DEADLINE_S,
    random: Callable[[int], bytes] = os.urandom,
    threads: NewThreads = StoreThreads,
    boot: bytes | None = None,
    precise_s: Callable[[], float] | None = None,
) -> LocalLog:
    """The log in `directory`/log, made if it is not there and the parent of `directory` is.

    `after`: entries before its number are elsewhere; ignored where the log has a file. `roll_bytes`: of a
    file; None: what suits the disk. `clock`: unix ms. `boot`: which start of the host this is; None: as
    `boot_of` has it. `precise_s`: what writes are timed by; None: without waits for a processor. When it
    returns, all that can be read is durable.
    StoreUnavailable, StoreDamaged, StoreTooNew, and StoreLocked while another process has it open.
    """
    root = Path(directory)
    boot = boot_of(root) if boot is None else boot
    loop_writes = LoopWrites(precise_s or UndelayedClock())
    writer = LogWriter(LogDirectory(root, shard), roll_bytes, clock, random, boot, loop_writes)
    log = LocalLog(writer, f"the local log in {root}", deadline_s, threads)
    try:
        log.open(after)
    except BaseException:
        log.shut()
        raise
    return log
