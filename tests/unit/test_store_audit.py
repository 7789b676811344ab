"""The pure part of `dragoman audit`: what is read of an object, and what is found in it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.auditing.batches import AuditedRun, RunCheck
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.differences import differences, state_digest
from ledger.auditing.frames import PIECE_BYTES, ObjectGone, WalObjectCheck
from ledger.auditing.objects import Listing, check_table, object_uses
from ledger.auditing.offsets import check_offsets
from ledger.auditing.recheck import is_there_still
from ledger.auditing.windows import objects_with_runs, places_of, without_overlaps
from ledger.batch.records import Record, build_batch
from ledger.formats.wal import TableBatch, encode_frame
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.requests import CommitFile
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.types import DraftBatch, StoredObject
from tests.support.journalled import JournalledLedger, batches_in_order, locator, topic_id

TOPIC: Final = topic_id(1)
LOCATOR: Final = locator(1, 1_000_000)
RECORDS: Final = 3


def place_of(number: int) -> Place:
    return Place("t", TOPIC, number)


def batch(text: str, records: int = RECORDS, size: int = 10) -> bytes:
    return bytes(build_batch([Record(offset_delta=n, value=text.encode() * size) for n in range(records)]))


RUN_BYTES: Final = b"".join(batch(text) for text in "abc")
RUN: Final = AuditedRun(1, 50, len(RUN_BYTES), 100, 100 + 3 * RECORDS - 1, 0, True)
BATCH_BYTES: Final = len(RUN_BYTES) // 3
ROWS: Final = [TableBatch(50 + n * BATCH_BYTES, BATCH_BYTES, RECORDS) for n in range(3)]


def check_run(
    pieces: Sequence[bytes], run: AuditedRun = RUN, rows: Sequence[TableBatch] | None = None
) -> tuple[list[Damage], RunCheck]:
    found: list[Damage] = []
    check = RunCheck(run, place_of(0), LOCATOR, found.append, rows)
    for piece in pieces:
        check.feed(memoryview(piece))
    check.finish()
    return found, check


def test_a_whole_run_has_no_damage() -> None:
    found, check = check_run([RUN_BYTES], rows=ROWS)
    assert (found, check.batches, check.records) == ([], 3, 3 * RECORDS)


@hypothesis.settings(deadline=None)
@given(
    flipped=st.none() | st.integers(0, len(RUN_BYTES) - 1),
    cuts=st.lists(st.integers(0, len(RUN_BYTES)), max_size=8),
    has_rows=st.booleans(),
)
def test_damages_do_not_depend_on_the_pieces(flipped: int | None, cuts: list[int], has_rows: bool) -> None:
    data = bytearray(RUN_BYTES)
    if flipped is not None:
        data[flipped] ^= 0x10
    borders = [0, *sorted(cuts), len(data)]
    pieces = [bytes(data[at:end]) for at, end in pairwise(borders)]
    rows = ROWS if has_rows else None
    whole, whole_check = check_run([bytes(data)], rows=rows)
    split, split_check = check_run(pieces, rows=rows)
    assert split == whole
    assert (split_check.batches, split_check.records) == (whole_check.batches, whole_check.records)
    # Base offset and leader epoch alone are not in the CRC of a batch.
    is_covered = flipped is not None and not (flipped % BATCH_BYTES < 8 or 12 <= flipped % BATCH_BYTES < 16)
    assert bool(whole) == is_covered


def test_batches_after_a_wrong_length_are_found_by_the_table() -> None:
    data = bytearray(RUN_BYTES)
    data[11] ^= 0x01
    data[-1] ^= 0x01
    found, check = check_run([bytes(data)], rows=ROWS)
    assert [(each.offset, each.last_offset) for each in found] == [(100, 102), (106, 108)]
    assert [each.position for each in found] == [50, 50 + 2 * BATCH_BYTES]
    assert check.batches == 2


def test_without_a_table_a_wrong_length_takes_the_rest_with_it() -> None:
    data = bytearray(RUN_BYTES)
    data[BATCH_BYTES + 9] ^= 0x01
    found, _ = check_run([bytes(data)])
    (damage,) = found
    assert (damage.kind, damage.offset, damage.last_offset) == (DamageKind.DAMAGED_BATCH, 103, 108)


def test_a_run_that_ends_within_a_batch_is_damaged() -> None:
    run = RUN._replace(size=BATCH_BYTES + 30, last=105)
    found, _ = check_run([RUN_BYTES[: BATCH_BYTES + 30]], run)
    assert [each.what for each in found] == [
        "30 bytes are too few for a batch header; the 30 bytes from there on cannot be read"
    ]


@pytest.mark.parametrize("last", [107, 109])
def test_a_run_of_other_records_than_the_ledger_counts(last: int) -> None:
    found, _ = check_run([RUN_BYTES], RUN._replace(last=last))
    (damage,) = found
    assert (damage.kind, damage.offset, damage.last_offset) == (DamageKind.WRONG_COUNT, 100, last)


class Stored:
    """An object in memory, read as a check asks."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.longest = 0

    def check(self, runs: Sequence[AuditedRun]) -> tuple[list[Damage], WalObjectCheck]:
        found: list[Damage] = []
        check = WalObjectCheck(LOCATOR, len(self.data), runs, place_of, found.append)
        reading = check.reading()
        try:
            wanted = next(reading)
            while True:
                self.longest = max(self.longest, wanted.size)
                assert wanted.start + wanted.size <= len(self.data)
                wanted = reading.send(self.data[wanted.start : wanted.start + wanted.size])
        except StopIteration:
            return found, check


