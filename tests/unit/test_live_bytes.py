"""Live bytes of objects are counted right, whatever the ledger does between two slices of the count."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.merging.merge import JobAttempt
from ledger.merging.plan import MergePolicy
from ledger.objects.live_bytes import LiveBytesCount
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.partitions.state import CHUNK_RUNS
from tests.support.merged_ledger import OBJECT_MS, MergedLedger

POLICY = MergePolicy(due_runs=20, tail_ms=0, many_segments=2)
PARTITIONS = 3
OBJECTS = 4
ALL_AT_ONCE = 1 << 30


def written(flushes: int) -> MergedLedger:
    """Each of OBJECTS objects has so many runs of each partition."""
    ledger = MergedLedger(PARTITIONS, POLICY)
    for number in range(OBJECTS):
        for at in range(flushes):
            for partition in range(PARTITIONS):
                ledger.flush(100 + number + at % 7, partition)
        ledger.now_ms += OBJECT_MS
    ledger.commit()
    return ledger


def live_bytes(ledger: MergedLedger) -> Counter[int]:
    found: Counter[int] = Counter()
    for log in ledger.state.logs.values():
        for run in log.runs():
            found[run.object_number] += run.size
    return found


def closed_objects(ledger: MergedLedger) -> list[int]:
    """All but the newest."""
    return [stored.number for stored in ledger.state.objects.by_number.values() if stored.live_runs][:-1]


def merge_one(ledger: MergedLedger, partition: int, share: int) -> None:
    """Some adjacent runs of a partition: chunks are cut again around them."""
    log = list(ledger.logs())[partition]
    whole = ledger.policy
    ledger.policy = MergePolicy(due_runs=20, tail_ms=0, many_segments=2, task_bytes=5_000)
    tasks = list(ledger.plan(log))
    ledger.policy = whole
    if tasks:
        task = tasks[share * len(tasks) // 10]
        ledger.swap(task, JobAttempt(bytes(16), 1 + log.layout_version), log.layout_version)


def delete_some(ledger: MergedLedger, partition: int, share: int) -> None:
    log = list(ledger.logs())[partition]
    ledger.submit(DeleteRecords(ledger.topic, partition, log.high_watermark * share // 10))
    ledger.submit(DrainRuns(50))


CHANGES = st.sampled_from(["none", "flush", "merge", "delete"])


@settings(max_examples=60, deadline=None)
@example([("merge", 0, 5)])
@given(st.lists(st.tuples(CHANGES, st.integers(0, PARTITIONS - 1), st.integers(0, 9)), max_size=20))
def test_what_changes_during_a_count_makes_no_result_wrong(changes: list[tuple[str, int, int]]) -> None:
    ledger = written(CHUNK_RUNS // 2)
    before = live_bytes(ledger)
    objects = closed_objects(ledger)
    count = LiveBytesCount(ledger.state, objects)
    runs = {number: ledger.state.objects.by_number[number].live_runs for number in objects}
    pending = iter(changes)
    while count.step(1):
        change, partition, share = next(pending, ("none", 0, 0))
        if change == "flush":
            ledger.flush(500, partition)
            ledger.commit()
        elif change == "merge":
            merge_one(ledger, partition, share)
        elif change == "delete":
            delete_some(ledger, partition, share)
    table = ledger.state.objects.by_number
    untouched = {number for number in objects if number in table and table[number].live_runs == runs[number]}
    results = count.results()
    assert results == {number: before[number] for number in untouched}
    after = live_bytes(ledger)
    assert {number: after[number] for number in untouched} == results


@pytest.mark.parametrize("slices", [1, 7, ALL_AT_ONCE])
def test_a_count_ends_with_all_objects_and_goes_no_further_than_it_must(slices: int) -> None:
    ledger = written(CHUNK_RUNS)
    count = LiveBytesCount(ledger.state, closed_objects(ledger))
    steps = 1
    while count.step(slices):
        steps += 1
    found = live_bytes(ledger)
    assert count.results() == {number: found[number] for number in closed_objects(ledger)}
    chunks = sum(len(log.chunks) for log in ledger.logs())
    assert steps <= (chunks + PARTITIONS) // slices + 1
    # The oldest object is at the beginning of each partition: the count ends early in the last one.
    first = LiveBytesCount(ledger.state, closed_objects(ledger)[:1])
    steps = 1
    while first.step(1):
        steps += 1
    assert steps == (PARTITIONS - 1) * (chunks // PARTITIONS + 1) + 2


def test_segments_are_counted_too_and_no_object_costs_nothing() -> None:
    ledger = written(CHUNK_RUNS)
    ledger.merge()
    ledger.clean(delete=False)
    found = live_bytes(ledger)
    segments = [stored.number for stored in ledger.state.objects.by_number.values() if stored.live_runs]
    count = LiveBytesCount(ledger.state, segments)
    while count.step(5):
        pass
    assert count.results() == {number: found[number] for number in segments}
    assert not LiveBytesCount(ledger.state, ()).step(1)
