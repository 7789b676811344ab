"""Fetch, API key 1, versions 4 to 18, by hand (https://kafka.apache.org/protocol.html#The_Messages_Fetch).

Version 7 brought sessions, 12 is flexible, 13 names topics by id, 15 moved the replica into a tagged
field, 16 tells node endpoints, 17 the replica's directory, 18 its high watermark. A response is a list
of buffers: records go out as the buffers they came in, what lies between them is one `bytes`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gateway.wire.errors import Malformed, NeedsSlices, UnsupportedVersion
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_count,
    encode_endpoints,
    encode_leader,
    encode_tags,
    encode_topic,
)
from gateway.wire.primitives import (
    CHUNK_ITEMS,
    MAX_REQUEST_ITEMS,
    ZERO_UUID,
    TagCounter,
    chunks,
    count_items,
    count_small,
    encode_uvarint,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    read_uuid,
    read_uvarint,
    run_out,
)
from ledger.types import Buffer

FIRST_VERSION: Final = 4
LAST_VERSION: Final = 18
FIRST_WITH_SESSIONS: Final = 7
FIRST_FLEXIBLE: Final = 12
FIRST_WITH_TOPIC_IDS: Final = 13
CONSUMER: Final = -1
"""The replica id of everybody who is no broker."""
NO_SESSION_ID: Final = 0
SESSIONLESS_EPOCH: Final = -1
HIGH_WATERMARK_NOT_TOLD: Final = 2**63 - 1

_ONE = Struct(">i")
_HEAD = Struct(">iiib")
_HEAD_WITH_SESSION = Struct(">iiibii")
_REPLICA_STATE = Struct(">iq")
_HIGH_WATERMARK = Struct(">q")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_UNTAGGED_V12 = Struct(">iiqiqiB")
_RESPONSE_HEAD = Struct(">ihi")
_FETCHED_V4 = Struct(">ihqq")
_FETCHED_V5 = Struct(">ihqqq")
_FETCHED_V12_NONE_ABORTED = Struct(">ihqqqBi")
_FETCHED_V12_EMPTY = Struct(">ihqqqBiBB")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iqB")
_SNAPSHOT = Struct(">qiB")

_Item = TypeVar("_Item")
_Partition = TypeVar("_Partition")


@dataclass(slots=True)
class FetchPartition:
    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_NOT_TOLD


@dataclass(slots=True)
class FetchTopic:
    """`name` is empty from version 13 on, `topic_id` is zero before."""

    name: str
    topic_id: bytes
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that leave the session."""

    name: str
    topic_id: bytes
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    """0 read_uncommitted, 1 read_committed."""
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str = ""
    cluster_id: str | None = None
    replica_id: int = CONSUMER
    replica_epoch: int = -1


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


@dataclass(slots=True)
class FetchPartitionResponse:
    index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Buffer] | None = ()
    """Written one behind the other and never joined; None is null, () no bytes."""
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(slots=True)
class FetchTopicResponse:
    name: str
    topic_id: bytes
    partitions: Sequence[FetchPartitionResponse]


@dataclass(slots=True)
class FetchResponse:
    topics: Sequence[FetchTopicResponse]
    error_code: int = 0
    session_id: int = NO_SESSION_ID
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
    absent: AbsentPartitions | None = None
    """Further partitions, which do not exist; of responses that are encoded in slices."""


def decode_fetch(version: int, body: memoryview) -> FetchRequest:
    """The request behind its header, however many partitions it has. Raises Malformed, UnsupportedVersion.

    Bytes behind the message are ignored, as Kafka ignores them.
    """
    try:
        return decode_small_fetch(version, body)
    except NeedsSlices:
        return run_out(decoding_fetch(version, body))


def decode_small_fetch(version: int, body: memoryview) -> FetchRequest:
    """The same. Raises NeedsSlices for a request of more elements than are decoded at once."""
    _check_version(version)
    try:
        return _decode(version, body)
    except (struct_error, IndexError):
        raise Malformed(f"Fetch v{version} ends within a field") from None


