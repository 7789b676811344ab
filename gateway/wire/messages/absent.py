"""Partitions that a large Fetch names and that do not exist, packed: each takes four bytes."""

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

_HEAD: Final = Struct(">hHI")
_UUID_BYTES: Final = 16
_INDEX_BYTES: Final = array("i").itemsize


class AbsentTopic(NamedTuple):
    """Partitions of one topic that have the same error."""

    name: str
    topic_id: bytes
    error_code: int
    indexes: Sequence[int]


class AbsentPartitions:
    """In the order in which they were added; adjacent partitions of one topic are one entry."""

    def __init__(self) -> None:
        self.topics = 0
        """The number of entries."""
        self.count = 0
        self._packed = bytearray()
        self._last: tuple[str, bytes, int] | None = None
        self._last_at = self._last_count = 0

    def add(self, name: str, topic_id: bytes, error_code: int, indexes: Sequence[int]) -> None:
        packed, encoded = self._packed, name.encode()
        if self._last != (name, topic_id, error_code):
            self._last = (name, topic_id, error_code)
            self._last_at, self._last_count = len(packed), 0
            self.topics += 1
            packed += _HEAD.pack(error_code, len(encoded), 0) + topic_id + encoded
        packed += array("i", indexes).tobytes()
        self.count += len(indexes)
        self._last_count += len(indexes)
        _HEAD.pack_into(packed, self._last_at, error_code, len(encoded), self._last_count)

    def __iter__(self) -> Iterator[AbsentTopic]:
        packed, at = memoryview(self._packed), 0
        while at < len(packed):
            error_code, name_bytes, count = _HEAD.unpack_from(packed, at)
            at += _HEAD.size
            topic_id = bytes(packed[at : at + _UUID_BYTES])
            at += _UUID_BYTES
            name = str(packed[at : at + name_bytes], "utf-8")
            at += name_bytes
            indexes = array("i", bytes(packed[at : at + count * _INDEX_BYTES]))
            at += count * _INDEX_BYTES
            yield AbsentTopic(name, topic_id, error_code, indexes)
