"""Produce, API key 0, versions 3 to 13, by hand (https://kafka.apache.org/protocol.html#The_Messages_Produce).

Version 9 is flexible, 13 names topics by id. Requests are decoded on the frame itself: `records` are
views of it. The generated module of the same name serves the other direction, and tests.
"""

from collections.abc import Generator, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

import msgspec

from gateway.wire.errors import Malformed, NeedsSlices, UnsupportedVersion
from gateway.wire.primitives import (
    CHUNK_ITEMS,
    MAX_REQUEST_ITEMS,
    SHORT_ITEMS,
    ZERO_UUID,
    TagCounter,
    chunks,
    count_items,
    count_small,
    encode_compact_string,
    encode_string,
    encode_uvarint,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_uuid,
    read_uvarint,
    run_out,
)

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 13
FIRST_FLEXIBLE: Final = 9
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13

_ACKS_AND_TIMEOUT = Struct(">hi")
_COUNT = Struct(">i")
_INDEX_AND_SIZE = Struct(">ii")
_INDEX_AND_COMPACT_SIZE = Struct(">iB")
_PRODUCED_V2 = Struct(">ihqq")
_PRODUCED_V5 = Struct(">ihqqq")
_PRODUCED_V9 = Struct(">ihqqqBBB")
_LEADER = Struct(">iiB")
_NO_RECORD_ERRORS_NO_MESSAGE = b"\0\0\0\0\xff\xff"
_NO_RECORD_ERRORS_NO_MESSAGE_COMPACT = b"\x01\x00"
_NO_TAGS = b"\0"
_LONGEST_KNOWN: Final = 249
_SMALL_COUNTS = tuple(encode_uvarint(count + 1) for count in range(127))


class ProducePartition(msgspec.Struct):
    index: int
    records: memoryview | None
    """A view of the frame: the batches as sent, not validated."""


class ProduceTopic(msgspec.Struct):
    """`name` is empty from version 13 on, `topic_id` is zero before."""

    name: str
    topic_id: bytes
    partitions: list[ProducePartition]


class ProduceRequest(msgspec.Struct):
    transactional_id: str | None
    acks: int
    """0 none, 1 leader, -1 all; other values are decoded too."""
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """Why one record, by its index in the batch, made the batch be refused."""

    batch_index: int
    message: str | None


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class ProducePartitionResponse(msgspec.Struct):
    index: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class ProduceTopicResponse(msgspec.Struct):
    name: str
    topic_id: bytes
    partitions: Sequence[ProducePartitionResponse]


class ProduceResponse(msgspec.Struct):
    topics: Sequence[ProduceTopicResponse]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def decode_produce(version: int, body: memoryview) -> ProduceRequest:
    """The request after its header, however many partitions it has. Raises Malformed, UnsupportedVersion.

    Bytes after the message are ignored, as in Kafka.
    """
    try:
        return decode_small_produce(version, body)
    except NeedsSlices:
        return run_out(decoding_produce(version, body))


def decode_small_produce(version: int, body: memoryview) -> ProduceRequest:
    """As `decode_produce`. Raises NeedsSlices for a request of more elements than are decoded at once."""
    _check_version(version)
    try:
        return _decode_flexible(version, body) if version >= FIRST_FLEXIBLE else _decode_classic(body)
    except (struct_error, IndexError):
        raise Malformed(f"Produce v{version} ends within a field") from None


def decoding_produce(
    version: int, body: memoryview, max_items: int = MAX_REQUEST_ITEMS, kept: list[Any] | None = None
) -> Generator[int, None, ProduceRequest]:
    """As `decode_produce`, in slices: yields the units of weight that are done. Malformed also for more than
    `max_items` elements. Adds every long list to `kept`, whose elements are freed in slices after the
    request."""
    _check_version(version)
    try:
        return (yield from _decoding(version, body, max_items, [] if kept is None else kept))
    except (struct_error, IndexError):
        raise Malformed(f"Produce v{version} ends within a field") from None


