"""Encoding of Fetch responses, by hand: at once, or in slices of the event loop.

A response is a list of buffers: records are sent as the buffers in which they were read, and the bytes
between them are one `bytes`. A field that a version does not have is left out.
"""

from collections.abc import Generator, Sequence
from struct import Struct

from gateway.wire.messages.fetch import (
    FIRST_FLEXIBLE,
    FIRST_VERSION_WITH_SESSIONS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    check_version,
)
from gateway.wire.messages.produce import (
    encode_count,
    encode_endpoints,
    encode_leader,
    encode_tags,
    encode_topic,
)
from gateway.wire.primitives import CHUNK_ITEMS, chunks, encode_uvarint
from ledger.types import Buffer

_INT32 = Struct(">i")
_HEAD = Struct(">ihi")
_PARTITION_V4 = Struct(">ihqq")
_PARTITION_V5 = Struct(">ihqqq")
_PARTITION_V12_NONE_ABORTED = Struct(">ihqqqBi")
_PARTITION_V12_EMPTY = Struct(">ihqqqBiBB")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iqB")
_SNAPSHOT = Struct(">qiB")


def encode_fetch_response(version: int, response: FetchResponse) -> list[Buffer]:
    """The body after the response header."""
    check_version(version)
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
    """As `encode_fetch_response`, in slices: yields the units of weight that are done."""
    check_version(version)
    buffers: list[Buffer] = []
    between, weight, joined = _response_head(version, response), 0, 0
    for topic in response.topics:
        _encode_topic_head(between, version, topic.name, topic.topic_id, len(topic.partitions))
        start = 0
        for chunk in chunks(len(topic.partitions)):
            _encode_partitions(buffers, between, version, topic.partitions[start : start + chunk])
            start += chunk
            weight += chunk
            if weight >= CHUNK_ITEMS:
                joined = _join_after(between, joined)
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
                buffers.append(b"".join(between))
                between.clear()
                yield weight
                weight = 0
        if version >= FIRST_FLEXIBLE:
            between.append(b"\0")
        weight += 1
    _encode_end(buffers, between, version, response)
    return buffers


def _response_head(version: int, response: FetchResponse) -> list[bytes]:
    if version >= FIRST_VERSION_WITH_SESSIONS:
        head = _HEAD.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        head = _INT32.pack(response.throttle_time_ms)
    topics = len(response.topics) + (0 if response.absent is None else response.absent.topics)
    return [head, encode_count(topics, version >= FIRST_FLEXIBLE)]


def _encode_topic_head(between: list[bytes], version: int, name: str, topic_id: bytes, count: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    between.append(encode_topic(version >= FIRST_VERSION_WITH_TOPIC_IDS, flexible, name, topic_id))
    between.append(encode_count(count, flexible))


def _encode_partitions(
    buffers: list[Buffer], between: list[bytes], version: int, partitions: Sequence[FetchPartitionResponse]
) -> None:
    flexible = version >= FIRST_FLEXIBLE
    for partition in partitions:
        if partition.is_empty and flexible:
            between.append(
                _PARTITION_V12_EMPTY.pack(
                    partition.index,
                    0,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    0 if partition.aborted_transactions is None else 1,
                    partition.preferred_read_replica,
                    1,
                    0,
                )
            )
            continue
        _encode_partition_head(between, version, partition)
        if partition.records:
            buffers.append(b"".join(between))
            buffers += partition.records
            between.clear()
        if flexible:
            between.append(_partition_tags(partition))


def _join_after(between: list[bytes], joined: int) -> int:
    """Joins the pieces after the first `joined` into one, since pieces take several times the memory of their
    bytes. Returns how many pieces there are then."""
    start = min(joined, len(between))
    between[start:] = [b"".join(between[start:])]
    return start + 1


def _encode_end(buffers: list[Buffer], between: list[bytes], version: int, response: FetchResponse) -> None:
    if version >= FIRST_FLEXIBLE:
        between.append(encode_endpoints(response.node_endpoints if version >= 16 else ()))
    if between:
        buffers.append(b"".join(between))


def _encode_partition_head(between: list[bytes], version: int, partition: FetchPartitionResponse) -> None:
    """All fields before the records, and the size of the records."""
    flexible = version >= FIRST_FLEXIBLE
    fixed = (partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset)
    aborted, records = partition.aborted_transactions, partition.records
    size = -1 if records is None else sum(map(len, records))
    if flexible and not aborted:  # nearly every partition of nearly every client: one pack
        count, preferred = 0 if aborted is None else 1, partition.preferred_read_replica
        between.append(_PARTITION_V12_NONE_ABORTED.pack(*fixed, partition.log_start_offset, count, preferred))
        between.append(_size_plus_one(size))
        return
    if version >= 5:
        between.append(_PARTITION_V5.pack(*fixed, partition.log_start_offset))
    else:
        between.append(_PARTITION_V4.pack(*fixed))
    between.append(_encode_aborted(aborted, flexible))
    if version >= 11:
        between.append(_INT32.pack(partition.preferred_read_replica))
    between.append(_size_plus_one(size) if flexible else _INT32.pack(size))


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
