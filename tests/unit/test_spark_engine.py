"""What executors of the Spark engine do, without Spark: the two stages here are two calls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import StoreUnavailable
from ledger.merging.found import FoundRun
from ledger.merging.plan import MergePolicy, MergeTask
from ledger.merging.reads import FAR, plan_reads
from ledger.objects.uploads import ObjectKind
from ledger.types import Buffer, Position, TopicId
from pipeline.carrying import JobStore, Traffic
from pipeline.engines.spark_layout import Layout, LayoutRule, Slice, WantedRead, Work, lay_out
from pipeline.engines.spark_tasks import Executor, Outcome
from pipeline.planning import PartitionMerge, Place
from tests.support.merge_peer import BEGUN_MS, MergePeer

NOW_MS = BEGUN_MS + 3_600_000
T = TopicId(bytes([1] * 16))
SHUFFLED = LayoutRule(FAR, is_billed=True, slots=4, min_group_bytes=1, spared_read_bytes=2**40)


@dataclass(frozen=True)
class Opened:
    """Opens the store of a double instead of the one of a URL."""

    store: JobStore

    @contextmanager
    def __call__(self, url: str, far: Mapping[str, Any]) -> Iterator[JobStore]:
        yield self.store


class Unreachable:
    """A store that has gone."""

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        raise StoreUnavailable("the bucket is out of reach")

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        raise StoreUnavailable("the bucket is out of reach")


def executor_of(store: JobStore) -> Executor:
    return Executor("double:", {}, FAR, BEGUN_MS, Opened(store))


def works_of(peer: MergePeer) -> list[Work]:
    """All that is to be merged."""
    tasks: list[MergeTask] = []
    for topic, partition in peer.parts:
        merging = PartitionMerge(Place(topic, "t", partition), MergePolicy(due_runs=10), NOW_MS)
        while (planned := merging.next_task(peer)) is not None:
            tasks.append(planned.task)
    return [Work(number, task) for number, task in enumerate(tasks)]


def carried_out(layout: Layout, executor: Executor) -> dict[int, Outcome]:
    """By the number of the merge task."""
    found: Iterable[list[Outcome]]
    if layout.slices:
        # Spark mixes what comes from several tasks of the first stage.
        stage = list(chain.from_iterable(executor.read([each]) for each in reversed(layout.slices)))
        parts = [[pair for pair in stage if pair[0] == group] for group in range(len(layout.groups))]
        found = chain.from_iterable(executor.merge(part) for part in parts)
    else:
        found = executor.carry_out(layout.groups)
    return {outcome.number: outcome for outcome in chain.from_iterable(found)}


def traffic_of(outcomes: Mapping[int, Outcome]) -> Traffic:
    traffic = Traffic()
    for outcome in outcomes.values():
        traffic.add(outcome.traffic)
    return traffic


def segments_of(peer: MergePeer, outcomes: Mapping[int, Outcome]) -> dict[int, list[bytes]]:
    return {
        number: [bytes(peer.objects[written.segment.locator]) for written in outcome.written]
        for number, outcome in outcomes.items()
    }


def test_both_ways_make_the_same_segments() -> None:
    peer = MergePeer(("t", "u"), partitions=5)
    peer.fill(200)
    works = works_of(peer)
    direct = lay_out(works, replace(SHUFFLED, is_billed=False))
    shuffled = lay_out(works, SHUFFLED)
    assert not direct.slices and len(shuffled.slices) > 1 and len(shuffled.groups) > 1
    one, other = carried_out(direct, executor_of(peer)), carried_out(shuffled, executor_of(peer))
    assert segments_of(peer, one) == segments_of(peer, other)
    assert len(one) == len(works) and all(len(outcome.written) == 1 for outcome in one.values())


def test_ends_of_transactions_are_the_same_both_ways_and_go_through_no_shuffle() -> None:
    peer = MergePeer()
    for number in range(2_000):
        peer.send(number % 3)
        peer.end(number % 3, commit=number % 2 == 0)
    peer.fill(1)
    works = works_of(peer)
    assert sum(run.is_marker for work in works for run in work.task.runs) == 2_000
    one = carried_out(lay_out(works, replace(SHUFFLED, is_billed=False)), executor_of(peer))
    groups = [works[at::3] for at in range(3)]
    shuffled = Layout(groups, slices_of(works, groups))
    other = carried_out(shuffled, executor_of(peer))
    assert segments_of(peer, one) == segments_of(peer, other)
    assert len(one) == len(works) and all(len(outcome.written) == 1 for outcome in one.values())
    stored = sum(run.size for work in works for run in work.task.runs if not run.is_marker)
    assert traffic_of(other).shuffled_bytes == stored


def slices_of(works: Sequence[Work], groups: Sequence[Sequence[Work]]) -> list[Slice]:
    """One task of the first stage reads all."""
    group_of = {work.number: at for at, group in enumerate(groups) for work in group}
    reads = [
        WantedRead(read, [group_of[piece.task] for piece in read.pieces])
        for read in plan_reads([work.task for work in works])
    ]
    return [(reads, [(group_of[work.number], work) for work in works])]


def test_through_the_shuffle_each_object_is_read_once_for_all() -> None:
    peer = MergePeer(partitions=12)
    peer.fill(100)
    works = works_of(peer)
    shuffled = traffic_of(carried_out(lay_out(works, SHUFFLED), executor_of(peer)))
    direct = traffic_of(carried_out(lay_out(works, replace(SHUFFLED, is_billed=False)), executor_of(peer)))
    wanted = sum(work.task.size for work in works)
    # Of the last object, nothing is merged.
    assert shuffled.reads == 99 < direct.reads
    assert shuffled.read_bytes == shuffled.shuffled_bytes == wanted
    assert direct.shuffled_bytes == 0


def test_two_attempts_of_one_task_write_under_two_keys() -> None:
    peer = MergePeer()
    peer.fill(50)
    layout = lay_out(works_of(peer), LayoutRule())
    one, other = carried_out(layout, executor_of(peer)), carried_out(layout, executor_of(peer))
    assert one[0].written[0].segment != other[0].written[0].segment
    assert segments_of(peer, one) == segments_of(peer, other)


@pytest.mark.parametrize("is_billed", [False, True])
def test_a_missing_run_is_reported_before_anything_is_written(is_billed: bool) -> None:
    peer = MergePeer(partitions=4)
    locators = [peer.flush([(topic, partition, 2) for topic, partition in peer.parts]) for _ in range(50)]
    works = works_of(peer)
    del peer.objects[locators[20]]
    objects = len(peer.objects)
    outcomes = carried_out(lay_out(works, replace(SHUFFLED, is_billed=is_billed)), executor_of(peer))
    assert [outcome.missing for outcome in outcomes.values()] == [True] * 4
    assert len(peer.objects) == objects


@pytest.mark.parametrize("is_billed", [False, True])
def test_a_run_that_stays_missing_is_left_between_two_segments(is_billed: bool) -> None:
    peer = MergePeer(partitions=4)
    locators = [peer.flush([(topic, partition, 2) for topic, partition in peer.parts]) for _ in range(50)]
    works = [work._replace(without_missing=True) for work in works_of(peer)]
    del peer.objects[locators[20]]
    outcomes = carried_out(lay_out(works, replace(SHUFFLED, is_billed=is_billed)), executor_of(peer))
    for outcome in outcomes.values():
        assert sorted((written.begin, written.end) for written in outcome.written) == [(0, 20), (21, 49)]
        assert len(outcome.left) == 1 and "missing" in outcome.left[0]


@pytest.mark.parametrize("is_billed", [False, True])
def test_a_damaged_run_is_left_between_two_segments(is_billed: bool) -> None:
    peer = MergePeer(partitions=4)
    locators = [peer.flush([(topic, partition, 2) for topic, partition in peer.parts]) for _ in range(50)]
    works = works_of(peer)
    broken = bytearray(peer.objects[locators[7]])
    run = next(run for run in works[1].task.runs if run.locator == locators[7])
    broken[run.start + run.size - 1] ^= 1
    peer.objects[locators[7]] = bytes(broken)
    outcomes = carried_out(lay_out(works, replace(SHUFFLED, is_billed=is_billed)), executor_of(peer))
    assert sorted((written.begin, written.end) for written in outcomes[1].written) == [(0, 7), (8, 49)]
    assert "CRC" in outcomes[1].left[0]
    assert [len(outcomes[number].written) for number in (0, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("is_billed", [False, True])
def test_every_merge_task_says_why_the_store_failed(is_billed: bool) -> None:
    peer = MergePeer(partitions=4)
    peer.fill(50)
    layout = lay_out(works_of(peer), replace(SHUFFLED, is_billed=is_billed))
    assert bool(layout.slices) == is_billed
    outcomes = carried_out(layout, executor_of(Unreachable()))
    assert [outcome.error for outcome in outcomes.values()] == ["the bucket is out of reach"] * 4


def task_of(partition: int, sizes: Sequence[int], objects: int) -> MergeTask:
    runs = [
        FoundRun(f"wal/0/{number % objects}", ObjectKind.WAL, 1_000 * partition, size, number, number, 1)
        for number, size in enumerate(sizes)
    ]
    return MergeTask(T, partition, 1, runs)


@given(
    st.lists(st.lists(st.integers(1, 1_000), min_size=1, max_size=20), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 10_000),
)
def test_every_run_comes_once_to_the_group_of_its_task(
    sizes: list[list[int]], objects: int, group_bytes: int
) -> None:
    works = [Work(number, task_of(number, each, objects)) for number, each in enumerate(sizes)]
    layout = lay_out(works, replace(SHUFFLED, slots=objects, group_bytes=group_bytes))
    assert list(chain.from_iterable(layout.groups)) == works
    for group in layout.groups:
        assert len(group) == 1 or sum(work.task.size for work in group) <= group_bytes
    if not layout.slices:
        return
    group_of = {work.number: at for at, group in enumerate(layout.groups) for work in group}
    handed = [pair for _, pairs in layout.slices for pair in pairs]
    assert sorted(handed) == sorted((group_of[work.number], work) for work in works)
    pieces = []
    for reads, _ in layout.slices:
        for wanted in reads:
            assert [group_of[piece.task] for piece in wanted.read.pieces] == wanted.groups
            pieces += [(piece.task, piece.run) for piece in wanted.read.pieces]
    assert sorted(pieces) == [(n, run) for n, each in enumerate(sizes) for run in range(len(each))]


def test_runs_that_are_large_are_read_directly() -> None:
    """With runs of 4 MiB, a shuffle would cost more than the requests that it spares."""
    rule = LayoutRule(FAR, is_billed=True, slots=4)
    large = [Work(at, task_of(at, [4 * 1024 * 1024] * 20, 20)) for at in range(8)]
    assert not lay_out(large, rule).slices
    small = [Work(at, task_of(at, [900] * 2_000, 2_000)) for at in range(100)]
    assert lay_out(small, rule).slices
    assert not lay_out(small, replace(rule, is_billed=False)).slices