def decoding_fetch(
    version: int,
    body: memoryview,
    most: int = MAX_REQUEST_ITEMS,
    sieve: "Keep[FetchPartition] | None" = None,
) -> Generator[int, None, FetchRequest]:
    """The same in slices: yields the units of weight worked off. Malformed also for more than `most`
    elements. `sieve` is given partitions of a topic, and says which of them are kept."""
    _check_version(version)
    try:
        return (yield from _decoding(version, body, most, sieve))
    except (struct_error, IndexError):
        raise Malformed(f"Fetch v{version} ends within a field") from None


def encode_fetch_response(version: int, response: FetchResponse) -> list[Buffer]:
    """The body behind the response header. What a version does not carry is left out."""
    _check_version(version)
    buffers: list[Buffer] = []
    between = _response_head(version, response)
    for topic in response.topics:
        _encode_topic_head(between, version, topic.name, topic.topic_id, len(topic.partitions))
        _encode_partitions(buffers, between, version, topic.partitions)
        if version >= FIRST_FLEXIBLE:
            between.append(b"\0")
    _encode_end(buffers, between, version, response)
    return buffers


def encoding_fetch_response(version: int, response: FetchResponse) -> Generator[int, None, list[Buffer]]:
    """The same in slices: yields the units of weight worked off."""
    _check_version(version)
    buffers: list[Buffer] = []
    between, weight = _response_head(version, response), 0
    for topic in response.topics:
        _encode_topic_head(between, version, topic.name, topic.topic_id, len(topic.partitions))
        start = 0
        for chunk in chunks(len(topic.partitions)):
            _encode_partitions(buffers, between, version, topic.partitions[start : start + chunk])
            start += chunk
            weight += chunk
            if weight >= CHUNK_ITEMS:
                yield weight
                weight = 0
        if version >= FIRST_FLEXIBLE:
            between.append(b"\0")
        weight += 1
    for name, topic_id, error_code, indexes in response.absent or ():
        _encode_topic_head(between, version, name, topic_id, len(indexes))
        start = 0
        for chunk in chunks(len(indexes)):
            some = [
                FetchPartitionResponse(index, error_code, aborted_transactions=())
                for index in indexes[start : start + chunk]
            ]
            _encode_partitions(buffers, between, version, some)
            start += chunk
            weight += chunk
            if weight >= CHUNK_ITEMS:
                between[:] = [b"".join(between)]
                yield weight
                weight = 0
        if version >= FIRST_FLEXIBLE:
            between.append(b"\0")
        weight += 1
    _encode_end(buffers, between, version, response)
    return buffers


def _response_head(version: int, response: FetchResponse) -> list[bytes]:
    if version >= FIRST_WITH_SESSIONS:
        head = _RESPONSE_HEAD.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        head = _ONE.pack(response.throttle_time_ms)
    topics = len(response.topics) + (0 if response.absent is None else response.absent.topics)
    return [head, encode_count(topics, version >= FIRST_FLEXIBLE)]


