"""Records inside a batch: built, parsed, and compared with an independent client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ledger.batch.header import HEADER_BYTES, BatchError, Codec, check_batches, verify_crc
from ledger.batch.records import (
    Producer,
    Record,
    RecordHeader,
    build_batch,
    encode_record,
    parse_records,
    read_batch,
)
from ledger.errors import ErrorName

LIMIT = 1 << 20
nullable = st.none() | st.binary(max_size=40)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=10), nullable), max_size=3).map(tuple)
records = st.lists(st.builds(Record, key=nullable, value=nullable, headers=headers), min_size=1, max_size=20)


def numbered(some: list[Record]) -> list[Record]:
    return [one._replace(offset_delta=i, timestamp_delta=7 * i) for i, one in enumerate(some)]


@given(records, st.sampled_from(Codec))
def test_what_was_built_is_read_back(some: list[Record], codec: Codec) -> None:
    some = numbered(some)
    batch = build_batch(some, codec, base_timestamp=10**12, producer=Producer(5, 0, 100))
    check_batches(memoryview(batch), LIMIT)
    header, read = read_batch(memoryview(batch), LIMIT)
    assert read == some
    assert (header.record_count, header.last_offset_delta) == (len(some), len(some) - 1)
    assert header.max_timestamp == 10**12 + some[-1].timestamp_delta


@given(records)
def test_an_independent_client_reads_the_same_records(some: list[Record]) -> None:
    some = numbered(some)
    batch = build_batch(some, base_offset=1000, base_timestamp=10**12)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in theirs] == [
        (1000 + one.offset_delta, 10**12 + one.timestamp_delta, one.key, one.value, list(one.headers))
        for one in some
    ]


@given(records)
def test_records_of_an_independent_client_are_read_the_same(some: list[Record]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=LIMIT,
    )
    some = numbered(some)
    for one in some:
        builder.append(one.offset_delta, 5000 + one.timestamp_delta, one.key, one.value, list(one.headers))
    batch = bytes(builder.build())
    check_batches(memoryview(batch), LIMIT)
    assert read_batch(memoryview(batch), LIMIT)[1] == some
    assert batch == build_batch(some, base_timestamp=5000)


@pytest.mark.parametrize(
    "delta", [0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]
)
def test_timestamp_deltas_of_64_bits_survive(delta: int) -> None:
    data = memoryview(encode_record(Record(timestamp_delta=delta)))
    assert list(parse_records(data, 1)) == [Record(timestamp_delta=delta)]


def test_header_keys_that_are_not_utf8_survive() -> None:
    data = encode_record(Record(headers=(RecordHeader("\udcff\udcfe", b"v"),)))
    assert b"\xff\xfe" in data
    assert b"".join(map(encode_record, parse_records(memoryview(data), 1))) == data


def test_an_empty_batch_keeps_its_last_offset() -> None:
    header, read = read_batch(memoryview(build_batch([], base_offset=50, last_offset_delta=9)), LIMIT)
    assert (read, header.last_offset) == ([], 59)


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_count_other_than_the_records_is_refused(count: int) -> None:
    data = b"".join(encode_record(Record(i, value=b"x" * 10)) for i in range(3))
    with pytest.raises(BatchError, match="INVALID_RECORD"):
        list(parse_records(memoryview(data), count))


def test_a_negative_count_of_no_bytes_is_refused() -> None:
    with pytest.raises(BatchError, match="a count of -1 records"):
        list(parse_records(memoryview(b""), -1))


def test_every_truncation_of_records_is_refused() -> None:
    data = encode_record(Record(1, 2, b"key", b"value", (RecordHeader("h", b"x"), RecordHeader("i", None))))
    for end in range(len(data)):
        with pytest.raises(BatchError, match="INVALID_RECORD"):
            list(parse_records(memoryview(data[:end]), 1))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("00 00 00 01 01 02", "1 headers in 0 bytes"),
        ("00 00 00 01 01 01", "-1 headers"),
        ("00 00 00 01 01 02 01 00", "header without a key"),
        ("00 00 00 08 01 00", "4 bytes at 5, 2 are left"),
        ("00 00 00 01 01 02 02 78 04 79", "2 bytes at 10, 1 are left"),
        ("00 00 00 01 01 00 00", "1 bytes too many in a record"),
        ("00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00", "no varint of 64 bits"),
        ("00 00 ff ff ff ff 1f 01 01 00", "no varint of 32 bits"),
    ],
)
def test_a_record_that_contradicts_its_parts_is_refused(body: str, reason: str) -> None:
    raw = bytes.fromhex(body)
    good = encode_record(Record(value=b"next"))
    with pytest.raises(BatchError, match=f"INVALID_RECORD.*{reason}"):
        list(parse_records(memoryview(bytes([2 * len(raw)]) + raw + good), 2))


@given(st.binary(max_size=120), st.integers(-1, 20))
def test_random_bytes_raise_only_batch_errors(data: bytes, count: int) -> None:
    try:
        list(parse_records(memoryview(data), count))
    except BatchError as refused:
        assert refused.refusal is ErrorName.INVALID_RECORD


def test_a_batch_that_is_cut_or_followed_by_another_is_not_read() -> None:
    batch = build_batch([Record(value=b"x")])
    for data in (batch[:-1], batch + b"\0", batch + batch):
        with pytest.raises(BatchError, match=f"a batch of {len(batch)} bytes in {len(data)}"):
            read_batch(memoryview(data), LIMIT)
    with pytest.raises(BatchError, match="too few for a batch header"):
        read_batch(memoryview(batch[: HEADER_BYTES - 1]), LIMIT)
    assert verify_crc(memoryview(batch))
