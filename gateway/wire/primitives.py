"""Kafka's primitive encodings on memoryviews (https://kafka.apache.org/protocol.html#protocol_types).

Every `read_*` takes the frame and a position and returns (value, position after it). A value must be within
the frame, else Malformed; nothing is allocated from a length before that was checked. A negative length is
null, whatever its value, as Kafka reads it. Where Kafka is lenient about bytes that no client writes, this is
strict: text must be UTF-8, and a varint must fit its width.
"""

from collections.abc import Generator, Iterator
from struct import Struct
from typing import TypeVar

from gateway.wire.errors import Malformed, NeedsSlices, TooManyElements, Unencodable

Result = TypeVar("Result")

ZERO_UUID = bytes(16)
MAX_STRING_BYTES = 0x7FFF
MAX_REQUEST_ITEMS = 500_000
"""Elements of all arrays of a request together, where its reader sets no other bound. One of two bytes may
take a hundred in memory, so the size of a frame does not bound what it is decoded to."""
SMALL_ITEMS = 500
"""Elements of a request that is decoded at once."""
SMALL_BYTES = 32 * 1024
"""Bytes of such a request, but for records."""
CHUNK_ITEMS = 256
"""Elements that the sliced forms process between two yields."""
SHORT_ITEMS = 16
"""Up to this many elements are released together with their list; longer lists in slices."""
MAX_TAGS = 1_000
"""Tagged fields of a request together. Clients send a handful."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_MAX_UINT32 = 0xFFFF_FFFF


def read_int16(view: memoryview, pos: int) -> tuple[int, int]:
    if len(view) - pos < 2:
        raise Malformed("truncated int16")
    return _INT16.unpack_from(view, pos)[0], pos + 2


def read_int32(view: memoryview, pos: int) -> tuple[int, int]:
    if len(view) - pos < 4:
        raise Malformed("truncated int32")
    return _INT32.unpack_from(view, pos)[0], pos + 4


def read_uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits in at most 5 bytes."""
    if pos < len(view) and (byte := view[pos]) < 0x80:
        return byte, pos + 1
    return _read_base128(view, pos)


def read_string(view: memoryview, pos: int) -> tuple[str, int]:
    length, pos = read_int16(view, pos)
    return _text(view, pos, _present(length))


def read_nullable_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    if len(view) - pos < 2:
        raise Malformed("truncated int16")
    (length,) = _INT16.unpack_from(view, pos)
    return (None, pos + 2) if length < 0 else _text(view, pos + 2, length)


def read_compact_string(view: memoryview, pos: int) -> tuple[str, int]:
    length, pos = read_uvarint(view, pos)
    return _text(view, pos, _present(length - 1))


def read_compact_nullable_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    length, pos = read_uvarint(view, pos)
    return (None, pos) if length == 0 else _text(view, pos, length - 1)


def read_nullable_bytes(view: memoryview, pos: int) -> tuple[memoryview | None, int]:
    """A view, not a copy."""
    length, pos = read_int32(view, pos)
    return (None, pos) if length < 0 else _slice(view, pos, length)


def read_compact_nullable_bytes(view: memoryview, pos: int) -> tuple[memoryview | None, int]:
    """A view, not a copy."""
    length, pos = read_uvarint(view, pos)
    return (None, pos) if length == 0 else _slice(view, pos, length - 1)


def read_uuid(view: memoryview, pos: int) -> tuple[bytes, int]:
    raw, pos = _slice(view, pos, 16)
    return bytes(raw), pos


def count_items(items: int, more: int, max_items: int = MAX_REQUEST_ITEMS) -> int:
    """The elements read and announced so far. TooManyElements for more than a request may have."""
    items += more
    if items > max_items:
        raise TooManyElements(f"more than {max_items} elements in one request")
    return items


def count_small(items: int, more: int) -> int:
    """The same where a request is decoded at once. NeedsSlices for more than that allows."""
    items += more
    if items > SMALL_ITEMS:
        raise NeedsSlices
    return items


