"""The clock of a gateway, which ignores jumps ahead, and a watch over the difference of clock and journal.

Entry times never go back. One entry that was written while the clock was far ahead would stop all ages that
are measured by entry times, until the clock gets there. Two rules prevent that. A jump of more than a day,
compared with the time since boot, is not believed, so it never reaches the journal; exceptions are a journal
that is already at that time when the gateway starts, and a clock from before any release of this program.
Where the journal is ahead nevertheless (the clock was wrong from the start), `Shard.now_ms` continues by the
time since boot.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.coordination.ledger import Ledger
from gateway.host import COUNTS_SUSPEND, Milliseconds, boot_ms, clock_ms

log = structlog.get_logger(__name__)

MAX_JUMP_MS: Final = 24 * 60 * 60 * 1000
RELEASED_MS: Final = 1_767_225_600_000
"""2026-01-01. A clock before this is plainly wrong, as on hosts that begin in 1970 until it is set: any other
time is better."""
TRUST_MS: Final = 60 * 60 * 1000
"""How long after the start a jump to the time of the journal is believed: a host sets its clock soon after
its boot. Later a jump is more likely an error, and so was the clock that wrote the journal; retention would
delete for good the records that both make look old."""
STEP_MS: Final = 60 * 60 * 1000
"""A jump ahead of more than this is believed, and counted (`gateway/coordination/time_hold.py`)."""
CHECK_MS: Final = 60_000
"""A clock that has moved less than this since it was checked has not jumped."""
LOG_PERIOD_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Jump:
    """The host's clock, and the time that is believed instead."""

    clock_ms: int
    believed_ms: int


class SteadyClock:
    """Unix ms. Follows the host's clock, except for a jump ahead of the time that was believed so far."""

    def __init__(self, wall: Milliseconds = clock_ms, boot: Milliseconds | None = None) -> None:
        """Without `boot`, on systems that do not count suspension, every jump is believed."""
        self._wall = wall
        self._boot = boot if boot is not None or not COUNTS_SUSPEND else boot_ms
        self.stepped_ms = 0
        """By how much the clock has jumped ahead and was believed, in jumps of more than STEP_MS."""
        self._checked_ms = wall()
        self._booted_ms = self._checked_ms - (self._boot() if self._boot is not None else 0)
        """The unix time of the boot, the latest that was believed: a clock that is set back and then right
        again does not jump."""
        self._trusted_ms = self._booted_ms
        """The same, by the time up to which a jump is believed in any case,"""
        self._trusted_until = 0
        """until this time since boot."""

    def trust(self, entry_time_ms: int) -> None:
        """For `TRUST_MS`, believe a jump to this time plus the time that has passed since this call: the
        journal is there already."""
        if self._boot is not None:
            boot = self._boot()
            self._trusted_ms = entry_time_ms - boot
            self._trusted_until = boot + TRUST_MS

    def __call__(self) -> int:
        wall = self._wall()
        # Called for each entry and for requests: mostly one reading of the clock and one comparison.
        return wall if 0 <= wall - self._checked_ms < CHECK_MS else self._checked(wall)

    @property
    def jump(self) -> Jump | None:
        """The jump that is not believed, while the host's clock stays there."""
        wall = self._wall()
        believed = self._checked(wall)
        return Jump(wall, believed) if wall != believed else None

    def _checked(self, wall: int) -> int:
        if self._boot is None:
            return wall
        boot = self._boot()
        believed = self._booted_ms + boot
        trusted = self._trusted_ms if boot <= self._trusted_until else self._booted_ms
        jumped = wall - boot - max(self._booted_ms, trusted) > MAX_JUMP_MS
        if jumped and believed >= RELEASED_MS:
            return believed
        step_ms = wall - boot - max(self._booted_ms, trusted)
        self.stepped_ms += step_ms if step_ms > STEP_MS else 0
        self._booted_ms = max(self._booted_ms, wall - boot)
        self._checked_ms = wall
        return wall


class ClockWatch:
    """Reports a difference of clock and ledger: a gauge, an alarm when it begins, and warnings for
    operators."""

    def __init__(
        self,
        shard: Ledger,
        clock: SteadyClock,
        grace_ms: int,
        alarm: Callable[[str], None],
        others: Sequence[Callable[[], Mapping[str, str]]] = (),
    ) -> None:
        """A ledger that is ahead by less than `grace_ms` is no reason for a warning: clocks are adjusted now
        and then. `others` are more warnings, each `detail` by its `reason`."""
        self._shard = shard
        self._clock = clock
        self._grace_ms = grace_ms
        self._alarm = alarm
        self._others = others
        self._logged: dict[str, float] = {}

    @property
    def ahead_ms(self) -> int:
        """How far the journal's last entry is ahead of the clock."""
        return max(0, self._shard.state.entry_time_ms - self._clock())

    def warnings(self) -> list[dict[str, str]]:
        """Each with `reason`, a fixed word, and `detail`, which names both times."""
        found: dict[str, str] = {}
        if (jump := self._clock.jump) is not None:
            found["clock_jumped"] = (
                f"the clock of this host has jumped to {time_text(jump.clock_ms)}; entries go on at "
                f"{time_text(jump.believed_ms)}, as counted since boot: set the clock right, or restart the "
                "gateway if it is right"
            )
        if self.ahead_ms > self._grace_ms:
            entry = time_text(self._shard.state.entry_time_ms)
            found["clock_behind"] = (
                f"the last entry of the journal is of {entry}, the clock says {time_text(self._clock())}: "
                "set the clock right; if it is right, the journal was written with a clock that was ahead, "
                "and its time goes at half speed until the clock has caught up"
            )
        for other in self._others:
            found.update(other())
        return [{"reason": reason, "detail": detail} for reason, detail in found.items()]

    def check(self) -> None:
        """Raise an alarm for each difference that is new since the last check; log it every hour."""
        now = time.monotonic()
        warnings = {row["reason"]: row["detail"] for row in self.warnings()}
        for reason, detail in warnings.items():
            event = reason.replace("_", ".")
            if reason not in self._logged:
                self._alarm(event)
            if now - self._logged.get(reason, -LOG_PERIOD_S) >= LOG_PERIOD_S:
                log.error(event, detail=detail)
                self._logged[reason] = now
        for reason in self._logged.keys() - warnings.keys():
            log.info("clock.right_again", reason=reason)
            del self._logged[reason]


def time_text(unix_ms: int) -> str:
    """In UTC, as ISO 8601 writes it."""
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
