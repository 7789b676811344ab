"""The phases of a rebalance: wait for members to join, decide a generation, wait for its assignments.

The steps have the names of Kafka's GroupMetadataManager where it has one for them. `states.py` says which
state may follow which.
"""

from typing import Final

from gateway.groups.classic.effects import Effects
from gateway.groups.classic.members import NEVER, LiveMember, Roster
from gateway.groups.classic.states import ALLOWED, State
from gateway.groups.classic.timers import Timers
from gateway.groups.machine import GroupCoordinatorConfig, RebalanceReason
from gateway.groups.messages import JoinResult, SyncResult
from ledger.errors import ErrorName

MIN_WAIT_MS: Final = 1000
"""For static members to return, whatever timeout they have: more frequent checks would be of no use."""


class Rebalance:
    """The state and generation of one group."""

    def __init__(
        self, config: GroupCoordinatorConfig, roster: Roster, timers: Timers, effects: Effects
    ) -> None:
        self.config = config
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.pending_syncs: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self._roster = roster
        self._timers = timers
        self._effects = effects
        self._delay_left_ms: int | None = None
        """By how much the initial delay may still be extended; None once it is over."""
        self._grew_in_delay = False

    def move_to(self, target: State) -> None:
        assert (self.state, target) in ALLOWED, f"{self.state} -> {target}"
        self.state = target

    def prepare_or_complete_join(
        self, now: float, reason: RebalanceReason, member_id: str = "", details: str = ""
    ) -> None:
        """Begin a rebalance, or end the join phase of the one under way if all members have joined."""
        if self.state is State.PREPARING_REBALANCE:
            self.maybe_complete_join(now)
        else:
            self.prepare(now, reason, member_id, details)

    def prepare(self, now: float, reason: RebalanceReason, member_id: str = "", details: str = "") -> None:
        if self.state is State.COMPLETING_REBALANCE:
            for member in self._roster:
                self._roster.assign(member, b"")
                if self._effects.complete_sync(member, SyncResult(ErrorName.REBALANCE_IN_PROGRESS)):
                    self._timers.reset_session(member, now)
        self.pending_syncs.clear()
        self._timers.syncs_end = NEVER
        is_first = self.state is State.EMPTY
        self.move_to(State.PREPARING_REBALANCE)
        self._effects.note_rebalance(member_id, reason, details)
        timeout_ms = self._roster.max_rebalance_timeout_ms()
        if is_first:
            delay_ms = self.config.initial_rebalance_delay_ms
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._timers.await_joins(now + delay_ms)
        else:
            self._delay_left_ms = None
            self._timers.await_joins(now + timeout_ms)
            self.maybe_complete_join(now)

    def note_growth(self) -> None:
        """A member was added: the initial delay, if it runs, may be extended."""
        self._grew_in_delay = self._delay_left_ms is not None

    def maybe_complete_join(self, now: float) -> None:
        has_delay = self._delay_left_ms is not None
        if self.state is State.PREPARING_REBALANCE and not has_delay and self._have_all_joined():
            self._complete_join(now)

    def expire_joins(self, now: float) -> None:
        """The wait for members to join is over, or begins again: the initial delay is extended while members
        come, up to their rebalance timeout."""
        if self._delay_left_ms and self._grew_in_delay:
            self._grew_in_delay = False
            delay_ms = min(self.config.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self.config.initial_rebalance_delay_ms, 0)
            self._timers.await_joins(now + delay_ms)
        else:
            self._complete_join(now)

    def await_syncs(self, now: float) -> None:
        self.pending_syncs = set(self._roster.by_id)
        self._timers.await_syncs(now + self._roster.max_rebalance_timeout_ms())

    def remove_pending_sync(self, member_id: str) -> None:
        """The member has sent SyncGroup, or is no member any more."""
        self.pending_syncs.discard(member_id)
        if not self.pending_syncs:
            self._timers.syncs_end = NEVER

    def assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Complete the sync phase. Members that the leader does not mention get an empty assignment."""
        for member in self._roster:
            self._roster.assign(member, assignments.get(member.member_id, b""))
        self.move_to(State.STABLE)
        self._effects.store()
        self._effects.note("stable", "", f"generation {self.generation}")
        for member in self._roster:
            if self._effects.complete_sync(member, self.sync_result(member)):
                self._timers.reset_session(member, now)

    def expire_syncs(self, now: float) -> None:
        """Remove the members that have not sent SyncGroup, and begin again."""
        missing = [member for member in self._roster if member.member_id in self.pending_syncs]
        for member in missing:
            self._effects.note("member_removed", member.member_id, "it sent no SyncGroup in time")
            self.remove(member)
        self.prepare(now, RebalanceReason.SYNC_TIMEOUT)

    def expire_session(self, member: LiveMember, now: float) -> None:
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            # A member that waits for the rebalance need not send heartbeats until its request is completed.
            member.session_expires_at = NEVER
            return
        self._effects.note("member_removed", member.member_id, "its session expired")
        self.remove(member)
        self.prepare_or_complete_join(now, RebalanceReason.SESSION_EXPIRED, member.member_id)

    def remove(self, member: LiveMember) -> None:
        """Remove the member; its waiting requests fail with UNKNOWN_MEMBER_ID."""
        self._effects.complete_join(member, JoinResult(ErrorName.UNKNOWN_MEMBER_ID, ""))
        self._effects.complete_sync(member, SyncResult(ErrorName.UNKNOWN_MEMBER_ID))
        self.remove_pending_sync(member.member_id)
        self._roster.remove(member)

    def join_result(self, member: LiveMember) -> JoinResult:
        """The generation as it is, with all members for the leader."""
        is_leader = member.member_id == self._roster.leader
        return JoinResult(
            ErrorName.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self._roster.leader or "",
            self._roster.joined_members(self.protocol) if is_leader else (),
        )

    def sync_result(self, member: LiveMember) -> SyncResult:
        return SyncResult(ErrorName.NONE, self.protocol_type, self.protocol, member.assignment)

    def _have_all_joined(self) -> bool:
        return len(self._roster) <= self._roster.joining and not self._roster.pending

    def _complete_join(self, now: float) -> None:
        """Decide the next generation: of the members that have joined, and of static ones, which may still
        return."""
        for member in self._roster:
            if member.joining is None and member.instance_id is None:
                self._effects.note("member_removed", member.member_id, "it did not join again in time")
                self._roster.remove(member)
        if not self._roster.elect_joined_leader() and len(self._roster):
            # None waits: only static members are left, until their sessions end.
            self._timers.await_joins(now + max(self._roster.max_rebalance_timeout_ms(), MIN_WAIT_MS))
            self._delay_left_ms = None
            return
        self._timers.joins_end = NEVER
        self._delay_left_ms, self._grew_in_delay = None, False
        self.generation += 1
        self.protocol = self._roster.select_protocol()
        self._effects.store()
        if len(self._roster):
            self._begin_sync_phase(now)
        else:
            self.move_to(State.EMPTY)
            self._effects.note("empty", "", f"generation {self.generation}")

    def _begin_sync_phase(self, now: float) -> None:
        self.move_to(State.COMPLETING_REBALANCE)
        size = "1 member" if len(self._roster) == 1 else f"{len(self._roster)} members"
        self._effects.note("new_generation", "", f"{self.generation}: {size}, led by {self._roster.leader}")
        for member in self._roster:
            self._roster.assign(member, b"")
            self._effects.complete_join(member, self.join_result(member))
            self._timers.reset_session(member, now)
            member.is_new = False
        self.await_syncs(now)
