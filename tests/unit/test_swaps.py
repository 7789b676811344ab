"""Swaps: segments take the place of runs, or the request is refused and says why."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ledger.cut import StateCut
from ledger.errors import ErrorName, StoreDamaged
from ledger.image import all_rows
from ledger.journal import apply_entry, decode_entry
from ledger.keys import created_ms
from ledger.objects.requests import RaiseFloor
from ledger.objects.uploads import ObjectKind
from ledger.partitions.decide import HIGH_WATERMARK
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns, FileCommit, StaleObject
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.requests import Done, Refused
from ledger.rows import digest
from ledger.swaps.requests import (
    MAX_SWAPPED_RUNS,
    ReleasePin,
    SegmentFile,
    SegmentRun,
    Swapped,
    SwapSegments,
    TakePin,
)
from ledger.swaps.state import SwapResults
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.swapping import JOB, swap_of

TOPIC = topic_id(1)
RUNS = 12
RECORDS = 5
OTHER = b"k" * 16


def of_runs(runs: int = RUNS, level: int = 3, jobs: Sequence[bytes] = (JOB, OTHER)) -> JournalledLedger:
    """One partition; each run is an object of its own, with five records in 100 bytes. `jobs` have pins."""
    ledger = JournalledLedger(level)
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    ledger.submit(*map(TakePin, jobs))
    for number in range(runs):
        append(ledger, number)
    return ledger


def append(ledger: JournalledLedger, number: int, start: int = 0) -> None:
    batch = commit_batch(TOPIC, 0, start, records=RECORDS, max_timestamp=number)
    (result,) = ledger.submit(CommitFile(locator(number, ledger.now_ms), start + 100, [batch]))
    assert isinstance(result, FileCommit)


@pytest.fixture
def ledger() -> JournalledLedger:
    return of_runs()


def log_of(ledger: JournalledLedger) -> PartitionLog:
    return ledger.state.topics.by_id[TOPIC].partitions[0]


def swap(ledger: JournalledLedger, begin: int = 0, end: int = RUNS, **form: Any) -> SwapSegments:
    """Of the live runs from number `begin` to before `end`."""
    log = log_of(ledger)
    return swap_of(log, list(log.runs())[begin:end], ledger.now_ms, **form)


def refused(ledger: JournalledLedger, *requests: object) -> Refused:
    """The result of the last of them, which are all of one entry."""
    before = digest(all_rows(ledger.state))
    entries = len(ledger.entries)
    *_, result = ledger.submit(*requests)  # type: ignore[arg-type]
    assert isinstance(result, Refused)
    if len(requests) == 1:
        assert (len(ledger.entries), digest(all_rows(ledger.state))) == (entries, before)
    return result


def sizes(runs: Sequence[Run]) -> list[tuple[int, int, bool]]:
    return [(run.base, run.last, run.dense) for run in runs]


def same_everywhere(ledger: JournalledLedger) -> None:
    now = digest(all_rows(ledger.state))
    states = [ledger.from_journal(), ledger.from_snapshot()]
    if ledger.image:
        states.append(ledger.from_image())
    assert [digest(all_rows(state)) for state in states] == [now] * len(states)


def test_segments_take_the_place_of_runs(ledger: JournalledLedger) -> None:
    ledger.write_image()
    assert ledger.submit(swap(ledger, 2, 10)) == [Swapped(1, 0)]
    log = log_of(ledger)
    assert sizes(list(log.runs())) == [
        (0, 4, True),
        (5, 9, True),
        (10, 29, False),
        (30, 49, False),
        (50, 54, True),
        (55, 59, True),
    ]
    assert (log.run_count, log.size_bytes, log.high_watermark, log.layout_version) == (6, 1200, 60, 1)
    (segment,) = [s for s in ledger.state.objects.by_number.values() if s.kind == ObjectKind.SEGMENT]
    assert (segment.live_runs, segment.size, segment.closed) == (2, 32 + 800 + 16, False)
    assert log.find(37, 1) == [Run(30, 49, segment.number, 432, 400, 9, dense=False)]
    assert log.find_time(8) == log.find(37, 1)[0]
    assert len(ledger.state.objects.garbage) == 8
    ledger.write_image()
    same_everywhere(ledger)


def test_what_is_appended_after_a_swap_of_the_last_run_begins_a_run(ledger: JournalledLedger) -> None:
    ledger.submit(swap(ledger))
    append(ledger, 100)
    append(ledger, 100, start=100)
    assert sizes(list(log_of(ledger).runs())[-2:]) == [(40, 59, False), (60, 69, True)]
    same_everywhere(ledger)


def test_a_run_of_a_segment_is_not_lengthened_by_the_object_whose_run_it_replaced() -> None:
    ledger = of_runs(0)
    where = locator(1, ledger.now_ms)
    # The object stays open, as another partition has a run of it.
    batches = [commit_batch(TOPIC, 1, 0), commit_batch(TOPIC, 0, 100, records=RECORDS)]
    ledger.submit(CommitFile(where, 200, batches))
    ledger.submit(swap(ledger))
    ledger.submit(CommitFile(where, 300, [commit_batch(TOPIC, 0, 200, records=RECORDS)]))
    assert sizes(list(log_of(ledger).runs())) == [(0, 4, False), (5, 9, True)]
    same_everywhere(ledger)


def test_a_segment_is_swapped_again(ledger: JournalledLedger) -> None:
    ledger.submit(swap(ledger, join=1, segments=3))
    assert ledger.submit(swap(ledger, join=RUNS)) == [Swapped(2, 0)]
    log = log_of(ledger)
    assert sizes(list(log.runs())) == [(0, 59, False)]
    live = [stored for stored in ledger.state.objects.by_number.values() if stored.live_runs]
    assert [stored.live_runs for stored in live] == [1]
    same_everywhere(ledger)


def test_a_swap_that_is_cut_short_by_retention_leaves_out_what_is_below_the_log_start(
    ledger: JournalledLedger,
) -> None:
    planned = swap(ledger, 2, 10, join=2)
    ledger.submit(DeleteRecords(TOPIC, 0, 23))
    ledger.submit(DrainRuns(3))
    # A run of the range is gone, one is below the log start, and a third is in part.
    assert sizes(list(log_of(ledger).runs()))[0] == (15, 19, True)
    assert ledger.submit(planned) == [Swapped(1, 23)]
    assert sizes(list(log_of(ledger).runs()))[:2] == [(20, 29, False), (30, 39, False)]
    assert not ledger.state.draining
    same_everywhere(ledger)


def test_runs_before_the_range_are_still_drained(ledger: JournalledLedger) -> None:
    planned = swap(ledger, 4, 10)
    ledger.submit(DeleteRecords(TOPIC, 0, 23))
    ledger.submit(planned)
    assert ledger.submit(DrainRuns(100)) == [Done(4)]
    assert sizes(list(log_of(ledger).runs()))[0] == (20, 39, False)
    same_everywhere(ledger)


def test_a_segment_that_has_nothing_above_the_log_start_is_garbage(ledger: JournalledLedger) -> None:
    planned = swap(ledger, join=2, segments=6)
    ledger.submit(DeleteRecords(TOPIC, 0, 25), planned)
    named = [ledger.state.objects.by_locator[locator] for locator, _ in planned.segments]
    assert [stored.closed for stored in named] == [True, True, False, False, False, False]
    same_everywhere(ledger)


def test_nothing_is_left_of_a_range_below_the_log_start(ledger: JournalledLedger) -> None:
    planned = swap(ledger, 2, 4)
    ledger.submit(DeleteRecords(TOPIC, 0, 20))
    entries = len(ledger.entries)
    assert ledger.submit(planned) == [Swapped(0, 20)]
    assert len(ledger.entries) == entries


# Refusals


def test_below_level_3_swaps_and_pins_are_refused() -> None:
    found = refused(of_runs(level=2, jobs=()), swap(of_runs()))
    assert found.error == ErrorName.UNSUPPORTED_VERSION
    assert "ledger.feature_level = 3" in found.message


def test_a_swap_is_refused_for_a_topic_that_is_gone(ledger: JournalledLedger) -> None:
    planned = swap(ledger)
    other = replace(planned, partition=2, segments=swapped_keys(planned, "/0/", "/2/"))
    assert refused(ledger, other).error == ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    gone = refused(ledger, DeleteTopic(TOPIC), planned)
    assert gone.error == ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(ledger, planned).error == ErrorName.UNKNOWN_TOPIC_OR_PARTITION


def swapped_keys(planned: SwapSegments, old: str, new: str) -> list[SegmentFile]:
    return [file._replace(locator=file.locator.replace(old, new)) for file in planned.segments]


def test_a_swap_is_refused_for_another_layout_version(ledger: JournalledLedger) -> None:
    late = swap(ledger, 4, 8)
    ledger.submit(swap(ledger, 0, 4))
    assert refused(ledger, late).error == ErrorName.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(("first", "last"), [(1, 19), (0, 18), (-1, 19), (0, 60), (3, 4), (59, 60), (0, 3)])
def test_a_range_begins_and_ends_with_runs(ledger: JournalledLedger, first: int, last: int) -> None:
    planned = swap(ledger, 0, 4)
    runs = [SegmentRun(0, 32, 400, max(first, 0), last, 3)]
    found = refused(ledger, replace(planned, first=first, last=last, runs=runs))
    assert found.error == (ErrorName.INVALID_REQUEST if first < 0 else ErrorName.INVALID_UPDATE_VERSION)


def test_a_range_that_begins_in_a_gap_is_no_range_of_runs(ledger: JournalledLedger) -> None:
    planned = swap(ledger, 0, 4, join=1)
    # Of the run from 5 to 9 the first two offsets are left out.
    runs = [run._replace(base=7) if run.base == 5 else run for run in planned.runs]
    assert ledger.submit(replace(planned, runs=runs)) == [Swapped(1, 0)]
    later = swap(ledger, 1, 4)
    assert refused(ledger, replace(later, first=5)).error == ErrorName.INVALID_UPDATE_VERSION


def test_the_last_run_may_have_grown_since_the_plan(ledger: JournalledLedger) -> None:
    planned = swap(ledger)
    append(ledger, RUNS - 1, start=100)
    assert refused(ledger, planned).error == ErrorName.INVALID_UPDATE_VERSION


RETRIABLE = ErrorName.COORDINATOR_NOT_AVAILABLE


def test_two_swaps_of_a_partition_are_not_of_one_entry(ledger: JournalledLedger) -> None:
    one, other = swap(ledger, 0, 4), swap(ledger, 4, 8)
    assert refused(ledger, one, other).error == RETRIABLE


def test_a_swap_and_a_drain_of_a_partition_are_not_of_one_entry(ledger: JournalledLedger) -> None:
    ledger.submit(DeleteRecords(TOPIC, 0, 10))
    drained, swapped = ledger.submit(DrainRuns(10), swap(ledger, 4, 8))
    assert drained == Done(2)
    assert isinstance(swapped, Refused) and swapped.error == RETRIABLE
    ledger.submit(DeleteRecords(TOPIC, 0, 15))
    assert ledger.submit(swap(ledger, 4, 8), DrainRuns(10)) == [Swapped(1, 15), Done(0)]
    assert ledger.submit(DrainRuns(10)) == [Done(1)]
    same_everywhere(ledger)


def test_the_last_run_is_not_swapped_in_an_entry_that_appends(ledger: JournalledLedger) -> None:
    batch = commit_batch(TOPIC, 0, 100, records=RECORDS)
    commit = CommitFile(locator(RUNS - 1, ledger.now_ms), 200, [batch])
    assert refused(ledger, commit, swap(ledger, 4)).error == RETRIABLE
    # The last run goes on, and is not among them.
    batch = commit_batch(TOPIC, 0, 200, records=RECORDS)
    commit = CommitFile(locator(RUNS - 1, ledger.now_ms), 300, [batch])
    assert ledger.submit(commit, swap(ledger, 4, RUNS - 1))[1] == Swapped(1, 0)
    assert sizes(list(log_of(ledger).runs()))[-1] == (55, 69, True)
    same_everywhere(ledger)


def test_what_is_appended_in_the_entry_after_the_swap_begins_a_run(ledger: JournalledLedger) -> None:
    batch = commit_batch(TOPIC, 0, 0, records=RECORDS)
    swapped, committed = ledger.submit(swap(ledger), CommitFile(locator(100, ledger.now_ms), 100, [batch]))
    assert swapped == Swapped(1, 0) and isinstance(committed, FileCommit)
    assert sizes(list(log_of(ledger).runs()))[-1] == (60, 64, True)
    same_everywhere(ledger)


def test_an_object_that_loses_its_last_run_by_a_swap_takes_no_more(ledger: JournalledLedger) -> None:
    batch = commit_batch(TOPIC, 1, 100, records=RECORDS)
    commit = CommitFile(locator(RUNS - 1, ledger.now_ms), 200, [batch])
    assert ledger.submit(swap(ledger), commit)[1] == StaleObject()
    assert ledger.submit(commit) == [StaleObject()]


def test_a_commit_names_no_segment(ledger: JournalledLedger) -> None:
    planned = swap(ledger)
    commit = CommitFile(planned.segments[0].locator, 2_000, [commit_batch(TOPIC, 1, 1_500)])
    assert ledger.submit(commit) == [StaleObject()]
    ledger.submit(planned)
    assert ledger.submit(commit) == [StaleObject()]


def test_a_swap_of_a_job_without_a_pin_is_refused() -> None:
    """Also in the entry in which its pin ends, and not in the one in which it is taken."""
    ledger = of_runs(jobs=())
    planned = swap(ledger)
    assert refused(ledger, planned).error == ErrorName.UNKNOWN_MEMBER_ID
    ledger.submit(TakePin(OTHER))
    assert refused(ledger, planned).error == ErrorName.UNKNOWN_MEMBER_ID
    ledger.submit(TakePin(JOB))
    ended = refused(ledger, ReleasePin(JOB), planned)
    assert ended.error == ErrorName.UNKNOWN_MEMBER_ID and "begin again" in ended.message
    assert ledger.submit(TakePin(JOB), swap(ledger))[1] == Swapped(1, 0)


def test_a_segment_that_is_older_than_the_pin_of_its_job_is_refused(ledger: JournalledLedger) -> None:
    """Else a job could name what was stored before its first pin was lost, which a sweep may have deleted."""
    planned = swap(ledger)
    ledger.now_ms += 1
    ledger.submit(ReleasePin(JOB), TakePin(JOB))
    assert refused(ledger, planned).error == ErrorName.KAFKA_STORAGE_ERROR
    assert ledger.submit(swap(ledger)) == [Swapped(1, 0)]


def test_a_segment_may_be_stored_longer_before_its_swap_than_the_grace(ledger: JournalledLedger) -> None:
    """The pin of its job holds the floor, and so the sweep. Without it the floor passes: it is too late."""
    planned = swap(ledger)
    ledger.now_ms += 10 * 3_600_000
    ledger.submit(RaiseFloor(ledger.now_ms - 3_600_000))
    assert ledger.state.objects.floor_ms <= created_ms(planned.segments[0].locator)
    assert ledger.submit(planned) == [Swapped(1, 0)]
    late = swap(ledger)
    ledger.submit(ReleasePin(JOB), ReleasePin(OTHER))
    ledger.now_ms += 10 * 3_600_000
    ledger.submit(RaiseFloor(ledger.now_ms - 3_600_000))
    assert ledger.state.objects.floor_ms > created_ms(late.segments[0].locator)
    assert refused(ledger, late).error == ErrorName.UNKNOWN_MEMBER_ID
    ledger.submit(TakePin(JOB))
    assert refused(ledger, late).error == ErrorName.KAFKA_STORAGE_ERROR


def test_a_segment_is_named_once(ledger: JournalledLedger) -> None:
    one = swap(ledger, 0, 4)
    other = replace(swap(ledger, 4, 8), segments=one.segments)
    ledger.submit(one)
    other = replace(other, layout_version=1)
    found = refused(ledger, other)
    assert found.error == ErrorName.INVALID_REQUEST and "named before" in found.message


def test_a_swap_covers_and_enters_at_most_two_thousand_runs() -> None:
    ledger = of_runs(0)
    batches = [commit_batch(TOPIC, at % 2, at * 100) for at in range(2 * MAX_SWAPPED_RUNS + 2)]
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 100 * len(batches), batches))
    found = refused(ledger, swap(ledger, 0, MAX_SWAPPED_RUNS + 1, join=8))
    assert found.error == ErrorName.INVALID_REQUEST and "2,000 runs" in found.message
    found = refused(ledger, swap(ledger, 0, MAX_SWAPPED_RUNS + 1, join=1))
    assert found.error == ErrorName.INVALID_REQUEST and "2,000 runs" in found.message
    assert ledger.submit(swap(ledger, 0, MAX_SWAPPED_RUNS, join=1)) == [Swapped(1, 0)]
    same_everywhere(ledger)


def test_a_chunk_does_not_grow_for_ever_by_swaps_of_one_run_for_many() -> None:
    ledger = of_runs(0)
    batch = commit_batch(TOPIC, 0, 0, records=10**6, size=10**7)
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 10**7, [batch]))
    for _ in range(2):
        assert isinstance(ledger.submit(split(ledger))[0], Swapped)
    assert "larger ones" in refused(ledger, split(ledger)).message
    same_everywhere(ledger)


def split(ledger: JournalledLedger) -> SwapSegments:
    """The last run as 2,000."""
    *_, run = log_of(ledger).runs()
    planned = swap_of(log_of(ledger), [run], ledger.now_ms)
    runs = [SegmentRun(0, 32 + at * 100, 100, run.base + at, run.base + at, 0) for at in range(2_000)]
    runs[-1] = runs[-1]._replace(last=run.last)
    return replace(planned, runs=runs, segments=[planned.segments[0]._replace(object_bytes=10**6)])


def bad(**changes: object) -> Callable[[SwapSegments], SwapSegments]:
    return lambda planned: replace(planned, **changes)  # type: ignore[arg-type]


def bad_run(at: int, **changes: int) -> Callable[[SwapSegments], SwapSegments]:
    def change(planned: SwapSegments) -> SwapSegments:
        runs = list(planned.runs)
        runs[at] = runs[at]._replace(**changes)
        return replace(planned, runs=runs)

    return change


def bad_segment(at: int, **changes: object) -> Callable[[SwapSegments], SwapSegments]:
    def change(planned: SwapSegments) -> SwapSegments:
        segments = list(planned.segments)
        segments[at] = segments[at]._replace(**changes)  # type: ignore[arg-type]
        return replace(planned, segments=segments)

    return change


NAME = "00000000000000000000-018bcfe5-6800-7000-8000-000000000000"
PREFIX = f"seg/{TOPIC.hex()}/0/"


@pytest.mark.parametrize(
    "change",
    [
        bad(job=b"j" * 15),
        bad(attempt=2**31),
        bad(first=-5),
        bad(first=60, last=59),
        bad(last=2**63),
        bad(segments=[]),
        bad(runs=[]),
        bad_run(0, base=1),
        bad_run(-1, last=58),
        bad_run(-1, last=60),
        bad_run(1, base=19),
        bad_run(1, base=30, last=29),
        bad_run(1, max_timestamp=2**63),
        bad_run(1, size=60),
        bad_run(1, start=431),
        bad_run(0, start=31),
        bad_run(0, size=2**32),
        bad_run(-1, size=500),
        bad_run(0, segment=1),
        bad_run(1, segment=2),
        bad_run(-1, segment=0),
        bad_run(0, segment=-1),
        bad_segment(0, object_bytes=2**31),
        bad_segment(0, object_bytes=48),
        bad_segment(1, object_bytes=32 + 400 + 15),
        bad_segment(0, locator=f"wal/0/{NAME[21:]}"),
        bad_segment(0, locator=f"seg/{bytes(16).hex()}/0/{NAME}.kfs"),
        bad_segment(0, locator=f"{PREFIX}{NAME}.index"),
        bad_segment(0, locator=f"{PREFIX}{NAME.replace('-7', '-4')}.kfs"),
        bad_segment(0, locator=f"{PREFIX}{NAME}.kfs/more"),
        bad_segment(0, locator="seg/" + "é" * 100),
    ],
)
def test_a_request_that_no_job_sends_is_refused(
    ledger: JournalledLedger, change: Callable[[SwapSegments], SwapSegments]
) -> None:
    planned = swap(ledger, segments=2)
    assert len(planned.segments) == 2
    found = refused(ledger, change(planned))
    assert found.error == ErrorName.INVALID_REQUEST and found.message
    assert ledger.submit(planned) == [Swapped(1, 0)]


def test_two_segments_have_two_keys(ledger: JournalledLedger) -> None:
    planned = swap(ledger, segments=2)
    assert "twice" in refused(ledger, replace(planned, segments=[planned.segments[0]] * 2)).message


def test_a_swap_of_the_most_segments_has_an_entry_of_the_size_that_it_claims() -> None:
    ledger = of_runs(0)
    batches = [commit_batch(TOPIC, at % 2, at * 100) for at in range(2 * MAX_SWAPPED_RUNS)]
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 100 * len(batches), batches))
    planned = swap(ledger, 0, MAX_SWAPPED_RUNS, join=1, segments=MAX_SWAPPED_RUNS)
    assert ledger.submit(planned) == [Swapped(1, 0)]
    assert len(ledger.entries[-1]) < min(planned.weight, 512 * 1024)


def test_an_entry_with_a_swap_is_not_applied_twice(ledger: JournalledLedger) -> None:
    ledger.submit(swap(ledger, 0, 4))
    entry = decode_entry(ledger.entries[-1], "entry")
    with pytest.raises(StoreDamaged, match="layout version 1 has no such runs"):
        apply_entry(ledger.state, entry)


# Repeats


def test_a_repeat_gets_the_first_result_whatever_has_come_since(ledger: JournalledLedger) -> None:
    planned = swap(ledger, 0, 4)
    assert ledger.submit(planned, planned) == [Swapped(1, 0), Swapped(1, 0, duplicate=True)]
    ledger.submit(swap(ledger, 1, 3))
    ledger.submit(DeleteRecords(TOPIC, 0, HIGH_WATERMARK))
    ledger.submit(DrainRuns(100))
    ledger.submit(DeleteTopic(TOPIC))
    entries = len(ledger.entries)
    for source in ("journal", "snapshot", "image"):
        ledger.restart(source)
        ledger.write_image()
        assert ledger.submit(planned) == [Swapped(1, 0, duplicate=True)]
    assert len(ledger.entries) == entries


@pytest.mark.parametrize("change", [bad(job=OTHER), bad(attempt=1)])
def test_what_is_no_repeat_is_refused(
    ledger: JournalledLedger, change: Callable[[SwapSegments], SwapSegments]
) -> None:
    planned = swap(ledger, 0, 4)
    ledger.submit(planned)
    assert refused(ledger, change(planned)).error == ErrorName.INVALID_UPDATE_VERSION


def test_results_of_a_job_without_a_pin_go_when_the_floor_passes_the_swap() -> None:
    """An earlier version took such swaps, and its journals have them."""
    pinned, ledger = of_runs(), of_runs(jobs=())
    planned = swap(pinned, 0, 4)
    ledger.make_durable(pinned.decide(planned))
    swapped_ms = ledger.now_ms
    ledger.now_ms += 10
    ledger.submit(RaiseFloor(swapped_ms))
    assert ledger.submit(planned) == [Swapped(1, 0, duplicate=True)]
    ledger.submit(RaiseFloor(swapped_ms + 1))
    assert refused(ledger, planned).error == ErrorName.UNKNOWN_MEMBER_ID
    same_everywhere(ledger)


def test_the_oldest_results_go_when_there_are_very_many(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.swaps.state.MAX_RESULTS", 3)
    repeated = []
    for attempt in range(5):
        repeated.append(swap(ledger, 0, 2, join=1, attempt=attempt))
        ledger.submit(repeated[-1])
    ledger.write_image()
    ledger.restart("image")
    results = ledger.state.part(SwapResults)
    assert [kept.key.attempt for kept in results.kept.values()] == [2, 3, 4]
    ledger.submit(swap(ledger, 0, 2, attempt=5))
    assert [kept.key.attempt for kept in results.kept.values()] == [3, 4, 5]
    assert refused(ledger, repeated[2]).error == ErrorName.INVALID_UPDATE_VERSION
    assert ledger.submit(repeated[3]) == [Swapped(4, 0, duplicate=True)]
    same_everywhere(ledger)


# Chunks, cuts and images


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.partitions.state.CHUNK_RUNS", 3)


def chunks_of(ledger: JournalledLedger) -> list[tuple[int, int]]:
    return [(chunk.serial, len(chunk) - chunk.head) for chunk in log_of(ledger).chunks]


@pytest.mark.usefixtures("small_chunks")
def test_chunks_are_replaced_and_small_neighbours_joined(ledger: JournalledLedger) -> None:
    assert chunks_of(ledger) == [(0, 3), (1, 3), (2, 3), (3, 3)]
    before = list(log_of(ledger).chunks)
    ledger.submit(swap(ledger, 4, 8))
    assert chunks_of(ledger) == [(0, 3), (1, 3), (3, 3)]
    assert [len(chunk) for chunk in before] == [3] * 4
    ledger.submit(swap(ledger, 0, 4))
    # One run is left of the first chunk, and joins its neighbour, which has one more than it can take.
    assert chunks_of(ledger) == [(0, 3), (3, 3)]
    ledger.submit(swap(ledger))
    assert chunks_of(ledger) == [(0, 2)]
    append(ledger, 100)
    append(ledger, 101)
    assert chunks_of(ledger) == [(0, 3), (4, 1)]
    same_everywhere(ledger)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("then", ["nothing", "append", "delete"])
def test_the_image_forgets_chunks_that_are_gone(ledger: JournalledLedger, then: str) -> None:
    ledger.write_image()
    ledger.submit(swap(ledger, 0, 11))
    if then == "append":
        append(ledger, 100)
    if then == "delete":
        ledger.submit(DeleteTopic(TOPIC))
        ledger.submit(DrainRuns(100))
    ledger.write_image()
    rows = {(row.section, row.key): row.value for row in all_rows(ledger.state)}
    assert ledger.image == rows


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("whole", [False, True], ids=["changes", "whole"])
@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_a_cut_before_a_swap_has_the_runs_before_it(
    ledger: JournalledLedger, steps: int, whole: bool
) -> None:
    ledger.submit(swap(ledger, 0, 2, attempt=7))
    state = ledger.state
    expected = sorted(all_rows(state))
    if not whole:
        ledger.restart("journal")
        state = ledger.state
    cut = StateCut(state, whole=whole)
    for _ in cut.begin():
        pass
    rest = cut.rest()
    for _ in range(steps):
        next(rest, None)
    ledger.submit(swap(ledger, 0, 9))
    append(ledger, 100)
    ledger.now_ms += 10
    ledger.submit(RaiseFloor(ledger.now_ms))
    for _ in rest:
        pass
    assert sorted(cut.rows()) == expected
    if not whole:
        ledger.image = {(row.section, row.key): row.value or b"" for row in expected}
        ledger.write_image()
        assert ledger.image == {(row.section, row.key): row.value for row in all_rows(state)}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_what_swaps_changed_before_an_image_failed_is_in_the_next(
    ledger: JournalledLedger, steps: int
) -> None:
    ledger.write_image()
    ledger.submit(swap(ledger, 0, 7))
    ledger.begin_image()
    ledger.continue_image(steps)
    ledger.submit(swap(ledger, 0, 3))
    ledger.end_image(fails=True)
    ledger.write_image()
    assert ledger.image == {(row.section, row.key): row.value for row in all_rows(ledger.state)}
