"""Decoding of Fetch requests, by hand: at once, or in slices of the event loop.

What is decoded is the body after the request header. Bytes after the message are ignored, as in Kafka.
"""

from collections.abc import Callable, Generator
from itertools import starmap
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gateway.wire.errors import Malformed, NeedsSlices
from gateway.wire.messages.fetch import (
    FIRST_FLEXIBLE,
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_SESSION_ID,
    SESSIONLESS_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    check_version,
)
from gateway.wire.primitives import (
    CHUNK_ITEMS,
    MAX_REQUEST_ITEMS,
    SHORT_ITEMS,
    ZERO_UUID,
    TagCounter,
    chunks,
    count_items,
    count_small,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    read_uuid,
    read_uvarint,
    run_out,
)

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD = Struct(">iiib")
_HEAD_WITH_SESSION = Struct(">iiibii")
_REPLICA_STATE = Struct(">iq")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_UNTAGGED_V12 = Struct(">iiqiqix")
"""Without the number of tagged fields after each, which is 0."""

_Topic = TypeVar("_Topic")
_Partition = TypeVar("_Partition")

Keep: TypeAlias = Callable[[str, bytes, list[_Partition]], list[_Partition]]
"""Which of these partitions of a topic (its name, its id) stay in the request."""
_Read: TypeAlias = Callable[[int, memoryview, int, int, TagCounter], tuple[list[_Partition], int]]


class _SlicedRequest(NamedTuple):
    """A request that is decoded in slices."""

    version: int
    body: memoryview
    max_items: int
    tags: TagCounter
    kept: list[Any]


def decode_fetch(version: int, body: memoryview) -> FetchRequest:
    """The request, however many partitions it has. Raises Malformed, UnsupportedVersion."""
    try:
        return decode_small_fetch(version, body)
    except NeedsSlices:
        return run_out(decoding_fetch(version, body))


def decode_small_fetch(version: int, body: memoryview) -> FetchRequest:
    """As `decode_fetch`. Raises NeedsSlices for a request of more elements than are decoded at once."""
    check_version(version)
    try:
        return _decode(version, body)
    except (struct_error, IndexError):
        raise Malformed(f"Fetch v{version} ends within a field") from None


def decoding_fetch(
    version: int,
    body: memoryview,
    max_items: int = MAX_REQUEST_ITEMS,
    keep: Keep[FetchPartition] | None = None,
    kept: list[Any] | None = None,
) -> Generator[int, None, FetchRequest]:
    """As `decode_fetch`, in slices: yields the units of weight that are done. Malformed also for more than
    `max_items` elements. `keep` says which partitions of a topic stay, None that all do. Adds every long list
    to `kept`, whose elements are freed in slices after the request."""
    check_version(version)
    try:
        return (yield from _decoding(version, body, max_items, keep, [] if kept is None else kept))
    except (struct_error, IndexError):
        raise Malformed(f"Fetch v{version} ends within a field") from None


def _decode(version: int, body: memoryview) -> FetchRequest:
    head, pos = _head(version, body)
    tags, forgotten = TagCounter(), list[ForgottenTopic]()
    topics, pos, items = _topics(version, body, pos, 0, tags, _partitions, FetchTopic)
    if version >= FIRST_VERSION_WITH_SESSIONS:
        forgotten, pos, _ = _topics(version, body, pos, items, tags, _forgotten_partitions, ForgottenTopic)
    return _request(version, body, pos, tags, FetchRequest(*head, topics, forgotten))


def _decoding(
    version: int, body: memoryview, max_items: int, keep: Keep[FetchPartition] | None, kept: list[Any]
) -> Generator[int, None, FetchRequest]:
    """What `_decode` does at once."""
    head, pos = _head(version, body)
    sliced = _SlicedRequest(version, body, max_items, TagCounter(), kept)
    forgotten = list[ForgottenTopic]()
    topics, pos, items = yield from _reading_topics(sliced, pos, 0, _partitions, FetchTopic, keep)
    if version >= FIRST_VERSION_WITH_SESSIONS:
        forgotten, pos, _ = yield from _reading_topics(
            sliced, pos, items, _forgotten_partitions, ForgottenTopic, None
        )
    return _request(version, body, pos, sliced.tags, FetchRequest(*head, topics, forgotten))


