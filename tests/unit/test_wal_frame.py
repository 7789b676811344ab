"""WAL frames: what was written is found again, and a torn or damaged tail is recognised exactly."""

import struct
from itertools import groupby

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ledger.formats.wal import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    DamagedFrame,
    FrameHead,
    encode_frame,
    is_table_of,
    read_frame_head,
)
from ledger.types import DraftBatch, TopicId
from tests.support.wal_frames import Frame, scan_frames

TOPICS = [TopicId(bytes([n]) * 16) for n in range(3)]
drafts = st.lists(
    st.builds(
        DraftBatch,
        topic_id=st.sampled_from(TOPICS),
        partition=st.integers(0, 3),
        data=st.binary(min_size=1, max_size=80),
        record_count=st.integers(1, 2**31 - 1),
        producer_id=st.integers(-1, 2**63 - 1),
        producer_epoch=st.integers(-1, 2**15 - 1),
        base_sequence=st.integers(-1, 2**31 - 1),
    ),
    min_size=1,
    max_size=12,
)


def joined(batches: list[DraftBatch], version: int = 1) -> bytes:
    return b"".join(encode_frame(batches, version).buffers)


def scanned(data: bytes) -> list[Frame | DamagedFrame]:
    return list(scan_frames(memoryview(data)))


def some_batches(count: int = 3) -> list[DraftBatch]:
    return [DraftBatch(TOPICS[n % 2], n, b"batch %d" % n * 10, n + 1, 5, 0, 10 * n) for n in range(count)]


@given(st.lists(drafts, max_size=4))
def test_every_frame_and_batch_of_an_object_is_found_again(flushes: list[list[DraftBatch]]) -> None:
    position = 0
    found = scanned(b"".join(map(joined, flushes)))
    assert len(found) == len(flushes)
    for draft, frame in zip(flushes, found, strict=True):
        encoded = encode_frame(draft)
        assert isinstance(frame, Frame)
        assert (frame.position, frame.size) == (position, encoded.size)
        position += encoded.size
        by_start = {stored.start: stored for stored in frame.batches}
        for batch, start in zip(draft, encoded.starts, strict=True):
            stored = by_start.pop(start)
            assert stored.data == batch.data
            assert (stored.topic_id, stored.partition) == (batch.topic_id, batch.partition)
            assert (stored.record_count, stored.producer_id) == (batch.record_count, batch.producer_id)
            assert (stored.producer_epoch, stored.base_sequence) == (
                batch.producer_epoch,
                batch.base_sequence,
            )
        assert not by_start


@given(drafts)
def test_starts_and_size_are_those_of_the_bytes_written(draft: list[DraftBatch]) -> None:
    encoded = encode_frame(draft)
    written = b"".join(encoded.buffers)
    assert len(written) == encoded.size
    for batch, start in zip(draft, encoded.starts, strict=True):
        assert written[start : start + len(batch.data)] == batch.data


@given(drafts)
def test_batches_of_a_partition_lie_side_by_side_in_their_order(draft: list[DraftBatch]) -> None:
    encoded = encode_frame(draft)
    (frame,) = scanned(b"".join(encoded.buffers))
    assert isinstance(frame, Frame)
    partitions = [(stored.topic_id, stored.partition) for stored in frame.batches]
    assert [partition for partition, _ in groupby(partitions)] == list(dict.fromkeys(partitions))
    for partition in set(partitions):
        starts = [
            start
            for batch, start in zip(draft, encoded.starts, strict=True)
            if (batch.topic_id, batch.partition) == partition
        ]
        assert starts == sorted(starts)


def test_batches_are_passed_on_and_not_copied() -> None:
    data = memoryview(bytearray(b"x" * 100)).toreadonly()
    encoded = encode_frame([DraftBatch(TOPICS[0], 0, data, 1)])
    assert encoded.buffers[1] is data


def test_the_bytes_are_those_of_version_1() -> None:
    frame = joined([DraftBatch(TOPICS[1], 7, b"records", 3, 99, 2, 40)])
    head = b"DWAL" + struct.pack(">HHIII", 1, 0, 24 + 46 + 7 + 4, 46, 1)
    entry = b"\1" * 16 + struct.pack(">iIIiqhi", 7, 70, 7, 3, 99, 2, 40)
    body = entry + b"records"
    assert frame == head + struct.pack(">I", crc32c(head)) + body + struct.pack(">I", crc32c(body))
    assert (HEADER_BYTES, ENTRY_BYTES) == (24, 46)


def test_an_object_cut_anywhere_keeps_its_whole_frames_and_shows_where_the_torn_one_begins() -> None:
    first, second = joined(some_batches()), joined(some_batches(2))
    for end in range(len(first) + 1, len(first + second)):
        whole, torn = scanned((first + second)[:end])
        assert isinstance(whole, Frame)
        assert isinstance(torn, DamagedFrame)
        assert (torn.position, torn.is_torn) == (len(first), True)


def test_every_flipped_byte_is_recognised_and_nothing_after_it_is_read() -> None:
    first, second, third = joined(some_batches()), joined(some_batches(2)), joined(some_batches(1))
    for at in range(len(first), len(first + second)):
        data = bytearray(first + second + third)
        data[at] ^= 0x10
        whole, damaged = scanned(bytes(data))
        assert isinstance(whole, Frame)
        assert isinstance(damaged, DamagedFrame)
        assert (damaged.position, damaged.is_torn) == (len(first), False)


