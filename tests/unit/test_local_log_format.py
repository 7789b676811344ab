"""Files of the local log: what was written is found again; torn, old and damaged frames are told apart."""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats import wal
from ledger.formats.local_log import (
    BUFFERED,
    DIRECT,
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    LogFrame,
    LogHeader,
    Torn,
    batches_at,
    encode_frame,
    encode_header,
    read_frames,
    read_header,
)
from ledger.formats.local_log_chain import NO_END, parts_of
from ledger.types import DraftBatch, TopicId

HEADER = LogHeader(
    cluster_id=b"c" * 16,
    file_id=b"f" * 16,
    shard=0,
    sequence=3,
    first_entry=7,
    previous_seal=0xABCD,
    previous_nonce=b"n" * 16,
    created_ms=1_700_000_000_000,
    boot=b"b" * 16,
)
TOPIC = TopicId(b"t" * 16)
DRAFT = [DraftBatch(TOPIC, 0, b"first batch", 2), DraftBatch(TOPIC, 1, b"second", 1)]
Content = list[tuple[bytes, list[DraftBatch]]]
drafts = st.lists(
    st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=50), st.integers(1, 9)).map(
        lambda fields: DraftBatch(TOPIC, *fields)
    ),
    max_size=3,
)
contents = st.lists(st.tuples(st.binary(min_size=1, max_size=60), drafts), max_size=5)


def written(header: LogHeader, content: Content) -> bytes:
    file, seal = bytearray(encode_header(header)), header.previous_seal
    for number, (entry, draft) in enumerate(content, header.first_entry):
        batches = wal.encode_frame(draft, wal.VERSION) if draft else None
        frame = encode_frame(header, number, seal, entry, batches)
        assert sum(len(buffer) for buffer in frame.buffers) == frame.size
        file += b"".join(frame.buffers)
        seal = frame.seal
    return bytes(file)


def read(file: bytes, header: LogHeader = HEADER) -> list[LogFrame | Torn]:
    return list(read_frames(header, memoryview(file), "f.log"))


@given(contents, st.sampled_from([BUFFERED, DIRECT]), st.sampled_from([b"", bytes(9_000)]))
def test_every_entry_and_batch_is_found_again(content: Content, alignment: int, behind: bytes) -> None:
    header = replace(HEADER, alignment=alignment)
    file = written(header, content) + behind
    assert read_header(file, "f.log") == header
    *frames, end = read(file, header)
    assert isinstance(end, Torn)
    assert end.position == len(file) - len(behind)
    assert len(frames) == len(content)
    for number, (frame, (entry, draft)) in enumerate(zip(frames, content, strict=True), 7):
        assert isinstance(frame, LogFrame)
        assert frame.position % alignment == 0
        assert (frame.number, bytes(frame.entry)) == (number, entry)
        if not draft:
            assert frame.batches == (0, 0)
            continue
        starts = wal.encode_frame(draft, wal.VERSION).starts
        assert frame.batches[0] == batches_at(frame.position)
        for batch, start in zip(draft, starts, strict=True):
            at = batches_at(frame.position) + start
            assert file[at : at + len(batch.data)] == batch.data


def test_the_bytes_of_a_header_and_of_a_frame_without_batches_are_as_documented() -> None:
    file = written(HEADER, [(b"entry", [])])
    header = (
        b"DLOG" + struct.pack(">HH", 1, 0) + b"c" * 16 + b"f" * 16 + struct.pack(">iIqqI", 0, 1, 3, 7, 0xABCD)
    )
    header += b"n" * 16 + struct.pack(">q", 1_700_000_000_000)
    header += b"b" * 16
    assert file[:108] == header
    assert file[108:4096] == struct.pack(">I", crc32c(header)) + bytes(3984)
    head = b"DLFR" + struct.pack(">HH", 1, 0) + b"f" * 16 + struct.pack(">qIII", 7, 0xABCD, 5, 0)
    head += struct.pack(">I", crc32c(head))
    assert file[4096:] == head + b"entry" + struct.pack(">I", crc32c(head + b"entry"))


def test_the_seal_of_a_frame_with_batches_has_their_crc_in_it() -> None:
    file = written(HEADER, [(b"entry", DRAFT)])
    batches = b"".join(wal.encode_frame(DRAFT, 2).buffers)
    head = file[4096 : 4096 + FRAME_HEAD_BYTES]
    assert file[4096 + FRAME_HEAD_BYTES :] == batches + b"entry" + struct.pack(
        ">I", crc32c(head + batches[-4:] + b"entry")
    )


