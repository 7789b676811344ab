"""Records read a part at a time are those that are read at once, and as strictly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.batch.header import BatchError, Codec, read_header
from ledger.batch.reader import SHORT_BYTES, RecordReader
from ledger.batch.records import (
    HEADERS_AT_ONCE,
    MAX_HEADERS,
    Record,
    RecordHeader,
    build_batch,
    encode_record,
    parse_records,
    skim_records,
)

small = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([bytes(63), bytes(64), bytes(9000)]))
deltas = st.sampled_from([0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31 - 1, -(2**31)])
header = st.builds(
    RecordHeader,
    st.sampled_from(["", "h", "k" * 63, "k" * 64, "\udcff"]),
    st.none() | st.sampled_from([b"", b"v", bytes(64)]),
)
headers = st.just(()) | st.lists(header, max_size=3).map(tuple)
records = st.lists(st.builds(Record, deltas, deltas, small, small, headers), max_size=4)
changes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3)


def parsed(data: bytes, count: int) -> list[tuple[int, int, bool]] | None:
    """None for what are no such records."""
    try:
        found = list(parse_records(memoryview(data), count))
    except BatchError:
        return None
    return [(record.offset_delta, record.timestamp_delta, record.key is not None) for record in found]


def skimmed(data: bytes, count: int) -> list[tuple[int, int, bool]] | None:
    try:
        found, end = skim_records(memoryview(data), 0, count)
    except BatchError:
        return None
    return [record[:3] for record in found] if end == len(data) else None


@settings(max_examples=1500, deadline=None)
@given(records, changes, st.integers(0, 3))
def test_skimming_is_as_strict_as_parsing(
    some: list[Record], changed: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(map(encode_record, some)))
    for at, byte in changed:
        if at < len(data):
            data[at] = byte
    whole = bytes(data[: len(data) - cut])
    assert skimmed(whole, len(some)) == parsed(whole, len(some))


def read_all(reader: RecordReader, chunk: int) -> list[tuple[int, int]]:
    """Unpacks from the beginning again between any two parts."""
    found = []
    while not reader.is_at_end:
        while not reader.unpack():
            assert reader.is_long
        found += [(offset, stamp) for offset, stamp, _, _ in reader.read(chunk)]
        reader.release()
    return found


def test_a_batch_is_read_on_from_where_it_was() -> None:
    some = [Record(i, 2 * i, None, b"v" * (i % 200)) for i in range(500)]
    for codec in Codec:
        batch = memoryview(build_batch(some, codec))
        expected = [(i, 2 * i) for i in range(500)]
        assert read_all(RecordReader(read_header(batch), batch, 1 << 30), 7) == expected


def test_whether_a_batch_is_long_shows_when_it_is_unpacked() -> None:
    for codec in Codec:
        for size, is_long in ((SHORT_BYTES // 2, False), (2 * SHORT_BYTES, True)):
            batch = memoryview(build_batch([Record(value=bytes(size))], codec))
            reader = RecordReader(read_header(batch), batch, 1 << 30)
            assert read_all(reader, 10) == [(0, 0)]
            assert reader.is_long is (is_long and codec is not Codec.NONE)


def test_a_record_with_many_headers_ends_a_part() -> None:
    """They are skipped without an object for each, and the caller looks at its time between two parts."""
    many = Record(0, 0, None, b"x", (RecordHeader("", b""),) * (HEADERS_AT_ONCE // 2))
    batch = build_batch([many._replace(offset_delta=n) for n in range(5)])
    reader = RecordReader(read_header(memoryview(batch)), memoryview(batch), 1 << 20)
    assert reader.unpack()
    assert [len(reader.read(100)) for _ in range(3)] == [2, 2, 1]
    assert reader.is_at_end


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_more_headers_than_can_be_opened_at_once_are_refused(codec: Codec) -> None:
    def read(headers: int) -> int:
        batch = memoryview(build_batch([Record(0, 0, None, b"x", (RecordHeader("", b""),) * headers)], codec))
        reader = RecordReader(read_header(batch), batch, 1 << 20)
        assert reader.unpack()
        return len(reader.read(1))

    assert read(MAX_HEADERS) == 1
    with pytest.raises(BatchError, match=f"{MAX_HEADERS + 1} headers in a record"):
        read(MAX_HEADERS + 1)
