"""When the next snapshot is due: by journal bytes and entries since the last one, by the time in which a
start would read them, and by the quota of the metadata store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.coordination.store_quota import NO_QUOTA, Quota
from ledger.read_back import ReadBack

READ_BACK_S: Final = 5.0
"""A start reads the journal after the newest snapshot in about this time."""
MIN_ENTRIES: Final = 256
"""Before that many entries no reading is so slow that a snapshot would be cheaper than to keep them."""
SHARE_OF_TIME: Final = 10
"""A snapshot that is due for the time of reading, or early, waits for this many times what the last one took:
a large state over a slow store is not written all the time."""
SHARE_OF_QUOTA: Final = 8
SHARE_OF_FULL_QUOTA: Final = 64
"""Of the quota, once most of it is used."""


@dataclass(slots=True)
class SnapshotRule:
    """A restart still counts the entries since the last snapshot, and the bytes of those that it reads."""

    journal_bytes: int
    entries: int = 200_000
    last_applied: int = 0
    last_journal_bytes: int = 0
    last_size: int = 0
    read_back: ReadBack | None = None
    """How fast this journal is read; None: as fast as needed."""
    quota: Callable[[], Quota] = lambda: NO_QUOTA
    _next_at: float = float("-inf")
    """Loop time before which no snapshot is made early."""

    def found(self, applied: int, size: int) -> None:
        """The newest snapshot, by an earlier owner. None: zeros."""
        self.last_applied, self.last_size = applied, size

    def taken(self, applied: int, journal_bytes: int, size: int, began: float, ended: float) -> None:
        """One was made, from and to a loop time."""
        self.last_applied, self.last_journal_bytes, self.last_size = applied, journal_bytes, size
        self._next_at = ended + SHARE_OF_TIME * (ended - began)

    def is_due(self, applied: int, journal_bytes: int, now: float) -> bool:
        entries, grown = applied - self.last_applied, journal_bytes - self.last_journal_bytes
        if grown >= max(self.journal_bytes, self.last_size) or entries >= self.entries:
            return True
        return now >= self._next_at and (self._is_slow(entries, grown) or self._is_large(grown))

    def _is_slow(self, entries: int, grown: int) -> bool:
        if self.read_back is None or entries < MIN_ENTRIES:
            return False
        return self.read_back.estimated_s(entries, grown) >= READ_BACK_S

    def _is_large(self, grown: int) -> bool:
        quota = self.quota()
        share = SHARE_OF_FULL_QUOTA if quota.is_short else SHARE_OF_QUOTA
        return bool(quota.size_bytes) and grown * share >= quota.size_bytes
