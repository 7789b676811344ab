"""The classic group: what JoinGroup, SyncGroup, Heartbeat, LeaveGroup and an offset commit do to it.

KIP-394 (member ids are given out before joining), KIP-345 (static members), KIP-559 (protocol in SyncGroup),
KIP-814 (a static leader comes back without assigning). What Kafka does where the KIPs say nothing is told
by Apache Kafka itself, which the tests compare with.
"""

from collections.abc import Sequence

from gateway.groups.members import MEMBER_BYTES, LiveMember, protocols_size
from gateway.groups.phases import Phases
from gateway.groups.states import State
from gateway.groups.values import (
    NEW_MEMBER_JOIN_MS,
    Answer,
    Effect,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
    Ticket,
)


class ClassicGroup(Phases):
    """One group. Every request is decided at once or waits for its ticket's `Answer`."""

    def join(self, asked: Join, ticket: Ticket, now: float) -> list[Effect]:
        error = self._why_not_join(asked)
        if error is None:
            if asked.member_id:
                self._join_known(asked, ticket, now)
            else:
                self._join_unknown(asked, ticket, now)
        else:
            member = self.roster.by_id.get(asked.member_id)
            if member is not None and not self._has_place_for(asked):
                # The group has become smaller than its members are many.
                self._dismiss(member)
                self._complete_if_joined(now)
            is_told = error not in ("GROUP_MAX_SIZE_REACHED", "UNKNOWN_SERVER_ERROR")
            self._answer(ticket, JoinAnswer(error, asked.member_id if is_told else ""))
        return self._take_effects()

    def sync(self, asked: Sync, ticket: Ticket, now: float) -> list[Effect]:
        error = self._why_not_sync(asked)
        if error is not None:
            return [Answer(ticket, SyncAnswer(error))]
        member = self.roster.by_id[asked.member_id]
        if self.state is State.STABLE:
            self._has_synced(member.member_id)
            self._hear_from(member, now)
            self._answer(ticket, self._synced(member))
            return self._take_effects()
        if member.syncing is not None:
            self._answer(member.syncing, SyncAnswer("REBALANCE_IN_PROGRESS"))
        member.syncing = ticket
        self._has_synced(member.member_id)
        if member.member_id == self.leader:
            self._assign(asked.assignments, now)
        return self._take_effects()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> str:
        """The error, or NONE."""
        error = self._why_not_member(member_id, instance_id)
        if error is not None:
            return error
        if generation != self.generation:
            return "ILLEGAL_GENERATION"
        self._hear_from(self.roster.by_id[member_id], now)
        return "REBALANCE_IN_PROGRESS" if self.state is State.PREPARING_REBALANCE else "NONE"

    def leave(self, leavers: Sequence[Leaver], now: float) -> tuple[list[str], list[Effect]]:
        """Each one's error or NONE. By instance id alone somebody else may remove a static member."""
        if self.state is State.DEAD:
            return ["COORDINATOR_NOT_AVAILABLE"] * len(leavers), []
        errors = [self._leave(leaver) for leaver in leavers]
        if "NONE" in errors:
            gone = leavers[errors.index("NONE")]
            reason = f"a member left: {gone.reason}" if gone.reason else "a member left"
            if self.state is not State.EMPTY:
                self._rebalance(now, reason, gone.member_id)
        return errors, self._take_effects()

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> str | None:
        """Why offsets may not be committed. A member that commits has been heard from."""
        if self.state is State.DEAD:
            return "COORDINATOR_NOT_AVAILABLE"
        if generation < 0 and self.state is State.EMPTY:
            return None
        if generation < 0 and not member_id and instance_id is None:
            return "UNKNOWN_MEMBER_ID"
        error = self._why_not_member(member_id, instance_id)
        if error is not None:
            return error
        if generation != self.generation:
            return "ILLEGAL_GENERATION"
        if self.state is State.COMPLETING_REBALANCE:
            # It knows the generation but not yet its assignment.
            return "REBALANCE_IN_PROGRESS"
        self._hear_from(self.roster.by_id[member_id], now)
        return None

    def die(self) -> None:
        """The group is being deleted: an empty one, whose pending members must begin anew."""
        self.pending.clear()
        self._move_to(State.DEAD)

    def live_again(self) -> None:
        """The deletion could not be stored."""
        self._move_to(State.EMPTY)

    def _why_not_join(self, asked: Join) -> str | None:
        if self.state is State.DEAD:
            return "COORDINATOR_NOT_AVAILABLE"
        if not self._has_place_for(asked):
            return "GROUP_MAX_SIZE_REACHED"
        if not self._can_speak(asked):
            return "INCONSISTENT_GROUP_PROTOCOL"
        if asked.member_id in self.pending:
            if asked.instance_id is not None:
                # The id was given to a dynamic member. Kafka runs into an exception, and says so.
                return "UNKNOWN_SERVER_ERROR"
        elif asked.member_id:
            error = self._why_not_member(asked.member_id, asked.instance_id)
            if error is not None:
                return error
        return None if self._has_bytes_for(asked) else "GROUP_MAX_SIZE_REACHED"

    def _has_place_for(self, asked: Join) -> bool:
        if _gets_id_only(asked) and len(self.pending) >= self.rules.max_size:
            # Kafka counts no pending members; here they have a bound.
            return False
        member = self.roster.by_id.get(asked.member_id)
        match self.state:
            case State.EMPTY:
                return True
            case State.PREPARING_REBALANCE:
                # Those who wait, not those who are: when the group shrinks, the last to come must go.
                waits = member is not None and member.joining is not None
                return waits or self.roster.joining < self.rules.max_size
            case _:
                return member is not None or len(self.roster) < self.rules.max_size

    def growth(self, asked: Join) -> int:
        """By how many bytes the group becomes larger with a member that joins."""
        current = self.roster.by_id.get(asked.member_id)
        if current is None and asked.instance_id is not None:
            current = self.roster.by_instance.get(asked.instance_id)
        grown = protocols_size(asked.protocols)
        if current is not None:
            return grown - protocols_size(current.protocols)
        member_id = asked.member_id or asked.new_member_id
        names = (member_id, asked.instance_id or "", asked.client_id, asked.client_host)
        return grown + MEMBER_BYTES + sum(map(len, names))

    def _has_bytes_for(self, asked: Join) -> bool:
        """A group that is too large to be stored would be lost for all its members."""
        grown = self.growth(asked)
        return grown <= 0 or self.roster.bytes + grown <= self.rules.max_bytes

    def _can_speak(self, asked: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(asked.protocol_type and asked.protocols)
        return asked.protocol_type == self.protocol_type and self.roster.can_speak(asked.protocols)

    def _why_not_member(self, member_id: str, instance_id: str | None) -> str | None:
        if instance_id is not None:
            current = self.roster.by_instance.get(instance_id)
            if current is None:
                return "UNKNOWN_MEMBER_ID"
            if current.member_id != member_id:
                return "FENCED_INSTANCE_ID"
        return None if member_id in self.roster.by_id else "UNKNOWN_MEMBER_ID"

    def _join_unknown(self, asked: Join, ticket: Ticket, now: float) -> None:
        current = self.roster.by_instance.get(asked.instance_id or "")
        if _gets_id_only(asked):
            self.pending[asked.new_member_id] = self._at(now + asked.session_timeout_ms)
            self._answer(ticket, JoinAnswer("MEMBER_ID_REQUIRED", asked.new_member_id))
        elif asked.instance_id is not None and current is not None:
            self._replace(current, asked, ticket, now)
        else:
            self._add(asked.new_member_id, asked, ticket, now)

    def _join_known(self, asked: Join, ticket: Ticket, now: float) -> None:
        if asked.member_id in self.pending:
            del self.pending[asked.member_id]
            self._add(asked.member_id, asked, ticket, now)
            return
        member = self.roster.by_id[asked.member_id]
        has_changed = member.protocols != asked.protocols
        leads = self.state is State.STABLE and member.member_id == self.leader
        if self.state is State.PREPARING_REBALANCE or has_changed or leads:
            # The leader asks again when the topics have changed that it assigns.
            reason = "a member's protocols changed" if has_changed else "the leader joins again"
            self._update(member, asked, ticket, now)
            self._rebalance(now, _with(asked.reason, reason), member.member_id)
        else:
            # It did not get the first answer; the generation is as it was.
            self._answer(ticket, self._joined(member))

    def _add(self, member_id: str, asked: Join, ticket: Ticket, now: float) -> None:
        if not len(self.roster):
            self.protocol_type = asked.protocol_type
        self._grew_in_delay = self._delay_left_ms is not None
        member = LiveMember(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            asked.session_timeout_ms,
            asked.rebalance_timeout_ms,
            asked.protocols,
            joining=ticket,
            is_new=True,
            silent_until=self._at(now + NEW_MEMBER_JOIN_MS),
        )
        self.roster.add(member)
        self._note("member_joins", member_id, asked.reason)
        self._rebalance(now, _with(asked.reason, "a new member joins"), member_id)

    def _replace(self, member: LiveMember, asked: Join, ticket: Ticket, now: float) -> None:
        """The process behind a static member was started again, or there are two of them."""
        old_id, old_leader = member.member_id, self.leader
        self._answer_join(member, JoinAnswer("FENCED_INSTANCE_ID", old_id))
        self._answer_sync(member, SyncAnswer("FENCED_INSTANCE_ID"))
        self.roster.rename(member, asked.new_member_id)
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(member.member_id)
        self._note("member_returns", member.member_id, f"instead of {old_id}")
        self._update(member, asked, ticket, now)
        self._hear_from(member, now)
        if self.state is not State.STABLE or self.roster.vote() != self.protocol:
            self._rebalance(now, "a static member returns", member.member_id)
            return
        self._must_store = True
        self._answer_join(member, self._returned(member, asked, old_leader or ""))

    def _returned(self, member: LiveMember, asked: Join, old_leader: str) -> JoinAnswer:
        """The generation goes on: it gets its assignment by SyncGroup, and must not assign again."""
        leads = member.member_id == self.leader
        return JoinAnswer(
            "NONE",
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            # An older client would assign if it were told that it leads.
            (self.leader or "") if asked.skips_assignment else old_leader,
            self.roster.joined_members(self.protocol) if leads and asked.skips_assignment else (),
            skip_assignment=leads and asked.skips_assignment,
        )

    def _update(self, member: LiveMember, asked: Join, ticket: Ticket, now: float) -> None:
        self.roster.change(member, asked.protocols)
        member.session_timeout_ms = asked.session_timeout_ms
        member.rebalance_timeout_ms = asked.rebalance_timeout_ms
        earlier = self.roster.wait_to_join(member, ticket)
        if earlier is not None:
            self._answer(earlier, JoinAnswer("REBALANCE_IN_PROGRESS", member.member_id))

    def _why_not_sync(self, asked: Sync) -> str | None:
        error = self._why_not_member(asked.member_id, asked.instance_id)
        if error is not None:
            return error
        if asked.generation != self.generation:
            return "ILLEGAL_GENERATION"
        if asked.protocol_type not in (None, self.protocol_type) or asked.protocol not in (
            None,
            self.protocol,
        ):
            return "INCONSISTENT_GROUP_PROTOCOL"
        return "REBALANCE_IN_PROGRESS" if self.state is State.PREPARING_REBALANCE else None

    def _assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Who is not mentioned gets an empty assignment."""
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
        self._move_to(State.STABLE)
        self._must_store = True
        self._note("stable", "", f"generation {self.generation}")
        for member in self.roster:
            if self._answer_sync(member, self._synced(member)):
                self._hear_from(member, now)

    def _synced(self, member: LiveMember) -> SyncAnswer:
        return SyncAnswer("NONE", self.protocol_type, self.protocol, member.assignment)

    def _leave(self, leaver: Leaver) -> str:
        if leaver.member_id and self.pending.pop(leaver.member_id, None) is not None:
            return "NONE"
        if leaver.member_id:
            error = self._why_not_member(leaver.member_id, leaver.instance_id)
            if error is not None:
                return error
            member = self.roster.by_id[leaver.member_id]
        elif leaver.instance_id is not None and leaver.instance_id in self.roster.by_instance:
            member = self.roster.by_instance[leaver.instance_id]
        else:
            return "UNKNOWN_MEMBER_ID"
        self._note("member_left", member.member_id, leaver.reason)
        self._dismiss(member)
        return "NONE"


def _gets_id_only(asked: Join) -> bool:
    """The first join of a dynamic member, which learns its id and joins with that."""
    return not asked.member_id and asked.instance_id is None and asked.needs_member_id


def _with(reason: str, default: str) -> str:
    return f"{default}: {reason}" if reason else default
