"""The merge job against a double of the gateway: what it merges, and what it does when others were faster."""

import os

import pytest

from ledger.errors import ErrorName
from ledger.keys import created_ms
from ledger.merging.plan import MergePolicy
from ledger.objects.uploads import ObjectKind
from ledger.requests import Refused
from ledger.swaps.requests import SwapSegments
from ledger.types import TopicId
from pipeline.peer import PeerUnavailable
from pipeline.pins import RENEW_S
from pipeline.planning import PartitionMerge, Place, Rounds
from pipeline.rounds import Round
from pipeline.segments import Engine, Host, JobError, MergeJob, places_of
from tests.support.merge_peer import BEGUN_MS, MergePeer

POLICY = MergePolicy(due_runs=10, task_bytes=64 * 1024)
T = TopicId(bytes([1] * 16))
NOW_MS = BEGUN_MS + 3_600_000


def job_of(peer: MergePeer, policy: MergePolicy = POLICY) -> MergeJob:
    engine = Engine(Round(peer, os.urandom))
    return MergeJob(peer, engine, Host(peer.elapsed_s, os.urandom), policy)


def merged_runs(peer: MergePeer, topic: TopicId = T, partition: int = 0) -> list[int]:
    return [run.last for run in peer.parts[topic, partition].runs if run.kind == ObjectKind.SEGMENT]


def test_all_runs_but_the_tail_become_segments_with_the_same_records() -> None:
    peer = MergePeer(("t", "u"), partitions=3)
    peer.fill(1_500)
    before = {key: peer.records_of(*key) for key in peer.parts}
    totals = job_of(peer).run()
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    for part in peer.parts.values():
        assert [run.kind for run in part.runs[-2:]] == [ObjectKind.SEGMENT, ObjectKind.WAL]
    assert (totals.partitions, totals.runs, totals.again, totals.orphans) == (6, 6 * 1_499, 0, 0)
    assert totals.segment_runs == sum(len(part.runs) - 1 for part in peer.parts.values())
    assert totals.segments == len(peer.swaps) == len({swap.attempt for swap in peer.swaps})
    assert not peer.pins


def transactions(peer: MergePeer, count: int) -> None:
    for number in range(count):
        peer.send(number % 2)
        peer.end(number % 2, commit=number % 3 != 0)


def test_ends_of_transactions_become_batches_of_segments() -> None:
    peer = MergePeer(page=30)
    transactions(peer, 300)
    peer.fill(1)
    before = peer.records_of(T, 0)
    totals = job_of(peer).run()
    assert peer.records_of(T, 0) == before
    assert [run.kind for run in peer.parts[T, 0].runs[-2:]] == [ObjectKind.SEGMENT, ObjectKind.WAL]
    assert (totals.runs, totals.reads, totals.again) == (600, 300, 0)
    assert sum(len(swap.markers) for swap in peer.swaps) == 300


def test_ends_of_transactions_that_are_alone_among_damaged_runs_stay_as_they_are() -> None:
    peer = MergePeer()
    transactions(peer, 20)
    peer.fill(1)
    part = peer.parts[T, 0]
    for run in part.runs[2:36:2]:
        peer.objects[run.object_key] = bytes(len(peer.objects[run.object_key]))
    before, objects = list(part.runs), len(peer.objects)
    totals = job_of(peer).run()
    assert totals.left_runs == 17
    # Before the damaged ones a transaction and its end, and after them two with theirs and one end more.
    assert (totals.segments, len(peer.objects)) == (2, objects + 2)
    assert [run for run in part.runs if run.kind is not ObjectKind.SEGMENT] == [*before[2:35], before[-1]]


def test_objects_of_several_partitions_are_read_once() -> None:
    peer = MergePeer(partitions=8)
    peer.fill(200)
    totals = job_of(peer, MergePolicy(due_runs=10)).run()
    assert totals.runs == 8 * 199
    # Each object in one range; of the last one nothing.
    assert totals.reads == peer.reads == 199
    assert totals.read_bytes == totals.run_bytes


def test_pages_after_an_own_swap_are_not_planned_again() -> None:
    peer = MergePeer(page=30)
    peer.fill(1_000)
    totals = job_of(peer, MergePolicy(due_runs=10, task_bytes=4_096)).run()
    assert totals.runs == 999 and totals.segments > 15
    assert totals.again == 0


def test_a_second_job_finds_nothing_to_merge() -> None:
    peer = MergePeer(partitions=2)
    peer.fill(300)
    job_of(peer).run()
    totals = job_of(peer).run()
    assert (totals.partitions, totals.runs, totals.written_bytes) == (2, 0, 0)


