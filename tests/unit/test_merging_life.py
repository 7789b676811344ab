"""A ledger that is merged stays small however long it lives: real ledger state, virtual time, no bytes."""

import random
from collections.abc import Iterator

import pytest

from ledger.image import all_rows
from ledger.merging.merge import JobAttempt
from ledger.merging.plan import MergePolicy
from ledger.objects.rows import OBJECT
from ledger.objects.uploads import ObjectKind
from ledger.partitions.requests import DeleteRecords
from ledger.partitions.rows import CHUNK
from ledger.partitions.state import PartitionLog
from ledger.rows import digest
from ledger.swaps.requests import ReleasePin, TakePin
from tests.support.merged_ledger import GRACE_MS, OBJECT_MS, MergedLedger, live

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
RUN_BYTES = 4 * 1024 * 1024
JOB = JobAttempt(bytes(16), 1)


def index_bytes(ledger: MergedLedger) -> int:
    """Of the rows that say where records are."""
    return sum(len(row.value or b"") for row in all_rows(ledger.state) if row.section in (CHUNK, OBJECT))


def offsets(log: PartitionLog) -> Iterator[tuple[int, int]]:
    return ((run.base, run.last) for run in log.runs())


def has_every_offset_once(log: PartitionLog) -> bool:
    expected = next(offsets(log), (log.high_watermark, 0))[0]
    for base, last in offsets(log):
        if base != expected:
            return False
        expected = last + 1
    return expected == log.high_watermark


@pytest.mark.parametrize(
    ("flushes", "many_segments"),
    [(100_000, 20), pytest.param(2_000_000, 500, marks=pytest.mark.full)],
    ids=["short", "full"],
)
def test_the_runs_of_a_busy_producer_do_not_grow_with_its_flushes(flushes: int, many_segments: int) -> None:
    """At 200 flushes a second, 100 bytes each: too few for large segments."""
    ledger = MergedLedger(policy=MergePolicy(many_segments=many_segments))
    counted = live(ledger, flushes, every_ms=5, size=100, job_ms=20_000)
    between_jobs, tail = 4_000, 2_000
    waiting = between_jobs + tail + ledger.policy.due_runs
    segments = many_segments + 2 * ledger.produced // RUN_BYTES
    assert ledger.segment_runs() <= segments
    assert max(counted) <= waiting + segments
    assert ledger.merged.refused == 0
    assert has_every_offset_once(next(ledger.logs()))
    # What is small is merged a second time, many segments at once.
    assert ledger.merged.bytes <= 2 * ledger.produced


def test_the_index_of_large_batches_is_one_run_for_four_mebibytes() -> None:
    ledger = MergedLedger()
    live(ledger, 20_000, every_ms=50, size=16_000, job_ms=MINUTE_MS)
    before = index_bytes(ledger)
    ledger.now_ms += ledger.policy.age_ms
    ledger.merge()
    (log,) = ledger.logs()
    assert log.run_count <= 1.2 * ledger.produced / RUN_BYTES + 10
    assert index_bytes(ledger) < before
    assert ledger.merged.bytes == ledger.produced


def test_index_bytes_fall_by_far() -> None:
    unmerged, merged = MergedLedger(), MergedLedger()
    for ledger in (unmerged, merged):
        for _ in range(20_000):
            ledger.now_ms += 5
            ledger.flush(1_000)
        ledger.commit()
        ledger.now_ms += 2 * HOUR_MS
        # The results for repeats of commits are gone in both.
        ledger.clean()
    merged.merge()
    assert 50 * index_bytes(merged) < index_bytes(unmerged)


def test_objects_are_garbage_soon_after_the_age_of_their_slowest_partition() -> None:
    """One busy partition, and others with a record an hour."""
    ledger = MergedLedger(10)
    job_ms = 30 * MINUTE_MS
    for minute in range(24 * 60):
        ledger.now_ms += MINUTE_MS
        for _ in range(10):
            ledger.flush(1_000)
        ledger.flush(100, minute // 7 % 10)
        if ledger.now_ms % job_ms < MINUTE_MS:
            ledger.merge()
            ledger.clean()
    bound_ms = ledger.policy.age_ms + OBJECT_MS + job_ms + GRACE_MS + job_ms
    kept = [each for each in ledger.state.objects.by_number.values() if each.kind == ObjectKind.WAL]
    assert min(each.created_ms for each in kept) >= ledger.now_ms - bound_ms
    assert ledger.merged.bytes <= ledger.produced
    assert all(map(has_every_offset_once, ledger.logs()))


@pytest.mark.parametrize("seed", range(4))
def test_invariant_7_deletions_and_other_jobs_meanwhile_leave_no_gap_and_nothing_twice(seed: int) -> None:
    choose = random.Random(seed)
    policy = MergePolicy(due_runs=20, tail_ms=100, small_segment_bytes=50_000, many_segments=5)
    ledger = MergedLedger(3, policy)
    starts = [0, 0, 0]
    for _ in range(3_000):
        ledger.now_ms += choose.randrange(1, 50)
        ledger.flush(choose.randrange(100, 5_000), choose.randrange(3))
        action = choose.random()
        if action < 0.01:
            ledger.merge()
        elif action < 0.02:
            # Two jobs have the same plan. One of them is late for each task.
            ledger.commit()
            plans = [list(ledger.plan(log)) for log in ledger.logs()]
            for attempt in (1, 2):
                for tasks in plans:
                    for task in tasks[:1]:
                        ledger.swap(task, JobAttempt(bytes([attempt] * 16), 1), task.layout_version)
                ledger.submit(ReleasePin(bytes([attempt] * 16)))
        elif action < 0.03:
            ledger.commit()
            at = choose.randrange(3)
            log = list(ledger.logs())[at]
            starts[at] = choose.randrange(log.log_start, log.high_watermark + 1)
            ledger.submit(DeleteRecords(ledger.topic, at, starts[at]))
        elif action < 0.06:
            ledger.clean()
    ledger.commit()
    assert ledger.merged.refused > 0
    for log, start in zip(ledger.logs(), starts, strict=True):
        assert log.log_start == start
        assert has_every_offset_once(log)
        live_runs = [run for run in log.runs() if run.last >= start]
        assert not live_runs or live_runs[0].base <= start


def test_invariant_7_a_swap_of_an_old_plan_changes_nothing() -> None:
    ledger = MergedLedger()
    for _ in range(1_000):
        ledger.now_ms += 20
        ledger.flush(100)
    ledger.commit()
    (log,) = ledger.logs()
    (task,) = ledger.plan(log)
    ledger.merge()
    ledger.submit(TakePin(JOB.job))
    before = digest(all_rows(ledger.state))
    ledger.swap(task, JOB, task.layout_version)
    assert ledger.merged.refused == 1
    assert digest(all_rows(ledger.state)) == before
