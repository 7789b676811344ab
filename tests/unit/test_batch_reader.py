"""Records read a part at a time are those that are read at once, and as strictly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.batch.header import BatchError, Codec, read_header
from ledger.batch.reader import SHORT_BYTES, RecordReader
from ledger.batch.records import Record, RecordHeader, build_batch, encode_record, parse_records, skim_records

small = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([bytes(63), bytes(64), bytes(9000)]))
deltas = st.sampled_from([0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**31 - 1, -(2**31)])
headers = st.sampled_from([(), (), (RecordHeader("h", None),)])
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