def _encode_topic_head(between: list[bytes], version: int, name: str, topic_id: bytes, count: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    between.append(encode_topic(version >= FIRST_WITH_TOPIC_IDS, flexible, name, topic_id))
    between.append(encode_count(count, flexible))


def _encode_partitions(
    buffers: list[Buffer], between: list[bytes], version: int, partitions: Sequence[FetchPartitionResponse]
) -> None:
    flexible = version >= FIRST_FLEXIBLE
    for partition in partitions:
        if flexible and _encode_empty(between, partition):
            continue
        _encode_partition_head(between, version, partition)
        if partition.records:
            buffers.append(b"".join(between))
            buffers += partition.records
            between.clear()
        if flexible:
            between.append(_partition_tags(partition))


def _encode_end(buffers: list[Buffer], between: list[bytes], version: int, response: FetchResponse) -> None:
    if version >= FIRST_FLEXIBLE:
        between.append(encode_endpoints(response.node_endpoints if version >= 16 else ()))
    if between:
        buffers.append(b"".join(between))


def _check_version(version: int) -> None:
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise UnsupportedVersion(f"Fetch v{version}")


def _decode(version: int, body: memoryview) -> FetchRequest:
    head, pos = _head(version, body)
    tags, forgotten = TagCounter(), list[ForgottenTopic]()
    topics, pos, items = _topics(version, body, pos, 0, tags, _partitions, FetchTopic)
    if version >= FIRST_WITH_SESSIONS:
        forgotten, pos, _ = _topics(version, body, pos, items, tags, _forgotten_partitions, ForgottenTopic)
    return _request(version, body, pos, tags, FetchRequest(*head, topics, forgotten))


def _decoding(
    version: int, body: memoryview, most: int, sieve: "Keep[FetchPartition] | None"
) -> Generator[int, None, FetchRequest]:
    """What `_decode` does at once."""
    head, pos = _head(version, body)
    tags, forgotten = TagCounter(), list[ForgottenTopic]()
    topics, pos, items = yield from _reading_topics(
        version, body, pos, 0, most, tags, _partitions, FetchTopic, sieve
    )
    if version >= FIRST_WITH_SESSIONS:
        forgotten, pos, _ = yield from _reading_topics(
            version, body, pos, items, most, tags, _forgotten_partitions, ForgottenTopic
        )
    return _request(version, body, pos, tags, FetchRequest(*head, topics, forgotten))


def _head(version: int, body: memoryview) -> tuple[tuple[int, int, int, int, int, int], int]:
    """The fields before the topics, but for the replica's id, and the position of the topics."""
    pos = 0 if version >= 15 else 4
    if version >= FIRST_WITH_SESSIONS:
        return _HEAD_WITH_SESSION.unpack_from(body, pos), pos + _HEAD_WITH_SESSION.size
    return (*_HEAD.unpack_from(body, pos), NO_SESSION_ID, SESSIONLESS_EPOCH), pos + _HEAD.size


def _request(
    version: int, body: memoryview, pos: int, tags: TagCounter, request: FetchRequest
) -> FetchRequest:
    """The request with what is not between its head and its topics."""
    if version < 15:
        (request.replica_id,) = _ONE.unpack_from(body)
    if version >= 11:
        request.rack_id, pos = (read_compact_string if version >= FIRST_FLEXIBLE else read_string)(body, pos)
    if version >= FIRST_FLEXIBLE and body[pos]:
        _read_request_tags(version, body, pos, tags, request)
    return request


Keep: TypeAlias = Callable[[str, bytes, list[_Partition]], list[_Partition]]
_Read: TypeAlias = Callable[[int, memoryview, int, int, TagCounter], tuple[list[_Partition], int]]


def _topics(
    version: int,
    body: memoryview,
    pos: int,
    items: int,
    tags: TagCounter,
    read_partitions: _Read[_Partition],
    make: Callable[[str, bytes, list[_Partition]], _Item],
) -> tuple[list[_Item], int, int]:
    """Behind `items` elements. Returns the topics, the position behind them, and the elements by now."""
    flexible, by_id = version >= FIRST_FLEXIBLE, version >= FIRST_WITH_TOPIC_IDS
    count, pos = _count(body, pos, flexible)
    topics, items, name, topic_id = [], count_small(items, count), "", ZERO_UUID
    for _ in range(count):
        if by_id:  # what is cut off has no count behind it
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
    version: int,
    body: memoryview,
    pos: int,
    items: int,
    most: int,
    tags: TagCounter,
    read_partitions: _Read[_Partition],
    make: Callable[[str, bytes, list[_Partition]], _Item],
    keep: "Keep[_Partition] | None" = None,
) -> Generator[int, None, tuple[list[_Item], int, int]]:
    """The same in slices. Of what is not kept of a topic nothing is left."""
    flexible, by_id = version >= FIRST_FLEXIBLE, version >= FIRST_WITH_TOPIC_IDS
    count, pos = _count(body, pos, flexible)
    topics, items, weight, name, topic_id = [], count_items(items, count, most), 0, "", ZERO_UUID
    for _ in range(count):
        if by_id:
            topic_id, pos = read_uuid(body, pos)
        else:
            name, pos = (read_compact_string if flexible else read_string)(body, pos)
        partition_count, pos = _count(body, pos, flexible)
        items = count_items(items, partition_count, most)
        partitions = list[_Partition]()
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
        (count,) = _ONE.unpack_from(body, pos)
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
    """Partitions without tagged fields, as nearly every consumer sends them; None if these are others."""
    size = _UNTAGGED_V12.size
    rows = body[pos : pos + count * size]
    if len(rows) != count * size or any(rows[size - 1 :: size]):
        return None
    return [
        FetchPartition(index, leader_epoch, offset, fetched_epoch, log_start, most)
        for index, leader_epoch, offset, fetched_epoch, log_start, most, _ in _UNTAGGED_V12.iter_unpack(rows)
    ]


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
    return [index for (index,) in _ONE.iter_unpack(body[pos:end])], end


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
            _must_end(pos + _HIGH_WATERMARK.size, end)
            (partition.high_watermark,) = _HIGH_WATERMARK.unpack_from(body, pos)
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