def encode_produce_response(version: int, response: ProduceResponse) -> bytes:
    """The body after the response header. A field that a version does not have is left out."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    out = [encode_count(len(response.topics), flexible)]
    for topic in response.topics:
        out.append(
            encode_topic(version >= FIRST_VERSION_WITH_TOPIC_IDS, flexible, topic.name, topic.topic_id)
        )
        out.append(encode_count(len(topic.partitions), flexible))
        for partition in topic.partitions:
            _encode_partition(out, version, partition)
        if flexible:
            out.append(_NO_TAGS)
    _encode_end(out, version, response)
    return b"".join(out)


def encoding_produce_response(version: int, response: ProduceResponse) -> Generator[int, None, bytes]:
    """As `encode_produce_response`, in slices: yields the units of weight that are done."""
    _check_version(version)
    flexible, weight = version >= FIRST_FLEXIBLE, 0
    out = [encode_count(len(response.topics), flexible)]
    for topic in response.topics:
        out.append(
            encode_topic(version >= FIRST_VERSION_WITH_TOPIC_IDS, flexible, topic.name, topic.topic_id)
        )
        out.append(encode_count(len(topic.partitions), flexible))
        for partition in topic.partitions:
            _encode_partition(out, version, partition)
            weight += 1
            if weight >= CHUNK_ITEMS:
                yield weight
                weight = 0
        if flexible:
            out.append(_NO_TAGS)
        weight += 1
    _encode_end(out, version, response)
    return b"".join(out)


def encode_count(count: int, flexible: bool) -> bytes:
    """The length of an array that is not null."""
    if flexible:
        return _SMALL_COUNTS[count] if count < len(_SMALL_COUNTS) else encode_uvarint(count + 1)
    return _COUNT.pack(count)


def encode_topic(by_id: bool, flexible: bool, name: str, topic_id: bytes) -> bytes:
    """What a response calls a topic by."""
    if by_id:
        return topic_id
    # No topic has a longer name: names that a client makes up must not fill the memory.
    return _known_name(flexible, name) if len(name) <= _LONGEST_KNOWN else _encode_name(flexible, name)


def _encode_name(flexible: bool, name: str) -> bytes:
    return encode_compact_string(name) if flexible else encode_string(name)


_known_name = lru_cache(maxsize=1024)(_encode_name)


def encode_leader(leader: LeaderIdAndEpoch) -> bytes:
    """The struct in a tagged field."""
    return _LEADER.pack(*leader, 0)


def encode_tags(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """A tagged field section of these tags, ascending."""
    out = [encode_uvarint(len(fields))]
    for tag, data in fields:
        out += (encode_uvarint(tag), encode_uvarint(len(data)), data)
    return b"".join(out)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields at the end of a Produce or Fetch response: tag 0, the node endpoints, if there are
    any."""
    if not endpoints:
        return _NO_TAGS
    out = [encode_count(len(endpoints), flexible=True)]
    for node_id, host, port, rack in endpoints:
        out += (_COUNT.pack(node_id), encode_compact_string(host), _COUNT.pack(port))
        out += (encode_compact_string(rack), _NO_TAGS)
    return encode_tags([(0, b"".join(out))])


def _check_version(version: int) -> None:
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise UnsupportedVersion(f"Produce v{version}")


