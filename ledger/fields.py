"""Fields of varying length in metadata records and image rows. All lengths are in bytes, big-endian."""

import struct
from collections.abc import Mapping

from ledger.errors import StoreDamaged

U32 = struct.Struct(">I")
_PAIR = struct.Struct(">HI")
ABSENT = 0xFFFFFFFF
"""The length of a text that is None."""


def encode_pairs(pairs: Mapping[str, str]) -> bytes:
    """Sorted by key: `u16 key length | u32 value length | key | value`."""
    parts: list[bytes] = []
    for key, value in sorted(pairs.items()):
        key_bytes, value_bytes = key.encode(), value.encode()
        parts += (_PAIR.pack(len(key_bytes), len(value_bytes)), key_bytes, value_bytes)
    return b"".join(parts)


def decode_pairs(body: memoryview, count: int) -> dict[str, str]:
    """The reverse of `encode_pairs`; the pairs fill `body`."""
    pairs: dict[str, str] = {}
    pos = 0
    for _ in range(count):
        key_bytes, value_bytes = _PAIR.unpack_from(body, pos)
        pos += _PAIR.size
        key = str(body[pos : pos + key_bytes], "utf-8")
        pairs[key] = str(body[pos + key_bytes : pos + key_bytes + value_bytes], "utf-8")
        pos += key_bytes + value_bytes
    if pos != len(body):
        raise StoreDamaged("configs do not have the length they claim")
    return pairs


def encode_bytes(value: bytes) -> bytes:
    """`u32 length | value`."""
    return U32.pack(len(value)) + value


def encode_text(value: str | None) -> bytes:
    """`u32 length | UTF-8`; None has the length 0xFFFFFFFF."""
    return U32.pack(ABSENT) if value is None else encode_bytes(value.encode())


class FieldReader:
    """Reads fields one after the other. struct.error or StoreDamaged where they run past the end."""

    __slots__ = ("_end", "_pos", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._pos = 0
        self._end = len(view)

    def take(self, size: int) -> memoryview:
        begin = self._pos
        end = begin + size
        if end > self._end:
            raise StoreDamaged("a field of a metadata record runs past its end")
        self._pos = end
        return self._view[begin:end]

    def u32(self) -> int:
        (value,) = U32.unpack_from(self._view, self._pos)
        self._pos += U32.size
        return int(value)

    def bytes(self) -> bytes:
        return bytes(self.take(self.u32()))

    def text(self) -> str:
        return str(self.take(self.u32()), "utf-8")

    def optional_text(self) -> str | None:
        size = self.u32()
        return None if size == ABSENT else str(self.take(size), "utf-8")

    def rest(self) -> memoryview:
        return self.take(self._end - self._pos)

    def end(self) -> None:
        """StoreDamaged if something is left."""
        if self._pos != self._end:
            raise StoreDamaged("a metadata record is longer than its fields")
