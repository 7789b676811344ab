"""The 61-byte header of a record batch (magic 2): reading, checking, walking, patching.

What a producer sends is refused in the order and with the errors of Apache Kafka 4.3:

| what is wrong                                                        | refusal                       |
|----------------------------------------------------------------------|-------------------------------|
| no records, no bytes, or no complete batch                           | INVALID_RECORD                |
| length field below 14, or a magic that is none of 0, 1, 2            | CORRUPT_MESSAGE               |
| length field that is no int32 any more with the 12 bytes before it   | UNKNOWN_SERVER_ERROR          |
| magic 0 or 1                                                         | INVALID_RECORD                |
| zstd where the request's version does not allow it (Produce < 7)     | UNSUPPORTED_COMPRESSION_TYPE  |
| a second complete batch                                              | INVALID_RECORD                |
| base offset is not 0                                                 | INVALID_RECORD                |
| larger than `max_batch_bytes`                                        | MESSAGE_TOO_LARGE             |
| shorter than 51 bytes                                                | UNKNOWN_SERVER_ERROR          |
| shorter than a header, or a wrong CRC-32C                            | CORRUPT_MESSAGE               |
| unknown codec                                                        | UNKNOWN_SERVER_ERROR          |
| last offset delta < 0, record count <= 0, or count != delta + 1      | INVALID_RECORD                |
| without a codec: more records than its bytes can hold                | INVALID_RECORD                |
| a control batch                                                      | INVALID_RECORD                |
| producer id without a base sequence                                  | INVALID_RECORD                |

Bytes of an incomplete batch after the first are cut off, as Kafka cuts them off.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from crc32c import crc32c

from ledger.errors import ErrorName
from ledger.types import Buffer

# i64 base offset, i32 batch length, i32 leader epoch, i8 magic, u32 CRC, i16 attributes, i32 last
# offset delta, i64 base timestamp, i64 max timestamp, i64 producer id, i16 producer epoch, i32 base
# sequence, i32 record count
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12
"""Base offset and batch length; the length counts what follows them."""
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
CRC_COVERS_FROM = ATTRIBUTES_AT
"""The CRC covers everything from the attributes on; base offset and leader epoch are outside it."""
LAST_OFFSET_DELTA_AT = 23
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
MAGIC = 2
MIN_RECORD_BYTES = 7
NO_PRODUCER_ID = -1
LEADER_EPOCH = 0
"""The leader epoch of every partition, for ever."""

CODEC_MASK = 0b111
LOG_APPEND_TIME_BIT = 0b1000
TRANSACTIONAL_BIT = 0b1_0000
CONTROL_BIT = 0b10_0000
DELETE_HORIZON_BIT = 0b100_0000

_LENGTH = struct.Struct(">i")
_OUTGOING = struct.Struct(">qii")
_BASE_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
WALKED = struct.Struct(">qi4xb4xhi8xq")
# Kafka compares the length field with the smallest record that any format ever had before it looks
# at the magic.
_MIN_LENGTH_OF_ANY_MAGIC = 14
_MAX_SIZE = 2**31 - 1


class Codec(IntEnum):
    """Bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)


class TimestampType(IntEnum):
    """Bit 3 of the attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchError(ValueError):
    """Bytes that are not the record batch they claim to be.

    `in_log`: the bytes are one batch, and only its fields are wrong. Kafka finds that out at the log, and
    so returns where the log begins.
    """

    def __init__(self, refusal: ErrorName, reason: str, *, in_log: bool = False) -> None:
        super().__init__(f"{refusal.name}: {reason}")
        self.refusal = refusal
        self.reason = reason
        self.in_log = in_log


class BatchHeader(NamedTuple):
    """The header's fields in wire order. A named tuple, as one is made for every batch produced."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch with its header."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """Raises ValueError for the codes 5 to 7, which `check_batches` refuses."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


