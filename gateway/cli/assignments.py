"""What consumers of a group exchange: subscriptions, assignments, and the assignor `range`.

ConsumerProtocolSubscription: version int16, topics as array of string, user data. ConsumerProtocolAssignment:
version int16, topics as (name string, partitions array of int32), user data.
https://kafka.apache.org/protocol.html (consumer protocol); only the part that all versions share is read.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_NO_USER_DATA: Final = struct.pack(">i", -1)


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


def subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription v0 of a member that reads these topics."""
    return _HEAD.pack(0, len(topics)) + b"".join(map(_string, topics)) + _NO_USER_DATA


def subscribed_topics(metadata: bytes) -> list[str]:
    """Of a member's subscription; none if it is no consumer's."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        at, topics = _HEAD.size, []
        for _ in range(min(count, len(metadata))):
            (length,) = _LENGTH.unpack_from(metadata, at)
            if length < 0:
                return []
            at += _LENGTH.size
            topics.append(bytes(metadata[at : at + length]).decode())
            at += length
        return topics
    except (struct.error, ValueError):
        return []


def assignment(partitions: Sequence[tuple[str, int]]) -> bytes:
    """ConsumerProtocolAssignment v0."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_HEAD.pack(0, len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), _COUNT.pack(len(numbers)), *map(_COUNT.pack, numbers)]
    return b"".join(parts) + _NO_USER_DATA


def range_assignments(
    members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[tuple[str, int]]]:
    """The assignor `range`: each member that reads a topic gets adjacent partitions of it, the first members
    one more if they do not come out even. `members`: topics by member; `partitions`: how many, by topic."""
    assigned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        readers = sorted(member for member, topics in members.items() if topic in topics)
        each, more = divmod(partitions.get(topic, 0), len(readers))
        at = 0
        for place, member in enumerate(readers):
            size = each + (place < more)
            assigned[member] += [(topic, partition) for partition in range(at, at + size)]
            at += size
    return assigned


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data