def _decode_classic(body: memoryview) -> ProduceRequest:
    transactional_id, pos = read_nullable_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = _classic_count(body, pos + _ACKS_AND_TIMEOUT.size)
    topics, items = [], count_small(0, topic_count)
    for _ in range(topic_count):
        name, pos = read_string(body, pos)
        partition_count, pos = _classic_count(body, pos)
        items = count_small(items, partition_count)
        partitions, pos = _classic_partitions(body, pos, partition_count)
        topics.append(ProduceTopic(name, ZERO_UUID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decoding(
    version: int, body: memoryview, max_items: int, kept: list[Any]
) -> Generator[int, None, ProduceRequest]:
    """All versions, of any length: what `_decode_classic` and `_decode_flexible` do at once."""
    flexible, by_id, tags = version >= FIRST_FLEXIBLE, version >= FIRST_VERSION_WITH_TOPIC_IDS, TagCounter()
    count = _compact_count if flexible else _classic_count
    transactional_id, pos = (read_compact_nullable_string if flexible else read_nullable_string)(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = count(body, pos + _ACKS_AND_TIMEOUT.size)
    topics = list[ProduceTopic]()
    items, weight, name, topic_id = count_items(0, topic_count, max_items), 0, "", ZERO_UUID
    kept.append(topics)
    for _ in range(topic_count):
        if by_id:
            topic_id, pos = read_uuid(body, pos)
        else:
            name, pos = (read_compact_string if flexible else read_string)(body, pos)
        partition_count, pos = count(body, pos)
        items = count_items(items, partition_count, max_items)
        partitions = list[ProducePartition]()
        if partition_count > SHORT_ITEMS:
            kept.append(partitions)
        for chunk in chunks(partition_count):
            if flexible:
                some, pos = _compact_partitions(body, pos, chunk, tags)
            else:
                some, pos = _classic_partitions(body, pos, chunk)
            partitions += some
            weight += chunk
            if weight >= CHUNK_ITEMS:
                yield weight
                weight = 0
        if flexible:
            pos = tags.skip(body, pos)
        topics.append(ProduceTopic(name, topic_id, partitions))
        weight += 1
        if weight >= CHUNK_ITEMS:
            yield weight
            weight = 0
    if flexible:
        tags.skip(body, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _classic_count(body: memoryview, pos: int) -> tuple[int, int]:
    (count,) = _COUNT.unpack_from(body, pos)
    if count < 0:
        raise Malformed("Produce: an array is null")
    return count, pos + 4


def _classic_partitions(body: memoryview, pos: int, count: int) -> tuple[list[ProducePartition], int]:
    partitions, unpack, frame_end = list[ProducePartition](), _INDEX_AND_SIZE.unpack_from, len(body)
    for _ in range(count):
        index, size = unpack(body, pos)
        pos += 8
        if size < 0:
            partitions.append(ProducePartition(index, None))
            continue
        end = pos + size
        if end > frame_end:
            raise Malformed(f"Produce: {size} bytes of records claimed, {frame_end - pos} left")
        partitions.append(ProducePartition(index, body[pos:end]))
        pos = end
    return partitions, pos


def _decode_flexible(version: int, body: memoryview) -> ProduceRequest:
    transactional_id, pos = (None, 1) if body[0] == 0 else read_compact_nullable_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = _compact_count(body, pos + _ACKS_AND_TIMEOUT.size)
    topics, items, name, topic_id = [], count_small(0, topic_count), "", ZERO_UUID
    tags = TagCounter()
    for _ in range(topic_count):
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic_id = bytes(body[pos : pos + 16])
            pos += 16
        elif 1 < (size := body[pos]) <= 0x7F and pos + size <= len(body):
            name, pos = str(body[pos + 1 : pos + size], "utf-8", "replace"), pos + size
        else:
            name, pos = read_compact_string(body, pos)
        partition_count, pos = _compact_count(body, pos)
        items = count_small(items, partition_count)
        partitions, pos = _compact_partitions(body, pos, partition_count, tags)
        pos = pos + 1 if body[pos] == 0 else tags.skip(body, pos)
        topics.append(ProduceTopic(name, topic_id, partitions))
    if body[pos]:
        tags.skip(body, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _compact_count(body: memoryview, pos: int) -> tuple[int, int]:
    count = body[pos]
    if count > 0x7F:
        count, pos = read_uvarint(body, pos)
    else:
        pos += 1
    if count == 0:
        raise Malformed("Produce: an array is null")
    return count - 1, pos


def _compact_partitions(
    body: memoryview, pos: int, count: int, tags: TagCounter
) -> tuple[list[ProducePartition], int]:
    partitions, unpack, frame_end = list[ProducePartition](), _INDEX_AND_COMPACT_SIZE.unpack_from, len(body)
    for _ in range(count):
        index, size = unpack(body, pos)
        pos += 5
        if size > 0x7F:
            second = body[pos]
            if second < 0x80:  # two bytes, written out for speed
                size += (second << 7) - 0x80
                pos += 1
            else:
                size, pos = read_uvarint(body, pos - 1)
        records = None
        if size:
            end = pos + size - 1
            if end > frame_end:
                raise Malformed(f"Produce: {size - 1} bytes of records claimed, {frame_end - pos} left")
            records = body[pos:end]
            pos = end
        pos = pos + 1 if body[pos] == 0 else tags.skip(body, pos)
        partitions.append(ProducePartition(index, records))
    return partitions, pos


def _encode_end(out: list[bytes], version: int, response: ProduceResponse) -> None:
    out.append(_COUNT.pack(response.throttle_time_ms))
    if version >= FIRST_FLEXIBLE:
        out.append(encode_endpoints(response.node_endpoints if version >= 10 else ()))


def _encode_partition(out: list[bytes], version: int, partition: ProducePartitionResponse) -> None:
    fixed = (partition.index, partition.error_code, partition.base_offset, partition.log_append_time_ms)
    has_more = partition.record_errors or partition.error_message is not None or partition.current_leader
    if version >= FIRST_FLEXIBLE and not has_more:
        out.append(_PRODUCED_V9.pack(*fixed, partition.log_start_offset, 1, 0, 0))
        return
    if version >= 5:
        out.append(_PRODUCED_V5.pack(*fixed, partition.log_start_offset))
    else:
        out.append(_PRODUCED_V2.pack(*fixed))
    flexible = version >= FIRST_FLEXIBLE
    if version >= 8:
        if partition.record_errors or partition.error_message is not None:
            _encode_errors(out, flexible, partition.record_errors, partition.error_message)
        else:
            out.append(_NO_RECORD_ERRORS_NO_MESSAGE_COMPACT if flexible else _NO_RECORD_ERRORS_NO_MESSAGE)
    if not flexible:
        return
    if partition.current_leader is not None and version >= 10:
        out.append(encode_tags([(0, encode_leader(partition.current_leader))]))
    else:
        out.append(_NO_TAGS)


def _encode_errors(
    out: list[bytes], flexible: bool, errors: Sequence[RecordError], message: str | None
) -> None:
    encode = encode_compact_string if flexible else encode_string
    out.append(encode_count(len(errors), flexible))
    for batch_index, why in errors:
        out += (_COUNT.pack(batch_index), encode(why))
        if flexible:
            out.append(_NO_TAGS)
    out.append(encode(message))
