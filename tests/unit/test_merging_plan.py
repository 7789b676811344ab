"""Which runs are merged: whole ones, in time, each byte once, and never the newest."""

from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.keys import log_locator, uuid7
from ledger.merging.found import FoundMarker, FoundRun, RunPage
from ledger.merging.plan import MAX_TASK_RUNS, MergePolicy, MergeTask, PartitionPlanner
from ledger.objects.uploads import ObjectKind
from ledger.partitions.runs import without_timestamp
from tests.support.journalled import locator
from tests.support.merged_partition import TOPIC, FoundPartition

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
POLICY = MergePolicy()
ENDED = FoundMarker(7, 3, is_commit=True)


def flushed(runs: int, *, size: int = 1_000, age_ms: int = HOUR_MS, page_runs: int = 300) -> FoundPartition:
    """Flushes of one record into one object, with something of others in between."""
    partition = FoundPartition(page_runs)
    for number in range(runs):
        partition.append(locator(1, NOW_MS - age_ms), number * (size + 80), size)
    return partition


def spans(tasks: list[MergeTask]) -> list[tuple[int, int]]:
    return [(task.first, task.last) for task in tasks]


def merged(partition: FoundPartition, now_ms: int, policy: MergePolicy = POLICY) -> int:
    """Carries a plan out. Returns the bytes that it has read and written."""
    tasks = partition.plan(policy, now_ms)
    for task in tasks:
        partition.swap(task, now_ms)
    return sum(task.size for task in tasks)


def test_runs_wait_until_there_are_many() -> None:
    assert flushed(POLICY.due_runs).plan(POLICY, NOW_MS) == []
    tasks = flushed(POLICY.due_runs + 1).plan(POLICY, NOW_MS)
    assert spans(tasks) == [(0, POLICY.due_runs - 1)]


def transactions(partition: FoundPartition, count: int, *, size: int = 1_000) -> FoundPartition:
    """Each of one flush, and ended by a marker."""
    for number in range(count):
        partition.append(locator(1, NOW_MS - HOUR_MS), number * (size + 80), size, 10)
        partition.mark(ENDED, NOW_MS - HOUR_MS)
    return partition


def segments(partition: FoundPartition, count: int, size: int) -> FoundPartition:
    """Each of one run, and one marker after each."""
    for number in range(count):
        run = partition.append(locator(10 + number, NOW_MS - DAY_MS), 32, size)
        partition.runs[-1] = run._replace(kind=ObjectKind.SEGMENT)
        partition.mark(ENDED, NOW_MS - DAY_MS)
    return partition


def test_records_of_short_transactions_are_merged_across_their_ends() -> None:
    partition = transactions(FoundPartition(), 400)
    (task,) = partition.plan(POLICY, NOW_MS)
    assert (task.first, task.last, len(task.runs)) == (0, 400 * 11 - 1, 800)
    assert transactions(FoundPartition(), 249).plan(POLICY, NOW_MS) == []
    many = transactions(FoundPartition(300), 2_000).plan(POLICY, NOW_MS)
    assert [len(task.runs) for task in many] == [1_800, 1_800]


def test_ends_of_transactions_make_nothing_old_and_wait_for_their_own_age() -> None:
    partition = transactions(FoundPartition(), 300)
    partition.mark(ENDED, NOW_MS - POLICY.tail_ms + 1)
    partition.append(locator(2, NOW_MS - HOUR_MS), 0, 1_000)
    (task,) = partition.plan(POLICY, NOW_MS)
    assert task.last == 300 * 11 - 1
    few = FoundPartition()
    few.append(locator(1, NOW_MS - HOUR_MS), 0, 1_000)
    few.mark(ENDED, NOW_MS - 2 * POLICY.age_ms)
    assert few.plan(POLICY, NOW_MS) == []


def test_small_segments_are_merged_with_the_ends_of_transactions_between_them() -> None:
    partition = segments(FoundPartition(300), POLICY.many_segments, 1_000)
    (task,) = partition.plan(POLICY, NOW_MS)
    assert (task.first, task.last) == (0, 2 * POLICY.many_segments - 1)
    assert list(task.runs) == partition.runs
    transactions(partition, 300)
    small, fresh = partition.plan(POLICY, NOW_MS)
    assert {run.is_segment for run in small.runs if not run.is_marker} == {True}
    # The end of a transaction between both goes with the fresh ones.
    assert fresh.first == small.last + 1 and fresh.runs[0].is_marker
    assert spans(transactions(segments(FoundPartition(), 3, 10**6), 300).plan(POLICY, NOW_MS)) == [
        (5, 6 + 300 * 11 - 1)
    ]


