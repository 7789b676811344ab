"""The phases of a rebalance: gather members, decide a generation, hand out assignments, watch the silent.

Pure: the time is an argument, in ms on a clock that never goes back; what must happen outside comes back as
effects. All waits are volatile: after a restart they begin again in full.
"""

from typing import Final

from gateway.groups.members import MEMBER_BYTES, NEVER, LiveMember, Roster, revived
from gateway.groups.states import ALLOWED, State
from gateway.groups.values import Answer, Effect, GroupRules, JoinAnswer, Note, Store, SyncAnswer, Ticket
from ledger.groups import Group

LOOKED_EVERY_MS: Final = 50
"""Those whose time is up are found by looking at all; so long may one be late."""
SHORTEST_WAIT_MS: Final = 1000
"""For members to come back, whatever they have said: looking more often would be of no use."""


class Phases:
    """One group, without the requests that move it."""

    def __init__(self, group_id: str, rules: GroupRules) -> None:
        self.group_id = group_id
        self.rules = rules
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.roster = Roster()
        self.pending: dict[str, float] = {}
        """Member ids that were given out (KIP-394) and until when they may be used to join."""
        self.unsynced: set[str] = set()
        """Who has not asked for the assignment of this generation."""
        self.wake_at: float = NEVER
        """Nothing happens by itself before then; `tick` may be called earlier at no harm."""
        self._rebalance_ends: float = NEVER
        self._delay_left_ms: int | None = None
        """How much longer the initial delay may become; None behind it."""
        self._grew_in_delay = False
        self._sync_ends: float = NEVER
        self._effects: list[Effect] = []
        self._must_store = False

    @property
    def leader(self) -> str | None:
        return self.roster.leader

    @property
    def weight(self) -> int:
        """About the bytes of its members and of ids that were given out."""
        given_out = MEMBER_BYTES * len(self.pending) + sum(map(len, self.pending))
        return self.roster.bytes + given_out

    def restore(self, group: Group, now: float) -> None:
        """Go on from what was stored; every wait begins again in full."""
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol = group.protocol
        for stored in group.members:
            member = revived(stored)
            self.roster.add(member)
            self._hear_from(member, now)
        if not group.members:
            return
        self.roster.leader = group.leader
        self.state = State.STABLE if group.synced else State.COMPLETING_REBALANCE
        if not group.synced:
            self._await_syncs(now)

    def stored(self) -> Group:
        """What a restart must know; `changed_ms` is the journal's to say."""
        return Group(
            self.group_id,
            self.protocol_type,
            self.generation,
            self.protocol,
            self.roster.leader,
            tuple(member.stored() for member in self.roster),
            self.state is State.STABLE,
            0,
        )

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        for member_id in [member_id for member_id, until in self.pending.items() if until <= now]:
            del self.pending[member_id]
            self._complete_if_joined(now)
        silent = [member for member in self.roster if member.silent_until <= now]
        for member in sorted(silent, key=lambda member: member.silent_until):
            # The end of one session may end the rebalance, which removes others.
            if self.roster.by_id.get(member.member_id) is member:
                self._end_session(member, now)
        if self._rebalance_ends <= now:
            self._end_wait_for_joins(now)
        if self._sync_ends <= now:
            self._end_wait_for_syncs(now)
        silent_at = min((member.silent_until for member in self.roster), default=NEVER)
        given_up_at = min(self.pending.values(), default=NEVER)
        # All were looked at just now; to do that for each of very many anew would take the whole processor.
        looked_at = max(min(silent_at, given_up_at), now + LOOKED_EVERY_MS)
        self.wake_at = min(self._rebalance_ends, self._sync_ends, looked_at)
        return self._take_effects()

    def abandon(self, error: str) -> list[Effect]:
        """Answer all that waits: this coordinator cannot go on with the group as it is."""
        for member in self.roster:
            self._answer_join(member, JoinAnswer(error, member.member_id))
            self._answer_sync(member, SyncAnswer(error))
        return self._take_effects()

    def put_off(self, error: str, now: float) -> list[Effect]:
        """Answer all that waits, and go on with the group: the members will ask again."""
        for member in self.roster:
            has_joined = self._answer_join(member, JoinAnswer(error, member.member_id))
            has_synced = self._answer_sync(member, SyncAnswer(error))
            if has_joined or has_synced:
                self._hear_from(member, now)
        return self._take_effects()

    def start_over(self, now: float, reason: str) -> list[Effect]:
        """Ask all members to join again."""
        if len(self.roster):
            self._prepare(now, reason)
        return self._take_effects()

    def hear_from_all(self, now: float) -> None:
        """Begin every session again: nobody could be heard from."""
        for member in self.roster:
            if member.silent_until < NEVER and not member.is_new:
                self._hear_from(member, now)

    def _rebalance(self, now: float, reason: str, member_id: str = "") -> None:
        """Begin a rebalance, or bring the one that is under way nearer to its end."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_joined(now)
        else:
            self._prepare(now, reason, member_id)

    def _prepare(self, now: float, reason: str, member_id: str = "") -> None:
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.roster:
                member.assignment = b""
                if self._answer_sync(member, SyncAnswer("REBALANCE_IN_PROGRESS")):
                    self._hear_from(member, now)
        self._end_syncs()
        is_first = self.state is State.EMPTY
        self._move_to(State.PREPARING_REBALANCE)
        self._note("preparing_rebalance", member_id, reason)
        if is_first:
            delay_ms = self.rules.initial_rebalance_delay_ms
            self._delay_left_ms = max(self.roster.longest_rebalance_ms() - delay_ms, 0)
            self._rebalance_ends = self._at(now + delay_ms)
        else:
            self._delay_left_ms = None
            self._rebalance_ends = self._at(now + self.roster.longest_rebalance_ms())
            self._complete_if_joined(now)

    def _complete_if_joined(self, now: float) -> None:
        has_delay = self._delay_left_ms is not None
        if self.state is State.PREPARING_REBALANCE and not has_delay and self._all_joined():
            self._complete(now)

    def _all_joined(self) -> bool:
        return len(self.roster) <= self.roster.joining and not self.pending

    def _end_wait_for_joins(self, now: float) -> None:
        if self._delay_left_ms and self._grew_in_delay:
            # Somebody came during the initial delay: wait for more, as long as the members have patience.
            self._grew_in_delay = False
            delay_ms = min(self.rules.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self.rules.initial_rebalance_delay_ms, 0)
            self._rebalance_ends = self._at(now + delay_ms)
        else:
            self._complete(now)

    def _complete(self, now: float) -> None:
        """The next generation: of those who have joined, and of static members, who may still come."""
        for member in self.roster:
            if member.joining is None and member.instance_id is None:
                self._note("member_removed", member.member_id, "it did not join again in time")
                self.roster.remove(member)
        if not self.roster.elect_joined_leader() and len(self.roster):
            # Nobody waits: only static members are left, until their sessions end.
            wait_ms = max(self.roster.longest_rebalance_ms(), SHORTEST_WAIT_MS)
            self._rebalance_ends = self._at(now + wait_ms)
            self._delay_left_ms = None
            return
        self._rebalance_ends, self._delay_left_ms, self._grew_in_delay = NEVER, None, False
        self.generation += 1
        self.protocol = self.roster.vote()
        self._must_store = True
        if not len(self.roster):
            self._move_to(State.EMPTY)
            self._note("empty", "", f"generation {self.generation}")
            return
        self._move_to(State.COMPLETING_REBALANCE)
        size = "1 member" if len(self.roster) == 1 else f"{len(self.roster)} members"
        self._note("new_generation", "", f"{self.generation}: {size}, led by {self.roster.leader}")
        for member in self.roster:
            member.assignment = b""
            self._answer_join(member, self._joined(member))
            self._hear_from(member, now)
            member.is_new = False
        self._await_syncs(now)

    def _joined(self, member: LiveMember) -> JoinAnswer:
        """What a member is told of the generation as it is."""
        is_leader = member.member_id == self.roster.leader
        return JoinAnswer(
            "NONE",
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.roster.leader or "",
            self.roster.joined_members(self.protocol) if is_leader else (),
        )

    def _await_syncs(self, now: float) -> None:
        self.unsynced = set(self.roster.by_id)
        self._sync_ends = self._at(now + self.roster.longest_rebalance_ms())

    def _has_synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._sync_ends = NEVER

    def _end_syncs(self) -> None:
        self.unsynced.clear()
        self._sync_ends = NEVER

    def _end_wait_for_syncs(self, now: float) -> None:
        missing = [member for member in self.roster if member.member_id in self.unsynced]
        for member in missing:
            self._note("member_removed", member.member_id, "it did not ask for its assignment in time")
            self._dismiss(member)
        self._prepare(now, "members did not ask for their assignments in time")

    def _end_session(self, member: LiveMember, now: float) -> None:
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            # Who waits for the rebalance need not be heard from until it is answered.
            member.silent_until = NEVER
            return
        self._note("member_removed", member.member_id, "nothing was heard from it in time")
        self._dismiss(member)
        self._rebalance(now, "a member's session ended", member.member_id)

    def _dismiss(self, member: LiveMember) -> None:
        """Remove it, and tell what still waits that it is no member."""
        self._answer_join(member, JoinAnswer("UNKNOWN_MEMBER_ID", ""))
        self._answer_sync(member, SyncAnswer("UNKNOWN_MEMBER_ID"))
        self._has_synced(member.member_id)
        self.roster.remove(member)

    def _hear_from(self, member: LiveMember, now: float) -> None:
        member.silent_until = self._at(now + member.session_timeout_ms)

    def _answer_join(self, member: LiveMember, answer: JoinAnswer) -> bool:
        ticket = self.roster.end_join(member)
        if ticket is not None:
            self._answer(ticket, answer)
        return ticket is not None

    def _answer_sync(self, member: LiveMember, answer: SyncAnswer) -> bool:
        ticket, member.syncing = member.syncing, None
        if ticket is not None:
            self._answer(ticket, answer)
        return ticket is not None

    def _answer(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer) -> None:
        self._effects.append(Answer(ticket, answer))

    def _note(self, event: str, member_id: str, reason: str) -> None:
        self._effects.append(Note(event, member_id, reason))

    def _at(self, due: float) -> float:
        self.wake_at = min(self.wake_at, due)
        return due

    def _move_to(self, target: State) -> None:
        assert (self.state, target) in ALLOWED, f"{self.state} -> {target}"
        self.state = target

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        if self._must_store:
            self._must_store = False
            # First, since no answer of this step may leave before it is durable.
            effects.insert(0, Store(self.stored()))
        return effects
