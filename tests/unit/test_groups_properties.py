"""Invariants of a classic group, whatever members do and whenever the coordinator dies."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.groups.classic.members import NEVER
from gateway.groups.classic.states import State
from gateway.groups.classic.timers import SCAN_INTERVAL_MS
from gateway.groups.messages import JoinResult, LeavingMember, SyncResult
from ledger.errors import ErrorName
from tests.support.groups import RANGE, Pending, Played

NAMES = [f"m{i}" for i in range(1, 13)]
INSTANCES = [None, None, "i", "j"]
PROTOCOLS = [RANGE, (("range", b"other"),), (("sticky", b"s"), ("range", b"r"))]
WAITS_MS = [1, 500, 3_000, 9_000, 10_001, 60_000, 301_000]


class Groups(RuleBasedStateMachine):
    """The clock only moves by `wait`. A restart loses what was not stored, and requests that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.played = Played()
        self.highest = 0

    @rule(
        member=st.sampled_from(["", "", "", *NAMES]),
        instance=st.sampled_from(INSTANCES),
        protocols=st.sampled_from(PROTOCOLS),
        needs_id=st.booleans(),
        skips=st.booleans(),
    )
    def join(self, member: str, instance: str | None, protocols: object, needs_id: bool, skips: bool) -> None:
        self.played.join(
            member,
            instance_id=instance,
            protocols=protocols,
            needs_member_id=needs_id,
            skips_assignment=skips,
        )

    @rule(member=st.sampled_from(NAMES), lag=st.integers(0, 1))
    def sync(self, member: str, lag: int) -> None:
        group = self.played.group
        shares = {name: f"{name} of {group.generation}".encode() for name in group.roster.by_id}
        self.played.sync(member, group.generation - lag, shares)

    @rule()
    def all_sync(self) -> None:
        for member in list(self.played.group.roster.by_id):
            self.sync(member, 0)

    @rule(member=st.sampled_from(NAMES), lag=st.integers(-1, 1))
    def beat(self, member: str, lag: int) -> None:
        self.played.beat(member, self.played.group.generation - lag)

    @rule(members=st.lists(st.sampled_from(NAMES), max_size=3), instance=st.sampled_from(INSTANCES))
    def leave(self, members: list[str], instance: str | None) -> None:
        self.played.leave(*members, *([LeavingMember("", instance)] if instance else []))

    @rule(member=st.sampled_from(["", *NAMES]), generation=st.integers(-1, 5))
    def commit(self, member: str, generation: int) -> None:
        refused = self.played.commit(member, generation)
        if generation >= 0:
            assert refused is not None or generation == self.played.group.generation

    @rule(ms=st.sampled_from(WAITS_MS))
    def wait(self, ms: int) -> None:
        self.played.wait(ms)

    @rule()
    def restart(self) -> None:
        before = self.played
        self.played = before.restarted()
        stored = before.stores[-1].generation if before.stores else 0
        assert self.played.group.generation == stored == before.group.generation

    @rule()
    def give_up(self) -> None:
        """The coordinator cannot continue, and completes what waits."""
        effects = self.played.group.abandon(ErrorName.COORDINATOR_NOT_AVAILABLE)
        self.played._take(effects)
        assert not self.waiting()

    @invariant()
    def one_member_an_instance(self) -> None:
        roster = self.played.group.roster
        instances = [member.instance_id for member in roster if member.instance_id is not None]
        assert len(instances) == len(set(instances))
        assert set(roster.by_instance) == set(instances)

    @invariant()
    def the_generation_never_goes_back(self) -> None:
        assert self.played.group.generation >= self.highest
        self.highest = self.played.group.generation

    @invariant()
    def no_result_has_a_generation_that_is_not_stored(self) -> None:
        returned = {
            pending.result.generation
            for pending in self.played.pending.values()
            if isinstance(pending.result, JoinResult) and pending.result.error == "NONE"
        }
        known = {group.generation for group in self.played.stores}
        assert returned <= known

    @invariant()
    def all_members_of_a_generation_get_the_same_protocol(self) -> None:
        joined = [
            pending.result
            for pending in self.played.pending.values()
            if isinstance(pending.result, JoinResult) and pending.result.error == "NONE"
        ]
        for result in joined:
            same = [other for other in joined if other.generation == result.generation]
            assert len({other.protocol for other in same}) == 1

    @invariant()
    def assignments_are_of_the_generation_and_the_member(self) -> None:
        group = self.played.group
        if group.state is State.STABLE:
            for member in group.roster:
                mine = member.assignment.decode()
                # A static member continues with the assignment of its former process.
                assert not mine or mine.endswith(f" of {group.generation}")
                assert not mine or member.instance_id or mine.startswith(f"{member.member_id} ")

    @invariant()
    def each_request_that_waits_is_of_a_member_and_waits_once(self) -> None:
        group = self.played.group
        tickets = [member.joining for member in group.roster if member.joining is not None]
        assert group.roster.joining == len(tickets)
        assert group.roster.bytes == sum(member.size for member in group.roster)
        tickets += [member.syncing for member in group.roster if member.syncing is not None]
        assert sorted(tickets) == sorted(self.waiting())

    @invariant()
    def each_request_that_waits_is_completed_in_the_end(self) -> None:
        group = self.played.group
        if self.waiting():
            assert group.wake_at < NEVER
        if group.state is State.STABLE:
            assert not self.waiting()
        if group.state is State.EMPTY:
            assert not len(group.roster)

    @invariant()
    def every_session_can_end(self) -> None:
        group = self.played.group
        for member in group.roster:
            is_waiting = member.joining is not None or member.syncing is not None
            assert member.session_expires_at < NEVER or is_waiting
            # All members were scanned just before.
            assert group.wake_at <= member.session_expires_at + SCAN_INTERVAL_MS

    def waiting(self) -> list[int]:
        return [ticket for ticket, pending in self.played.pending.items() if pending.result is None]


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_both_kinds_of_results_are_seen_by_the_test() -> None:
    played = Played()
    played.stable("a")
    kinds = {type(pending.result) for pending in played.pending.values()}
    assert kinds == {JoinResult, SyncResult}
    assert Pending().result is None