def test_an_end_of_which_the_gateway_does_not_say_all_ends_a_task() -> None:
    partition = transactions(FoundPartition(), 300)
    unknown = partition.mark(None, NOW_MS - HOUR_MS)
    transactions(partition, 300)
    assert spans(partition.plan(POLICY, NOW_MS)) == [
        (0, unknown.base - 1),
        (unknown.last + 1, partition.high_watermark - 1),
    ]


def test_runs_wait_until_their_object_is_old() -> None:
    assert flushed(3, age_ms=POLICY.age_ms - 1).plan(POLICY, NOW_MS) == []
    assert spans(flushed(3, age_ms=POLICY.age_ms).plan(POLICY, NOW_MS)) == [(0, 2)]


def test_a_task_has_no_more_runs_than_one_swap() -> None:
    tasks = flushed(4_700).plan(POLICY, NOW_MS)
    assert [len(task.runs) for task in tasks] == [1_800, 1_800, 1_099]


def test_a_task_has_no_more_bytes_than_are_held_in_memory() -> None:
    tasks = flushed(100, size=POLICY.task_bytes // 10).plan(POLICY, NOW_MS)
    assert [len(task.runs) for task in tasks] == [10] * 9
    large = flushed(3, size=POLICY.task_bytes + 1).plan(POLICY, NOW_MS)
    assert spans(large) == [(0, 0)]


def test_the_last_run_may_grow_and_is_left_alone() -> None:
    (task,) = flushed(1_000).plan(POLICY, NOW_MS)
    assert task.last == 998


def test_the_newest_runs_are_left_alone() -> None:
    partition = flushed(600)
    for number in range(600):
        partition.append(locator(number, NOW_MS - POLICY.tail_ms + 1), 0, 100)
    assert spans(partition.plan(POLICY, NOW_MS)) == [(0, 599)]


def test_a_local_object_is_created_long_before_its_newest_runs() -> None:
    partition = flushed(600)
    for number in range(600, 1_200):
        stamp = NOW_MS - 1 if number % 2 else without_timestamp(NOW_MS - 1)
        partition.append(locator(1, NOW_MS - HOUR_MS), number * 1_080, 1_000, 1, stamp)
    assert spans(partition.plan(POLICY, NOW_MS)) == [(0, 599)]


def test_in_a_log_file_the_age_of_each_run_counts_and_not_that_of_the_file() -> None:
    """It is written for as long as it is not full, and cannot go before."""
    file = log_locator(0, uuid7(NOW_MS - 3 * DAY_MS, bytes(10)).bytes)
    partition = FoundPartition()
    ages = [2 * DAY_MS, POLICY.age_ms + 1, HOUR_MS, HOUR_MS, POLICY.tail_ms // 2]
    for number, age_ms in enumerate(ages):
        stamp = NOW_MS - age_ms
        partition.append(file, number * 200, 100, 1, stamp if number % 2 else without_timestamp(stamp))
    assert spans(partition.plan(POLICY, NOW_MS)) == [(0, 3)]
    young = FoundPartition()
    for number in range(3):
        young.append(file, number * 200, 100, 1, NOW_MS - HOUR_MS)
    assert young.plan(POLICY, NOW_MS) == []


def test_timestamps_from_the_future_keep_no_run_young() -> None:
    partition = FoundPartition()
    for number in range(600):
        partition.append(locator(1, NOW_MS - HOUR_MS), number * 200, 100, 1, NOW_MS + DAY_MS)
    assert spans(partition.plan(POLICY, NOW_MS)) == [(0, 598)]


def test_the_last_run_of_an_idle_partition_frees_its_object_too() -> None:
    partition = flushed(1, age_ms=POLICY.age_ms)
    merged(partition, NOW_MS)
    assert [run.is_segment for run in partition.runs] == [True]


def test_what_is_in_a_sparse_file_is_merged_whatever_its_age_the_last_run_too() -> None:
    sparse, full = (log_locator(0, uuid7(NOW_MS - at, bytes(10)).bytes) for at in (2_000, 1_000))
    policy = MergePolicy(sparse=frozenset({sparse}))
    partition = FoundPartition()
    partition.append(sparse, 0, 100, max_timestamp=NOW_MS - 1_500)
    assert partition.plan(POLICY, NOW_MS) == []
    assert spans(partition.plan(policy, NOW_MS)) == [(0, 0)]
    for number in range(3):
        partition.append(full, 200 * number, 100, max_timestamp=NOW_MS - 900 + number)
    # Younger ones of other files wait, as ever.
    assert spans(partition.plan(policy, NOW_MS)) == [(0, 0)]


def test_runs_below_the_log_start_are_not_merged() -> None:
    partition = flushed(1_000)
    partition.log_start = 400
    assert spans(partition.plan(POLICY, NOW_MS)) == [(400, 998)]


def test_a_run_that_the_log_start_cuts_is_merged_whole() -> None:
    partition = FoundPartition()
    for number in range(600):
        partition.append(locator(1, NOW_MS - HOUR_MS), number * 200, 100, records=10)
    partition.log_start = 5
    assert partition.plan(POLICY, NOW_MS)[0].first == 0


def test_segments_are_left_alone() -> None:
    partition = flushed(1_000)
    merged(partition, NOW_MS)
    assert spans(partition.plan(POLICY, NOW_MS + DAY_MS)) == [(999, 999)]
    merged(partition, NOW_MS + DAY_MS)
    assert partition.plan(POLICY, NOW_MS + 2 * DAY_MS) == []


def with_segments(count: int, size: int, page_runs: int = 300) -> FoundPartition:
    partition = FoundPartition(page_runs)
    for number in range(count):
        run = partition.append(locator(number, NOW_MS - number), 0, size)
        partition.runs[-1] = run._replace(kind=ObjectKind.SEGMENT, start=32)
    return partition


def test_very_many_small_segments_become_few() -> None:
    partition = with_segments(POLICY.many_segments - 1, 100_000)
    assert partition.plan(POLICY, NOW_MS) == []
    partition = with_segments(POLICY.many_segments, 400_000)
    tasks = partition.plan(POLICY, NOW_MS)
    assert [len(task.runs) for task in tasks] == [167, 167, 166]
    assert merged(partition, NOW_MS) == POLICY.many_segments * 400_000
    assert partition.plan(POLICY, NOW_MS) == []


def test_large_segments_are_no_part_of_what_is_merged_again() -> None:
    partition = with_segments(700, 100_000)
    partition.runs[100] = partition.runs[100]._replace(size=POLICY.small_segment_bytes)
    assert spans(partition.plan(POLICY, NOW_MS)) == [(101, 699)]
    partition.runs[300] = partition.runs[300]._replace(size=POLICY.small_segment_bytes)
    assert partition.plan(POLICY, NOW_MS) == []


def test_a_large_segment_whose_last_run_is_small_is_large() -> None:
    partition = FoundPartition(page_runs=7)
    for number in range(POLICY.many_segments + 50):
        for start, size in ((32, 4_000_000), (4_000_032, 50)):
            run = partition.append(locator(number, NOW_MS), start, size)
            whole = run._replace(kind=ObjectKind.SEGMENT, start=start, size=size)
            partition.runs[-1:] = (
                [run._replace(kind=ObjectKind.SEGMENT, size=4_000_000)] if start > 32 else []
            )
            partition.runs.append(whole._replace(base=run.last, last=run.last))
    assert partition.plan(POLICY, NOW_MS) == []


def test_one_run_too_large_for_any_segment_stays() -> None:
    partition = flushed(1_300)
    partition.runs[600] = partition.runs[600]._replace(size=2**31 - 1)
    assert spans(partition.plan(POLICY, NOW_MS)) == [(0, 599), (601, 1_298)]


def test_a_task_without_a_run_is_what_is_before_and_after_it() -> None:
    (task,) = flushed(1_000).plan(POLICY, NOW_MS)
    assert spans(task.without(10)) == [(0, 9), (11, 998)]
    assert spans(task.without(0)) == [(1, 998)]
    assert spans(task.without(998)) == [(0, 997)]


def test_other_layouts_mean_that_what_is_held_is_asked_for_again() -> None:
    partition = flushed(1_000, page_runs=300)
    planner = PartitionPlanner(TOPIC, 0, POLICY, NOW_MS)
    assert planner.feed(partition.page(0)) == []
    partition.layout_version += 1
    assert planner.feed(partition.page(300)) == []
    assert planner.next_offset == 0
    tasks = [task for page in partition.pages(planner) for task in planner.feed(page)]
    assert [(task.first, task.last, task.layout_version) for task in tasks] == [(0, 998, 1)]


def test_a_partition_that_others_merge_all_the_time_is_planned_in_bounded_time() -> None:
    partition = flushed(1_000, page_runs=300)
    planner = PartitionPlanner(TOPIC, 0, POLICY, NOW_MS)
    pages = 0
    for page in partition.pages(planner):
        planner.feed(page)
        partition.layout_version += 1
        pages += 1
    assert pages < 30


def test_a_run_that_has_grown_since_the_page_before_ends_the_plan() -> None:
    partition = flushed(700)
    first = partition.page(0)
    planner = PartitionPlanner(TOPIC, 0, POLICY, NOW_MS)
    planner.feed(RunPage(0, 0, 10_000, first.runs))
    grown = first.runs[-1]._replace(last=10_000, size=9_000_000)
    assert planner.feed(RunPage(0, 0, 20_000, [grown])) == []
    assert planner.next_offset is None


@pytest.mark.parametrize(
    "wrong", [{"due_runs": 0}, {"due_runs": 1_801}, {"many_segments": 1}, {"task_bytes": 0}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"merges|a task"):
        MergePolicy(**wrong)


RUN = st.tuples(
    st.sampled_from(("new", "same", "segment", "same segment", "marker")),
    st.integers(1, 3_000),
    st.integers(1, 5),
    st.integers(0, 40),
)
SMALL_POLICY = MergePolicy(
    due_runs=4, age_ms=30, tail_ms=5, small_segment_bytes=2_000, many_segments=3, task_bytes=6_000
)


def history(rows: list[tuple[str, int, int, int]], page_runs: int) -> FoundPartition:
    """Runs of any kinds in any order, some of the same object as the one before, of any age."""
    partition = FoundPartition(page_runs)
    key, kind, end = "", ObjectKind.WAL, 0
    for number, (where, size, records, age_ms) in enumerate(rows):
        if where == "marker":
            partition.mark(ENDED, NOW_MS - age_ms)
            continue
        kind = ObjectKind.SEGMENT if "segment" in where else ObjectKind.WAL
        is_same = partition.runs and where.startswith("same") and partition.runs[-1].kind == kind
        key, end = (key, end + 10) if is_same else (locator(number, NOW_MS - age_ms), 0)
        base = partition.high_watermark
        partition.runs.append(FoundRun(key, kind, end, size, base, base + records - 1, -1))
        partition.high_watermark += records
        end += size
    return partition


@settings(deadline=None)
@given(st.lists(RUN, max_size=40), st.integers(1, 41), st.integers(0, 100))
def test_invariant_7_a_plan_covers_whole_adjacent_runs_once_and_not_the_tail(
    rows: list[tuple[str, int, int, int]], page_runs: int, log_start: int
) -> None:
    partition = history(rows, page_runs)
    partition.log_start = min(log_start, partition.high_watermark)
    tasks = partition.plan(SMALL_POLICY, NOW_MS)
    taken = Counter(run for task in tasks for run in task.runs)
    assert set(taken.values()) <= {1}
    for before, after in pairwise(tasks):
        assert before.last < after.first
    for task in tasks:
        at = partition.runs.index(task.runs[0])
        assert partition.runs[at : at + len(task.runs)] == list(task.runs)
        assert len(task.runs) <= MAX_TASK_RUNS
        assert task.size <= SMALL_POLICY.task_bytes or len(task.runs) == 1
        assert len({run.is_segment for run in task.runs if not run.is_marker}) <= 1
        assert task.last >= partition.log_start
    for run in taken:
        if run.is_marker:
            assert run.max_timestamp <= NOW_MS - SMALL_POLICY.tail_ms
            continue
        is_young = run.created_ms > NOW_MS - SMALL_POLICY.tail_ms or run.last + 1 == partition.high_watermark
        assert run.is_segment or not is_young or run.created_ms <= NOW_MS - SMALL_POLICY.age_ms


@settings(deadline=None)
@given(st.lists(RUN, max_size=40), st.integers(1, 41))
def test_a_plan_is_the_same_whatever_the_pages(rows: list[tuple[str, int, int, int]], page_runs: int) -> None:
    in_one = history(rows, 1_000).plan(SMALL_POLICY, NOW_MS)
    assert spans(history(rows, page_runs).plan(SMALL_POLICY, NOW_MS)) == spans(in_one)


@settings(deadline=None)
@given(st.lists(RUN, max_size=40))
def test_no_old_run_of_a_wal_object_stays_before_the_tail(rows: list[tuple[str, int, int, int]]) -> None:
    partition = history(rows, 1_000)
    merged(partition, NOW_MS, SMALL_POLICY)
    for run in partition.runs:
        if run.is_marker and run.max_timestamp <= NOW_MS - SMALL_POLICY.tail_ms:
            continue
        if not run.is_segment and run.seen_ms(NOW_MS) > NOW_MS - SMALL_POLICY.tail_ms:
            break
        assert run.is_segment or run.created_ms > NOW_MS - SMALL_POLICY.age_ms


class Life(NamedTuple):
    """A partition that gets a batch of `size` bytes every `every_ms`, for `days`."""

    every_ms: int
    size: int
    days: float


LIVES = {
    "two a second": Life(500, 1_000, 1),
    "small ones, ten a second": Life(100, 60, 0.2),
    "large ones": Life(2_000, 1_000_000, 0.5),
    "ten a minute": Life(6_000, 1_000, 5),
    "one a minute": Life(60_000, 200, 20),
    "three a day": Life(8 * HOUR_MS, 200, 30),
}
OBJECT_MS = 15 * 60_000
"""How long a local object grows."""
JOB_MS = 30 * 60_000


class Lived(NamedTuple):
    """Bytes produced, bytes merged, the most runs at a time, the greatest age of an object that had runs."""

    produced: int
    merged: int
    runs: int
    age_ms: int


@cache
def live(life: Life, policy: MergePolicy = POLICY) -> Lived:
    partition = FoundPartition()
    written = most = oldest = position = 0
    jobs = range(NOW_MS, NOW_MS + int(life.days * DAY_MS), JOB_MS)
    next_ms = NOW_MS
    for job_ms in jobs:
        for at_ms in range(next_ms, job_ms, life.every_ms):
            created = at_ms - at_ms % OBJECT_MS
            position += life.size + 1_000
            partition.append(locator(created, created), position, life.size, 1, at_ms)
            next_ms = at_ms + life.every_ms
        written += merged(partition, job_ms, policy)
        most = max(most, len(partition.runs))
        unmerged = [run.created_ms for run in partition.runs if not run.is_segment]
        oldest = max(oldest, job_ms - min(unmerged, default=job_ms))
    return Lived(partition.high_watermark * life.size, written, most, oldest)


@pytest.mark.parametrize("name", LIVES)
def test_each_byte_is_merged_once_whatever_the_rate(name: str) -> None:
    lived = live(LIVES[name])
    assert 0.9 * lived.produced <= lived.merged <= lived.produced


@pytest.mark.parametrize("name", LIVES)
def test_objects_lose_their_runs_within_the_age(name: str) -> None:
    assert live(LIVES[name]).age_ms < POLICY.age_ms


@pytest.mark.parametrize("name", LIVES)
def test_the_runs_of_a_partition_stay_few(name: str) -> None:
    life = LIVES[name]
    unmerged = POLICY.due_runs + JOB_MS // life.every_ms
    large = life.days * DAY_MS / life.every_ms * life.size / POLICY.small_segment_bytes
    assert live(life).runs <= unmerged + POLICY.many_segments + large


def test_what_stays_small_is_merged_a_second_time_and_hardly_ever_a_third() -> None:
    lived = live(Life(60_000, 200, 20), MergePolicy(many_segments=10))
    assert 1.5 * lived.produced < lived.merged <= 2 * lived.produced
    assert lived.runs < 400
