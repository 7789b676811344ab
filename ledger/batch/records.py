"""The records inside a batch (magic 2), for the few that need them: tools, log compaction, recompression.

A record: `varint length | i8 attributes | varlong timestamp delta | varint offset delta | varint key
length, key | varint value length, value | varint header count, headers`; a length of -1 is null; a
header: `varint key length, key | varint value length, value`. Varints are zig-zag.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ledger.batch.compression import compress, decompress
from ledger.batch.header import (
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MIN_RECORD_BYTES,
    BatchError,
    BatchHeader,
    Codec,
    read_header,
    seal,
)
from ledger.errors import ErrorName
from ledger.types import NO_PRODUCER_ID, Buffer

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64
MAX_HEADERS: Final = 50_000
"""Of one record, which is opened at once. A header needs two bytes in a batch, which may be compressed to
nothing, and some 70 in memory."""
HEADERS_AT_ONCE: Final = 5_000

Skimmed: TypeAlias = tuple[int, int, bool, int]
"""What is looked for in a record: offset delta, timestamp delta, whether it has a key, where it ends. Plain,
as one is made for each of millions."""


class RecordHeader(NamedTuple):
    """Bytes of the key that are not UTF-8 survive as surrogates."""

    key: str
    value: Buffer | None


class Record(NamedTuple):
    """Offset and timestamp (ms) count from the batch's base offset and base timestamp."""

    offset_delta: int = 0
    timestamp_delta: int = 0
    key: Buffer | None = None
    value: Buffer | None = None
    headers: tuple[RecordHeader, ...] = ()


class Producer(NamedTuple):
    """The producer of a batch, and the sequence of its first record."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER: Final = Producer()


def read_batch(batch: memoryview, max_decompressed_bytes: int) -> tuple[BatchHeader, list[Record]]:
    """Header and records of exactly one batch; keys and values are views.

    Raises BatchError: see `decompress` and `parse_records`. The CRC is not checked.
    """
    header, records = open_batch(batch, max_decompressed_bytes)
    return header, list(records)


def open_batch(batch: memoryview, max_decompressed_bytes: int) -> tuple[BatchHeader, Iterator[Record]]:
    """As `read_batch`, but each record is made when it is wanted: a small batch may have millions. What is
    wrong with a record is raised there."""
    header = read_header(batch)
    if header.size_bytes != len(batch):
        raise _invalid(f"a batch of {header.size_bytes} bytes in {len(batch)}")
    try:
        codec = header.codec
    except ValueError:
        raise _invalid(f"unknown codec in attributes {header.attributes}") from None
    data = decompress(codec, batch[HEADER_BYTES:], max_decompressed_bytes)
    return header, parse_records(data, header.record_count)


def parse_records(data: memoryview, record_count: int) -> Iterator[Record]:
    """Records of decompressed bytes. Raises BatchError (INVALID_RECORD) if their number is another."""
    if record_count < 0:
        raise _invalid(f"a count of {record_count} records")
    position = 0
    for _ in range(record_count):
        record, position = _parse_record(data, position)
        yield record
    if position != len(data):
        raise _invalid(f"{len(data) - position} bytes after the last of {record_count} records")


def skim_records(data: memoryview, position: int, count: int) -> tuple[list[Skimmed], int]:
    """The next `count` records from `position` on, fewer if they have many headers, and where they end. As
    strict as `parse_records`, and several times as fast. Raises BatchError (INVALID_RECORD)."""
    found: list[Skimmed] = []
    end = len(data)
    headers = 0
    for _ in range(count):
        skimmed = _skim(data, position, end)
        if skimmed is None:
            skimmed, more = _skim_any(data, position)
            headers += more
        position = skimmed[3]
        found.append(skimmed)
        if headers >= HEADERS_AT_ONCE:
            break
    return found, position


def _skim_any(data: memoryview, position: int) -> tuple[Skimmed, int]:
    """Any record, and how many headers it has."""
    body, record, position = _parse_fields(data, position)
    count, position = _read_header_count(body, position)
    for _ in range(count):
        position = _skip_header(body, position)
    _check_end(body, position)
    return (record.offset_delta, record.timestamp_delta, record.key is not None, position), count


def _skip_header(body: memoryview, position: int) -> int:
    """Where the next one begins."""
    # Both lengths have one byte, as nearly always.
    if len(body) - position >= 2 and body[position] < 0x80 and not body[position] & 1:
        after_key = position + 1 + (body[position] >> 1)
        if after_key < len(body) and body[after_key] < 0x80 and not body[after_key] & 1:
            end = after_key + 1 + (body[after_key] >> 1)
            if end <= len(body):
                return end
    key, position = _read_bytes(body, position)
    if key is None:
        raise _invalid("a header without a key")
    return _read_bytes(body, position)[1]


def _skim(data: memoryview, position: int, end: int) -> Skimmed | None:
    """A record without headers whose numbers are small, as most are; None for any other, or no record."""
    try:
        raw = data[position]
        position += 1
        if raw >= 0x80:
            raw = raw & 0x7F | data[position] << 7
            position += 1
        record_end = position + (raw >> 1)
        # After the attributes.
        stamp = data[position + 1]
        position += 2
        if stamp >= 0x80:
            stamp = stamp & 0x7F | data[position] << 7
            position += 1
        offset = data[position]
        position += 1
        if offset >= 0x80:
            offset = offset & 0x7F | data[position] << 7
            position += 1
        key = data[position]
        position += 1
        if key >= 0x80:
            key = key & 0x7F | data[position] << 7
            position += 1
        # A length of -1 is 1 here, and nothing follows it.
        if not key & 1:
            position += key >> 1
        value = data[position]
        position += 1
        if value >= 0x80:
            value = value & 0x7F | data[position] << 7
            position += 1
        if not value & 1:
            position += value >> 1
        # No headers, and that is the end of it. What has a third byte in a number is too large by now.
        is_plain = data[position] == 0 and position + 1 == record_end <= end
    except IndexError:
        return None
    if not is_plain or raw & 1 or (raw | stamp | offset | key | value) >= 0x4000:
        return None
    return (offset >> 1) ^ -(offset & 1), (stamp >> 1) ^ -(stamp & 1), not key & 1, record_end


def build_batch(  # noqa: PLR0913 - fields of a header
    records: Sequence[Record],
    codec: Codec = Codec.NONE,
    *,
    base_offset: int = 0,
    base_timestamp: int = 0,
    producer: Producer = NO_PRODUCER,
    flags: int = 0,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch of these records, its CRC right. `flags` are attribute bits other than the codec's.

    `last_offset_delta` is the last record's unless given: log compaction keeps it although the
    record went.
    """
    payload = compress(codec, b"".join(map(encode_record, records)))
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset_delta if records else 0
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload),
        leader_epoch=LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=flags | codec,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + max((record.timestamp_delta for record in records), default=0),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        record_count=len(records),
    )
    batch = bytearray(HEADER.pack(*header))
    batch += payload
    seal(batch)
    return bytes(batch)


