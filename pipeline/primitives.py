"""Kafka's encodings of the flexible versions, as far as the internal APIs need them (sans-I/O).

Integers are big-endian. Lengths and counts of strings, bytes and arrays are unsigned varints of one more than
the length, 0 for null. A struct ends with tagged fields (KIP-482).
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

Item = TypeVar("Item")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_BYTES: Final = 16
_VARINT_BYTES: Final = 5


class Garbled(ValueError):
    """The bytes are not the message that they should be."""


class Writer:
    """Collects the bytes of one message."""

    def __init__(self) -> None:
        self.data = bytearray()

    def int8(self, value: int) -> None:
        self.data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def boolean(self, value: bool) -> None:
        self.data.append(value)

    def uuid(self, value: bytes) -> None:
        if len(value) != _UUID_BYTES:
            raise ValueError(f"a UUID of {len(value)} bytes")
        self.data += value

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def count(self, items: int) -> None:
        """What comes before the items of an array."""
        self.varint(items + 1)

    def string(self, text: str) -> None:
        encoded = text.encode()
        self.varint(len(encoded) + 1)
        self.data += encoded

    def tags(self, fields: Mapping[int, bytes] | None = None) -> None:
        """The end of a struct: its tagged fields, each with its bytes."""
        self.varint(len(fields or ()))
        for tag, data in sorted((fields or {}).items()):
            self.varint(tag)
            self.varint(len(data))
            self.data += data


class Reader:
    """Reads one message. Every method raises Garbled where the bytes end too early."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise Garbled(f"{size} bytes where {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Several numbers that come one after the other."""
        return layout.unpack(self.take(layout.size))

    def int8(self) -> int:
        return int(_INT8.unpack(self.take(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self.take(8))[0])

    def boolean(self) -> bool:
        return self.int8() != 0

    def uuid(self) -> bytes:
        return bytes(self.take(_UUID_BYTES))

    def varint(self) -> int:
        at = self._at
        if at < len(self._data) and (only := self._data[at]) < 0x80:
            # As nearly all are.
            self._at = at + 1
            return only
        value = 0
        for position in range(_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return value
        raise Garbled("a varint of more than 5 bytes")

    def nullable_string(self) -> str | None:
        length = self.varint() - 1
        if length < 0:
            return None
        try:
            return bytes(self.take(length)).decode()
        except UnicodeDecodeError:
            raise Garbled("a string that is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise Garbled("null where a string is required")
        return text

    def bytes_(self) -> bytes:
        length = self.varint() - 1
        if length < 0:
            raise Garbled("null where bytes are required")
        return bytes(self.take(length))

    def array(self, read: Callable[["Reader"], Item]) -> list[Item]:
        """The items of an array, each of which has at least one byte."""
        count = self.varint() - 1
        if not 0 <= count <= self.left:
            raise Garbled(f"an array of {count} items in {self.left} bytes")
        return [read(self) for _ in range(count)]

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields at the end of a struct."""
        count = self.varint()
        if count > self.left:
            raise Garbled(f"{count} tagged fields in {self.left} bytes")
        return {self.varint(): self.take(self.varint()) for _ in range(count)}
