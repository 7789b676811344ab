"""Free space on the disks that this gateway writes to, and the reserve that Produce may not use.

A journal that cannot grow can free nothing: deletions are journaled too. So records are refused while there
is still space for deletions. A thread measures the disks, a few times a second at most; in between the bytes
of drafts are counted.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreUnavailable

log = structlog.get_logger(__name__)

MIB: Final = 1024 * 1024
BY_DEFAULT: Final = -1
"""Of `reserve_bytes`: the smaller of MAX_RESERVE_BYTES and a share of the file system."""
MAX_RESERVE_BYTES: Final = 64 * MIB
RESERVE_SHARE: Final = 20
PERIOD_S: Final = 0.5
MIN_PERIOD_S: Final = 0.1
LOG_PERIOD_S: Final = 60.0
MAX_FAILED_MEASUREMENTS: Final = 20
"""In a row, during which a disk counts as it was measured last. After that a write to it fails with the
reason."""
DRAFT_OVERHEAD_BYTES: Final = 16 * 1024
"""What one draft writes besides its batches: mainly pages of the journal."""


class DiskFull(StoreUnavailable):
    """A draft would use the reserve; nothing was written."""


@dataclass(slots=True)
class _Measurement:
    """The last successful one of a file system."""

    disk: "Disk"
    written: int
    """Bytes of drafts whose writing had ended by then."""
    failed: int = 0
    """Failed attempts since."""


class MadeAhead(NamedTuple):
    """Files that were made ahead for the journal and its records, in `directory`; `size()`: bytes of them
    that nothing uses yet. For any thread."""

    directory: Path
    size: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Disk:
    """One file system as it was measured."""

    directory: Path
    free_bytes: int
    reserve_bytes: int
    ahead_bytes: int = 0
    """Made ahead for the journal and its records: they take these bytes before free ones."""

    @property
    def spare_bytes(self) -> int:
        """What records may use. Half of the reserve is free: the snapshot that has to pass entries before the
        bytes of deleted records are free, and the image, are not written to what was made ahead."""
        return min(
            self.free_bytes + self.ahead_bytes - self.reserve_bytes, self.free_bytes - self.reserve_bytes // 2
        )


class FreeSpace:
    """For the event loop, except for the thread that measures."""

    def __init__(
        self,
        directories: Sequence[Path],
        reserve_bytes: int = BY_DEFAULT,
        statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
        ahead: MadeAhead | None = None,
    ) -> None:
        """Without `directories`, or with a reserve of 0, nothing is ever refused."""
        self._ahead = ahead
        self._directories = directories if reserve_bytes else ()
        self._reserve_bytes = reserve_bytes
        self._statvfs = statvfs
        self.least: Disk | None = None
        """The disk with the least spare bytes, as last measured."""
        self.refusal = ""
        """Why records are refused at the moment; empty if they are not."""
        self.store_refusal = ""
        """Why none are taken whatever the disks have: the journal's store is nearly full."""
        self.refused = 0
        """Batches refused."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `refusal` or `is_critical` may have changed."""
        self._taken = 0
        self._measured_taken = 0
        self._in_flight = 0
        self._measured_in_flight = 0
        self._measurements: dict[Path, _Measurement] = {}
        """For the thread that measures."""
        self._wanted = 0
        """The size of a draft that did not fit: smaller ones must not use the space that is being freed for
        it."""
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._quiet = QuietLog(LOG_PERIOD_S, keyed_by=("directory",))

    @property
    def is_full(self) -> bool:
        return bool(self.refusal)

    @property
    def free_bytes(self) -> int | None:
        """On the disk with the least spare bytes, as last measured."""
        return self.least.free_bytes if self.least is not None else None

    @property
    def is_critical(self) -> bool:
        """Half of the reserve is used: what is left is for deletions."""
        least = self.least
        return least is not None and least.free_bytes + least.ahead_bytes < least.reserve_bytes // 2

    def spares(self, size_bytes: int) -> bool:
        """Whether `size_bytes` may be written besides records. While the disk is full, the half of the
        reserve that is for deletions must be left."""
        least = self.least
        if not self.is_full or least is None:
            return True
        left = least.free_bytes - size_bytes
        return left > 0 and left + least.ahead_bytes > least.reserve_bytes // 2

    def ahead_in(self, directory: Path) -> int:
        """Bytes that were made ahead for the journal on the disk of this directory, and are not used yet."""
        ahead = self._ahead
        return ahead.size() if ahead is not None and _is_one_disk(directory, ahead.directory) else 0

    def start(self) -> None:
        """Measure once, and from now on in a thread: a file system that hangs must not stop the event
        loop."""
        self.measure()
        if self._directories:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._watch, args=(loop,), name="free-space", daemon=True).start()

    def close(self) -> None:
        self._stopped.set()
        self._wake.set()

    def measure(self) -> None:
        """Blocking."""
        self._on_measured(*self._measure())

    @contextmanager
    def writing(self, batch_bytes: int) -> Iterator[None]:
        """Around the writing of a draft. DiskFull, before anything is written, if it does not fit."""
        size = self.begin_writing(batch_bytes)
        try:
            yield
        finally:
            self.end_writing(size)

    def begin_writing(self, batch_bytes: int) -> int:
        """The same, for a caller that ends it by `end_writing` with what this returns."""
        if self.store_refusal:
            raise DiskFull(self.store_refusal)
        size = batch_bytes + DRAFT_OVERHEAD_BYTES
        if self.least is not None and size > self._spare_bytes():
            self._wanted = min(size, self.least.reserve_bytes)
            self._refuse(self.least)
            self._wake.set()
            raise DiskFull(self.refusal)
        self._taken += size
        self._in_flight += size
        return size

    def end_writing(self, size: int) -> None:
        self._in_flight -= size

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped.is_set():
            self._wake.wait(PERIOD_S)
            self._wake.clear()
            measured = self._measure()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._on_measured, *measured)
            self._stopped.wait(MIN_PERIOD_S)

    def _measure(self) -> tuple[list[Disk], int, int]:
        # In this order, a draft that begins in between is counted twice for a moment, but never left out.
        taken = self._taken
        in_flight = self._in_flight
        disks = [self._measure_disk(directory, taken - in_flight) for directory in self._directories]
        return [disk for disk in disks if disk is not None], taken, in_flight

    def _measure_disk(self, directory: Path, written: int) -> Disk | None:
        try:
            status = self._statvfs(directory)
        except OSError:
            return self._last_measured(directory, written)
        free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
        disk = Disk(directory, free, self._reserve_of(total), self.ahead_in(directory))
        self._measurements[directory] = _Measurement(disk, written)
        return disk

    def _last_measured(self, directory: Path, written: int) -> Disk | None:
        """The last measurement, less the bytes written since; None once that was too long ago."""
        measurement = self._measurements.get(directory)
        if measurement is None:
            return None
        measurement.failed += 1
        if measurement.failed > MAX_FAILED_MEASUREMENTS:
            del self._measurements[directory]
            return None
        return replace(
            measurement.disk, free_bytes=measurement.disk.free_bytes - (written - measurement.written)
        )

    def _on_measured(self, disks: Sequence[Disk], taken: int, in_flight: int) -> None:
        self._measured_taken, self._measured_in_flight = taken, in_flight
        self.least = min(disks, key=lambda disk: disk.spare_bytes, default=None)
        if self.least is None:
            if self.is_full:
                log.warning("disk.not_seen", effect="records are taken until a write fails")
                self._accept_again()
            self.on_change()
            return
        # Hysteresis: somewhat more than the reserve must be free before records are accepted again.
        needed = max(self.least.reserve_bytes // 4, self._wanted) if self.is_full else 0
        if self._spare_bytes() <= needed:
            self._refuse(self.least)
        elif self.is_full:
            log.info("disk.space_again", directory=str(self.least.directory), free=self.least.free_bytes)
            self._accept_again()
        self.on_change()

    def _accept_again(self) -> None:
        self.refusal = ""
        self._wanted = 0

    def _spare_bytes(self) -> int:
        assert self.least is not None
        return self.least.spare_bytes - (self._taken - self._measured_taken) - self._measured_in_flight

    def _refuse(self, disk: Disk) -> None:
        free_bytes = disk.reserve_bytes + disk.spare_bytes
        self.refusal = (
            f"{free_bytes} bytes are free in {disk.directory}, and "
            f"{disk.reserve_bytes} are kept for "
            "deletions (storage.reserve_bytes): delete topics or records, or give it more space"
        )
        self._quiet.error(
            "disk.full",
            directory=str(disk.directory),
            free=free_bytes,
            reserve=disk.reserve_bytes,
            refused_batches=self.refused,
            effect="no records are taken",
            setting="storage.reserve_bytes",
        )

    def _reserve_of(self, total_bytes: int) -> int:
        if self._reserve_bytes == BY_DEFAULT:
            return min(MAX_RESERVE_BYTES, total_bytes // RESERVE_SHARE)
        return self._reserve_bytes


def _is_one_disk(directory: Path, other: Path) -> bool:
    try:
        return directory == other or directory.stat().st_dev == other.stat().st_dev
    except OSError:
        return False
