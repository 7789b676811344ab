"""The timers of a group: sessions, member ids that were given out, and the two waits of a rebalance.

All of them are volatile: after a restart they begin again in full. Times are in ms on the machine's clock.
"""

from typing import Final

from gateway.groups.classic.members import NEVER, LiveMember, Roster

SCAN_INTERVAL_MS: Final = 50
"""Expired sessions are found by a scan of all members; one may be this late."""


class Timers:
    """What becomes due by itself, and when the group must be woken for it."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.wake_at: float = NEVER
        """Nothing is due before then."""
        self.joins_end: float = NEVER
        """When the group stops waiting for members to join."""
        self.syncs_end: float = NEVER
        """When the group stops waiting for members to sync."""

    def reset_session(self, member: LiveMember, now: float) -> None:
        member.session_expires_at = self.due(now + member.session_timeout_ms)

    def reset_sessions(self, now: float) -> None:
        """Of all members whose sessions run and that have received a generation."""
        for member in self._roster:
            if member.session_expires_at < NEVER and not member.is_new:
                self.reset_session(member, now)

    def await_joins(self, until: float) -> None:
        self.joins_end = self.due(until)

    def await_syncs(self, until: float) -> None:
        self.syncs_end = self.due(until)

    def due(self, at: float) -> float:
        """Wake the group no later than `at`, which is returned."""
        if at < self.wake_at:
            self.wake_at = at
        return at

    def expired_members(self, now: float) -> list[LiveMember]:
        """Members whose sessions have ended, the earliest first."""
        silent = [member for member in self._roster if member.session_expires_at <= now]
        return sorted(silent, key=lambda member: member.session_expires_at)

    def rearm(self, now: float) -> None:
        """Set `wake_at` again when all that was due by `now` is done."""
        session_end = min((member.session_expires_at for member in self._roster), default=NEVER)
        id_end = self._roster.pending.next_end
        # All members were scanned just now; a scan for each of very many would use the whole processor.
        scan_at = max(min(session_end, id_end), now + SCAN_INTERVAL_MS)
        self.wake_at = min(self.joins_end, self.syncs_end, scan_at)