def _head(version: int, body: memoryview) -> tuple[tuple[int, int, int, int, int, int], int]:
    """The fields before the topics, without the replica's id, and the position of the topics."""
    pos = 0 if version >= 15 else 4
    if version >= FIRST_VERSION_WITH_SESSIONS:
        return _HEAD_WITH_SESSION.unpack_from(body, pos), pos + _HEAD_WITH_SESSION.size
    return (*_HEAD.unpack_from(body, pos), NO_SESSION_ID, SESSIONLESS_EPOCH), pos + _HEAD.size


def _request(
    version: int, body: memoryview, pos: int, tags: TagCounter, request: FetchRequest
) -> FetchRequest:
    """The request with the fields that are neither in its head nor in its topics."""
    if version < 15:
        (request.replica_id,) = _INT32.unpack_from(body)
    if version >= 11:
        request.rack_id, pos = (read_compact_string if version >= FIRST_FLEXIBLE else read_string)(body, pos)
    if version >= FIRST_FLEXIBLE and body[pos]:
        _read_request_tags(version, body, pos, tags, request)
    return request


def _topics(  # noqa: PLR0913 - a call for each Fetch: no object for its arguments
    version: int,
    body: memoryview,
    pos: int,
    items: int,
    tags: TagCounter,
    read_partitions: _Read[_Partition],
    make: Callable[[str, bytes, list[_Partition]], _Topic],
) -> tuple[list[_Topic], int, int]:
    """Reads topics after `items` elements. Returns them, the position after them, and how many elements have
    now been read."""
    flexible, by_id = version >= FIRST_FLEXIBLE, version >= FIRST_VERSION_WITH_TOPIC_IDS
    count, pos = _count(body, pos, flexible)
    topics, items, name, topic_id = [], count_small(items, count), "", ZERO_UUID
    for _ in range(count):
        if by_id:  # an id that is cut off has no count after it
            topic_id, pos = bytes(body[pos : pos + 16]), pos + 16
        else:
            name, pos = (read_compact_string if flexible else read_string)(body, pos)
        partition_count, pos = _count(body, pos, flexible)
        items = count_small(items, partition_count)
        partitions, pos = read_partitions(version, body, pos, partition_count, tags)
        if flexible:
            pos = pos + 1 if body[pos] == 0 else tags.skip(body, pos)
        topics.append(make(name, topic_id, partitions))
    return topics, pos, items


def _reading_topics(
    sliced: _SlicedRequest,
    pos: int,
    items: int,
    read_partitions: _Read[_Partition],
    make: Callable[[str, bytes, list[_Partition]], _Topic],
    keep: Keep[_Partition] | None,
) -> Generator[int, None, tuple[list[_Topic], int, int]]:
    """As `_topics`, in slices. A topic of which no partition is kept is left out."""
    version, body, max_items, tags, kept = sliced
    flexible, by_id = version >= FIRST_FLEXIBLE, version >= FIRST_VERSION_WITH_TOPIC_IDS
    count, pos = _count(body, pos, flexible)
    topics = list[_Topic]()
    items, weight, name, topic_id = count_items(items, count, max_items), 0, "", ZERO_UUID
    kept.append(topics)
    for _ in range(count):
        if by_id:
            topic_id, pos = read_uuid(body, pos)
        else:
            name, pos = (read_compact_string if flexible else read_string)(body, pos)
        partition_count, pos = _count(body, pos, flexible)
        items = count_items(items, partition_count, max_items)
        partitions = list[_Partition]()
        if partition_count > SHORT_ITEMS:
            kept.append(partitions)
        for chunk in chunks(partition_count):
            some, pos = read_partitions(version, body, pos, chunk, tags)
            partitions += some if keep is None else keep(name, topic_id, some)
            weight += chunk
            if weight >= CHUNK_ITEMS:
                yield weight
                weight = 0
        if flexible:
            pos = tags.skip(body, pos)
        if partitions or keep is None:
            topics.append(make(name, topic_id, partitions))
        weight += 1
    return topics, pos, items