def encode_record(record: Record) -> bytes:
    body = bytearray(1)
    body += _varint(record.timestamp_delta)
    body += _varint(record.offset_delta)
    _put_bytes(body, record.key)
    _put_bytes(body, record.value)
    body += _varint(len(record.headers))
    for header in record.headers:
        _put_bytes(body, header.key.encode("utf-8", "surrogateescape"))
        _put_bytes(body, header.value)
    return _varint(len(body)) + body


def _parse_record(data: memoryview, position: int) -> tuple[Record, int]:
    body, record, position = _parse_fields(data, position)
    headers, position = _read_headers(body, position)
    _check_end(body, position)
    return (record._replace(headers=headers) if headers else record), position


def _parse_fields(data: memoryview, position: int) -> tuple[memoryview, Record, int]:
    """All up to the end of the record that begins at `position`, what is in it before its headers, and where
    these begin."""
    length, position = _read_varint(data, position, _VARINT_BITS)
    end = position + length
    if length < MIN_RECORD_BYTES - 1 or end > len(data):
        raise _invalid(f"a record of {length} bytes at {position}, {len(data) - position} are left")
    body = data[:end]
    timestamp_delta, position = _read_varint(body, position + 1, _VARLONG_BITS)
    offset_delta, position = _read_varint(body, position, _VARINT_BITS)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    return body, Record(offset_delta, timestamp_delta, key, value), position


def _check_end(body: memoryview, position: int) -> None:
    if position != len(body):
        raise _invalid(f"{len(body) - position} bytes too many in a record")


def _read_header_count(data: memoryview, position: int) -> tuple[int, int]:
    count, position = _read_varint(data, position, _VARINT_BITS)
    if not 0 <= 2 * count <= len(data) - position:
        raise _invalid(f"{count} headers in {len(data) - position} bytes")
    if count > MAX_HEADERS:
        raise _invalid(f"{count} headers in a record, at most {MAX_HEADERS} are read")
    return count, position


def _read_headers(data: memoryview, position: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, position = _read_header_count(data, position)
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise _invalid("a header without a key")
        value, position = _read_bytes(data, position)
        headers.append(RecordHeader(str(key, "utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(data: memoryview, position: int) -> tuple[memoryview | None, int]:
    length, position = _read_varint(data, position, _VARINT_BITS)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise _invalid(f"{length} bytes at {position}, {len(data) - position} are left")
    return data[position:end], end


def _read_varint(data: memoryview, position: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    end = len(data)
    while position < end and shift < bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise _invalid(f"no varint of {bits} bits ends at {position}")


def _varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    if raw < 0x80:
        return raw.to_bytes(1, "big")
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def _put_bytes(body: bytearray, value: Buffer | None) -> None:
    if value is None:
        body += _varint(-1)
        return
    body += _varint(len(value))
    body += value


def _invalid(reason: str) -> BatchError:
    return BatchError(ErrorName.INVALID_RECORD, reason)