@pytest.mark.parametrize("alignment", [BUFFERED, DIRECT])
def test_a_file_that_was_torn_at_any_byte_has_the_frames_before(alignment: int) -> None:
    header = replace(HEADER, alignment=alignment)
    file = written(header, [(b"one", DRAFT), (b"two", DRAFT)])
    last = len(written(header, [(b"one", DRAFT)]))
    sealed = last + len(b"".join(wal.encode_frame(DRAFT, 2).buffers)) + FRAME_HEAD_BYTES + len(b"two") + 4
    for size in range(last, sealed):
        for rest in (b"", bytes(len(file) - size), b"\xff" * (len(file) - size)):
            frame, end = read(file[:size] + rest, header)
            assert isinstance(frame, LogFrame) and frame.number == 7
            assert isinstance(end, Torn) and end.position == last


def test_a_flipped_bit_before_the_last_frame_is_damage_and_in_the_last_frame_its_end() -> None:
    file = written(HEADER, [(b"one", DRAFT), (b"two", [])])
    last = len(written(HEADER, [(b"one", DRAFT)]))
    for at in range(HEADER_BYTES, len(file)):
        damaged = bytearray(file)
        damaged[at] ^= 1 << at % 8
        if at < last:
            with pytest.raises(StoreDamaged, match=r"f\.log is damaged at 4096: .* entry 8 follows"):
                read(bytes(damaged))
        else:
            *frames, end = read(bytes(damaged))
            assert len(frames) == 1 and isinstance(end, Torn) and end.position == last


def test_frames_that_a_recycled_file_still_holds_are_none() -> None:
    old = replace(HEADER, file_id=b"o" * 16, first_entry=1, sequence=1)
    content: Content = [(b"old entry", DRAFT)] * 40
    before = written(old, content)
    new = written(HEADER, [(b"one", DRAFT), (b"two", [])])
    *frames, end = read(new + before[len(new) :])
    assert [frame.number for frame in frames if isinstance(frame, LogFrame)] == [7, 8]
    assert isinstance(end, Torn) and end.position == len(new)


def test_a_frame_of_another_place_in_the_log_is_none() -> None:
    for other in (replace(HEADER, previous_seal=1), replace(HEADER, first_entry=8)):
        with pytest.raises(StoreDamaged, match="in the place of entry 7, or goes on after another one"):
            read(encode_header(HEADER) + written(other, [(b"x", [])])[4096:])


def test_a_later_frame_is_found_wherever_it_begins() -> None:
    later = written(replace(HEADER, first_entry=9), [(b"x", [])])[4096:]
    for before in (2**20 - 60, 2**20 - 1, 2**20, 2**20 + 1):
        with pytest.raises(StoreDamaged, match="entry 9 follows"):
            read(encode_header(HEADER) + bytes(before) + later)


def test_headers_that_were_not_written_whole_are_none_and_newer_ones_are_refused() -> None:
    header = encode_header(HEADER)
    assert read_header(header[:4095], "f") is None
    assert read_header(bytes(4096), "f") is None
    for at in range(112):
        damaged = bytearray(header)
        damaged[at] ^= 1
        assert read_header(bytes(damaged), "f") is None
    newer = bytearray(header)
    struct.pack_into(">H", newer, 4, 2)
    struct.pack_into(">I", newer, 108, crc32c(bytes(newer[:108])))
    with pytest.raises(StoreTooNew, match="version 2; this build reads 1"):
        read_header(bytes(newer), "f")
    with pytest.raises(ValueError, match="alignment of 512"):
        encode_header(replace(HEADER, alignment=512))


def file_of(sequence: int, first_entry: int) -> LogHeader:
    return replace(HEADER, sequence=sequence, first_entry=first_entry, file_id=bytes([sequence]) * 16)


def test_of_an_earlier_file_only_entries_below_the_first_of_a_later_one_count() -> None:
    files = [file_of(1, 0), file_of(2, 10), file_of(3, 20), file_of(4, 15)]
    assert [(part.header.sequence, part.end) for part in parts_of(files)] == [(1, 10), (2, 15), (4, NO_END)]
    assert [(part.header.sequence, part.end) for part in parts_of(files[::-1])] == [
        (1, 10),
        (2, 15),
        (4, NO_END),
    ]
    # A file that went on with the entry with which the next one goes on too has none.
    assert [part.header.sequence for part in parts_of([file_of(1, 5), file_of(2, 5)])] == [2]
    assert parts_of([]) == []


def test_files_that_do_not_belong_together_are_damage() -> None:
    with pytest.raises(StoreDamaged, match="have the sequence 1"):
        parts_of([file_of(1, 0), file_of(1, 5)])
    with pytest.raises(StoreDamaged, match="different ledgers"):
        parts_of([file_of(1, 0), replace(file_of(2, 5), cluster_id=b"d" * 16)])
