"""The pure part of `dragoman audit`: what is found in segments and their indexes."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.segments import SegmentCheck
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreTooNew
from ledger.formats.segment import HEAD_BYTES, TRAILER_BYTES, SegmentBatch, encode_segment
from ledger.keys import index_locator, segment_locator
from tests.support.journalled import topic_id

TOPIC: Final = topic_id(1)
CREATED_MS: Final = 1_700_000_000_000
BASE: Final = 100
RECORDS: Final = 3
BATCHES: Final = 8
LOCATOR: Final = segment_locator(TOPIC, 2, BASE, CREATED_MS, bytes(10))
INDEX: Final = index_locator(LOCATOR)
LAST: Final = BASE + BATCHES * RECORDS - 1
PLACE: Final = Place("t", TOPIC, 2)


def batch(number: int) -> bytes:
    return bytes(build_batch([Record(offset_delta=n, value=b"%d" % number) for n in range(RECORDS)]))


INTERVAL: Final = 2 * RECORDS
INTERVAL_AT: Final = range(10, 14)
"""Where an index has it."""


def encoded(
    missing: Sequence[int] = (), interval: int = INTERVAL
) -> tuple[dict[str, bytes], list[AuditedRun]]:
    """A segment of 8 batches but for the missing ones, an index entry each two of them; two runs of four."""
    kept = [number for number in range(BATCHES) if number not in missing]
    batches = [SegmentBatch(BASE + number * RECORDS, batch(number)) for number in kept]
    made = encode_segment(batches, BASE, CREATED_MS, interval)
    data = b"".join(bytes(part) for part in made.buffers)
    size, middle, runs = len(batch(0)), BASE + 4 * RECORDS, list[AuditedRun]()
    start = HEAD_BYTES
    for base, last, numbers in ((BASE, middle - 1, range(4)), (middle, LAST, range(4, 8))):
        run_bytes = size * len([number for number in numbers if number in kept])
        runs.append(AuditedRun(1, start, run_bytes, base, last, 7, False))
        start += run_bytes
    return {LOCATOR: data, INDEX: made.index}, runs


def check(
    stored: Mapping[str, bytes], runs: Sequence[AuditedRun], place: Place = PLACE
) -> tuple[list[Damage], SegmentCheck]:
    found: list[Damage] = []
    checking = SegmentCheck(LOCATOR, len(stored[LOCATOR]), runs, lambda _: place, found.append)
    reading = checking.reading()
    try:
        wanted = next(reading)
        while True:
            data = stored.get(wanted.locator, b"")
            end = wanted.start + wanted.size
            wanted = reading.send(data[wanted.start : end] if end <= len(data) else None)
    except StopIteration:
        return found, checking


def kinds(found: Sequence[Damage]) -> list[tuple[DamageKind, int | None, int | None]]:
    return [(each.kind, each.offset, each.last_offset) for each in found]


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def test_a_whole_segment_has_no_damage() -> None:
    stored, runs = encoded()
    found, checking = check(stored, runs)
    assert found == []
    assert (checking.checked.batches, checking.checked.records) == (BATCHES, BATCHES * RECORDS)


def test_a_segment_of_which_the_ledger_needs_a_part_is_read_whole() -> None:
    stored, runs = encoded()
    assert check(stored, runs[1:])[0] == []
    stored[LOCATOR] = flipped(stored[LOCATOR], HEAD_BYTES + 70)
    (damage,) = check(stored, runs[1:])[0]
    assert (damage.kind, damage.topic, damage.position) == (DamageKind.DAMAGED_SEGMENT, None, HEAD_BYTES)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_every_flipped_byte_of_a_segment_and_its_index_is_found(data: st.DataObject) -> None:
    stored, runs = encoded()
    name = data.draw(st.sampled_from([LOCATOR, INDEX]))
    at = data.draw(st.integers(0, len(stored[name]) - 1))
    stored[name] = flipped(stored[name], at, data.draw(st.integers(0, 7)))
    try:
        found, _ = check(stored, runs)
    except StoreTooNew:
        assert at in (4, 5)
    else:
        if not found:
            # With this interval too, the index has just these entries.
            assert name == INDEX and at in INTERVAL_AT
            interval = int.from_bytes(stored[INDEX][INTERVAL_AT.start : INTERVAL_AT.stop], "big")
            assert encoded(interval=interval)[0][INDEX] == stored[INDEX]
        assert all(each.object in (LOCATOR, INDEX) for each in found)


@settings(deadline=None)
@given(st.integers(0, 16 + 4 * 12 - 1))
def test_a_short_index_is_named(size: int) -> None:
    stored, runs = encoded()
    stored[INDEX] = stored[INDEX][:size]
    (damage,) = check(stored, runs)[0]
    assert (damage.kind, damage.object) == (DamageKind.DAMAGED_INDEX, INDEX)


def test_an_index_that_is_missing_or_too_long_is_named() -> None:
    stored, runs = encoded()
    longer = {**stored, INDEX: stored[INDEX] + b"\0"}
    assert [each.kind for each in check(longer, runs)[0]] == [DamageKind.DAMAGED_INDEX]
    assert [each.kind for each in check({LOCATOR: stored[LOCATOR]}, runs)[0]] == [DamageKind.DAMAGED_INDEX]


def test_a_batch_whose_size_is_damaged_takes_the_rest_of_its_run_with_it() -> None:
    stored, runs = encoded()
    size = len(batch(0))
    stored[LOCATOR] = flipped(stored[LOCATOR], HEAD_BYTES + size + 10)
    found, checking = check(stored, runs)
    assert kinds(found) == [(DamageKind.DAMAGED_BATCH, BASE + RECORDS, BASE + 4 * RECORDS - 1)]
    assert checking.checked.batches == 5


def test_offsets_that_are_in_no_batch_are_a_gap() -> None:
    stored, runs = encoded(missing=[2, 7])
    found, _ = check(stored, runs)
    assert kinds(found) == [
        (DamageKind.GAP, BASE + 2 * RECORDS, BASE + 3 * RECORDS - 1),
        (DamageKind.GAP, BASE + 7 * RECORDS, LAST),
    ]
    assert check(stored, runs, PLACE._replace(compacts=True))[0] == []


def test_offsets_that_the_ledger_does_not_give_the_run_are_named() -> None:
    stored, runs = encoded()
    found, _ = check(stored, [runs[0]._replace(last=runs[0].last - 1), runs[1]])
    assert [each.kind for each in found] == [DamageKind.WRONG_COUNT]
    found, _ = check(stored, [runs[0], runs[1]._replace(base=runs[1].base + 1)])
    assert [each.kind for each in found] == [DamageKind.OVERLAP]


def test_a_segment_of_another_partition_is_foreign() -> None:
    stored, runs = encoded()
    found, _ = check(stored, runs, PLACE._replace(partition=3))
    assert [(each.kind, each.partition) for each in found] == [(DamageKind.FOREIGN_BATCH, 3)]


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_run_that_is_not_in_the_batches_is_named(shift: int) -> None:
    stored, runs = encoded()
    moved = runs[0]._replace(start=runs[0].start + shift)
    found, _ = check(stored, [moved, runs[1]])
    assert found
    outside = runs[1]._replace(size=runs[1].size + TRAILER_BYTES)
    found, _ = check(stored, [runs[0], outside])
    assert [each.kind for each in found] == [DamageKind.FOREIGN_BATCH]
    assert found[0].position == runs[1].start