def _encode_empty(between: list[bytes], partition: FetchPartitionResponse) -> bool:
    """Most partitions of most answers have nothing new: one pack. False if this one is another."""
    aborted = partition.aborted_transactions
    if (
        partition.records
        or partition.records is None
        or aborted
        or partition.diverging_epoch is not None
        or partition.current_leader is not None
        or partition.snapshot_id is not None
    ):
        return False
    between.append(
        _FETCHED_V12_EMPTY.pack(
            partition.index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
            0 if aborted is None else 1,
            partition.preferred_read_replica,
            1,
            0,
        )
    )
    return True


def _encode_partition_head(between: list[bytes], version: int, partition: FetchPartitionResponse) -> None:
    """All before the records, with their size."""
    flexible = version >= FIRST_FLEXIBLE
    fixed = (partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset)
    aborted, records = partition.aborted_transactions, partition.records
    size = -1 if records is None else sum(map(len, records))
    if flexible and not aborted:  # nearly every partition of nearly every client: one pack
        count, preferred = 0 if aborted is None else 1, partition.preferred_read_replica
        between.append(_FETCHED_V12_NONE_ABORTED.pack(*fixed, partition.log_start_offset, count, preferred))
        between.append(_size_plus_one(size))
        return
    if version >= 5:
        between.append(_FETCHED_V5.pack(*fixed, partition.log_start_offset))
    else:
        between.append(_FETCHED_V4.pack(*fixed))
    between.append(_encode_aborted(aborted, flexible))
    if version >= 11:
        between.append(_ONE.pack(partition.preferred_read_replica))
    between.append(_size_plus_one(size) if flexible else _ONE.pack(size))


def _encode_aborted(aborted: Sequence[AbortedTransaction] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    tags = b"\0" if flexible else b""
    transactions = [_ABORTED.pack(*transaction) + tags for transaction in aborted]
    return encode_count(len(aborted), flexible) + b"".join(transactions)


def _size_plus_one(size: int) -> bytes:
    """A compact length; the usual two and three bytes are written out for speed."""
    raw = size + 1
    if 0x80 <= raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    if 0x4000 <= raw < 0x20_0000:
        return bytes((raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, raw >> 14))
    return encode_uvarint(raw)


def _partition_tags(partition: FetchPartitionResponse) -> bytes:
    diverging, leader = partition.diverging_epoch, partition.current_leader
    snapshot = partition.snapshot_id
    if diverging is None and leader is None and snapshot is None:
        return b"\0"
    fields = []
    if diverging is not None:
        fields.append((0, _EPOCH_END.pack(*diverging, 0)))
    if leader is not None:
        fields.append((1, encode_leader(leader)))
    if snapshot is not None:
        fields.append((2, _SNAPSHOT.pack(*snapshot, 0)))
    return encode_tags(fields)
