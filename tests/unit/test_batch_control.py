"""Markers of transactions."""

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatch

from ledger.batch.control import Marker, MarkerType, build_marker, read_marker
from ledger.batch.header import CONTROL_BIT, BatchError, check_batches
from ledger.batch.records import Record, build_batch


@pytest.mark.parametrize("kind", MarkerType)
def test_a_marker_is_read_back(kind: MarkerType) -> None:
    marker = Marker(kind, producer_id=77, producer_epoch=3, coordinator_epoch=9, timestamp_ms=123456)
    assert read_marker(memoryview(build_marker(marker, base_offset=500))) == marker


def test_an_independent_client_takes_it_for_a_control_batch_of_that_type() -> None:
    marker = Marker(MarkerType.ABORT, 77, 3, 9, 123456)
    theirs = DefaultRecordBatch(build_marker(marker, base_offset=500))
    assert theirs.validate_crc()
    assert (theirs.is_control_batch, theirs.is_transactional, theirs.base_offset) == (True, True, 500)
    (record,) = list(theirs)
    assert (record.key, record.value) == (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 9))


def test_a_client_may_not_send_a_marker() -> None:
    marker = build_marker(Marker(MarkerType.COMMIT, 77, 3, 9, 123456))
    with pytest.raises(BatchError, match="INVALID_RECORD: clients are not allowed"):
        check_batches(memoryview(marker), 1 << 20)


@pytest.mark.parametrize(
    ("key", "value", "flags"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\0", 0),  # no control batch
        (b"\0\0\0\2", b"\0\0\0\0\0\0", CONTROL_BIT),  # another type
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0", CONTROL_BIT),  # a version below 0
        (b"\0\0\0", b"\0\0\0\0\0\0", CONTROL_BIT),
        (b"\0\0\0\1", b"\0\0\0\0\0", CONTROL_BIT),
        (None, b"\0\0\0\0\0\0", CONTROL_BIT),
        (b"\0\0\0\1", None, CONTROL_BIT),
    ],
)
def test_what_is_no_marker_is_refused(key: bytes | None, value: bytes | None, flags: int) -> None:
    with pytest.raises(BatchError, match="no transaction marker"):
        read_marker(memoryview(build_batch([Record(key=key, value=value)], flags=flags)))


def test_what_a_later_version_appends_is_ignored() -> None:
    record = Record(key=b"\0\1\0\1more", value=b"\0\1\0\0\0\5more")
    marker = read_marker(memoryview(build_batch([record], flags=CONTROL_BIT)))
    assert (marker.type, marker.coordinator_epoch) == (MarkerType.COMMIT, 5)