def framed(version: int = 2, size: int = 10) -> tuple[bytes, list[AuditedRun]]:
    """Two frames of two partitions, two batches each, and their four runs."""
    data, runs = b"", list[AuditedRun]()
    for number in range(2):
        draft = [
            DraftBatch(TOPIC, index // 2, batch(f"{number}{index}", size=size), RECORDS) for index in range(4)
        ]
        frame = encode_frame(draft, version)
        for partition in range(2):
            start = len(data) + frame.starts[2 * partition]
            run_bytes = len(draft[2 * partition].data) + len(draft[2 * partition + 1].data)
            base = number * 2 * RECORDS
            runs.append(AuditedRun(1, start, run_bytes, base, base + 2 * RECORDS - 1, partition, True))
        data += b"".join(bytes(part) for part in frame.buffers)
    return data, runs


@pytest.mark.parametrize("version", [1, 2])
def test_whole_frames_have_no_damage(version: int) -> None:
    data, runs = framed(version)
    found, check = Stored(data).check(runs)
    assert found == []
    assert (check.checked.batches, check.checked.records) == (8, 8 * RECORDS)


def test_no_more_than_a_piece_is_needed_at_a_time() -> None:
    data, runs = framed(size=PIECE_BYTES // 4)
    assert len(data) > 10 * PIECE_BYTES
    stored = Stored(data)
    found, check = stored.check(runs)
    assert (found, check.checked.records) == ([], 8 * RECORDS)
    assert stored.longest <= PIECE_BYTES


@hypothesis.settings(deadline=None)
@given(st.data())
def test_every_flipped_byte_of_a_frame_with_records_is_found(data: st.DataObject) -> None:
    whole, runs = framed(data.draw(st.sampled_from([1, 2])))
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    found, _ = Stored(bytes(damaged)).check(runs)
    assert found


def test_what_is_after_the_last_readable_frame_is_not_looked_at() -> None:
    data, runs = framed()
    half = len(data) // 2
    found, check = Stored(data[: half + 40]).check(runs[:2])
    assert (found, check.checked.batches) == ([], 4)


def test_a_frame_without_readable_runs_is_not_looked_at() -> None:
    data, runs = framed()
    damaged = bytearray(data)
    damaged[len(data) // 2 - 10] ^= 1
    found, _ = Stored(bytes(damaged)).check(runs[2:])
    assert found == []


def test_batches_behind_a_damaged_frame_header_are_checked_alone() -> None:
    data, runs = framed()
    damaged = bytearray(data)
    damaged[len(data) // 2 + 9] ^= 1
    damaged[-10] ^= 1
    found, check = Stored(bytes(damaged)).check(runs)
    assert [each.kind for each in found] == [DamageKind.DAMAGED_FRAME, DamageKind.DAMAGED_BATCH]
    assert found[0].position == len(data) // 2
    assert check.checked.batches == 8


def test_batches_of_another_partition_are_foreign() -> None:
    data, runs = framed()
    runs[0] = runs[0]._replace(number=5)
    found, _ = Stored(data).check(runs)
    assert [(each.kind, each.partition, each.offset) for each in found] == [(DamageKind.FOREIGN_BATCH, 5, 0)]


def test_a_run_that_is_not_in_the_batches_of_a_frame_is_foreign() -> None:
    data, runs = framed()
    found, _ = Stored(data).check([runs[0]._replace(start=runs[0].start - 46), *runs[1:]])
    assert [each.kind for each in found] == [DamageKind.FOREIGN_BATCH]


def test_bytes_that_vanish_end_the_check() -> None:
    _, runs = framed()
    reading = WalObjectCheck(LOCATOR, 10_000, runs, place_of, lambda _: None).reading()
    next(reading)
    with pytest.raises(ObjectGone):
        reading.send(None)


def log_of(*runs: tuple[int, int], log_start: int = 0) -> PartitionLog:
    log = PartitionLog(1, TOPIC, 0)
    for number, (base, last) in enumerate(runs):
        log.append(number, 0, 100, base, last, 0)
    log.log_start = log_start
    return log


def found_in(log: PartitionLog) -> list[tuple[DamageKind, int | None, int | None]]:
    return [(each.kind, each.offset, each.last_offset) for each in check_offsets(place_of(0), log)]


def test_offsets_in_one_run_each_are_right() -> None:
    assert found_in(log_of()) == []
    assert found_in(log_of((0, 4), (5, 5), (6, 9))) == []
    assert found_in(log_of((0, 4), (5, 9), log_start=7)) == []
    assert found_in(log_of((0, 4), log_start=5)) == []


def test_offsets_in_no_run_are_a_gap() -> None:
    assert found_in(log_of((0, 4), (7, 9))) == [(DamageKind.GAP, 5, 6)]
    assert found_in(log_of((3, 4))) == [(DamageKind.GAP, 0, 2)]
    assert found_in(log_of((0, 4), (7, 9), log_start=7)) == []
    assert found_in(log_of((0, 4), (7, 9), log_start=6)) == [(DamageKind.GAP, 6, 6)]
    behind = log_of((0, 4))
    behind.high_watermark = 8
    assert found_in(behind) == [(DamageKind.GAP, 5, 7)]


def test_offsets_in_two_runs_are_an_overlap() -> None:
    twice = log_of((0, 4))
    twice.high_watermark = 3
    twice.append(2, 0, 100, 3, 9, 0)
    assert found_in(twice) == [(DamageKind.OVERLAP, 3, 4)]
    above = log_of((0, 4))
    above.high_watermark = 3
    assert found_in(above) == [(DamageKind.OVERLAP, 3, 4)]


def ledger() -> JournalledLedger:
    """Topics `t` with 2 partitions and `u`; 10 objects with a run of each."""
    held = JournalledLedger()
    held.submit(CreateTopic("t", TOPIC, 2, {}), CreateTopic("u", topic_id(2), 1, {}))
    for number in range(10):
        batches = [
            *batches_in_order(TOPIC, 0, [2]),
            *batches_in_order(TOPIC, 1, [3], start=100),
            *batches_in_order(topic_id(2), 0, [1], start=200),
        ]
        held.submit(CommitFile(locator(number, 1_000_000 + number), 300, batches))
    return held


@pytest.mark.parametrize("window_runs", [1, 4, 7, 1000])
def test_the_runs_of_each_object_come_once(window_runs: int) -> None:
    state = ledger().state
    uses = object_uses(state)
    found = list(objects_with_runs(state, uses, window_runs=window_runs))
    assert [each.number for each in found] == list(range(10))
    assert all([run.start for run in each.runs] == [0, 100, 200] for each in found)


def test_runs_of_some_partitions_alone() -> None:
    state = ledger().state
    number = state.topics.by_name["t"].partitions[1].number
    found = list(objects_with_runs(state, object_uses(state), {number}))
    assert all([run.number for run in each.runs] == [number] for each in found)


def test_runs_with_the_same_bytes_overlap() -> None:
    state = ledger().state
    first = next(objects_with_runs(state, object_uses(state)))
    moved = first._replace(runs=[first.runs[0], first.runs[1]._replace(start=99), first.runs[2]])
    damages: list[Damage] = []
    kept = without_overlaps(moved.locator, moved.runs, places_of(state), damages.append)
    assert kept == [first.runs[0], first.runs[2]]
    (damage,) = damages
    assert (damage.kind, damage.partition, damage.position) == (DamageKind.OVERLAP, 1, 99)
    assert damage.what == "offsets 0 to 1 of t-0 have the same bytes"


def tables(state: LedgerState) -> list[tuple[str | None, str]]:
    return [(each.object, each.what) for each in check_table(state, object_uses(state))]


def test_the_object_table_counts_the_runs() -> None:
    state = ledger().state
    assert tables(state) == []
    state.objects.by_number[3].live_runs += 1
    state.objects.by_number[4].size = 299
    state.objects.by_number[5].closed_ms = 1
    assert tables(state) == [
        (locator(3, 1_000_003), "the ledger counts 4 runs in it, and has 3"),
        (locator(4, 1_000_004), "its runs end at byte 300, but 299 bytes of it are committed"),
        (locator(5, 1_000_005), "it is marked as garbage, although 3 runs are in it"),
    ]


def test_a_run_of_an_object_that_the_ledger_does_not_have() -> None:
    state = ledger().state
    del state.objects.by_number[3]
    assert tables(state) == [(None, "3 runs name the object number 3, which the ledger does not have")]


def test_stored_objects_are_accounted_for() -> None:
    held = ledger()
    held.submit(DeleteTopic(TOPIC), DeleteTopic(topic_id(2)))
    state = held.state
    state.objects.by_number[0].closed_ms = 5
    state.objects.floor_ms = 1_000_005
    state.objects.keep(900, 999)
    listing = Listing(state, object_uses(state), grace_ms=10)
    page = [
        StoredObject(locator(number, 1_000_000 + number), 1_000_000 + number, 300) for number in range(10)
    ]
    others = [StoredObject(locator(50 + ms % 50, ms), ms, 7) for ms in (950, 1_000_004, 1_000_005)]
    stray = listing.see(page) + listing.see(others)
    assert [found.created_ms for found in stray] == [1_000_004]
    counts = listing.counts
    assert (counts.live, counts.unread, counts.garbage, counts.due) == (9, 9, 1, 1)
    assert (counts.new, counts.kept, counts.stray) == (1, 1, 1)
    assert listing.missing() == []


def test_damages_of_what_is_gone_in_a_later_state_are_dropped() -> None:
    held = ledger()
    where = locator(3, 1_000_003)
    missing = Damage(DamageKind.MISSING_OBJECT, "", "", "t", 0, 6, 7, where)
    frame = Damage(DamageKind.DAMAGED_FRAME, "", "", object=where)
    stray = Damage(DamageKind.STRAY_OBJECT, "", "", object=locator(77, 5))
    journal = Damage(DamageKind.JOURNAL, "", "")
    damages = [missing, frame, stray, journal]
    assert all(is_there_still(damage, held.state) for damage in damages)
    held.state.topics.by_name["t"].partitions[0].log_start = 8
    assert [is_there_still(damage, held.state) for damage in damages] == [False, True, True, True]
    held.submit(DeleteTopic(TOPIC))
    held.state.objects.by_locator[where].closed_ms = 9
    assert [is_there_still(damage, held.state) for damage in damages] == [False, False, True, True]


def test_differences_of_two_states_are_named() -> None:
    one, other = ledger().state, ledger().state
    assert state_digest(one) == state_digest(other)
    other.topics.by_name["t"].partitions[1].log_start = 1
    other.next_producer_id = 9
    assert state_digest(one) != state_digest(other)
    assert differences(one, other) == "the numbers of the whole ledger, offsets of t-1"


def test_transactions_in_which_two_states_differ_are_named() -> None:
    one, other = ledger().state, ledger().state
    log = other.topics.by_name["t"].partitions[1]
    log.begin_transaction(7, 0)
    log.transactional().aborted.append(AbortedTransaction(3, 8, 1, 4))
    assert differences(one, other) == "an open transaction of t-1, an aborted transaction of t-1"
