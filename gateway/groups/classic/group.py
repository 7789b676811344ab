"""The classic group: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup and an offset commit do to it.

KIP-394 (member ids are given out before joining), KIP-345 (static members), KIP-559 (protocol in SyncGroup),
KIP-814 (a static leader returns without assigning). Where the KIPs say nothing Apache Kafka itself decides,
which the tests compare with.
"""

from collections.abc import Sequence
from typing import Final

from gateway.groups.classic.effects import Effects
from gateway.groups.classic.members import LiveMember, Roster, restored_member
from gateway.groups.classic.rebalance import Rebalance
from gateway.groups.classic.states import State
from gateway.groups.classic.timers import Timers
from gateway.groups.classic.validation import (
    accepts_joining_member,
    gets_id_only,
    join_growth,
    validate_join,
    validate_member,
    validate_offset_commit,
    validate_sync,
)
from gateway.groups.describe import GroupDescription, MemberDescription
from gateway.groups.limits import GROUP_BYTES, MAX_SIZE
from gateway.groups.machine import LIMIT_REACHED, Effect, GroupCoordinatorConfig, RebalanceReason, Ticket
from gateway.groups.messages import NO_GENERATION, Join, JoinResult, LeavingMember, Sync, SyncResult
from gateway.groups.subscriptions import CONSUMER_PROTOCOL, subscribed_topics
from ledger.errors import ErrorName
from ledger.groups.state import Group

NEW_MEMBER_JOIN_MS: Final = 5 * 60 * 1000
"""How long the JoinGroup of a new member may wait, as in Kafka: without its id it sends no heartbeats."""


