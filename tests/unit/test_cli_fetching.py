"""Batches that a command opens: one record at a time, however many a small batch has."""

import tracemalloc

import pytest

from gateway.cli.client import ClientError
from gateway.cli.fetching import opened_batch
from ledger.batch.header import HEADER_BYTES, Codec
from ledger.batch.records import Record, build_batch

MANY = 100_000
BOUND = 1 << 20


def test_the_first_of_very_many_records_takes_no_memory_for_the_others() -> None:
    batch = memoryview(build_batch([Record(0, 0, None, b"")] * MANY, Codec.ZSTD, last_offset_delta=0))
    assert len(batch) < 10_000
    tracemalloc.start()
    try:
        header, records = opened_batch("t-0", batch, BOUND)
        assert next(records).value == b"" and header.record_count == MANY
        assert tracemalloc.get_traced_memory()[1] < 2 * BOUND
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in records) == MANY - 1


def test_records_before_a_broken_one_come_first() -> None:
    batch = bytearray(build_batch([Record(index, 0, None, b"v") for index in range(3)]))
    batch[-1] = 100  # headers of the last record
    _, records = opened_batch("t-0", memoryview(batch), BOUND)
    assert [next(records).offset_delta, next(records).offset_delta] == [0, 1]
    with pytest.raises(ClientError, match="a batch of t-0 cannot be read: INVALID_RECORD"):
        next(records)


@pytest.mark.parametrize("codec", [Codec.ZSTD, 7])
def test_a_batch_that_cannot_be_opened_is_a_sentence(codec: int) -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"v")]))
    batch[22] |= codec
    with pytest.raises(ClientError, match="a batch of t-0 cannot be read"):
        opened_batch("t-0", memoryview(batch), BOUND)
    assert len(batch) > HEADER_BYTES
