"""What a partition's batches say in their headers, read by a Fetch of our own.

Client libraries hide it: only this proves that a batch was compressed, or carried a producer id.
"""

import struct
from dataclasses import dataclass

from tests.support.raw import raw_exchange, request

FETCH = 1
FETCH_VERSION = 4
MAX_BYTES = 64 * 1024 * 1024
ATTRIBUTES_AT, PRODUCER_ID_AT, RECORD_COUNT_AT = 21, 43, 57


@dataclass(frozen=True, slots=True)
class BatchHeader:
    base_offset: int
    codec: int
    producer_id: int
    record_count: int


def fetch_batch_headers(host: str, port: int, topic: str, partition: int = 0) -> list[BatchHeader]:
    """All batches from offset 0 that fit into MAX_BYTES. Errors: AssertionError for any other response."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 1000, 1, MAX_BYTES, 0)
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiqi", 1, partition, 0, MAX_BYTES)
    response = raw_exchange(host, port, request(FETCH, FETCH_VERSION, body), timeout_s=30.0)
    assert isinstance(response, bytes), response
    # correlation id, throttle time, one topic, its name, one partition
    at = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", response, at)
    assert (error, max(aborted, 0)) == (0, 0)
    (length,) = struct.unpack_from(">i", response, at + 26)
    records = response[at + 30 :]
    assert len(records) == length
    return list(headers_in(records))


def headers_in(records: bytes) -> list[BatchHeader]:
    headers = []
    at = 0
    while at < len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        (attributes,) = struct.unpack_from(">h", records, at + ATTRIBUTES_AT)
        (producer_id,) = struct.unpack_from(">q", records, at + PRODUCER_ID_AT)
        (record_count,) = struct.unpack_from(">i", records, at + RECORD_COUNT_AT)
        headers.append(BatchHeader(base_offset, attributes & 7, producer_id, record_count))
        at += 12 + length
    return headers
