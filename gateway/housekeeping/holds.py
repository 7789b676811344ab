"""Keeps garbage that backups need: what holds name, or everything while an operator copies the data."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from gateway.coordination.holds import Hold, holds_in
from gateway.housekeeping.parts import in_parts
from gateway.telemetry.logs import QuietLog
from ledger.objects.state import ObjectState
from ledger.ports import Blobs

quiet = QuietLog(3600.0)
log = structlog.get_logger(__name__)

SLICE_OBJECTS: Final = 2_000
"""After so many objects other tasks run."""
MAX_COPY_MS: Final = 24 * 3_600_000
"""For so long the file `backup-open` is believed: one that was forgotten must not fill the disk."""


class BackupHolds:
    """The holds of one shard. They are listed before anything is deleted: they are made and released by
    commands, also while no gateway runs."""

    def __init__(self, blobs: Blobs, shard: int, now_ms: Callable[[], int]) -> None:
        """`now_ms` is not ahead of the true time, as far as can be known."""
        self._blobs = blobs
        self._shard = shard
        self._now_ms = now_ms
        self.kept_objects = self.kept_bytes = 0
        """What the last sweep has left because of holds."""

    async def released(self, due: Sequence[ObjectState], *, is_disk_full: bool) -> Sequence[ObjectState]:
        """Those of the due garbage that no backup needs. Holds that are over are deleted."""
        if not due:
            self.kept_objects = self.kept_bytes = 0
            return due
        holds = await self._living()
        released: list[ObjectState] = []
        kept_bytes = 0
        async for part in in_parts(due, SLICE_OBJECTS):
            free = [one for one in part if not any(hold.keeps(one.number, one.closed_ms) for hold in holds)]
            released += free
            kept_bytes += sum(stored.size for stored in part) - sum(stored.size for stored in free)
        self.kept_objects, self.kept_bytes = len(due) - len(released), kept_bytes
        if self.kept_objects:
            self._say([hold.name for hold in holds], is_disk_full=is_disk_full)
        return released

    async def _living(self) -> Sequence[Hold]:
        now_ms = self._now_ms()
        found = await holds_in(self._blobs, self._shard)
        over = [hold for hold in found if hold.until_ms <= now_ms]
        if over:
            await self._blobs.delete([hold.key for hold in over])
            log.info("backup.holds_ended", holds=[hold.name for hold in over])
        return [hold for hold in found if hold.until_ms > now_ms]

    def _say(self, names: Sequence[str], *, is_disk_full: bool) -> None:
        fields = {"objects": self.kept_objects, "bytes": self.kept_bytes, "holds": list(names)}
        if is_disk_full:
            remedy = "dragoman ledger holds --release NAME frees it"
            quiet.warning("garbage.held_on_a_full_disk", remedy=remedy, **fields)
        else:
            quiet.info("garbage.held", **fields)


class BackupOpen:
    """The file by which an operator announces that the data of a running gateway is being copied."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        """`clock`: that of the host, ms."""
        self._path = path
        self._clock = clock

    def is_open(self) -> bool:
        """Whether nothing may be deleted. A file that is older than a day is ignored, with a warning."""
        try:
            age_ms = self._clock() - self._path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return False
        if age_ms <= MAX_COPY_MS:
            return True
        quiet.warning(
            "backup_open.ignored",
            file=str(self._path),
            age_ms=age_ms,
            remedy="remove the file; touch it if a copy of the data is still being made",
        )
        return False
