"""The header of a record batch: what is refused and with which error, walking, patching, stamping."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from ledger.batch.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchError,
    Codec,
    TimestampType,
    check_batches,
    clear_log_append_time,
    outgoing_head,
    patch_head,
    read_header,
    seal,
    stamp_log_append_time,
    verify_crc,
    walk,
)
from ledger.batch.records import Producer, Record, build_batch
from ledger.errors import ErrorName

LIMIT = 1 << 20
PRODUCER = Producer(7, 1, 40)
RECORDS = [Record(i, 10 * i, b"key", b"value %d" % i) for i in range(3)]


def batch(codec: Codec = Codec.NONE, flags: int = 0, producer: Producer = PRODUCER) -> bytearray:
    return bytearray(build_batch(RECORDS, codec, base_timestamp=1000, producer=producer, flags=flags))


def refusal(records: bytes | bytearray | None, limit: int = LIMIT, zstd_allowed: bool = True) -> str:
    view = None if records is None else memoryview(records)
    with pytest.raises(BatchError) as refused:
        check_batches(view, limit, zstd_allowed=zstd_allowed)
    return refused.value.refusal.name


def changed(at: int, layout: str, value: int, sealed: bool = True) -> bytearray:
    """A good batch with one field changed, and on request a CRC that matches again."""
    one = batch()
    struct.pack_into(layout, one, at, value)
    if sealed:
        seal(one)
    return one


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_passes_and_its_fields_are_read(codec: Codec) -> None:
    sent = batch(codec, TRANSACTIONAL_BIT)
    header, data = check_batches(memoryview(sent), LIMIT)
    assert bytes(data) == bytes(sent)
    assert header.size_bytes == len(sent)
    assert (header.codec, header.is_transactional, header.is_control) == (codec, True, False)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.last_offset, header.record_count) == (2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1020)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)


def test_fields_and_crc_are_read_as_an_independent_client_reads_them() -> None:
    sent = bytes(batch(Codec.GZIP))
    theirs, ours = DefaultRecordBatch(sent), read_header(sent)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.magic, theirs.attributes, theirs.last_offset_delta) == (
        ours.base_offset,
        ours.magic,
        ours.attributes,
        ours.last_offset_delta,
    )
    assert (theirs.crc, theirs.first_timestamp, theirs.max_timestamp) == (
        ours.crc,
        ours.base_timestamp,
        ours.max_timestamp,
    )
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (
        ours.producer_id,
        ours.producer_epoch,
        ours.base_sequence,
    )


@pytest.mark.parametrize("missing", [None, b"", b"\0" * 11])
def test_a_partition_without_a_batch_is_an_invalid_record(missing: bytes | None) -> None:
    assert refusal(missing) == "INVALID_RECORD"


def test_every_truncation_is_refused() -> None:
    sent = batch()
    assert {refusal(sent[:end]) for end in range(len(sent))} == {"INVALID_RECORD"}


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 13])
def test_a_length_below_that_of_any_batch_is_corrupt(length: int) -> None:
    assert refusal(changed(8, ">i", length)) == "CORRUPT_MESSAGE"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(range(26, 51), "UNKNOWN_SERVER_ERROR"), (range(51, HEADER_BYTES), "CORRUPT_MESSAGE")],
)
def test_a_batch_shorter_than_its_header_is_refused(sizes: range, expected: str) -> None:
    assert {refusal(changed(8, ">i", size - 12)[:size]) for size in sizes} == {expected}


def test_a_length_that_cuts_or_exceeds_the_batch_is_refused() -> None:
    assert refusal(changed(8, ">i", len(batch()) - 13)) == "CORRUPT_MESSAGE"
    assert refusal(changed(8, ">i", len(batch()) - 11)) == "INVALID_RECORD"
    assert refusal(changed(8, ">i", 2**31 - 13)) == "INVALID_RECORD"
    assert refusal(changed(8, ">i", 2**31 - 12)) == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize(
    ("magic", "expected"),
    [(0, "INVALID_RECORD"), (1, "INVALID_RECORD"), (3, "CORRUPT_MESSAGE"), (-1, "CORRUPT_MESSAGE")],
)
def test_another_magic_is_refused(magic: int, expected: str) -> None:
    assert refusal(changed(16, ">b", magic)) == expected


def test_every_flipped_bit_after_the_crc_is_corrupt() -> None:
    for at in range(17, len(batch())):
        sent = batch()
        sent[at] ^= 1 << at % 8
        assert refusal(sent) == "CORRUPT_MESSAGE"


def test_a_leader_epoch_is_not_looked_at() -> None:
    check_batches(memoryview(changed(12, ">i", 12345, sealed=False)), LIMIT)


def test_a_second_batch_is_an_invalid_record() -> None:
    assert refusal(batch() + batch()) == "INVALID_RECORD"


def test_bytes_of_an_incomplete_second_batch_are_cut_off() -> None:
    sent = batch()
    for rest in (b"\0" * 5, bytes(batch()[:-1])):
        assert bytes(check_batches(memoryview(sent + rest), LIMIT).data) == bytes(sent)


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (0, ">q", 1),  # base offset
        (0, ">q", -1),
        (21, ">h", CONTROL_BIT),
        (21, ">h", CONTROL_BIT | TRANSACTIONAL_BIT),
        (23, ">i", 1),  # last offset delta
        (23, ">i", 3),
        (23, ">i", -1),
        (57, ">i", 0),  # record count
        (57, ">i", -1),
        (57, ">i", 4),
        (57, ">i", 2**31 - 1),
        (53, ">i", -1),  # base sequence of a producer id
    ],
)
def test_a_header_that_contradicts_its_records_is_an_invalid_record(at: int, layout: str, value: int) -> None:
    assert refusal(changed(at, layout, value)) == "INVALID_RECORD"


def test_a_batch_of_no_records_is_an_invalid_record() -> None:
    assert refusal(build_batch([], last_offset_delta=-1)) == "INVALID_RECORD"


@pytest.mark.parametrize("count", [2**31 - 1, 100, 4])
def test_more_records_than_the_bytes_can_hold_are_an_invalid_record(count: int) -> None:
    def claiming(codec: Codec) -> memoryview:
        lying = bytearray(build_batch([Record()] * 3, codec))
        lying[23:27] = (count - 1).to_bytes(4, "big")
        lying[57:61] = count.to_bytes(4, "big")
        seal(lying)
        return memoryview(lying)

    with pytest.raises(BatchError) as refused:
        check_batches(claiming(Codec.NONE), 1 << 20)
    assert (refused.value.refusal, refused.value.in_log) == (ErrorName.INVALID_RECORD, True)
    # A compressed batch may hold any number of records; only opening it shows how many.
    assert check_batches(claiming(Codec.GZIP), 1 << 20).header.record_count == count


def test_a_batch_without_a_producer_id_needs_no_sequence() -> None:
    check_batches(memoryview(batch(producer=Producer())), LIMIT)


def test_log_append_time_is_taken_off_and_put_on_again_under_a_right_crc() -> None:
    sent = batch(flags=LOG_APPEND_TIME_BIT)
    cleared = clear_log_append_time(memoryview(sent))
    assert cleared == batch()
    assert stamp_log_append_time(memoryview(cleared), 1020) == sent


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_a_server_error_as_in_kafka(codec: int) -> None:
    assert refusal(changed(21, ">h", codec)) == "UNKNOWN_SERVER_ERROR"


def test_kafka_knows_the_log_when_only_fields_of_a_batch_are_wrong() -> None:
    for records, in_log in [(changed(57, ">i", 0), True), (changed(0, ">q", 5), True), (batch()[:50], False)]:
        with pytest.raises(BatchError) as refused:
            check_batches(memoryview(records), LIMIT)
        assert refused.value.in_log is in_log


def test_a_batch_above_the_limit_is_too_large_and_at_the_limit_passes() -> None:
    sent = batch()
    check_batches(memoryview(sent), len(sent))
    assert refusal(sent, limit=len(sent) - 1) == "MESSAGE_TOO_LARGE"


def test_zstd_is_refused_where_the_request_does_not_allow_it() -> None:
    check_batches(memoryview(batch(Codec.LZ4)), LIMIT, zstd_allowed=False)
    assert refusal(batch(Codec.ZSTD), zstd_allowed=False) == "UNSUPPORTED_COMPRESSION_TYPE"


def test_of_several_faults_the_one_that_kafka_finds_first_is_named() -> None:
    wrong_count = changed(57, ">i", 0, sealed=False)
    assert refusal(wrong_count) == "CORRUPT_MESSAGE"
    assert refusal(wrong_count, limit=10) == "MESSAGE_TOO_LARGE"
    struct.pack_into(">q", wrong_count, 0, 1)
    assert refusal(wrong_count, limit=10) == "INVALID_RECORD"


@given(st.binary(max_size=200), st.integers(0, 130), st.binary(max_size=20))
def test_random_bytes_raise_nothing_but_batch_errors(noise: bytes, at: int, patch: bytes) -> None:
    sent = batch()
    sent[at : at + len(patch)] = patch
    for data in (noise, sent, sent + noise):
        with suppress(BatchError):
            check_batches(memoryview(data), LIMIT)
        try:
            list(walk(memoryview(data)))
        except BatchError as damaged:
            assert damaged.refusal is ErrorName.CORRUPT_MESSAGE


def test_walking_finds_every_batch() -> None:
    stored = [bytes(batch(codec)) for codec in Codec]
    walked = list(walk(memoryview(b"".join(stored))))
    assert [(at.position, at.size_bytes) for at in walked] == [
        (sum(map(len, stored[:i])), len(one)) for i, one in enumerate(stored)
    ]
    assert [at.attributes & 7 for at in walked] == list(Codec)
    assert {(at.base_offset, at.last_offset_delta, at.max_timestamp) for at in walked} == {(0, 2, 1020)}


def test_walking_stops_with_an_error_at_a_batch_that_is_cut_off_or_none() -> None:
    one = bytes(batch())
    too_short = bytes(changed(8, ">i", HEADER_BYTES - 12 - 1))
    for rest in (one[:-1], one[:60], b"\0", bytes(100), bytes(changed(16, ">b", 1)), too_short):
        walking = walk(memoryview(one + rest))
        assert next(walking).position == 0
        with pytest.raises(BatchError, match="CORRUPT_MESSAGE"):
            next(walking)


def test_the_outgoing_head_patches_base_offset_and_leader_epoch_and_keeps_the_crc() -> None:
    stored = changed(12, ">i", -1, sealed=False)
    header = read_header(stored)
    served = outgoing_head(2**40, header.batch_length) + stored[16:]
    assert len(outgoing_head(0, 0)) == 16
    assert read_header(served) == header._replace(base_offset=2**40, leader_epoch=0)
    assert verify_crc(memoryview(served))
    assert patch_head(2**40) == served[:8]


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_is_stamped_with_a_new_crc(codec: Codec) -> None:
    sent = batch(codec, TRANSACTIONAL_BIT)
    stamped = stamp_log_append_time(memoryview(sent).toreadonly(), 987654321)
    header = read_header(stamped)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.codec, header.is_transactional, header.max_timestamp) == (codec, True, 987654321)
    assert verify_crc(memoryview(stamped))
    assert stamped[HEADER_BYTES:] == sent[HEADER_BYTES:]
    assert read_header(sent).timestamp_type is TimestampType.CREATE_TIME
