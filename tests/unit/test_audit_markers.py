"""`dragoman audit` compares the aborted transactions of a partition with its markers, live and merged."""

from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.markers import MergedMarker, check_transactions, merged_markers
from ledger.auditing.tasks import ObjectResult, ObjectTask, audit_object
from ledger.batch.control import Marker, MarkerType, build_marker
from ledger.batch.header import CONTROL_BIT, TRANSACTIONAL_BIT
from ledger.batch.records import Producer, Record, build_batch
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.keys import index_locator, segment_locator
from ledger.partitions.aborted import AbortedTransactions
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.swaps.requests import Swapped
from ledger.transactions.requests import AddToTransaction, TopicPartition
from tests.unit.test_swaps_markers import NAMES, SHORT, TOPIC, Played

PLACE: Final = Place("t", TOPIC, 0)
CREATED_MS: Final = 1_700_000_000_000
LOCATOR: Final = segment_locator(TOPIC, 0, 0, CREATED_MS, bytes(10))
RECORDS: Final = 5
PRODUCER: Final = 7


def damages_of(log: PartitionLog) -> list[Damage]:
    return list(check_transactions(PLACE, log))


STEPS = st.lists(
    st.tuples(st.sampled_from(["sends", "sends", "commits", "aborts"]), st.integers(0, 1)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 200), st.booleans(), st.integers(0, 20), st.integers(1, 20))
def test_whatever_clients_do_and_jobs_merge_is_no_damage(
    steps: list[tuple[str, int]], delete_before: int, drains: bool, begin: int, count: int
) -> None:
    played = Played(steps)
    log = played.log
    runs = list(log.runs())[begin : begin + count]
    if runs:
        (result,) = played.ledger.submit(played.swap(begin, begin + count, join=count))
        assert isinstance(result, Swapped), result
    assert damages_of(log) == []
    played.ledger.submit(DeleteRecords(TOPIC, 0, min(delete_before, log.high_watermark)))
    if drains:
        played.ledger.submit(DrainRuns(100))
    assert damages_of(log) == []


def test_a_marker_that_aborts_nothing_in_its_partition_is_no_damage() -> None:
    played = Played([])
    producer = played.producers[0]
    added = AddToTransaction(NAMES[0], producer.producer_id, producer.epoch, [TopicPartition(TOPIC, 0)])
    played.ledger.submit(added)
    played.end(0, is_commit=False)
    played.send(1)
    assert len(list(played.log.runs())) == 2 and not played.log.isolation.aborted
    assert damages_of(played.log) == []


Lie = Callable[[PartitionLog], None]


def replaced(at: int, **changed: int) -> Lie:
    def lie(log: PartitionLog) -> None:
        aborted = list(log.isolation.aborted)
        aborted[at] = aborted[at]._replace(**changed)
        log.isolation.aborted = AbortedTransactions(aborted)

    return lie


def left_open(log: PartitionLog) -> None:
    producer_id = log.isolation.aborted[0].producer_id
    log.isolation.open[producer_id] = 44


