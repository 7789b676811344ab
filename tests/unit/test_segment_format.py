"""Segments and their indexes: byte for byte as FORMATS has them, and no damage is taken for data."""

import random
import struct
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.batch.header import HEADER_BYTES, read_header, verify_crc, walk
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreDamaged, StoreError, StoreTooNew
from ledger.formats import segment
from ledger.formats.segment import (
    HEAD_BYTES,
    TRAILER_BYTES,
    EncodedRun,
    IndexEntry,
    SegmentBatch,
    SegmentBytes,
    SegmentHead,
    SegmentTrailer,
    VerifiedSegment,
    encode_segment,
    index_bytes,
    read_head,
    read_index,
    read_trailer,
    verify,
    version_of,
)
from ledger.keys import SegmentName
from ledger.partitions.runs import without_timestamp
from ledger.types import TopicId

NOW_MS = 1_700_000_000_123
FIRST_BATCH = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "00000041"  # length: 65 bytes follow
    "00000000"  # leader epoch 0
    "02 c00f64e1"  # magic, CRC-32C of what follows
    "0000 00000001"  # attributes, last offset delta 1
    "0000018bcfe56800 0000018bcfe56805"  # base timestamp, max timestamp
    "ffffffffffffffff ffff ffffffff"  # no producer
    "00000002"  # two records
    "0e 00 00 00 01 02 61 00"
    "0e 00 0a 02 01 02 62 00"
)
SECOND_BATCH = bytes.fromhex(
    "000000000000000c"  # base offset 12, after a gap
    "00000039 00000000 02 bf1b1252 0000 00000000"
    "0000018bcfe5680a 0000018bcfe5680a"
    "ffffffffffffffff ffff ffffffff"
    "00000001"
    "0e 00 00 00 01 02 63 00"
)
KFS = (
    bytes.fromhex(
        "4b414653"  # KAFS
        "0001 0000"  # version, flags
        "0000000000000007"  # base offset
        "00000003"  # messages
        "0000018bcfe5687b"  # created
        "00000000"
    )
    + FIRST_BATCH
    + SECOND_BATCH
    + bytes.fromhex(
        "8e4a0a8d"  # CRC-32C of the batches
        "000000000000000c"  # last offset
        "454e4421"  # END!
    )
)
INDEX = bytes.fromhex(
    "49445800"  # IDX and a zero byte
    "0001"  # version
    "00000002"  # entries
    "00000002"  # interval
    "0000"
    "0000000000000007 00000020"  # the first batch is at 32
    "000000000000000c 0000006d"  # two messages later, at 32 + 77
)
WHERE = "seg/x.kfs"


def as_stored(batch: bytes) -> bytes:
    """As a WAL object has it: another base offset, and the leader epoch that its producer sent."""
    return bytes(8) + batch[8:12] + b"\xff" * 4 + batch[16:]


def joined(encoded: SegmentBytes) -> bytes:
    return b"".join(encoded.buffers)


def batch_of(records: int, timestamp: int = NOW_MS, value_bytes: int = 1) -> bytes:
    made = [Record(i, 0, None, b"v" * value_bytes) for i in range(records)]
    return build_batch(made, base_timestamp=timestamp)


def test_a_segment_is_byte_for_byte_as_in_the_example_written_by_hand() -> None:
    batches = [SegmentBatch(7, as_stored(FIRST_BATCH)), SegmentBatch(12, as_stored(SECOND_BATCH))]
    encoded = encode_segment(batches, 7, NOW_MS, 2)
    assert joined(encoded) == KFS
    assert encoded.size == len(KFS)
    assert encoded.index == INDEX
    assert encoded.runs == [EncodedRun(32, 146, 7, 12, 1_700_000_000_010)]


