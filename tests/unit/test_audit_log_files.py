"""What `dragoman audit` finds in a file of a local log."""

import struct
from collections.abc import Sequence
from typing import Final

import pytest
from crc32c import crc32c

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import Damage, DamageKind, Place
from ledger.auditing.tasks import ObjectResult, ObjectTask, audit_object
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreTooNew
from ledger.formats import wal
from ledger.formats.local_log import (
    ALIGNMENTS,
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    SEAL_BYTES,
    FrameExtent,
    LogHeader,
    Torn,
    aligned,
    batches_at,
    encode_frame,
    encode_header,
    read_frame_extent,
    version_of,
)
from ledger.keys import log_locator, uuid7
from ledger.types import DraftBatch
from tests.support.journalled import topic_id

TOPIC: Final = topic_id(1)
FILE_ID: Final = uuid7(1_700_000_000_000, bytes(10)).bytes
LOCATOR: Final = log_locator(0, FILE_ID)
RECORDS: Final = 3
ENTRY: Final = b"an entry " * 9
ZEROS: Final = bytes(200_000)


def header(alignment: int) -> LogHeader:
    return LogHeader(bytes(16), FILE_ID, 0, 1, 5, 0, bytes(16), 1_700_000_000_000, alignment)


def batch(text: str) -> bytes:
    return bytes(build_batch([Record(offset_delta=n, value=text.encode() * 10) for n in range(RECORDS)]))


def a_file(alignment: int, behind: bytes = ZEROS) -> tuple[bytearray, list[AuditedRun]]:
    """Entries with and without batches, the runs of two partitions, and what is `behind` the last frame."""
    head = header(alignment)
    data, runs, seal = bytearray(encode_header(head)), list[AuditedRun](), 0
    for number in range(5, 11):
        draft = [
            DraftBatch(TOPIC, partition, batch(f"{number}{partition}"), RECORDS) for partition in range(2)
        ]
        encoded = wal.encode_frame(draft, wal.VERSION) if number % 2 else None
        if encoded is not None:
            base = (number - 5) // 2 * RECORDS
            for partition, start in enumerate(encoded.starts):
                at, size = batches_at(len(data)) + start, len(draft[partition].data)
                runs.append(AuditedRun(1, at, size, base, base + RECORDS - 1, partition, True))
        frame = encode_frame(head, number, seal, ENTRY, encoded)
        data += b"".join(bytes(part) for part in frame.buffers)
        seal = frame.seal
    return data + behind, runs


def audited(data: bytes | bytearray, runs: Sequence[AuditedRun]) -> tuple[list[Damage], ObjectResult]:
    places = {partition: Place("t", TOPIC, partition) for partition in range(2)}
    result = ObjectResult()
    reading = audit_object(ObjectTask(LOCATOR, len(data), runs, places), result)
    try:
        wanted = next(reading)
        while True:
            wanted = reading.send(data[wanted.start : wanted.start + wanted.size])
    except StopIteration:
        return result.damages, result


@pytest.fixture(params=ALIGNMENTS)
def alignment(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_whole_file_has_no_damage(alignment: int) -> None:
    data, runs = a_file(alignment)
    found, result = audited(data, runs)
    assert (found, result.batches, result.records) == ([], 6, 6 * RECORDS)


def test_runs_of_one_frame_alone_are_found_in_the_middle(alignment: int) -> None:
    data, runs = a_file(alignment)
    found, result = audited(data, runs[2:3])
    assert (found, result.batches) == ([], 1)


def test_what_an_earlier_use_of_the_file_has_left_is_passed_over(alignment: int) -> None:
    old, _ = a_file(alignment, b"")
    data, runs = a_file(alignment, bytes(old[HEADER_BYTES:]))
    assert audited(data, runs)[0] == []


def test_each_damage_of_a_byte_of_a_batch_is_found(alignment: int) -> None:
    data, runs = a_file(alignment)
    for run in runs:
        damaged = bytearray(data)
        damaged[run.start + run.size - 1] ^= 1
        (damage,) = audited(damaged, runs)[0]
        assert (damage.kind, damage.offset, damage.partition) == (
            DamageKind.DAMAGED_BATCH,
            run.base,
            run.number,
        )


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (8, "the header"),
        (HEADER_BYTES, "no frame of this file begins here"),
        (HEADER_BYTES + FRAME_HEAD_BYTES - 1, "head of the frame does not match"),
        (HEADER_BYTES + FRAME_HEAD_BYTES, ""),
    ],
    ids=["header", "magic", "head", "WAL frame"],
)
def test_where_a_frame_is_damaged_its_batches_are_checked_alone(alignment: int, at: int, what: str) -> None:
    data, runs = a_file(alignment)
    data[at] ^= 1
    found, result = audited(data, runs)
    assert [damage.kind for damage in found] == [DamageKind.DAMAGED_FRAME]
    assert what in found[0].what and found[0].what.endswith("its batches are checked alone")
    assert (result.batches, result.records) == (6, 6 * RECORDS)


def test_a_run_that_no_frame_has_as_batches_is_foreign(alignment: int) -> None:
    data, runs = a_file(alignment)
    first_end = aligned(runs[1].start + runs[1].size + wal.TRAILER_BYTES + len(ENTRY) + SEAL_BYTES, alignment)
    entry_at = first_end + FRAME_HEAD_BYTES
    inside_an_entry = AuditedRun(1, entry_at, len(ENTRY), 0, RECORDS - 1, 0, True)
    found, _ = audited(data, [inside_an_entry, *runs[2:]])
    assert [damage.kind for damage in found] == [DamageKind.FOREIGN_BATCH]


def test_a_file_that_was_cut_loses_the_runs_behind_the_cut(alignment: int) -> None:
    data, runs = a_file(alignment)
    found, result = audited(data[: runs[-1].start + 10], runs)
    assert {damage.kind for damage in found} == {DamageKind.SHORT_OBJECT}
    assert result.batches == 5


def test_the_extent_of_a_frame_is_what_was_written(alignment: int) -> None:
    data, runs = a_file(alignment)
    extent = read_frame_extent(
        header(alignment), memoryview(data)[HEADER_BYTES:][:FRAME_HEAD_BYTES], HEADER_BYTES
    )
    assert isinstance(extent, FrameExtent)
    assert extent.batches_at == batches_at(HEADER_BYTES)
    assert extent.batches_at + extent.batches_bytes == runs[1].start + runs[1].size + wal.TRAILER_BYTES
    assert extent.end % alignment == 0
    other = header(alignment)
    assert isinstance(read_frame_extent(other, memoryview(b"DLFR"), 0), Torn)


def test_a_frame_of_a_later_version_is_told_from_damage(alignment: int) -> None:
    data, _ = a_file(alignment)
    assert (version_of(data), version_of(b"DWAL\0\1\0\0"), version_of(b"DLOG")) == (1, None, None)
    head = bytearray(data[HEADER_BYTES : HEADER_BYTES + FRAME_HEAD_BYTES])
    head[5] = 2
    damaged = read_frame_extent(header(alignment), memoryview(head), HEADER_BYTES)
    assert isinstance(damaged, Torn)
    head[-4:] = struct.pack(">I", crc32c(head[:-4]))
    with pytest.raises(StoreTooNew):
        read_frame_extent(header(alignment), memoryview(head), HEADER_BYTES)
