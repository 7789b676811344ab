"""Reads of a merge: every run once, each object in few ranges, with little that nobody wants."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.merging.found import FoundRun
from ledger.merging.plan import MergeTask
from ledger.merging.reads import FAR, NEAR, ObjectRead, ReadRule, groups_of, plan_reads
from ledger.objects.uploads import ObjectKind
from ledger.types import Position
from tests.support.merged_partition import TOPIC


def task_of(*places: tuple[str, int, int]) -> MergeTask:
    """Of runs at (locator, start, size)."""
    runs = [
        FoundRun(locator, ObjectKind.WAL, start, size, number, number, -1)
        for number, (locator, start, size) in enumerate(places)
    ]
    return MergeTask(TOPIC, 0, 0, runs)


def ranges(reads: list[ObjectRead]) -> list[tuple[str, int, int]]:
    return [(read.position.locator, read.position.start, read.position.size) for read in reads]


def test_adjacent_runs_of_several_tasks_are_one_read() -> None:
    tasks = [task_of(("b", 0, 10), ("a", 50, 10)), task_of(("b", 10, 5)), task_of(("a", 40, 10))]
    reads = list(plan_reads(tasks))
    assert ranges(reads) == [("a", 40, 20), ("b", 0, 15)]
    assert [(piece.task, piece.run, piece.start) for piece in reads[0].pieces] == [(2, 0, 0), (0, 1, 10)]


def test_small_gaps_are_read_as_long_as_they_are_little_in_all() -> None:
    places = [("a", number * 10_078, 10_000) for number in range(20)]
    assert len(list(plan_reads([task_of(*places)]))) == 1
    places = [("a", number * 178, 100) for number in range(20)]
    assert len(list(plan_reads([task_of(*places)]))) == 20
    assert len(list(plan_reads([task_of(*places)], ReadRule(waste=1.0)))) == 1


def test_the_smallest_gaps_are_read_first() -> None:
    task = task_of(("a", 0, 1_000), ("a", 1_100, 1_000), ("a", 2_110, 1_000), ("a", 3_130, 1_000))
    reads = plan_reads([task], ReadRule(waste=0.01))
    assert ranges(list(reads)) == [("a", 0, 1_000), ("a", 1_100, 3_030)]


def test_stores_that_bill_requests_get_fewer() -> None:
    places = [("a", number * 120_000, 100_000) for number in range(20)]
    near, far = (list(plan_reads([task_of(*places)], rule)) for rule in (NEAR, FAR))
    assert (len(near), len(far)) == (20, 1)


def test_bytes_that_are_not_the_range_are_no_runs() -> None:
    (read,) = plan_reads([task_of(("a", 0, 10))])
    with pytest.raises(ValueError, match="9 bytes are not the 10"):
        list(read.runs(memoryview(bytes(9))))


def test_tasks_are_held_together_as_far_as_memory_goes() -> None:
    tasks = [task_of(("a", 0, size)) for size in (40, 50, 20, 200, 10)]
    assert [[task.size for task in group] for group in groups_of(tasks, 100)] == [[40, 50], [20], [200], [10]]


PLACES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 900), st.integers(0, 300), st.integers(0, 3))
)
RULES = st.builds(ReadRule, st.integers(0, 400), st.floats(0, 2), st.integers(1, 3_000))


@settings(deadline=None)
@given(PLACES, RULES)
def test_every_run_is_read_once_and_found_again(
    rows: list[tuple[str, int, int, int]], rule: ReadRule
) -> None:
    ends: Counter[str] = Counter()
    places: list[list[tuple[str, int, int]]] = [[], [], [], []]
    for locator, size, gap, task in rows:
        places[task].append((locator, ends[locator] + gap, size))
        ends[locator] += gap + size
    tasks = [task_of(*some) for some in places]
    reads = list(plan_reads(tasks, rule))
    for before, after in pairwise(reads):
        assert (before.position.locator, before.position.start + before.position.size) <= (
            after.position.locator,
            after.position.start,
        )
    found: Counter[FoundRun] = Counter()
    for read in reads:
        position, pieces = read.position, read.pieces
        assert position.size <= rule.range_bytes or len(pieces) == 1
        for piece in pieces:
            run = tasks[piece.task].runs[piece.run]
            found[run] += 1
            assert Position(run.locator, run.start, run.size) == Position(
                position.locator, position.start + piece.start, piece.size
            )
    assert found == Counter(run for task in tasks for run in task.runs)
    for locator in "ab":
        wanted = sum(run.size for task in tasks for run in task.runs if run.locator == locator)
        read_bytes = sum(read.position.size for read in reads if read.position.locator == locator)
        assert wanted <= read_bytes <= wanted * (1 + rule.waste)