def test_the_example_written_by_hand_is_read() -> None:
    name = SegmentName(TopicId(bytes(16)), 0, 7, NOW_MS)
    assert read_head(KFS[:HEAD_BYTES], WHERE) == SegmentHead(7, 3, NOW_MS)
    assert read_trailer(KFS[-TRAILER_BYTES:], WHERE) == SegmentTrailer(0x8E4A0A8D, 12)
    assert version_of(KFS) == 1
    assert index_bytes(INDEX[:16], WHERE) == len(INDEX)
    assert read_index(INDEX, WHERE) == (2, [IndexEntry(7, 32), IndexEntry(12, 109)])
    assert verify(KFS, INDEX, WHERE, name) == VerifiedSegment(SegmentHead(7, 3, NOW_MS), 12, 2)


def test_a_key_of_another_segment_is_noticed() -> None:
    for base, created in ((6, NOW_MS), (7, NOW_MS + 1)):
        with pytest.raises(StoreDamaged, match="of its key"):
            verify(KFS, INDEX, WHERE, SegmentName(TopicId(bytes(16)), 0, base, created))


segments = st.lists(
    st.tuples(
        st.integers(0, 5),  # gap before the batch
        st.integers(1, 6),  # records
        st.integers(0, 40),  # bytes of each value
        st.sampled_from([-1, 0, NOW_MS]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def batches_of(shape: list[tuple[int, int, int, int, bool]], base: int) -> list[SegmentBatch]:
    batches, offset = [], base
    for gap, records, value_bytes, timestamp, is_view in shape:
        data = batch_of(records, timestamp, value_bytes)
        batches.append(SegmentBatch(offset + gap, memoryview(data) if is_view else data))
        offset += gap + records
    return batches


@settings(deadline=None)
@given(segments, st.integers(0, 2**40), st.integers(1, 8))
def test_any_batches_come_back_at_their_offsets(
    shape: list[tuple[int, int, int, int, bool]], base: int, interval: int
) -> None:
    batches = batches_of(shape, base)
    encoded = encode_segment(batches, base, NOW_MS, interval)
    data = joined(encoded)
    found = verify(data, encoded.index, WHERE, SegmentName(TopicId(bytes(16)), 0, base, NOW_MS))
    assert found.batches == len(batches) and found.head.messages == sum(one[1] for one in shape)
    body = memoryview(data)[HEAD_BYTES:-TRAILER_BYTES]
    for batch, walked in zip(batches, walk(body), strict=True):
        stored = bytes(body[walked.position : walked.position + walked.size_bytes])
        assert walked.base_offset == batch.base_offset and verify_crc(memoryview(stored))
        assert stored[8:12] == batch.data[8:12] and stored[12:16] == bytes(4)
        assert stored[16:] == batch.data[16:]
    assert found.last == encoded.runs[-1].last == walked.base_offset + walked.last_offset_delta


@settings(deadline=None)
@given(segments, st.integers(1, 500))
def test_runs_are_whole_batches_back_to_back_within_the_bound(
    shape: list[tuple[int, int, int, int, bool]], max_run_bytes: int
) -> None:
    batches = batches_of(shape, 5)
    bound = segment.MAX_RUN_BYTES
    try:
        segment.MAX_RUN_BYTES = max_run_bytes  # type: ignore[misc]
        encoded = encode_segment(batches, 5, NOW_MS)
    finally:
        segment.MAX_RUN_BYTES = bound  # type: ignore[misc]
    data = memoryview(joined(encoded))
    position = HEAD_BYTES
    for run in encoded.runs:
        walked = list(walk(data[run.start : run.start + run.size]))
        assert run.start == position and (len(walked) == 1 or run.size <= max_run_bytes)
        assert run.base == walked[0].base_offset
        assert run.last == walked[-1].base_offset + walked[-1].last_offset_delta
        assert run.max_timestamp == max(batch.max_timestamp for batch in walked)
        position += run.size
    assert position == len(data) - TRAILER_BYTES
    for one, other in pairwise(encoded.runs):
        assert one.last < other.base and one.size + other.size > 0


@settings(deadline=None)
@given(segments, st.integers(1, 8), st.data())
def test_no_flipped_bit_is_taken_for_data(
    shape: list[tuple[int, int, int, int, bool]], interval: int, data: st.DataObject
) -> None:
    encoded = encode_segment(batches_of(shape, 3), 3, NOW_MS, interval)
    kfs = bytearray(joined(encoded))
    bit = data.draw(st.integers(0, 8 * len(kfs) - 1))
    kfs[bit // 8] ^= 1 << bit % 8
    with pytest.raises((StoreDamaged, StoreTooNew)):
        verify(kfs, encoded.index, WHERE, SegmentName(TopicId(bytes(16)), 0, 3, NOW_MS))


@settings(deadline=None)
@given(segments, st.integers(1, 8), st.data())
def test_a_flipped_bit_of_an_index_leaves_no_wrong_entry(
    shape: list[tuple[int, int, int, int, bool]], interval: int, data: st.DataObject
) -> None:
    encoded = encode_segment(batches_of(shape, 3), 3, NOW_MS, interval)
    index = bytearray(encoded.index)
    bit = data.draw(st.integers(0, 8 * len(index) - 1))
    index[bit // 8] ^= 1 << bit % 8
    try:
        verify(joined(encoded), index, WHERE)
    except (StoreDamaged, StoreTooNew):
        return
    # Of the interval, where another one gives the same entries.
    assert read_index(index, WHERE).entries == read_index(encoded.index, WHERE).entries


@settings(deadline=None)
@given(segments, st.data())
def test_what_is_cut_short_or_too_long_is_no_segment(
    shape: list[tuple[int, int, int, int, bool]], data: st.DataObject
) -> None:
    encoded = encode_segment(batches_of(shape, 3), 3, NOW_MS, 2)
    kfs, index = joined(encoded), encoded.index
    for cut in (kfs[: data.draw(st.integers(0, len(kfs) - 1))], kfs + b"\0"):
        with pytest.raises(StoreDamaged):
            verify(cut, index, WHERE)
    for cut in (index[: data.draw(st.integers(0, len(index) - 1))], index + b"\0", index + index[-12:]):
        with pytest.raises(StoreDamaged):
            read_index(cut, WHERE)


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(b"KAFS")
@example(b"IDX\0")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_head, read_trailer, read_index, index_bytes, lambda d, w: verify(d, INDEX, w)):
        try:
            read(data, WHERE)
        except StoreError as error:
            assert WHERE in str(error)


def test_a_newer_version_is_named() -> None:
    newer = KFS[:4] + struct.pack(">H", 2) + KFS[6:]
    with pytest.raises(StoreTooNew, match="version 2"):
        read_head(newer, WHERE)
    with pytest.raises(StoreTooNew, match="version 2"):
        read_index(INDEX[:4] + struct.pack(">H", 2) + INDEX[6:], WHERE)
    assert (version_of(newer), version_of(b"DWAL\0\1"), version_of(b"KAF")) == (2, None, None)


def test_a_base_offset_changed_with_the_crc_of_the_segment_is_noticed() -> None:
    body = bytearray(KFS[HEAD_BYTES:-TRAILER_BYTES])
    body[len(FIRST_BATCH) + 7] = 8  # the second batch begins at the last offset of the first
    forged = KFS[:HEAD_BYTES] + body + struct.pack(">Iq", crc32c(body), 8) + b"END!"
    with pytest.raises(StoreDamaged, match="do not ascend"):
        verify(forged, INDEX, WHERE)


def test_runs_without_timestamps_keep_when_they_were_committed() -> None:
    early, late = without_timestamp(1_000), without_timestamp(2_000)
    untimed = batch_of(1, -1)
    batches = [SegmentBatch(0, untimed, early), SegmentBatch(1, untimed, late)]
    assert encode_segment(batches, 0, NOW_MS).runs[0].max_timestamp == late
    timed = [*batches, SegmentBatch(2, batch_of(1, 7), early)]
    assert encode_segment(timed, 0, NOW_MS).runs[0].max_timestamp == 7


def test_small_batches_share_buffers_and_large_ones_are_not_copied() -> None:
    small = [SegmentBatch(i, batch_of(1)) for i in range(2_000)]
    assert len(encode_segment(small, 0, NOW_MS).buffers) < 10
    large = batch_of(1, value_bytes=5_000)
    encoded = encode_segment([*small[:10], SegmentBatch(10, large), SegmentBatch(11, large)], 0, NOW_MS)
    views = [part for part in encoded.buffers if isinstance(part, memoryview)]
    assert [part.obj is large for part in views] == [True, True]
    verify(joined(encoded), encoded.index, WHERE)


def test_a_batch_larger_than_a_run_is_a_run_of_its_own() -> None:
    huge = batch_of(1, value_bytes=segment.MAX_RUN_BYTES + 1)
    small = batch_of(2)
    encoded = encode_segment(
        [SegmentBatch(0, small), SegmentBatch(2, huge), SegmentBatch(3, small)], 0, NOW_MS
    )
    assert [(run.base, run.last, run.size) for run in encoded.runs] == [
        (0, 1, len(small)),
        (2, 2, len(huge)),
        (3, 4, len(small)),
    ]


@pytest.mark.parametrize(
    "batches",
    [
        [],
        [SegmentBatch(4, FIRST_BATCH)],  # below the base
        [SegmentBatch(7, FIRST_BATCH), SegmentBatch(8, SECOND_BATCH)],
        [SegmentBatch(7, FIRST_BATCH), SegmentBatch(7, SECOND_BATCH)],
        [SegmentBatch(7, FIRST_BATCH[:-1])],
        [SegmentBatch(7, FIRST_BATCH + b"\0")],
        [SegmentBatch(7, FIRST_BATCH[: HEADER_BYTES - 1])],
        [SegmentBatch(7, b"")],
        [SegmentBatch(7, FIRST_BATCH[:16] + b"\1" + FIRST_BATCH[17:])],
    ],
)
def test_what_is_no_row_of_batches_is_refused(batches: list[SegmentBatch]) -> None:
    with pytest.raises(ValueError):
        encode_segment(batches, 5, NOW_MS)


def test_a_segment_stays_below_two_gibibytes() -> None:
    # The same bytes many times: what is encoded are views.
    data = batch_of(1, value_bytes=64 * 1024 * 1024)
    fits = (segment.MAX_SEGMENT_BYTES - HEAD_BYTES - TRAILER_BYTES) // len(data)
    batches = [SegmentBatch(i, data) for i in range(fits + 1)]
    with pytest.raises(ValueError, match="more than 2147483647 bytes"):
        encode_segment(batches, 0, NOW_MS)
    assert encode_segment(batches[:-1], 0, NOW_MS).size < 2**31


def test_messages_that_an_int32_cannot_count_are_refused() -> None:
    header = read_header(FIRST_BATCH)
    assert header.record_count == 2
    claimed = FIRST_BATCH[:23] + struct.pack(">i", 2**31 - 2) + FIRST_BATCH[27:57]
    claimed += struct.pack(">i", 2**31 - 1) + FIRST_BATCH[61:]
    first = SegmentBatch(0, claimed)
    with pytest.raises(ValueError, match="messages"):
        encode_segment([first, SegmentBatch(2**31, FIRST_BATCH)], 0, NOW_MS)


def test_the_index_has_an_entry_at_each_interval() -> None:
    generator = random.Random(7)
    counts = [generator.randint(1, 9) for _ in range(200)]
    offsets = [sum(counts[:i]) for i in range(200)]
    batches = [SegmentBatch(o, batch_of(n)) for o, n in zip(offsets, counts, strict=True)]
    encoded = encode_segment(batches, 0, NOW_MS, 50)
    index = read_index(encoded.index, WHERE)
    assert index.interval == 50 and index.entries[0] == IndexEntry(0, 32)
    for before, entry in pairwise(index.entries):
        assert 50 <= entry.offset - before.offset < 59
    everywhere = read_index(encode_segment(batches, 0, NOW_MS, 1).index, WHERE)
    assert [entry.offset for entry in everywhere.entries] == offsets
