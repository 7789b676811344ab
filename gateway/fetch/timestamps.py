"""Which record of a batch is the first with a timestamp. Pure, and slow: for a worker thread."""

from typing import NamedTuple

from gateway.fetch.stream import StoredBatch
from ledger.batch.compression import decompress
from ledger.batch.header import HEADER_BYTES, LOG_APPEND_TIME_BIT, read_header
from ledger.batch.records import parse_records


class TimedOffset(NamedTuple):
    timestamp: int
    offset: int


def first_since(
    batch: StoredBatch, timestamp: int, from_offset: int, max_decompressed_bytes: int
) -> TimedOffset | None:
    """The first record from `from_offset` on that is as late as `timestamp`, or None.

    Raises BatchError for records that cannot be read. With LogAppendTime every record has the batch's
    own timestamp; else the records must be parsed.
    """
    if batch.max_timestamp < timestamp or batch.last_offset < from_offset:
        return None
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return TimedOffset(batch.max_timestamp, max(batch.base_offset, from_offset))
    header = read_header(batch.data)
    records = decompress(header.codec, batch.data[HEADER_BYTES:], max_decompressed_bytes)
    for record in parse_records(records, header.record_count):
        stamp = header.base_timestamp + record.timestamp_delta
        offset = batch.base_offset + record.offset_delta
        if stamp >= timestamp and offset >= from_offset:
            return TimedOffset(stamp, offset)
    return None