def test_runs_that_another_job_has_merged_meanwhile_are_planned_again() -> None:
    peer, other = MergePeer(partitions=2), list[object]()
    peer.fill(300)
    before = {key: peer.records_of(*key) for key in peer.parts}

    def merge_first() -> None:
        peer.after_read = lambda: None
        other.append(job_of(peer).run())

    peer.after_read = merge_first
    totals = job_of(peer).run()
    assert {key: peer.records_of(*key) for key in peer.parts} == before
    assert len(other) == 1 and totals.segments == 0
    assert totals.again == totals.orphans > 0


def test_objects_that_are_gone_are_found_again_under_their_new_place() -> None:
    peer = MergePeer()
    peer.fill(100)
    before = peer.records_of(T, 0)

    def merge_and_sweep() -> None:
        peer.after_read = lambda: None
        part = peer.parts[T, 0]
        moved = {run.object_key: run.object_key.replace("wal/0", "wal/1") for run in part.runs}
        peer.objects = {moved[key]: data for key, data in peer.objects.items()}
        part.runs = [run._replace(object_key=moved[run.object_key]) for run in part.runs]
        part.layout_version += 1

    find, peer_find = peer.find_batches, list[int]()

    def find_then_move(topic_id: TopicId, partition: int, offset: int) -> object:
        found = find(topic_id, partition, offset)
        if not peer_find:
            peer_find.append(offset)
            merge_and_sweep()
        return found

    peer.find_batches = find_then_move  # type: ignore[method-assign, assignment]
    totals = job_of(peer).run()
    assert peer.records_of(T, 0) == before
    assert (totals.again, totals.left_runs, totals.runs) == (1, 0, 99)


def test_a_missing_and_a_damaged_run_stay_and_the_others_are_merged() -> None:
    peer = MergePeer()
    peer.fill(100)
    runs = list(peer.parts[T, 0].runs)
    del peer.objects[runs[30].object_key]
    damaged = bytearray(peer.objects[runs[60].object_key])
    damaged[-1] ^= 1
    peer.objects[runs[60].object_key] = bytes(damaged)
    totals = job_of(peer).run()
    left = [run.base for run in peer.parts[T, 0].runs if run.kind == ObjectKind.WAL]
    assert left == [60, 120, 198]
    assert totals.left_runs == 2 and totals.runs == 97
    assert [sentence.split(" (")[1].split(")")[0] for sentence in totals.damages] == [
        "offsets 60 to 61",
        "offsets 120 to 121",
    ]


def test_what_retention_took_and_deleted_topics_are_left_out() -> None:
    peer = MergePeer(("t", "u"))
    peer.fill(100)

    def trim_and_delete() -> None:
        peer.after_read = lambda: None
        part = peer.parts[T, 0]
        part.log_start = 150
        part.runs = [run for run in part.runs if run.last >= 150]
        del peer.parts[TopicId(bytes([2] * 16)), 0]

    peer.after_read = trim_and_delete
    totals = job_of(peer).run()
    assert merged_runs(peer) and merged_runs(peer)[-1] == 197
    assert peer.records_of(T, 0)[0][0] == 150
    assert totals.orphans >= 1


@pytest.mark.parametrize("error", [ErrorName.UNSUPPORTED_VERSION, ErrorName.INVALID_REQUEST])
def test_a_refusal_that_no_repeat_changes_ends_the_job_and_releases_its_pin(error: ErrorName) -> None:
    peer = MergePeer()
    peer.fill(100)
    peer.before_swap = lambda _: Refused(error, "because")
    with pytest.raises(JobError, match="because"):
        job_of(peer).run()
    assert len(peer.swaps) == 1 and not peer.pins


def test_a_partition_that_is_refused_again_and_again_is_left_for_the_next_job() -> None:
    peer = MergePeer(("t", "u"))
    peer.fill(100)

    def refuse_t(swap: SwapSegments) -> Refused | None:
        return Refused(ErrorName.INVALID_UPDATE_VERSION) if swap.topic_id == T else None

    peer.before_swap = refuse_t
    totals = job_of(peer).run()
    assert not merged_runs(peer) and merged_runs(peer, TopicId(bytes([2] * 16)))
    assert totals.again < 10


def test_a_job_whose_pin_was_lost_begins_again_under_another_name() -> None:
    peer = MergePeer()
    peer.fill(100)
    before, jobs = peer.records_of(T, 0), set[bytes]()

    def sleep_long() -> None:
        peer.after_read = lambda: None
        jobs.update(peer.pins)
        peer.now_s += RENEW_S + 1
        peer.pins.clear()

    peer.after_read = sleep_long
    totals = job_of(peer).run()
    assert peer.records_of(T, 0) == before and totals.runs == 99
    assert len(jobs) == 1 and {swap.job for swap in peer.swaps}.isdisjoint(jobs)
    assert not peer.pins