def test_zeros_after_the_last_frame_are_no_frame() -> None:
    first = joined(some_batches())
    _, damaged = scanned(first + bytes(4096))
    assert damaged == DamagedFrame(len(first), "no frame begins here: 00000000", is_torn=False)


def resealed(frame: bytes, at: int, layout: str, value: int) -> bytes:
    """A frame with a changed field, and CRCs that match."""
    data = bytearray(frame)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 20, crc32c(data[:20]))
    struct.pack_into(">I", data, len(data) - 4, crc32c(data[24:-4]))
    return bytes(data)


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (4, ">H", 3, "version 3"),
        (6, ">H", 1, "flags 1"),
        (8, ">I", 27, "frame of 27 bytes"),
        (16, ">I", 2, "2 batches"),
        (16, ">I", 2**32 - 1, "batches cannot"),
        (12, ">I", 2**32 - 1, "batches cannot"),
        (24 + 20, ">I", 0, "table"),
        (24 + 24, ">I", 6, "table"),
        (24 + 24, ">I", 2**32 - 1, "table"),
    ],
)
def test_a_frame_that_contradicts_itself_is_damaged(at: int, layout: str, value: int, reason: str) -> None:
    frame = joined([DraftBatch(TOPICS[1], 7, b"records", 3, 99, 2, 40)])
    (damaged,) = scanned(resealed(frame, at, layout, value))
    assert isinstance(damaged, DamagedFrame)
    assert reason in damaged.reason
    assert not damaged.is_torn


def test_a_table_whose_batches_overlap_is_damaged() -> None:
    frame = joined([DraftBatch(TOPICS[1], partition, b"records", 3) for partition in range(2)])
    (damaged,) = scanned(resealed(frame, HEADER_BYTES + 20, ">I", HEADER_BYTES + 2 * ENTRY_BYTES + 7))
    assert isinstance(damaged, DamagedFrame)
    assert "table" in damaged.reason


@given(st.binary(max_size=200))
def test_random_bytes_are_no_frames(data: bytes) -> None:
    assert all(isinstance(found, DamagedFrame) for found in scanned(data))
    assert all(isinstance(found, DamagedFrame) for found in scanned(b"DWAL" + data))


def test_a_frame_without_batches_or_too_large_is_not_made() -> None:
    with pytest.raises(ValueError, match="without batches"):
        encode_frame([])
    megabyte = memoryview(bytes(1 << 20))
    with pytest.raises(ValueError, match=str(MAX_FRAME_BYTES)):
        encode_frame([DraftBatch(TOPICS[0], 0, megabyte, 1)] * 2048)


@given(st.lists(st.tuples(drafts, st.sampled_from([1, 2])), max_size=4))
def test_frames_of_both_versions_are_found_again_in_one_object(
    flushes: list[tuple[list[DraftBatch], int]],
) -> None:
    found = scanned(b"".join(joined(*flush) for flush in flushes))
    for (draft, version), frame in zip(flushes, found, strict=True):
        assert isinstance(frame, Frame)
        encoded = encode_frame(draft, version)
        assert frame.size == encoded.size == len(joined(draft, version))
        stored = {batch.start: bytes(batch.data) for batch in frame.batches}
        assert [stored[start] for start in encoded.starts] == [bytes(batch.data) for batch in draft]


def test_the_bytes_of_a_frame_of_version_2_never_change() -> None:
    frame = joined([DraftBatch(TOPICS[1], 7, b"records", 3, 99, 2, 40)], 2)
    table = bytes.fromhex("01" * 16 + "00000007 0000004a 00000007 00000003 0000000000000063 0002 00000028")
    head = bytes.fromhex("4457414c 0002 0000 00000055 0000002e 00000001") + crc32c(table).to_bytes(4, "big")
    expected = head + crc32c(head).to_bytes(4, "big") + table + b"records"
    assert frame == expected + crc32c(table + b"records").to_bytes(4, "big")
    assert len(frame) == 0x55


def test_any_flipped_bit_of_the_table_of_version_2_is_noticed_without_its_batches() -> None:
    frame = joined(some_batches(), 2)
    head = read_frame_head(memoryview(frame))
    assert isinstance(head, FrameHead)
    table = slice(head.header_bytes, head.header_bytes + head.table_bytes)
    assert is_table_of(head, memoryview(frame)[table])
    for bit in range(8 * head.table_bytes):
        damaged = bytearray(frame[table])
        damaged[bit // 8] ^= 1 << bit % 8
        assert not is_table_of(head, memoryview(damaged))
    for bit in range(8 * head.header_bytes):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(read_frame_head(memoryview(flipped)), DamagedFrame)


@pytest.mark.parametrize("version", [1, 2])
def test_a_header_that_is_cut_off_is_torn(version: int) -> None:
    frame = joined(some_batches(), version)
    head = read_frame_head(memoryview(frame))
    assert isinstance(head, FrameHead)
    for size in range(head.header_bytes):
        torn = read_frame_head(memoryview(frame)[:size])
        assert isinstance(torn, DamagedFrame) and torn.is_torn
