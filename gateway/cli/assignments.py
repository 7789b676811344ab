"""Which partitions a consumer holds, read out of what its group's leader gave it.

ConsumerProtocolAssignment: version int16, topics as (name string, partitions array of int32), user data.
https://kafka.apache.org/protocol.html (consumer protocol); only the part that all versions share is read.
"""

import struct
from collections.abc import Iterator
from typing import Final

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")


def held_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """(topic, partition) in order; none if it is empty or no consumer's."""
    try:
        return sorted(_read(bytes(assignment))) if assignment else []
    except (struct.error, ValueError):
        return []


def _read(data: bytes) -> Iterator[tuple[str, int]]:
    _, topics = _HEAD.unpack_from(data)
    at = _HEAD.size
    # No more than there are bytes for, whatever the counts say.
    for _ in range(min(topics, len(data))):
        (length,) = _LENGTH.unpack_from(data, at)
        if length < 0:
            raise ValueError("a topic without a name")
        at += _LENGTH.size
        name = data[at : at + length].decode()
        at += length
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        if not 0 <= count <= (len(data) - at) // _COUNT.size:
            raise ValueError("more partitions than bytes")
        for (partition,) in _COUNT.iter_unpack(data[at : at + count * _COUNT.size]):
            yield name, partition
        at += count * _COUNT.size