class ClassicGroup:
    """A `GroupMachine`: members (Roster), their timers, and the rebalance that they are in."""

    def __init__(self, group_id: str, config: GroupCoordinatorConfig) -> None:
        self.group_id = group_id
        self.roster = Roster()
        self._timers = Timers(self.roster)
        self._effects = Effects(self.roster)
        self._rebalance = Rebalance(config, self.roster, self._timers, self._effects)
        self._subscribed_in = NO_GENERATION
        """In which generation `_subscribed` was read."""
        self._subscribed: frozenset[str] | None = None

    @property
    def state(self) -> State:
        return self._rebalance.state

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol(self) -> str | None:
        return self._rebalance.protocol

    @property
    def wake_at(self) -> float:
        return self._timers.wake_at

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def weight(self) -> int:
        return self.roster.weight

    @property
    def is_idle(self) -> bool:
        return self._rebalance.state is State.EMPTY and not self.roster.pending

    def restore(self, group: Group, now: float) -> None:
        """Go on from what was stored; every wait begins again in full."""
        rebalance = self._rebalance
        rebalance.generation = group.generation
        rebalance.protocol_type = group.protocol_type
        rebalance.protocol = group.protocol
        for stored in group.members:
            member = restored_member(stored)
            self.roster.add(member)
            self._timers.reset_session(member, now)
        if not group.members:
            return
        self.roster.leader = group.leader
        rebalance.state = State.STABLE if group.synced else State.COMPLETING_REBALANCE
        if not group.synced:
            rebalance.await_syncs(now)

    def stored(self) -> Group:
        """What a restart must know; `changed_ms` is the journal's to set."""
        return Group(
            self.group_id,
            self._rebalance.protocol_type,
            self.generation,
            self.protocol,
            self.roster.leader,
            tuple(member.stored() for member in self.roster),
            self.state is State.STABLE,
            0,
        )

    def join(self, request: Join, ticket: Ticket, now: float) -> list[Effect]:
        error = validate_join(self._rebalance, self.roster, request)
        if error is not None:
            self._refuse_join(request, error, ticket, now)
        elif request.member_id:
            self._join_known(request, ticket, now)
        else:
            self._join_unknown(request, ticket, now)
        return self._take_effects()

    def growth(self, request: Join) -> int:
        return join_growth(self.roster, request)

    def sync(self, request: Sync, ticket: Ticket, now: float) -> list[Effect]:
        error = validate_sync(self._rebalance, self.roster, request)
        if error is not None:
            self._effects.complete(ticket, SyncResult(error))
            return self._take_effects()
        member = self.roster.by_id[request.member_id]
        if self.state is State.STABLE:
            self._rebalance.remove_pending_sync(member.member_id)
            self._timers.reset_session(member, now)
            self._effects.complete(ticket, self._rebalance.sync_result(member))
            return self._take_effects()
        self._effects.complete_sync(member, SyncResult(ErrorName.REBALANCE_IN_PROGRESS))
        member.syncing = ticket
        self._rebalance.remove_pending_sync(member.member_id)
        if member.member_id == self.roster.leader:
            self._rebalance.assign(request.assignments, now)
        return self._take_effects()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorName:
        roster, rebalance = self.roster, self._rebalance
        error = validate_member(roster, member_id, instance_id)
        if error is not None:
            return error
        if generation != rebalance.generation:
            return ErrorName.ILLEGAL_GENERATION
        self._timers.reset_session(roster.by_id[member_id], now)
        return (
            ErrorName.REBALANCE_IN_PROGRESS
            if rebalance.state is State.PREPARING_REBALANCE
            else ErrorName.NONE
        )

    def leave(self, leaving: Sequence[LeavingMember], now: float) -> tuple[list[ErrorName], list[Effect]]:
        if self.state is State.DEAD:
            return [ErrorName.COORDINATOR_NOT_AVAILABLE] * len(leaving), []
        errors = [self._leave(member) for member in leaving]
        if ErrorName.NONE in errors:
            first = leaving[errors.index(ErrorName.NONE)]
            if self.state is not State.EMPTY:
                self._rebalance.prepare_or_complete_join(
                    now, RebalanceReason.MEMBER_LEFT, first.member_id, first.reason
                )
        return errors, self._take_effects()

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        in_transaction: bool = False,
    ) -> ErrorName | None:
        error = validate_offset_commit(
            self._rebalance, self.roster, member_id, instance_id, generation, in_transaction
        )
        if error is None and generation >= 0 and not in_transaction:
            self._timers.reset_session(self.roster.by_id[member_id], now)
        return error

    def tick(self, now: float) -> list[Effect]:
        if self.roster.pending.take_expired(now):
            self._rebalance.maybe_complete_join(now)
        for member in self._timers.expired_members(now):
            # The end of one session may end the rebalance, which removes others.
            if self.roster.by_id.get(member.member_id) is member:
                self._rebalance.expire_session(member, now)
        if self._timers.joins_end <= now:
            self._rebalance.expire_joins(now)
        if self._timers.syncs_end <= now:
            self._rebalance.expire_syncs(now)
        self._timers.rearm(now)
        return self._take_effects()

    def abandon(self, error: ErrorName) -> list[Effect]:
        for member in self.roster:
            self._fail_waiters(member, error)
        return self._take_effects()

    def fail_waiters_retriably(self, error: ErrorName, now: float) -> list[Effect]:
        for member in self.roster:
            if self._fail_waiters(member, error):
                self._timers.reset_session(member, now)
        return self._take_effects()

    def restart_rebalance(self, now: float, reason: RebalanceReason) -> list[Effect]:
        if len(self.roster):
            self._rebalance.prepare(now, reason)
        return self._take_effects()

    def reset_session_timers(self, now: float) -> None:
        self._timers.reset_sessions(now)

    def die(self) -> None:
        self.roster.pending.clear()
        self._rebalance.move_to(State.DEAD)

    def revive(self) -> None:
        self._rebalance.move_to(State.EMPTY)

    def describe(self) -> GroupDescription:
        is_stable = self.state is State.STABLE
        members = tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(self.protocol) if is_stable else b"",
                member.assignment,
            )
            for member in self.roster
        )
        return self._description(members)

    def listing(self) -> GroupDescription:
        return self._description()

    def subscribed_topics(self) -> frozenset[str] | None:
        if self._rebalance.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not len(self.roster):
            return frozenset()
        protocol = self.protocol
        if protocol is None:
            return None
        if self._subscribed_in != self.generation:
            # As in Kafka, those of the generation: members that join again change them with the next.
            self._subscribed_in = self.generation
            self._subscribed = subscribed_topics([member.metadata(protocol) for member in self.roster])
        return self._subscribed

    def _refuse_join(self, request: Join, error: ErrorName, ticket: Ticket, now: float) -> None:
        member = self.roster.by_id.get(request.member_id)
        is_accepted = accepts_joining_member(self._rebalance, self.roster, request)
        if member is not None and not is_accepted:
            # The bound on members has become smaller than the group is.
            self._rebalance.remove(member)
            self._rebalance.maybe_complete_join(now)
        if error == ErrorName.GROUP_MAX_SIZE_REACHED:
            self._effects.note(LIMIT_REACHED, request.member_id, GROUP_BYTES if is_accepted else MAX_SIZE)
        returns_id = error not in (ErrorName.GROUP_MAX_SIZE_REACHED, ErrorName.UNKNOWN_SERVER_ERROR)
        self._effects.complete(ticket, JoinResult(error, request.member_id if returns_id else ""))

    def _join_unknown(self, request: Join, ticket: Ticket, now: float) -> None:
        current = self.roster.by_instance.get(request.instance_id or "")
        if gets_id_only(request):
            member_id = request.new_member_id
            self.roster.pending.give(member_id, self._timers.due(now + request.session_timeout_ms))
            self._effects.complete(ticket, JoinResult(ErrorName.MEMBER_ID_REQUIRED, member_id))
        elif request.instance_id is not None and current is not None:
            self._replace(current, request, ticket, now)
        else:
            self._add(request.new_member_id, request, ticket, now)

    def _join_known(self, request: Join, ticket: Ticket, now: float) -> None:
        if self.roster.pending.take(request.member_id):
            self._add(request.member_id, request, ticket, now)
            return
        member = self.roster.by_id[request.member_id]
        has_changed = member.protocols != request.protocols
        leads = self.state is State.STABLE and member.member_id == self.roster.leader
        if self.state is State.PREPARING_REBALANCE or has_changed or leads:
            # The leader joins again when the topics have changed that it assigns.
            reason = RebalanceReason.PROTOCOLS_CHANGED if has_changed else RebalanceReason.LEADER_REJOINED
            self._update(member, request, ticket, now)
            self._rebalance.prepare_or_complete_join(now, reason, member.member_id, request.reason)
        else:
            # The member did not receive the first response; the generation is as it was.
            self._effects.complete(ticket, self._rebalance.join_result(member))

    def _add(self, member_id: str, request: Join, ticket: Ticket, now: float) -> None:
        if not len(self.roster):
            self._rebalance.protocol_type = request.protocol_type
        self._rebalance.note_growth()
        member = LiveMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            joining=ticket,
            is_new=True,
            session_expires_at=self._timers.due(now + NEW_MEMBER_JOIN_MS),
        )
        self.roster.add(member)
        self._effects.note("member_joins", member_id, request.reason)
        self._rebalance.prepare_or_complete_join(
            now, RebalanceReason.MEMBER_JOINED, member_id, request.reason
        )

    def _replace(self, member: LiveMember, request: Join, ticket: Ticket, now: float) -> None:
        """The process of a static member was restarted, or there are two of them."""
        old_id, old_leader = member.member_id, self.roster.leader
        self._effects.complete_join(member, JoinResult(ErrorName.FENCED_INSTANCE_ID, old_id))
        self._effects.complete_sync(member, SyncResult(ErrorName.FENCED_INSTANCE_ID))
        self.roster.rename(member, request.new_member_id)
        # Known before: as in Kafka (`ClassicGroup.replaceStaticMember`) it need not beat while it waits.
        member.is_new = False
        if old_id in self._rebalance.pending_syncs:
            self._rebalance.pending_syncs.discard(old_id)
            self._rebalance.pending_syncs.add(member.member_id)
        self._effects.note("member_returns", member.member_id, f"instead of {old_id}")
        self._update(member, request, ticket, now)
        self._timers.reset_session(member, now)
        if self.state is not State.STABLE or self.roster.select_protocol() != self.protocol:
            self._rebalance.prepare_or_complete_join(
                now, RebalanceReason.STATIC_MEMBER_RETURNED, member.member_id
            )
            return
        self._effects.store()
        self._effects.complete_join(member, self._rejoin_result(member, request, old_leader or ""))

    def _rejoin_result(self, member: LiveMember, request: Join, old_leader: str) -> JoinResult:
        """The generation stays: the static member gets its assignment by SyncGroup, and must not assign."""
        skips = member.member_id == self.roster.leader and request.skips_assignment
        return JoinResult(
            ErrorName.NONE,
            member.member_id,
            self.generation,
            self._rebalance.protocol_type,
            self.protocol,
            # An older client would assign if the result named it as the leader.
            (self.roster.leader or "") if request.skips_assignment else old_leader,
            self.roster.joined_members(self.protocol) if skips else (),
            skip_assignment=skips,
        )

    def _update(self, member: LiveMember, request: Join, ticket: Ticket, now: float) -> None:
        self.roster.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        earlier = self.roster.begin_join(member, ticket)
        if earlier is not None:
            self._effects.complete(earlier, JoinResult(ErrorName.REBALANCE_IN_PROGRESS, member.member_id))

    def _leave(self, leaving: LeavingMember) -> ErrorName:
        if leaving.member_id and self.roster.pending.take(leaving.member_id):
            return ErrorName.NONE
        if leaving.member_id:
            error = validate_member(self.roster, leaving.member_id, leaving.instance_id)
            if error is not None:
                return error
            member = self.roster.by_id[leaving.member_id]
        elif leaving.instance_id is not None and leaving.instance_id in self.roster.by_instance:
            member = self.roster.by_instance[leaving.instance_id]
        else:
            return ErrorName.UNKNOWN_MEMBER_ID
        self._effects.note("member_left", member.member_id, leaving.reason)
        self._rebalance.remove(member)
        return ErrorName.NONE

    def _fail_waiters(self, member: LiveMember, error: ErrorName) -> bool:
        """Whether a request of the member waited."""
        had_join = self._effects.complete_join(member, JoinResult(error, member.member_id))
        had_sync = self._effects.complete_sync(member, SyncResult(error))
        return had_join or had_sync

    def _description(self, members: tuple[MemberDescription, ...] = ()) -> GroupDescription:
        protocol = self.protocol if self.state is State.STABLE else None
        return GroupDescription(
            self.group_id, self.state.value, self._rebalance.protocol_type, protocol, members
        )

    def _take_effects(self) -> list[Effect]:
        return self._effects.take(self.stored)