def test_a_job_whose_swap_is_refused_for_its_pin_begins_again_under_another_name() -> None:
    """As after a restore of the ledger: it hears of it with the swap, before its pin is due for renewal."""
    peer = MergePeer()
    peer.fill(100)
    before, jobs = peer.records_of(T, 0), set[bytes]()

    def restored() -> None:
        peer.after_read = lambda: None
        jobs.update(peer.pins)
        peer.pins.clear()

    peer.after_read = restored
    totals = job_of(peer).run()
    assert peer.records_of(T, 0) == before and totals.runs == 99
    assert totals.orphans == totals.again == 1
    assert [swap.job in jobs for swap in peer.swaps][:2] == [True, False]


def test_a_pin_that_is_always_lost_ends_the_job_with_a_sentence() -> None:
    peer = MergePeer()
    peer.fill(100)

    def sleep_long() -> None:
        peer.now_s += RENEW_S + 1
        peer.pins.clear()

    peer.after_read = sleep_long
    with pytest.raises(JobError, match="overloaded"):
        job_of(peer).run()


def test_keys_of_segments_have_the_time_of_the_journal() -> None:
    peer = MergePeer()
    peer.fill(100)

    def wait() -> None:
        peer.now_s += 7.0

    peer.after_read = wait
    job_of(peer).run()
    ((segment,),) = (swap.segments for swap in peer.swaps)
    assert created_ms(segment.locator) == BEGUN_MS + 3_600_000 + 7_000


def test_named_topics_alone_are_merged_and_unknown_ones_end_the_job_first() -> None:
    peer = MergePeer(("t", "u"))
    peer.fill(100)
    job_of(peer).run(["u"])
    assert not merged_runs(peer) and merged_runs(peer, TopicId(bytes([2] * 16)))
    with pytest.raises(JobError, match="no topic v, w"):
        list(places_of(peer, ["t", "w", "v"]))


def test_a_plan_writes_nothing_and_says_what_would_be_merged() -> None:
    peer = MergePeer(("t", "u"), partitions=2)
    peer.fill(100)
    planned = {one.topic: one.look for one in job_of(peer).plan()}
    assert {topic: (look.partitions, look.merged_runs) for topic, look in planned.items()} == {
        "t": (2, 198),
        "u": (2, 198),
    }
    assert not peer.swaps and not peer.reads and not peer.pins


def test_a_gateway_that_is_gone_is_not_waited_for_a_second_time() -> None:
    peer, released = MergePeer(), list[bytes]()
    peer.fill(100)

    def gone(swap: SwapSegments) -> Refused | None:
        raise PeerUnavailable("no response of the gateway")

    peer.before_swap = gone
    peer.release = released.append  # type: ignore[method-assign, assignment]
    with pytest.raises(PeerUnavailable):
        job_of(peer).run()
    assert not released


def test_many_own_swaps_between_pages_do_not_end_a_plan() -> None:
    """The planner begins again ten times at most."""
    peer = MergePeer(page=20)
    peer.fill(400)
    merging = PartitionMerge(Place(T, "t", 0), MergePolicy(due_runs=10, task_bytes=1_000), NOW_MS)
    tasks = 0
    while (planned := merging.next_task(peer)) is not None:
        tasks += 1
        merging.swapped(peer.parts[T, 0].layout_version + 1)
        peer.parts[T, 0].layout_version += 1
        assert merging.version_for(planned.task) == peer.parts[T, 0].layout_version
    assert tasks > 30 and merging.look.merged_runs >= 390


def test_tasks_of_partitions_that_share_objects_are_taken_in_turn() -> None:
    peer = MergePeer(partitions=4)
    peer.fill(100)
    policy = MergePolicy(due_runs=10, task_bytes=2_000)
    merges = [PartitionMerge(Place(T, "t", at), policy, NOW_MS) for at in range(4)]
    planned = Rounds(merges, peer, window=3).next(round_bytes=10_000, round_runs=1_000)
    assert planned is not None
    assert [each.partition.place.partition for each in planned][:6] == [0, 1, 2, 0, 1, 2]
    assert sum(each.task.size for each in planned) < 12_000


def test_a_partition_that_begins_again_may_be_one_more_than_the_window() -> None:
    peer = MergePeer(partitions=4)
    peer.fill(100)
    policy = MergePolicy(due_runs=10, task_bytes=2_000)
    merges = [PartitionMerge(Place(T, "t", at), policy, NOW_MS) for at in range(4)]
    rounds = Rounds(merges, peer, window=2)
    for each in (merges[0], merges[2], merges[3]):
        while each.next_task(peer) is not None:
            pass
    # The first is at its end, and the third has taken its place, when another job swaps runs of the first.
    assert rounds.next(round_bytes=1, round_runs=1)
    merges[0].begin_again(0)
    begun_again = set()
    while (planned := rounds.next(round_bytes=4_000, round_runs=1_000)) is not None:
        begun_again |= {each.partition.place.partition for each in planned}
    assert begun_again == {0, 1}
