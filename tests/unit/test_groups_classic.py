"""The machine of a classic group, driven by hand."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.groups.classic.group import NEW_MEMBER_JOIN_MS
from gateway.groups.classic.states import ALLOWED, State
from gateway.groups.machine import RebalanceReason
from gateway.groups.messages import LeavingMember
from tests.support.groups import CONFIG, DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Played

TWO_WAYS = (("range", b"r"), ("sticky", b"s"))


def stable(*names: str, **fields: object) -> Played:
    group = Played()
    group.stable(*(names or ("a", "b")), **fields)
    return group


def test_a_new_member_receives_an_id_before_it_joins() -> None:
    group = Played()
    first = group.join()
    assert (first.joined.error, first.joined.member_id) == ("MEMBER_ID_REQUIRED", "m1")
    assert group.group.state is State.EMPTY
    again = group.join("m1")
    group.wait(DELAY_MS)
    assert (again.joined.error, again.joined.generation, again.joined.leader) == ("NONE", 1, "m1")


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten() -> None:
    group = Played()
    group.join()
    group.wait(SESSION_MS)
    assert group.join("m1").error == "UNKNOWN_MEMBER_ID"


def test_an_id_that_was_given_to_a_dynamic_member_is_not_for_an_instance() -> None:
    group = Played()
    group.join()
    assert group.join("m1", instance_id="i").error == "UNKNOWN_SERVER_ERROR"
    assert group.join("m1").result is None


def test_an_old_client_joins_without_an_id() -> None:
    group = Played()
    pending = group.join(needs_member_id=False)
    group.wait(DELAY_MS)
    assert pending.joined.member_id == "m1"


def test_the_initial_delay_is_extended_while_members_come() -> None:
    group = Played()
    first = group.add("a")
    group.wait(DELAY_MS - 1)
    second = group.add("b")
    group.wait(DELAY_MS)
    assert first.result is None
    group.wait(1)
    assert first.joined.generation == second.joined.generation == 1


def test_a_group_that_all_members_have_left_begins_with_a_delay_again() -> None:
    group = stable("a")
    group.leave("a")
    first = group.add("b")
    group.wait(DELAY_MS - 1)
    group.add("c")
    group.wait(DELAY_MS)
    assert first.result is None
    group.wait(1)
    assert first.joined.generation == 3


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    group = Played()
    first = group.add("a", rebalance_timeout_ms=2 * DELAY_MS)
    for i in range(3):
        group.wait(DELAY_MS - 1)
        group.add(f"b{i}", rebalance_timeout_ms=DELAY_MS)
    group.wait(2)
    assert first.joined.generation == 1


def test_a_later_rebalance_has_no_initial_delay() -> None:
    group = stable("a")
    pending = group.add("b")
    group.join("a")
    assert pending.joined.generation == 2


def test_only_the_leader_receives_the_members() -> None:
    group = Played()
    leader, other = group.add("a"), group.add("b", instance_id="i")
    group.wait(2 * DELAY_MS)
    assert [(m.member_id, m.instance_id, m.metadata) for m in leader.joined.members] == [
        ("a", None, b"topics"),
        ("b", "i", b"topics"),
    ]
    assert other.joined.members == ()


def test_a_member_that_syncs_before_the_leader_waits_for_it() -> None:
    group = Played()
    group.add("a")
    group.add("b")
    group.wait(2 * DELAY_MS)
    follower = group.sync("b")
    assert follower.result is None
    leader = group.sync("a", assignments={"b": b"all", "unknown": b"x"})
    assert (follower.synced.assignment, leader.synced.assignment) == (b"all", b"")
    assert group.group.state is State.STABLE


def test_a_member_that_syncs_after_the_leader_has_its_assignment_at_once() -> None:
    group = stable("a", "b")
    assert group.sync("b").synced.assignment == b"b"


def test_a_generation_is_stored_when_it_is_decided_and_again_with_its_assignments() -> None:
    group = stable("a", "b")
    decided, synced = group.stores
    assert (decided.generation, decided.synced) == (1, False)
    assert (synced.generation, synced.synced) == (1, True)
    assert [(m.member_id, m.protocols, m.assignment) for m in synced.members] == [
        ("a", RANGE, b"a"),
        ("b", RANGE, b"b"),
    ]


def test_a_generation_that_is_not_assigned_has_no_assignments_of_the_one_before() -> None:
    group = stable("a")
    group.join("a")
    assert [member.assignment for member in group.stores[-1].members] == [b""]


def test_heartbeats_of_unknown_members_and_other_generations_are_refused() -> None:
    group = stable("a")
    assert group.beat("a") == "NONE"
    assert group.beat("x") == "UNKNOWN_MEMBER_ID"
    assert group.beat("a", 0) == group.beat("a", 2) == "ILLEGAL_GENERATION"
    assert group.beat("a", instance_id="i") == "UNKNOWN_MEMBER_ID"


def test_a_member_that_stays_silent_is_removed() -> None:
    group = stable("a", "b")
    group.wait(SESSION_MS - 1)
    assert group.beat("a") == "NONE"
    group.wait(1)
    assert group.group.state is State.PREPARING_REBALANCE
    assert group.beat("a") == "REBALANCE_IN_PROGRESS"
    assert group.beat("b") == "UNKNOWN_MEMBER_ID"


def test_a_member_that_waits_in_join_needs_no_heartbeats() -> None:
    group = stable("a", "b")
    joined = group.join("a")
    for _ in range(5):
        group.wait(SESSION_MS - 1)
        assert group.beat("b") == "REBALANCE_IN_PROGRESS"
    assert joined.result is None
    group.join("b")
    assert joined.joined.generation == 2


def test_a_new_member_may_wait_five_minutes_and_no_longer() -> None:
    group = stable("a", rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_MS)
    joined = group.add("b")
    for _ in range(int(NEW_MEMBER_JOIN_MS // (SESSION_MS - 1)) + 1):
        group.wait(SESSION_MS - 1)
        group.beat("a")
    assert joined.joined.error == "UNKNOWN_MEMBER_ID"


def test_a_member_that_does_not_join_again_within_the_rebalance_timeout_is_removed() -> None:
    group = stable("a", "slow")
    joined = group.join("a")
    for _ in range(REBALANCE_MS // 5_000):
        assert joined.result is None
        assert group.beat("slow") == "REBALANCE_IN_PROGRESS"
        group.wait(5_000)
    assert (joined.joined.generation, joined.joined.leader) == (2, "a")
    assert group.beat("slow") == "UNKNOWN_MEMBER_ID"


def test_the_longest_rebalance_timeout_counts() -> None:
    group = Played()
    group.add("a", rebalance_timeout_ms=10_000)
    group.add("b", rebalance_timeout_ms=90_000)
    group.wait(2 * DELAY_MS)
    group.sync("a")
    group.sync("b")
    joined = group.join("a")
    for _ in range(11):
        group.wait(8_000)
        group.beat("b")
    assert joined.result is None
    group.wait(2_000)
    assert joined.joined.generation == 2


def test_a_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    group = Played()
    group.add("a")
    group.add("b")
    group.wait(2 * DELAY_MS)
    waiting = group.sync("b")
    for _ in range(REBALANCE_MS // 5_000):
        group.beat("a")
        group.wait(5_000)
    assert waiting.error == "REBALANCE_IN_PROGRESS"
    assert group.beat("a") == "UNKNOWN_MEMBER_ID"
    assert group.join("b").joined.leader == "b"


def test_a_follower_that_never_syncs_is_removed_from_the_stable_group() -> None:
    group = Played()
    group.add("a")
    group.add("b")
    group.wait(2 * DELAY_MS)
    group.sync("a")
    for _ in range(REBALANCE_MS // 5_000):
        assert group.beat("b") == "NONE"
        group.beat("a")
        group.wait(5_000)
    assert group.beat("b") == "UNKNOWN_MEMBER_ID"
    assert group.group.state is State.PREPARING_REBALANCE


def test_the_leader_joining_again_begins_a_rebalance_and_a_follower_does_not() -> None:
    group = stable("a", "b")
    assert group.join("b").joined.generation == 1
    unchanged = group.group.state
    assert group.join("a").result is None
    assert (unchanged, group.group.state) == (State.STABLE, State.PREPARING_REBALANCE)


def test_a_follower_with_other_metadata_begins_a_rebalance() -> None:
    group = stable("a", "b")
    assert group.join("b", protocols=(("range", b"more topics"),)).result is None
    assert group.beat("a") == "REBALANCE_IN_PROGRESS"


def test_a_member_that_lost_the_response_to_its_join_gets_it_again() -> None:
    group = Played()
    group.add("a")
    group.wait(DELAY_MS)
    again = group.join("a")
    assert (again.joined.generation, len(again.joined.members)) == (1, 1)
    assert group.group.state is State.COMPLETING_REBALANCE


def test_a_change_before_the_assignment_sends_all_back_to_join() -> None:
    group = Played()
    group.add("a")
    group.add("b")
    group.wait(2 * DELAY_MS)
    waiting = group.sync("b")
    group.join("a", protocols=(("range", b"changed"),))
    assert waiting.error == "REBALANCE_IN_PROGRESS"


def test_a_second_join_of_a_member_replaces_the_first() -> None:
    group = stable("a", "b")
    first = group.join("a")
    second = group.join("a")
    assert (first.error, second.result) == ("REBALANCE_IN_PROGRESS", None)
    group.join("b")
    assert second.joined.generation == 2


def test_a_second_sync_of_a_member_replaces_the_first() -> None:
    group = Played()
    group.add("a")
    group.add("b")
    group.wait(2 * DELAY_MS)
    first = group.sync("b")
    second = group.sync("b")
    assert (first.error, second.result) == ("REBALANCE_IN_PROGRESS", None)


def test_protocols_must_have_one_in_common_and_the_same_type() -> None:
    group = stable("a", protocols=TWO_WAYS)
    assert group.add("b", protocols=(("other", b""),)).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.add("b", protocol_type="connect").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.join("a", protocols=()).error == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.add("b", protocols=(("sticky", b""),)).result is None


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}], ids=["none", "no type"])
def test_an_empty_group_requires_a_protocol_and_its_type(fields: dict[str, Any]) -> None:
    assert Played().join(**fields).error == "INCONSISTENT_GROUP_PROTOCOL"


def test_the_protocol_with_most_votes_is_selected_among_those_that_all_support() -> None:
    group = Played()
    group.add("a", protocols=(("range", b""), ("sticky", b"")))
    group.add("b", protocols=(("sticky", b""), ("range", b"")))
    last = group.add("c", protocols=(("own", b""), ("sticky", b""), ("range", b"")))
    group.wait(3 * DELAY_MS)
    assert last.joined.protocol == "sticky"


def test_sync_returns_the_selected_protocol() -> None:
    group = stable("a")
    assert group.sync("a", protocol_type="connect").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.sync("a", protocol="sticky").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.sync("a", protocol_type="consumer", protocol="range").error == "NONE"


def test_when_the_last_member_leaves_the_group_is_empty_in_a_new_generation() -> None:
    group = stable("a", "b")
    assert group.leave("a", "unknown", "b") == ["NONE", "UNKNOWN_MEMBER_ID", "NONE"]
    assert (group.group.state, group.group.generation) == (State.EMPTY, 2)
    assert group.stores[-1].members == ()


def test_after_a_leader_has_left_a_member_that_joins_again_leads() -> None:
    group = stable("a", "b")
    group.leave("a")
    assert group.join("b").joined.leader == "b"


def test_requests_of_a_removed_member_fail_with_unknown_member_id() -> None:
    group = stable("a", "b")
    joined = group.join("a")
    group.leave("a")
    assert joined.error == "UNKNOWN_MEMBER_ID"
    again = Played()
    again.add("a")
    again.add("b")
    again.wait(2 * DELAY_MS)
    syncing = again.sync("b")
    again.leave("b")
    assert syncing.error == "UNKNOWN_MEMBER_ID"


def test_a_static_member_returns_without_a_rebalance() -> None:
    group = stable("a", "b")
    group.add("s", instance_id="i")
    group.join("a")
    group.join("b")
    group.sync("a", assignments={"s": b"mine"})
    back = group.join(instance_id="i")
    assert (back.joined.error, back.joined.generation, back.joined.skip_assignment) == ("NONE", 2, False)
    assert group.sync(back.joined.member_id, instance_id="i").synced.assignment == b"mine"
    assert group.beat("s", instance_id="i") == "FENCED_INSTANCE_ID"
    assert group.stores[-1].synced


def test_a_static_leader_returns_without_assigning_again() -> None:
    group = stable("s", instance_id="i")
    back = group.join(instance_id="i").joined
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 1)


def test_a_static_leader_of_an_older_version_does_not_learn_that_it_leads() -> None:
    group = stable("s", instance_id="i")
    back = group.join(instance_id="i", skips_assignment=False).joined
    assert (back.leader, back.skip_assignment, back.members) == ("s", False, ())


def test_a_static_member_that_changes_the_vote_begins_a_rebalance() -> None:
    group = stable("s", instance_id="i", protocols=TWO_WAYS)
    back = group.join(instance_id="i", protocols=tuple(reversed(TWO_WAYS)))
    assert (back.joined.generation, back.joined.protocol) == (2, "sticky")


def test_two_processes_of_one_instance_fence_each_other() -> None:
    group = Played()
    first = group.join(instance_id="i")
    second = group.join(instance_id="i")
    assert (first.joined.error, first.joined.member_id) == ("FENCED_INSTANCE_ID", "m1")
    group.wait(DELAY_MS)
    assert second.joined.member_id == "m2"
    assert group.join("m1", instance_id="i").error == "FENCED_INSTANCE_ID"
    waiting = group.sync("m2", generation=1, assignments={"m2": b"x"}, instance_id="i")
    assert waiting.error == "NONE"


def test_a_static_member_that_waits_for_its_assignment_is_fenced_by_the_next() -> None:
    group = Played()
    group.add("a")
    group.add("s", instance_id="i")
    group.wait(2 * DELAY_MS)
    waiting = group.sync("s", instance_id="i")
    group.join(instance_id="i")
    assert waiting.error == "FENCED_INSTANCE_ID"
    assert group.group.state is State.PREPARING_REBALANCE


def test_static_members_may_miss_a_rebalance_until_their_session_ends() -> None:
    group = Played()
    group.add("a")
    group.add("s", instance_id="i", session_timeout_ms=50 * SESSION_MS)
    group.wait(2 * DELAY_MS)
    group.sync("a")
    group.sync("s")
    joined = group.join("a")
    group.wait(REBALANCE_MS)
    assert [m.member_id for m in joined.joined.members] == ["a", "s"]


def test_a_rebalance_that_no_member_joins_waits_for_sessions_to_end() -> None:
    group = stable("s", instance_id="i", session_timeout_ms=1_000_000)
    group.group.restart_rebalance(group.now, RebalanceReason.NOT_STORED)
    group.wait(REBALANCE_MS + 1)
    assert group.group.state is State.PREPARING_REBALANCE
    assert group.group.generation == 1
    assert group.join("s", instance_id="i").joined.generation == 2


def test_a_rebalance_timeout_of_zero_does_not_keep_the_coordinator_busy() -> None:
    group = stable("s", instance_id="i")
    group.join("s", instance_id="i", session_timeout_ms=1_000_000, rebalance_timeout_ms=0)
    group.sync("s")
    group.group.restart_rebalance(group.now, RebalanceReason.NOT_STORED)
    ticks = 0
    while group.now < 30_000:
        group.now = group.group.wake_at
        group.group.tick(group.now)
        ticks += 1
    assert ticks < 30


def test_an_instance_can_be_removed_by_its_instance_id_alone() -> None:
    group = stable("s", instance_id="i")
    unknown = LeavingMember("", "other")
    fenced = LeavingMember("x", "i")
    assert group.leave(unknown, fenced, LeavingMember("", "i")) == [
        "UNKNOWN_MEMBER_ID",
        "FENCED_INSTANCE_ID",
        "NONE",
    ]
    assert group.group.state is State.EMPTY


def test_a_full_group_takes_no_new_members() -> None:
    group = Played(replace(CONFIG, max_size=2))
    group.stable("a", "b")
    refused = group.add("c")
    assert (refused.joined.error, refused.joined.member_id) == ("GROUP_MAX_SIZE_REACHED", "")
    assert group.join("b").error == "NONE"


def test_when_the_bound_on_members_shrinks_the_last_to_join_again_is_removed() -> None:
    group = stable("a", "b", "c")
    group.group._rebalance.config = replace(CONFIG, max_size=2)
    first, second = group.join("a"), group.join("b")
    assert group.join("c").error == "GROUP_MAX_SIZE_REACHED"
    assert first.joined.generation == second.joined.generation == 2
    assert len(first.joined.members) == 2


def test_pending_member_ids_are_bounded() -> None:
    group = Played(replace(CONFIG, max_size=2))
    group.join()
    group.join()
    assert group.join().error == "GROUP_MAX_SIZE_REACHED"


def test_the_metadata_of_members_are_bounded() -> None:
    group = Played(replace(CONFIG, max_bytes=400))
    big = (("range", b"x" * 200),)
    group.stable("a", protocols=big)
    assert group.add("b", protocols=big).joined.error == "GROUP_MAX_SIZE_REACHED"
    assert group.join("a", protocols=big).error == "NONE"
    assert group.join("a", protocols=(("range", b"x" * 500),)).error == "GROUP_MAX_SIZE_REACHED"
    assert group.beat("a") == "NONE"


def test_the_bytes_of_members_are_counted_as_they_join_change_and_leave() -> None:
    group = stable("a", "b")
    group.add("s", instance_id="i")
    group.join(instance_id="i", protocols=(("range", b"much more than before"),))
    group.join("a", protocols=())
    group.join("b", protocols=(("range", b""), ("sticky", b"own")))
    assert group.group.roster.bytes == sum(member.size for member in group.group.roster)
    group.leave("a", "b", LeavingMember("", "i"))
    assert group.group.roster.bytes == 0


def test_offsets_are_taken_from_members_of_the_generation_that_have_synced() -> None:
    group = stable("a")
    assert group.commit("a", 1) is None
    assert group.commit("a", 0) == "ILLEGAL_GENERATION"
    assert group.commit("x", 1) == "UNKNOWN_MEMBER_ID"
    assert group.commit("", -1) == "UNKNOWN_MEMBER_ID"
    group.join("a")
    assert group.commit("a", 2) == "REBALANCE_IN_PROGRESS"
    group.leave("a")
    assert group.commit("", -1) is None


def test_a_fenced_member_may_not_commit() -> None:
    group = stable("s", instance_id="i")
    group.join(instance_id="i")
    assert group.commit("s", 1, "i") == "FENCED_INSTANCE_ID"


def test_a_commit_counts_as_a_heartbeat() -> None:
    group = stable("a")
    for _ in range(4):
        group.wait(SESSION_MS - 1)
        assert group.commit("a", 1) is None


def test_after_a_restart_members_continue_in_their_generation() -> None:
    group = stable("a", "b").restarted()
    assert group.beat("a", 1) == group.beat("b", 1) == "NONE"
    assert group.commit("b", 1) is None
    assert group.sync("b", 1).synced.assignment == b"b"
    assert group.join("b").joined.generation == 1


def test_after_a_restart_sessions_begin_in_full() -> None:
    before = stable("a", "b")
    before.wait(SESSION_MS - 1)
    group = before.restarted()
    group.wait(SESSION_MS - 1)
    assert group.beat("a") == "NONE"
    group.wait(1)
    assert group.beat("b") == "UNKNOWN_MEMBER_ID"


def test_after_a_restart_before_the_assignment_the_leader_still_can_send_it() -> None:
    before = Played()
    before.add("a")
    before.add("b")
    before.wait(2 * DELAY_MS)
    group = before.restarted()
    follower = group.sync("b", 1)
    group.sync("a", 1, {"b": b"yours"})
    assert follower.synced.assignment == b"yours"


def test_after_a_restart_the_wait_for_syncs_ends_too() -> None:
    before = Played()
    before.add("a")
    before.wait(DELAY_MS)
    group = before.restarted()
    for _ in range(REBALANCE_MS // 5_000):
        group.beat("a")
        group.wait(5_000)
    assert group.group.state is State.EMPTY


def test_no_transition_is_possible_that_the_table_does_not_name() -> None:
    assert {source for source, _ in ALLOWED} == set(State)
    group = Played()
    with pytest.raises(AssertionError):
        group.group._rebalance.move_to(State.STABLE)


def test_thousands_of_sessions_that_end_one_after_the_other_need_few_scans() -> None:
    group = Played()
    for _ in range(2000):
        group.wait(1)
        group.join()
    looked = 0
    while group.group.roster.pending:
        group.now = max(group.now, group.group.wake_at)
        group.group.tick(group.now)
        looked += 1
    assert looked <= 50


def test_pending_member_ids_are_bounded_in_every_state() -> None:
    group = Played(replace(CONFIG, max_size=2))
    group.stable("a")
    for _ in range(2):
        assert group.join().error == "MEMBER_ID_REQUIRED"
    assert group.join().error == "GROUP_MAX_SIZE_REACHED"


def test_static_members_and_old_clients_do_not_count_as_pending_ids() -> None:
    group = Played(replace(CONFIG, max_size=2))
    group.join()
    group.join()
    assert group.join(instance_id="i").error is None
    assert group.join(needs_member_id=False).error is None
