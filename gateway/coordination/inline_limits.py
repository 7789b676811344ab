"""Which drafts travel inside of journal entries (sans-I/O): small ones, while the metadata store can bear it.

Each byte inside of an entry is in the metadata store until it was moved into an object and the journal was
pruned. So their rate is bounded, and how many of them wait to be moved; and a store with a quota keeps most
of it for entries.
"""

from collections.abc import Callable
from typing import Final

from ledger.formats.wal import ENTRY_BYTES

QUOTA_SHARE: Final = 0.4
"""Of a quota: with more in use drafts go into objects."""
STUCK_SHARE: Final = 0.6
"""With more in use, nothing is taken while what is inside of entries, which holds the journal, cannot be
moved."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""With more inside of entries, drafts go into objects until some of it was moved."""

RESUMED_SHARE: Final = 0.5
"""After the rate was exceeded drafts go into objects until this part of a second's bytes may be appended: a
draft waits for the one before, so one object among many entries would make all of them as slow as objects."""


class InlineLimits:
    """The rule of one journal (`adapters.journals.inline.InlineRule`)."""

    def __init__(
        self,
        draft_bytes: int,
        bytes_per_second: int,
        loop_time: Callable[[], float],
        *,
        held_bytes: Callable[[], int],
        quota_share: Callable[[], float],
    ) -> None:
        """`draft_bytes`: of the largest draft that travels in an entry. `held_bytes`: inside of entries by
        now. `quota_share`: of the quota of the metadata store, what is used; 0 without one."""
        self._draft_bytes = draft_bytes
        self._rate = bytes_per_second
        self._loop_time = loop_time
        self._held_bytes = held_bytes
        self._quota_share = quota_share
        self._left = float(bytes_per_second)
        """Bytes that may be appended now: what a second allows, at most."""
        self._counted_at = loop_time()
        self._is_over = False
        """Whether the rate was exceeded, and not enough may be appended again."""
        self.total_bytes = 0
        self.total_drafts = 0
        """Since the process began."""

    def takes(self, batches: int, size: int) -> bool:
        """As `Journal.takes`."""
        needed = size + batches * ENTRY_BYTES
        if needed > self._draft_bytes or not self._is_within_rate(needed):
            return False
        return self._quota_share() < QUOTA_SHARE and self._held_bytes() + needed <= HELD_BYTES

    def _is_within_rate(self, needed: int) -> bool:
        available = self._available()
        self._is_over = needed > available or (self._is_over and available < self._rate * RESUMED_SHARE)
        return not self._is_over

    def appended(self, size: int) -> None:
        self._left = self._available() - size
        self.total_bytes += size
        self.total_drafts += 1

    def _available(self) -> float:
        now = self._loop_time()
        grown = self._left + (now - self._counted_at) * self._rate
        self._left, self._counted_at = min(grown, float(self._rate)), now
        return self._left
