"""Which batches get in, and what a refusal tells."""

import pytest

from gateway.produce.admission import (
    ADMIN_CLIENT_ID,
    TopicRules,
    check,
    is_transactional,
    merged,
    refused_as_internal,
)
from gateway.produce.inspection import Inspection, inspect
from gateway.produce.refusals import MOST_TOLD, Refusal
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
RULES = TopicRules(1 << 20)
STAMPING = TopicRules(1 << 20, log_append_time=True)
NO_ID = bytes(16)


def batch_of(records: list[Record], flags: int = 0) -> memoryview:
    return memoryview(build_batch(records, base_timestamp=1000, flags=flags))


def inspected(records: list[Record], wanted: Inspection) -> CheckedBatch | Refusal:
    data = batch_of(records)
    return inspect(CheckedBatch(read_header(data), data), wanted)


def topic(name: str, *indexes: int) -> ProduceTopic:
    return ProduceTopic(name, NO_ID, [ProducePartition(index, None) for index in indexes])


def test_a_timestamp_type_of_the_client_is_taken_off_where_the_client_stamps() -> None:
    taken = check(batch_of([Record()], LOG_APPEND_TIME_BIT), RULES, VERSION)
    assert isinstance(taken, CheckedBatch)
    assert taken.header.attributes == 0
    assert read_header(taken.data).attributes == 0
    assert verify_crc(taken.data)


def test_a_timestamp_type_of_the_client_is_refused_where_the_broker_stamps_record_by_record() -> None:
    refused = check(batch_of([Record(0), Record(1)], LOG_APPEND_TIME_BIT), STAMPING, VERSION)
    assert isinstance(refused, Refusal)
    assert (refused.error, [index for index, _ in refused.records]) == ("INVALID_TIMESTAMP", [0, 1])


def test_every_record_outside_the_bounds_is_told() -> None:
    records = [Record(i, timestamp_delta=(i % 2) * 500) for i in range(5)]
    refused = inspected(records, Inspection(latest_ms=1200))
    assert isinstance(refused, Refusal)
    assert (refused.error, [index for index, _ in refused.records]) == ("INVALID_TIMESTAMP", [1, 3])
    assert refused.in_log


def test_a_record_without_a_timestamp_is_never_too_old() -> None:
    assert isinstance(inspected([Record(0, -1001)], Inspection(earliest_ms=900)), CheckedBatch)
    assert isinstance(inspected([Record(0, -1002)], Inspection(earliest_ms=900)), Refusal)


def test_a_batch_of_late_records_alone_is_opened_for_their_sake() -> None:
    header = read_header(batch_of([Record(0, 500)]))
    rules = TopicRules(1 << 20, after_max_ms=100)
    assert rules.must_open(header, 1399)
    assert not rules.must_open(header, 1400)
    assert not TopicRules(1 << 20).must_open(header, 0)
    for rules in (
        TopicRules(1 << 20, keys_required=True),
        TopicRules(1 << 20, before_max_ms=10**9),
        TopicRules(1 << 20, codec=Codec.ZSTD),
    ):
        assert rules.must_open(header, 1400)
    assert not TopicRules(1 << 20, codec=Codec.NONE).must_open(header, 1400)


def test_a_refusal_does_not_grow_with_the_batch() -> None:
    refused = inspected([Record(i) for i in range(MOST_TOLD + 50)], Inspection(keys_required=True))
    assert isinstance(refused, Refusal)
    assert len(refused.records) == MOST_TOLD


def test_of_a_partition_that_is_sent_twice_the_last_counts() -> None:
    once = merged([topic("a", 0, 1, 0), topic("b", 2), topic("a", 1, 5)])
    assert [(each.name, [part.index for part in each.partitions]) for each in once] == [
        ("a", [0, 1, 5]),
        ("b", [2]),
    ]
    twice = [topic("a", 0), topic("a", 0)]
    assert merged(twice)[0].partitions[0] is twice[1].partitions[0]


def test_a_transactional_batch_is_seen_wherever_it_lies() -> None:
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


def opened(batch: bytes, wanted: Inspection) -> CheckedBatch:
    view = memoryview(batch)
    taken = inspect(CheckedBatch(read_header(view), view), wanted)
    assert isinstance(taken, CheckedBatch)
    assert verify_crc(taken.data)
    assert read_header(taken.data)._replace(crc=0) == taken.header._replace(crc=0)
    return taken


def with_max_timestamp(batch: bytes, max_timestamp: int) -> bytes:
    changed = bytearray(batch)
    changed[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = max_timestamp.to_bytes(8, "big", signed=True)
    seal(changed)
    return bytes(changed)


@pytest.mark.parametrize("lie", [2**60, 0, -1, 2**63 - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_was_opened_has_the_greatest_timestamp_of_its_records(lie: int, codec: Codec) -> None:
    some = [Record(i, stamp, b"k", b"v") for i, stamp in enumerate((0, 70, 30))]
    batch = build_batch(some, codec, base_timestamp=1000)
    for wanted in (Inspection(keys_required=True), Inspection(latest_ms=5000), Inspection(codec=Codec.LZ4)):
        taken = opened(with_max_timestamp(batch, lie), wanted)
        assert taken.header.max_timestamp == 1070
        assert read_batch(taken.data, 1 << 20)[1] == some
    # Told truly, it is stored as it was sent.
    assert opened(batch, Inspection(latest_ms=5000)).data == batch


def test_timestamps_that_no_int64_holds_are_taken_as_java_takes_them() -> None:
    batch = with_max_timestamp(build_batch([Record(0, 2**62, b"k")], base_timestamp=2**62 - 1), 7)
    beyond = bytearray(batch)
    beyond[27:35] = (2**62 + 5).to_bytes(8, "big")
    seal(beyond)
    assert opened(bytes(beyond), Inspection(keys_required=True)).header.max_timestamp == -1
    assert opened(bytes(beyond), Inspection(codec=Codec.GZIP)).header.max_timestamp == -1


def test_a_batch_packed_anew_begins_at_its_first_timestamp_and_has_no_attribute_that_nothing_uses() -> None:
    some = [
        Record(i, stamp, b"k", b"v", (RecordHeader("h", None),)) for i, stamp in enumerate((500, -100, 9000))
    ]
    batch = build_batch(some, Codec.GZIP, base_timestamp=1000, flags=DELETE_HORIZON_BIT)
    taken = opened(batch, Inspection(codec=Codec.ZSTD))
    assert (taken.header.attributes, taken.header.base_timestamp) == (Codec.ZSTD, 1500)
    assert taken.header.max_timestamp == 10_000
    assert [record.timestamp_delta for record in read_batch(taken.data, 1 << 20)[1]] == [0, -600, 8500]