def count_tags(tags: int, more: int) -> int:
    """The tagged fields announced so far. Malformed for more than a request may have."""
    tags += more
    if tags > MAX_TAGS:
        raise Malformed(f"more than {MAX_TAGS} tagged fields in one request")
    return tags


def skip_tagged_fields(view: memoryview, pos: int) -> int:
    """The position after a tagged field section (KIP-482) of which no tag is known. Malformed for more than a
    whole request may have."""
    count, pos = read_uvarint(view, pos)
    count_tags(0, count)
    return skip_tags(view, pos, count)


def skip_tags(view: memoryview, pos: int, count: int) -> int:
    """The position after `count` tagged fields."""
    for _ in range(count):  # each takes two bytes at least, so a lying count ends at the end of the frame
        _, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        pos += size
        if pos > len(view):
            raise Malformed("tagged field beyond the end")
    return pos


class TagCounter:
    """Counts the tagged fields of one request that is decoded by hand."""

    __slots__ = ("tags",)

    def __init__(self) -> None:
        self.tags = 0

    def read_count(self, view: memoryview, pos: int) -> tuple[int, int]:
        """How many fields a section has, and the position of the first. Malformed for too many in all."""
        count, pos = read_uvarint(view, pos)
        self.tags = count_tags(self.tags, count)
        return count, pos

    def skip(self, view: memoryview, pos: int) -> int:
        """The position after a section of which no tag is known."""
        count, pos = self.read_count(view, pos)
        return skip_tags(view, pos, count)


def chunks(count: int) -> Iterator[int]:
    """Parts of at most CHUNK_ITEMS, `count` together."""
    while count > CHUNK_ITEMS:
        yield CHUNK_ITEMS
        count -= CHUNK_ITEMS
    yield count


def run_out(work: Generator[int, None, Result]) -> Result:
    """The value of a sliced form, all slices one after the other."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result


def encode_uvarint(value: int) -> bytes:
    if not 0 <= value <= _MAX_UINT32:
        raise Unencodable(f"{value} is no unsigned 32-bit number")
    return _encode_base128(value)


def encode_string(text: str | None) -> bytes:
    """int16 length and UTF-8; None is null."""
    if text is None:
        return b"\xff\xff"
    raw = string_bytes(text)
    return _INT16.pack(len(raw)) + raw


def encode_compact_string(text: str | None) -> bytes:
    """Length + 1 as an unsigned varint and UTF-8; None is null."""
    if text is None:
        return b"\x00"
    raw = string_bytes(text)
    return _encode_base128(len(raw) + 1) + raw


def string_bytes(text: str) -> bytes:
    """UTF-8; Kafka refuses more than 32,767 bytes."""
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise Unencodable(f"string of {len(raw)} bytes")
    return raw


def _read_base128(view: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = view[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            if shift == 28:
                raise Malformed("varint too long")
            shift += 7
    except IndexError:
        raise Malformed("truncated varint") from None
    if value > _MAX_UINT32:
        raise Malformed("varint too large")
    return value, pos


def _encode_base128(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _present(length: int) -> int:
    if length < 0:
        raise Malformed("null where a value is required")
    return length


def _text(view: memoryview, pos: int, length: int) -> tuple[str, int]:
    if length > MAX_STRING_BYTES:
        raise Malformed(f"string of {length} bytes")
    end = pos + length
    if end > len(view):
        raise Malformed(f"{length} bytes claimed, {len(view) - pos} left")
    # As Java reads it: what is not UTF-8 becomes U+FFFD, which no name may have.
    return str(view[pos:end], "utf-8", "replace"), end


def _slice(view: memoryview, pos: int, length: int) -> tuple[memoryview, int]:
    end = pos + length
    if end > len(view):
        raise Malformed(f"{length} bytes claimed, {len(view) - pos} left")
    return view[pos:end], end