LIES: Final = {
    # The transactions of SHORT end at 10 (commit), 21 (abort), 32, 43 (commits) and 54 (abort).
    "a commit": (replaced(1, last=43, last_stable=44), 43, "a marker that commits a transaction"),
    "records": (replaced(0, last=20, last_stable=21), 20, "the ledger has records"),
    "another producer": (replaced(0, producer_id=99), 21, "the ledger has a marker that aborts"),
    "too early": (replaced(1, first=40), 40, "this producer ended one at offset 43"),
    "before an aborted one": (replaced(1, first=15), 15, "this producer ended one at offset 43"),
    "unstable": (replaced(0, last_stable=23), 21, "is 23 in the ledger, but at most 22"),
    "over": (left_open, 44, "open from here on, which ended at offset 54"),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("source", ["image", "snapshot", "journal"])
def test_what_contradicts_the_markers_is_named(name: str, source: str) -> None:
    lie, offset, said = LIES[name]
    played = Played(SHORT)
    played.ledger.write_image()
    played.ledger.restart(source)
    assert damages_of(played.log) == []
    lie(played.log)
    (damage,) = damages_of(played.log)
    assert (damage.kind, damage.topic, damage.partition) == (DamageKind.TRANSACTION, "t", 0)
    assert damage.offset == offset
    assert said in damage.what and "restore it from a backup" in damage.remedy


def test_a_transaction_that_was_open_bounds_the_last_stable_offset() -> None:
    played = Played([("sends", 0), ("sends", 1), ("aborts", 1), ("sends", 1), ("aborts", 1), ("aborts", 0)])
    assert [found.last_stable for found in played.log.isolation.aborted] == [0, 0, 33]
    assert damages_of(played.log) == []
    replaced(0, last_stable=1)(played.log)
    (damage,) = damages_of(played.log)
    assert (damage.offset, "is 1 in the ledger, but at most 0" in damage.what) == (20, True)


@pytest.mark.parametrize("lie", [replaced(0, producer_id=99), replaced(0, last=15, last_stable=16)])
def test_what_is_below_the_log_start_is_not_compared(lie: Lie) -> None:
    """Also where it is in the middle of a run."""
    played = Played(SHORT)
    lie(played.log)
    (damage,) = damages_of(played.log)
    assert damage.offset is not None
    played.log.log_start = damage.offset
    assert damages_of(played.log) == [damage]
    played.log.log_start += 1
    assert damages_of(played.log) == []


def test_a_segment_must_have_the_markers_of_its_run_from_the_log_start_on() -> None:
    played = Played(SHORT)
    log = played.log
    producer_id = log.isolation.aborted[0].producer_id
    wanted = [MergedMarker(log.number, 21, producer_id, 11), MergedMarker(log.number, 54, producer_id, 44)]
    assert list(merged_markers(log, 0, 54)) == wanted
    assert list(merged_markers(log, 0, 53)) == wanted[:1]
    assert list(merged_markers(log, 22, 60)) == wanted[1:]
    log.log_start = 22
    assert list(merged_markers(log, 0, 60)) == wanted[1:]


def data_batch(base: int, records: int = RECORDS) -> SegmentBatch:
    held = [Record(offset_delta=at, value=b"value") for at in range(records)]
    return SegmentBatch(base, build_batch(held, producer=Producer(PRODUCER, 0), flags=TRANSACTIONAL_BIT))


def marker_batch(offset: int, kind: MarkerType, producer_id: int = PRODUCER) -> SegmentBatch:
    return SegmentBatch(offset, build_marker(Marker(kind, producer_id, 0, 0, 5), offset))


def damages_of_segment(batches: Sequence[SegmentBatch], markers: Sequence[MergedMarker]) -> list[Damage]:
    """Of a partition whose markers must be these."""
    made = encode_segment(batches, 0, CREATED_MS, interval=RECORDS)
    runs = [AuditedRun(1, run.start, run.size, run.base, run.last, 3, False) for run in made.runs]
    stored = {LOCATOR: b"".join(bytes(buffer) for buffer in made.buffers), index_locator(LOCATOR): made.index}
    result = ObjectResult()
    reading = audit_object(ObjectTask(LOCATOR, made.size, runs, {3: PLACE}, markers), result)
    try:
        wanted = next(reading)
        while True:
            data = stored[wanted.locator][wanted.start : wanted.start + wanted.size]
            wanted = reading.send(data if len(data) == wanted.size else None)
    except StopIteration:
        return result.damages


EXPECTED: Final = [MergedMarker(3, RECORDS, PRODUCER, 0)]


def segment_with(at_marker: SegmentBatch) -> list[SegmentBatch]:
    return [data_batch(0), at_marker, data_batch(RECORDS + 1)]


def test_a_segment_with_the_markers_that_it_must_have_is_clean() -> None:
    whole = segment_with(marker_batch(RECORDS, MarkerType.ABORT))
    assert damages_of_segment(whole, EXPECTED) == []
    # A marker that no aborted transaction names is none of the damages.
    assert damages_of_segment(whole, []) == []


def test_many_markers_of_a_segment_are_compared_each() -> None:
    """More than a piece of an object has."""
    step = RECORDS + 1
    kinds = [MarkerType.ABORT if at % 2 else MarkerType.COMMIT for at in range(30_000)]
    batches = [
        one
        for at, kind in enumerate(kinds)
        for one in (data_batch(at * step), marker_batch(at * step + RECORDS, kind))
    ]
    expected = [
        MergedMarker(3, at * step + RECORDS, PRODUCER, at * step)
        for at, kind in enumerate(kinds)
        if kind is MarkerType.ABORT
    ]
    assert damages_of_segment(batches, expected) == []
    wrong = [*expected[:-1], expected[-1]._replace(producer_id=9)]
    (damage,) = damages_of_segment(batches, wrong)
    assert damage.offset == expected[-1].offset


CONTROL: Final = build_batch([Record(key=b"k")], producer=Producer(PRODUCER, 0), flags=CONTROL_BIT)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (marker_batch(RECORDS, MarkerType.COMMIT), "a marker that commits a transaction of producer 7"),
        (marker_batch(RECORDS, MarkerType.ABORT, 8), "a marker that aborts a transaction of producer 8"),
        (data_batch(RECORDS, 1), "has records"),
        (SegmentBatch(RECORDS, CONTROL), "a control batch that cannot be read"),
    ],
    ids=["commit", "another producer", "records", "no marker"],
)
def test_another_batch_in_the_place_of_a_marker_is_named(found: SegmentBatch, said: str) -> None:
    (damage,) = damages_of_segment(segment_with(found), EXPECTED)
    assert (damage.kind, damage.object) == (DamageKind.TRANSACTION, LOCATOR)
    assert (damage.topic, damage.partition, damage.offset, damage.last_offset) == ("t", 0, RECORDS, RECORDS)
    assert said in damage.what and "the aborted transaction of producer 7 from offset 0 on" in damage.what


def test_a_marker_that_cannot_be_read_is_a_damaged_batch_alone() -> None:
    broken = bytearray(build_marker(Marker(MarkerType.COMMIT, PRODUCER, 0, 0, 5), RECORDS))
    broken[-1] ^= 1
    (damage,) = damages_of_segment(segment_with(SegmentBatch(RECORDS, bytes(broken))), EXPECTED)
    assert damage.kind is DamageKind.DAMAGED_BATCH
