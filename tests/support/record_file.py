"""Records in a file, for clients in other languages: java/RecordsClient.java, go/records.go.

All integers big-endian, a null is length -1. A record: `i32 partition | i64 offset (-1 when not known) |
i8 timestamp type | i64 timestamp ms | i32 length, key | i32 length, value | i32 header count`, and a
header: `i32 length, name (UTF-8) | i32 length, value`.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.client import CREATE_TIME, Headers, Received, Record

FIXED = struct.Struct(">iqbq")
LENGTH = struct.Struct(">i")


def write_records(path: Path, records: Iterable[Record]) -> None:
    with path.open("wb") as file:
        for record in records:
            fixed = FIXED.pack(record.partition, -1, CREATE_TIME, record.timestamp_ms)
            headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
            file.write(fixed + sized(record.key) + sized(record.value))
            file.write(LENGTH.pack(len(record.headers)) + headers)


def sized(data: bytes | None) -> bytes:
    return LENGTH.pack(-1) if data is None else LENGTH.pack(len(data)) + data


def read_received(path: Path) -> Iterator[Received]:
    data = path.read_bytes()
    at = 0

    def take() -> bytes | None:
        nonlocal at
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size + max(length, 0)
        return None if length < 0 else data[at - length : at]

    while at < len(data):
        partition, offset, timestamp_type, timestamp_ms = FIXED.unpack_from(data, at)
        at += FIXED.size
        key, value = take(), take()
        (header_count,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        headers: Headers = tuple(((take() or b"").decode(), take()) for _ in range(header_count))
        yield Received(offset, timestamp_type, Record(partition, timestamp_ms, key, value, headers))
