"""Which batches are accepted, and what a refusal reports."""

import pytest

from gateway.produce.record_validation import RecordValidation, validate_records
from gateway.produce.refusals import MAX_SHOWN, Refusal
from gateway.produce.validation import (
    ADMIN_CLIENT_ID,
    TopicPolicy,
    check,
    is_transactional,
    merged,
    refused_as_internal,
)
from gateway.wire.messages.produce import ProducePartition, ProduceTopic
from ledger.batch.header import (
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL_BIT,
    CheckedBatch,
    Codec,
    read_header,
    seal,
    verify_crc,
)
from ledger.batch.records import Record, RecordHeader, build_batch, read_batch

VERSION = 9
POLICY = TopicPolicy(1 << 20)
STAMPING = TopicPolicy(1 << 20, log_append_time=True)
NO_ID = bytes(16)


def batch_of(records: list[Record], flags: int = 0) -> memoryview:
    return memoryview(build_batch(records, base_timestamp=1000, flags=flags))


def validated(records: list[Record], validation: RecordValidation) -> CheckedBatch | Refusal:
    data = batch_of(records)
    return validate_records(CheckedBatch(read_header(data), data), validation)


def topic(name: str, *indexes: int) -> ProduceTopic:
    return ProduceTopic(name, NO_ID, [ProducePartition(index, None) for index in indexes])


def test_log_append_time_set_by_the_client_is_cleared_where_the_client_stamps() -> None:
    stored = check(batch_of([Record()], LOG_APPEND_TIME_BIT), POLICY, VERSION)
    assert isinstance(stored, CheckedBatch)
    assert stored.header.attributes == 0
    assert read_header(stored.data).attributes == 0
    assert verify_crc(stored.data)


def test_log_append_time_set_by_the_client_is_refused_record_by_record_where_the_broker_stamps() -> None:
    refused = check(batch_of([Record(0), Record(1)], LOG_APPEND_TIME_BIT), STAMPING, VERSION)
    assert isinstance(refused, Refusal)
    assert (refused.error, [index for index, _ in refused.records]) == ("INVALID_TIMESTAMP", [0, 1])


def test_every_record_outside_the_bounds_is_reported() -> None:
    records = [Record(i, timestamp_delta=(i % 2) * 500) for i in range(5)]
    refused = validated(records, RecordValidation(latest_ms=1200))
    assert isinstance(refused, Refusal)
    assert (refused.error, [index for index, _ in refused.records]) == ("INVALID_TIMESTAMP", [1, 3])
    assert refused.in_log


def test_a_record_without_a_timestamp_is_never_too_old() -> None:
    assert isinstance(validated([Record(0, -1001)], RecordValidation(earliest_ms=900)), CheckedBatch)
    assert isinstance(validated([Record(0, -1002)], RecordValidation(earliest_ms=900)), Refusal)


def test_a_batch_is_decompressed_only_if_its_header_or_the_policy_needs_it() -> None:
    header = read_header(batch_of([Record(0, 500)]))
    policy = TopicPolicy(1 << 20, after_max_ms=100)
    assert policy.needs_decompression(header, 1399)
    assert not policy.needs_decompression(header, 1400)
    assert not TopicPolicy(1 << 20).needs_decompression(header, 0)
    for policy in (
        TopicPolicy(1 << 20, keys_required=True),
        TopicPolicy(1 << 20, before_max_ms=10**9),
        TopicPolicy(1 << 20, codec=Codec.ZSTD),
    ):
        assert policy.needs_decompression(header, 1400)
    assert not TopicPolicy(1 << 20, codec=Codec.NONE).needs_decompression(header, 1400)


def test_a_refusal_does_not_grow_with_the_batch() -> None:
    refused = validated([Record(i) for i in range(MAX_SHOWN + 50)], RecordValidation(keys_required=True))
    assert isinstance(refused, Refusal)
    assert len(refused.records) == MAX_SHOWN