_new_header: Callable[[tuple[Any, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)
"""As `BatchHeader._make`, without a call of Python: one is made for every batch produced."""


class CheckedBatch(NamedTuple):
    """A batch that passed `check_batches`: its header, and exactly its bytes."""

    header: BatchHeader
    data: memoryview


class WalkedBatch(NamedTuple):
    """What serving and numbering need of a stored batch; `position` counts from the start of the view."""

    position: int
    size_bytes: int
    base_offset: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """Read a header that is known to be one. Raises BatchError only when 61 bytes are not there."""
    if position < 0 or len(view) - position < HEADER_BYTES:
        raise _corrupt(f"{len(view) - position} bytes are too few for a batch header")
    return BatchHeader._make(HEADER.unpack_from(view, position))


def check_batches(
    records: memoryview | None, max_batch_bytes: int, *, zstd_allowed: bool = True
) -> CheckedBatch:
    """Check the `records` of one partition of a Produce request, which must hold exactly one batch.

    Raises BatchError by the table at the head of this module. The records inside are not parsed.
    """
    if records is None or not (size := _complete_batch(records, 0)):
        raise _invalid("a partition must have one record batch")
    if records[MAGIC_AT] != MAGIC:
        raise _invalid(f"magic {records[MAGIC_AT]} is not allowed in this version of Produce")
    if not zstd_allowed and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Codec.ZSTD:
        raise BatchError(ErrorName.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    data = records
    if size < len(records):
        if _complete_batch(records, size):
            raise _invalid("a partition must have one record batch, not more")
        data = records[:size]
    if size < HEADER_BYTES:
        raise _too_short(size)
    header = _new_header(HEADER.unpack_from(data))
    if header.base_offset != 0:
        raise _wrong_field(f"the base offset should be 0, but it is {header.base_offset}")
    if size > max_batch_bytes:
        raise BatchError(
            ErrorName.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, the limit is {max_batch_bytes}"
        )
    if crc32c(data[CRC_COVERS_FROM:]) != header.crc:
        raise _corrupt("the batch does not match its CRC")
    _check_fields(header)
    return CheckedBatch(header, data)


def walk(view: memoryview) -> Iterator[WalkedBatch]:
    """Walk batches that are back to back in stored bytes.

    Raises BatchError (CORRUPT_MESSAGE) at the first that is cut off or is no batch of magic 2. CRCs
    are not checked.
    """
    end = 0
    for batch in walk_whole(view):
        end = batch.position + batch.size_bytes
        yield batch
    if end < len(view):
        raise no_whole_batch(view[end:])


def walk_whole(view: memoryview) -> Iterator[WalkedBatch]:
    """The same up to the first that is cut off, or no batch: where stored bytes are read piece by piece."""
    position, end = 0, len(view)
    unpack = WALKED.unpack_from
    while end - position >= HEADER_BYTES:
        base_offset, length, magic, attributes, last_offset_delta, max_timestamp = unpack(view, position)
        size = length + LENGTH_PREFIX_BYTES
        if magic != MAGIC or not HEADER_BYTES <= size <= end - position:
            return
        yield WalkedBatch(position, size, base_offset, attributes, last_offset_delta, max_timestamp)
        position += size


def no_whole_batch(rest: memoryview) -> BatchError:
    """Why `walk_whole` stopped before these bytes."""
    if len(rest) < HEADER_BYTES:
        return _corrupt(f"{len(rest)} bytes are too few for a batch header")
    _, length, magic, *_ = WALKED.unpack_from(rest)
    return _corrupt(f"no batch: magic {magic}, {length + LENGTH_PREFIX_BYTES} bytes of {len(rest)}")


def verify_crc(batch: memoryview) -> bool:
    """Whether one stored batch still matches the CRC in its header."""
    return (
        len(batch) >= HEADER_BYTES and crc32c(batch[CRC_COVERS_FROM:]) == _CRC.unpack_from(batch, CRC_AT)[0]
    )


def patch_head(base_offset: int) -> bytes:
    """The first 8 bytes of a batch with this base offset."""
    return _BASE_OFFSET.pack(base_offset)


def outgoing_head(base_offset: int, batch_length: int) -> bytes:
    """The first 16 bytes of a batch as it is served: base offset, length field, leader epoch 0.

    They are outside the CRC; the body view served after them starts at 16. `batch_length` is the
    header's field, not the size of the batch.
    """
    return _OUTGOING.pack(base_offset, batch_length, LEADER_EPOCH)


def stamp_log_append_time(batch: memoryview, now_ms: int) -> bytearray:
    """A copy of a batch with timestamp type LogAppendTime, `now_ms` as max timestamp, and a new CRC."""
    stamped = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(stamped, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(stamped, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(stamped, MAX_TIMESTAMP_AT, now_ms)
    seal(stamped)
    return stamped


def clear_log_append_time(batch: memoryview) -> bytearray:
    """A copy of a batch with timestamp type CreateTime, and a new CRC: the type is the topic's to choose."""
    cleared = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(cleared, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(cleared, ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME_BIT)
    seal(cleared)
    return cleared


def seal(batch: bytearray) -> None:
    """Write the CRC of the bytes that follow it."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_AT, crc32c(view[CRC_COVERS_FROM:]))


def _complete_batch(records: memoryview, position: int) -> int:
    """Size of the batch of any magic at `position`; 0 if it is not there to its end."""
    remaining = len(records) - position
    if remaining < LENGTH_PREFIX_BYTES:
        return 0
    (length,) = _LENGTH.unpack_from(records, position + LENGTH_AT)
    if length < _MIN_LENGTH_OF_ANY_MAGIC:
        raise _corrupt(f"a length field of {length} is below that of any batch")
    if remaining <= MAGIC_AT:
        return 0
    if records[position + MAGIC_AT] > MAGIC:
        raise _corrupt(f"unknown magic {records[position + MAGIC_AT]}")
    size: int = length + LENGTH_PREFIX_BYTES
    if size > _MAX_SIZE:
        raise BatchError(ErrorName.UNKNOWN_SERVER_ERROR, f"a length field of {length} is beyond any batch")
    return size if size <= remaining else 0


def _check_fields(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CODEC_MASK >= len(_CODECS):
        reason = f"unknown codec {attributes & CODEC_MASK}"
        raise BatchError(ErrorName.UNKNOWN_SERVER_ERROR, reason, in_log=True)
    count, delta = header.record_count, header.last_offset_delta
    if count <= 0 or count != delta + 1:
        raise _wrong_field(f"{count} records cannot have a last offset delta of {delta}")
    if not attributes & CODEC_MASK and count > (header.size_bytes - HEADER_BYTES) // MIN_RECORD_BYTES:
        raise _wrong_field(f"{count} records cannot be in {header.size_bytes} bytes")
    if attributes & CONTROL_BIT:
        raise _wrong_field("clients are not allowed to write control batches")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise _wrong_field(f"producer id {header.producer_id} with base sequence {header.base_sequence}")


def _too_short(size: int) -> BatchError:
    # Kafka reads on up to the producer id before it looks at the size.
    reason = f"a batch of {size} bytes is shorter than its header"
    if size < PRODUCER_EPOCH_AT:
        return BatchError(ErrorName.UNKNOWN_SERVER_ERROR, reason)
    return _corrupt(reason)


def _corrupt(reason: str) -> BatchError:
    return BatchError(ErrorName.CORRUPT_MESSAGE, reason)


def _invalid(reason: str) -> BatchError:
    return BatchError(ErrorName.INVALID_RECORD, reason)


def _wrong_field(reason: str) -> BatchError:
    return BatchError(ErrorName.INVALID_RECORD, reason, in_log=True)