def _count(body: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count = body[pos]
        if count > 0x7F:
            count, pos = read_uvarint(body, pos)
        else:
            pos += 1
        count -= 1
    else:
        (count,) = _INT32.unpack_from(body, pos)
        pos += 4
    if count < 0:
        raise Malformed("Fetch: an array is null")
    return count, pos


def _partitions(
    version: int, body: memoryview, pos: int, count: int, tags: TagCounter
) -> tuple[list[FetchPartition], int]:
    if version < FIRST_FLEXIBLE:
        return _classic_partitions(version, body, pos, count)
    if (untagged := _untagged_partitions(body, pos, count)) is not None:
        return untagged, pos + count * _UNTAGGED_V12.size
    partitions, unpack, size = list[FetchPartition](), _PARTITION_V12.unpack_from, _PARTITION_V12.size
    for _ in range(count):
        partition = FetchPartition(*unpack(body, pos))
        pos += size
        if body[pos]:
            pos = _read_partition_tags(version, body, pos, partition, tags)
        else:
            pos += 1
        partitions.append(partition)
    return partitions, pos


def _untagged_partitions(body: memoryview, pos: int, count: int) -> list[FetchPartition] | None:
    """Partitions as nearly every consumer sends them: without tagged fields. None if one has some."""
    size = _UNTAGGED_V12.size
    rows = body[pos : pos + count * size]
    if len(rows) != count * size or any(rows[size - 1 :: size]):
        return None
    return list(starmap(FetchPartition, _UNTAGGED_V12.iter_unpack(rows)))


def _classic_partitions(
    version: int, body: memoryview, pos: int, count: int
) -> tuple[list[FetchPartition], int]:
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    leader_epoch = log_start = -1
    partitions = list[FetchPartition]()
    for _ in range(count):
        if version >= 9:
            index, leader_epoch, offset, log_start, max_bytes = layout.unpack_from(body, pos)
        elif version >= 5:
            index, offset, log_start, max_bytes = layout.unpack_from(body, pos)
        else:
            index, offset, max_bytes = layout.unpack_from(body, pos)
        pos += layout.size
        partitions.append(FetchPartition(index, leader_epoch, offset, -1, log_start, max_bytes))
    return partitions, pos


def _forgotten_partitions(
    version: int, body: memoryview, pos: int, count: int, tags: TagCounter
) -> tuple[list[int], int]:
    end = pos + 4 * count
    if end > len(body):
        raise Malformed(f"Fetch: {count} forgotten partitions in {len(body) - pos} bytes")
    return [index for (index,) in _INT32.iter_unpack(body[pos:end])], end


def _read_partition_tags(
    version: int, body: memoryview, pos: int, partition: FetchPartition, tags: TagCounter
) -> int:
    tag_count, pos = tags.read_count(body, pos)
    for _ in range(tag_count):
        tag, pos, end = _tag(body, pos)
        if tag == 0 and version >= 17:
            _must_end(pos + 16, end)
            partition.replica_directory_id = bytes(body[pos:end])
        elif tag == 1 and version >= 18:
            _must_end(pos + _INT64.size, end)
            (partition.high_watermark,) = _INT64.unpack_from(body, pos)
        pos = end
    return pos


def _read_request_tags(
    version: int, body: memoryview, pos: int, tags: TagCounter, request: FetchRequest
) -> None:
    tag_count, pos = tags.read_count(body, pos)
    for _ in range(tag_count):
        tag, pos, end = _tag(body, pos)
        if tag == 0:
            request.cluster_id, pos = read_compact_nullable_string(body, pos)
            _must_end(pos, end)
        elif tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(body, pos)
            _must_end(tags.skip(body, pos + _REPLICA_STATE.size), end)
        pos = end


def _tag(body: memoryview, pos: int) -> tuple[int, int, int]:
    """(tag, where its field begins, where it ends)."""
    tag, pos = read_uvarint(body, pos)
    size, pos = read_uvarint(body, pos)
    if pos + size > len(body):
        raise Malformed("Fetch: a tagged field beyond the end")
    return tag, pos, pos + size


def _must_end(pos: int, end: int) -> None:
    if pos != end:
        raise Malformed("Fetch: a tagged field has another size than its tag says")