def test_the_last_counts_of_a_partition_that_is_sent_twice() -> None:
    once = merged([topic("a", 0, 1, 0), topic("b", 2), topic("a", 1, 5)])
    assert [(each.name, [part.index for part in each.partitions]) for each in once] == [
        ("a", [0, 1, 5]),
        ("b", [2]),
    ]
    twice = [topic("a", 0), topic("a", 0)]
    assert merged(twice)[0].partitions[0] is twice[1].partitions[0]


def test_a_transactional_batch_is_seen_in_any_partition() -> None:
    plain, transactional = topic("a", 0), topic("b", 0, 1)
    plain.partitions[0].records = batch_of([Record()])
    assert not is_transactional([plain, transactional])
    transactional.partitions[1].records = batch_of([Record()], TRANSACTIONAL_BIT)
    assert is_transactional([plain, transactional])


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_only_kafkas_admin_client_may_write_into_an_internal_topic(name: str) -> None:
    refused = refused_as_internal(name, "anyone")
    assert refused is not None
    assert refused.error == "INVALID_TOPIC_EXCEPTION"
    assert refused_as_internal(name, None) is not None
    assert refused_as_internal(name, ADMIN_CLIENT_ID) is None
    assert refused_as_internal(name.upper(), "anyone") is None


def accepted(batch: bytes, validation: RecordValidation) -> CheckedBatch:
    view = memoryview(batch)
    stored = validate_records(CheckedBatch(read_header(view), view), validation)
    assert isinstance(stored, CheckedBatch)
    assert verify_crc(stored.data)
    assert read_header(stored.data)._replace(crc=0) == stored.header._replace(crc=0)
    return stored


def with_max_timestamp(batch: bytes, max_timestamp: int) -> bytes:
    changed = bytearray(batch)
    changed[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big", signed=True)
    seal(changed)
    return bytes(changed)


@pytest.mark.parametrize("lie", [2**60, 0, -1, 2**63 - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_validated_batch_has_the_latest_timestamp_of_its_records(lie: int, codec: Codec) -> None:
    some = [Record(i, stamp, b"k", b"v") for i, stamp in enumerate((0, 70, 30))]
    batch = build_batch(some, codec, base_timestamp=1000)
    for validation in (
        RecordValidation(keys_required=True),
        RecordValidation(latest_ms=5000),
        RecordValidation(codec=Codec.LZ4),
    ):
        stored = accepted(with_max_timestamp(batch, lie), validation)
        assert stored.header.max_timestamp == 1070
        assert read_batch(stored.data, 1 << 20)[1] == some
    # With the true one it is stored as it was sent.
    assert accepted(batch, RecordValidation(latest_ms=5000)).data == batch


def test_timestamps_beyond_int64_wrap_as_in_java() -> None:
    batch = with_max_timestamp(build_batch([Record(0, 2**62, b"k")], base_timestamp=2**62 - 1), 7)
    beyond = bytearray(batch)
    beyond[27:35] = (2**62 + 5).to_bytes(8, "big")
    seal(beyond)
    assert accepted(bytes(beyond), RecordValidation(keys_required=True)).header.max_timestamp == -1
    assert accepted(bytes(beyond), RecordValidation(codec=Codec.GZIP)).header.max_timestamp == -1


def test_a_batch_compressed_again_begins_at_its_first_timestamp_without_unused_attributes() -> None:
    some = [
        Record(i, stamp, b"k", b"v", (RecordHeader("h", None),)) for i, stamp in enumerate((500, -100, 9000))
    ]
    batch = build_batch(some, Codec.GZIP, base_timestamp=1000, flags=DELETE_HORIZON_BIT)
    stored = accepted(batch, RecordValidation(codec=Codec.ZSTD))
    assert (stored.header.attributes, stored.header.base_timestamp) == (Codec.ZSTD, 1500)
    assert stored.header.max_timestamp == 10_000
    assert [record.timestamp_delta for record in read_batch(stored.data, 1 << 20)[1]] == [0, -600, 8500]
