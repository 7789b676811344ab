"""When the stored objects are listed to find orphans, and from where on (sans-I/O).

A local store is listed whole at each sweep. Listing a far one costs requests. Its WAL objects are listed by
age: when the orphan floor has risen, from where the last scan has left nothing to delete. What jobs write
is listed by partition, so a scan of it is whole, and is made more seldom: orphans are what a job has left
that failed.
"""

import math
from collections.abc import Sequence, Set
from typing import Final

from ledger.keys import JOB_PREFIXES
from ledger.types import StoredObject

SCAN_S: Final = 600.0
"""How often a far store is listed while the floor stays."""
FULL_SCAN_S: Final = 24 * 3600.0
"""And how often all of its WAL objects: for what was uploaded longer than the grace."""
SEGMENTS_SCAN_S: Final = 3600.0
"""And what jobs write: 1,000 segments are two requests."""
MAX_ABOVE_FLOOR: Final = 2_000
"""Of WAL objects, so many above the floor are looked at: of a busy store they are those of an hour."""
AFTER_JOBS: Final = max(JOB_PREFIXES).replace("/", "0")
"""After the locators of what jobs write, and before those of WAL objects."""
TO_THE_END: Final = "\x7f"


class Scan:
    """One listing of the stored objects, and what it has found."""

    def __init__(
        self, after: str, floor_ms: int, max_above: float = math.inf, until: str = TO_THE_END
    ) -> None:
        self.after = after
        """The locator from which the next page goes on."""
        self.left = 0
        """Objects that no entry names and that were kept, and not for want of a deletion."""
        self.oldest_ms: int | None = None
        """The creation time of the oldest of these that is not below the floor."""
        self.is_over = False
        self.cleared = after
        """Up to here nothing is left to be deleted, and nothing will be."""
        self.is_of_jobs = until == AFTER_JOBS
        self._floor_ms = floor_ms
        self._may_see = max_above
        self._until = until
        self._is_cleared = True

    def part_of(self, page: Sequence[StoredObject]) -> Sequence[StoredObject]:
        """What of a page is in this scan."""
        if not page or page[-1].locator < self._until:
            return page
        self.is_over = True
        return [stored for stored in page if stored.locator < self._until]

    def saw(self, page: Sequence[StoredObject], kept: Sequence[StoredObject], failed: Set[str]) -> None:
        """Of a page that is not empty, those that are kept although no entry names them, and those that
        could not be deleted."""
        self.after = page[-1].locator
        self.left += len(kept)
        for stored in page:
            is_below = stored.created_ms < self._floor_ms
            self._is_cleared = self._is_cleared and is_below and stored.locator not in failed
            if self._is_cleared:
                self.cleared = stored.locator
            self._may_see -= not is_below
        above = [stored.created_ms for stored in kept if stored.created_ms >= self._floor_ms]
        self.oldest_ms = _older(self.oldest_ms, min(above, default=None))
        self.is_over |= self._may_see <= 0


class _Left:
    """What the last scan of what jobs write, or of all else, has left."""

    def __init__(self) -> None:
        self.count = 0
        self.oldest_ms: int | None = None


class OrphanScans:
    """Decides about the scans of one store."""

    def __init__(self, *, is_far: bool) -> None:
        self._is_far = is_far
        self.begin()

    def begin(self) -> None:
        """Nothing is known of what is stored."""
        self._left = {False: _Left(), True: _Left()}
        """By whether jobs write them, which in a local store has no scan of its own."""
        self._cleared = AFTER_JOBS
        self._floor_ms = -1
        self._scanned_s = self._whole_s = self._segments_s = -math.inf
        self._under_way: list[Scan] = []

    @property
    def oldest_ms(self) -> int | None:
        """The creation time of the oldest object above the floor that no entry names, at the last scans."""
        return _older(self._left[False].oldest_ms, self._left[True].oldest_ms)

    @property
    def left(self) -> int:
        """Objects that no entry names and that the last scans kept."""
        return self._left[False].count + self._left[True].count

    def scans(self, floor_ms: int, now_s: float) -> Sequence[Scan]:
        """Those that have begun and are not over, and those that are due. `now_s` is loop time."""
        if not self._is_far:
            self._under_way = self._under_way or [Scan("", floor_ms)]
        elif floor_ms > self._floor_ms or now_s - self._scanned_s >= SCAN_S:
            self._begin_far(floor_ms, now_s)
        return tuple(self._under_way)

    def _begin_far(self, floor_ms: int, now_s: float) -> None:
        """None begins while one of the same objects is under way."""
        self._floor_ms, self._scanned_s = floor_ms, now_s
        are_of_jobs = {scan.is_of_jobs for scan in self._under_way}
        if False not in are_of_jobs:
            if now_s - self._whole_s >= FULL_SCAN_S:
                self._whole_s, self._cleared = now_s, AFTER_JOBS
            self._under_way.append(Scan(self._cleared, floor_ms, MAX_ABOVE_FLOOR))
        oldest_ms = self._left[True].oldest_ms
        is_passed = oldest_ms is not None and oldest_ms < floor_ms
        if True not in are_of_jobs and (is_passed or now_s - self._segments_s >= SEGMENTS_SCAN_S):
            self._segments_s = now_s
            self._under_way.append(Scan("", floor_ms, until=AFTER_JOBS))

    def failed(self, scan: Scan) -> None:
        """It begins again when it is due: others are not kept from theirs."""
        self._under_way.remove(scan)

    def ended(self, scan: Scan) -> None:
        self._under_way.remove(scan)
        left = self._left[scan.is_of_jobs]
        left.count, left.oldest_ms = scan.left, scan.oldest_ms
        if not scan.is_of_jobs:
            self._cleared = scan.cleared


def _older(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)
