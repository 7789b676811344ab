"""The messages of a gateway's internal APIs as a job sends and reads them: bytes and values (sans-I/O).

All have one version, 0, which is flexible. Every request ends with its timeout in ms, every response begins
with a throttle time. KIP-1164 has the APIs below 20000; fields of the others are those of
`gateway/wire/messages/internal`. Written apart from that codec, so that each checks the other.
"""

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ledger.errors import ErrorName
from ledger.merging.found import FoundMarker
from ledger.objects.uploads import ObjectKind
from ledger.settled.requests import NameSettled, SettledFiles
from ledger.swaps.requests import Pinned
from ledger.types import TopicId
from pipeline.primitives import Reader, Writer

ZERO_UUID: Final = bytes(16)
NOT_SAID: Final = -1
_LAYOUT_VERSION: Final = 0
_LAST_STABLE: Final = 1
_ABORTED: Final = 2
_OBJECT_KIND: Final = 2
_PRODUCER_ID: Final = 3
_PRODUCER_EPOCH: Final = 4
_IS_COMMIT: Final = 5
"""Tags of FindBatches, of a partition and of a batch."""
_WANTS_ISOLATION: Final = 0
"""Tag of the request."""
_RUN: Final = struct.Struct(">xqqqq8xqx")
"""What follows a run's object key: magic, position, size, first and last offset, log append time, max
timestamp, timestamp type. Runs are many, so these are read together."""
_IS_DUPLICATE: Final = 0
"""Tag of SettledLedger."""
_HEADER_VERSION: Final = 0


class Api(IntEnum):
    """The internal APIs by their keys."""

    LIST_OFFSETS = 97
    FIND_BATCHES = 98
    DESCRIBE_FILES = 100
    JOURNAL_FOLLOW = 20001
    SEGMENTS_SWAP = 20003
    PIN = 20004
    DESCRIBE_SHARD = 20005
    SETTLED_LEDGER = 20006
    ADOPT_TOPIC = 20007
    ADOPT_RUNS = 20008
    TAKE_SNAPSHOT = 20009


ERRORS: Final[Mapping[int, ErrorName]] = MappingProxyType(
    {
        -1: ErrorName.UNKNOWN_SERVER_ERROR,
        0: ErrorName.NONE,
        1: ErrorName.OFFSET_OUT_OF_RANGE,
        3: ErrorName.UNKNOWN_TOPIC_OR_PARTITION,
        7: ErrorName.REQUEST_TIMED_OUT,
        15: ErrorName.COORDINATOR_NOT_AVAILABLE,
        17: ErrorName.INVALID_TOPIC_EXCEPTION,
        25: ErrorName.UNKNOWN_MEMBER_ID,
        31: ErrorName.CLUSTER_AUTHORIZATION_FAILED,
        35: ErrorName.UNSUPPORTED_VERSION,
        36: ErrorName.TOPIC_ALREADY_EXISTS,
        37: ErrorName.INVALID_PARTITIONS,
        42: ErrorName.INVALID_REQUEST,
        44: ErrorName.POLICY_VIOLATION,
        56: ErrorName.KAFKA_STORAGE_ERROR,
        95: ErrorName.INVALID_UPDATE_VERSION,
        100: ErrorName.UNKNOWN_TOPIC_ID,
    }
)
"""Kafka's codes of the errors that the internal APIs return. Another code is an unknown server error."""
RESOURCE_NOT_FOUND: Final = 91
"""Of a file that no commit has named."""


class Failure(NamedTuple):
    """What a response says of its request, or of a part of it."""

    error: ErrorName
    message: str = ""

    def __bool__(self) -> bool:
        return self.error is not ErrorName.NONE


class TopicDescription(NamedTuple):
    topic_id: TopicId
    name: str
    partitions: int


class ShardPage(NamedTuple):
    """A shard, and some of its topics in the order of their ids."""

    failure: Failure
    cluster_id: str
    data_url: str
    """Of the segment store, as `adapters/open.py` takes it."""
    feature_level: int
    applied: int
    """Entries that are durable and applied: the number of the next one."""
    entry_time_ms: int
    topics: Sequence[TopicDescription]
    has_more: bool


class FoundRun(NamedTuple):
    """A run: offsets [base, last] are bytes [start, start + size) of an object. A `max_timestamp` below zero:
    no record has one (`ledger.partitions.runs.committed_ms`). `marker`: of a run of kind MARKER, which is in
    no object."""

    object_key: str
    kind: ObjectKind
    start: int
    size: int
    base: int
    last: int
    max_timestamp: int
    marker: FoundMarker | None = None


class Aborted(NamedTuple):
    """Transactional records of the producer with offsets from `first` to `last` are aborted."""

    producer_id: int
    first: int
    last: int


class FoundRuns(NamedTuple):
    """Runs of one partition, and the layout version that they all have. The last stable offset and the
    aborted transactions in these runs are of a query that wants them; else they are NOT_SAID and none."""

    failure: Failure
    layout_version: int
    log_start: int
    high_watermark: int
    runs: Sequence[FoundRun]
    last_stable: int = NOT_SAID
    aborted: Sequence[Aborted] = ()


class FoundOffset(NamedTuple):
    failure: Failure
    timestamp: int
    offset: int


class DescribedFile(NamedTuple):
    """`is_known`: a commit or a swap has named it. One that is not known may still be committed."""

    failure: Failure
    object_key: str
    is_known: bool
    has_live_batches: bool


class JournalEntry(NamedTuple):
    number: int
    data: bytes
    """As stored (`ledger/journal.py`)."""


class JournalPage(NamedTuple):
    """Entries in order, without gaps. `start` above the first number requested: these are pruned, and the
    reader loads a snapshot."""

    failure: Failure
    start: int
    durable_end: int
    entries: Sequence[JournalEntry]


class NewestSettled(NamedTuple):
    """The settled ledger of a partition that the journal names, if there is one; and where the log starts."""

    files: SettledFiles | None
    entry: int
    high_watermark: int
    layout_version: int
    log_start: int
    is_duplicate: bool = False


class RunQuery(NamedTuple):
    """A page of runs of one partition, from `offset` on."""

    topic_id: TopicId
    partition: int
    offset: int
    max_bytes: int = 2**31 - 1
    wants_isolation: bool = False
    """Then all queries of the request do."""


def request_frame(api: Api, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """Length, header of version 2, body."""
    header, name = Writer(), client_id.encode()
    header.int16(api)
    header.int16(_HEADER_VERSION)
    header.int32(correlation_id)
    header.int16(len(name))
    header.data += name
    header.tags()
    length = Writer()
    length.int32(len(header.data) + len(body))
    return bytes(length.data + header.data + body)


def response_body(frame: memoryview) -> tuple[int, Reader]:
    """Correlation id and body of a frame after its length. Raises Garbled."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    reader.tags()
    return correlation_id, reader


def describe_shard_request(after: bytes, max_topics: int, timeout_ms: int, shard: int = 0) -> bytes:
    writer = Writer()
    writer.int32(shard)
    writer.uuid(after)
    writer.int32(max_topics)
    return end_request(writer, timeout_ms)


def describe_shard_response(reader: Reader) -> ShardPage:
    reader.int32()
    page = ShardPage(
        read_failure(reader),
        reader.string(),
        reader.string(),
        reader.int16(),
        reader.int64(),
        reader.int64(),
        reader.array(_topic),
        reader.boolean(),
    )
    reader.tags()
    return page


def find_batches_request(
    queries: Sequence[RunQuery], max_bytes: int, max_batches: int, timeout_ms: int
) -> bytes:
    """One query for each partition."""
    by_topic: dict[TopicId, list[RunQuery]] = {}
    for query in queries:
        by_topic.setdefault(query.topic_id, []).append(query)
    writer = Writer()
    writer.int32(max_bytes)
    writer.int32(max_batches)
    writer.count(len(by_topic))
    for topic_id, parts in by_topic.items():
        writer.uuid(topic_id)
        writer.count(len(parts))
        for part in parts:
            writer.int32(part.partition)
            writer.int64(part.offset)
            writer.int32(part.max_bytes)
            writer.tags()
        writer.tags()
    if any(query.wants_isolation for query in queries):
        return end_request(writer, timeout_ms, {_WANTS_ISOLATION: b"\x01"})
    return end_request(writer, timeout_ms)


def find_batches_response(reader: Reader) -> dict[tuple[TopicId, int], FoundRuns]:
    """By topic id and partition."""
    reader.int32()
    topics = reader.array(_found_topic)
    reader.tags()
    return {(topic_id, partition): found for topic_id, parts in topics for partition, found in parts}


def list_offsets_request(
    topic_id: TopicId, partitions: Sequence[int], timestamp: int, timeout_ms: int
) -> bytes:
    writer = Writer()
    writer.count(1)
    writer.uuid(topic_id)
    writer.count(len(partitions))
    for partition in partitions:
        writer.int32(partition)
        writer.int64(timestamp)
        writer.tags()
    writer.tags()
    return end_request(writer, timeout_ms)


def list_offsets_response(reader: Reader) -> dict[int, FoundOffset]:
    """By partition, of a request for one topic."""
    reader.int32()
    topics = reader.array(_listed_topic)
    reader.tags()
    return {partition: found for topic in topics for partition, found in topic}


def describe_files_request(object_keys: Sequence[str], timeout_ms: int) -> bytes:
    writer = Writer()
    writer.count(len(object_keys))
    for key in object_keys:
        writer.string(key)
        writer.tags()
    return end_request(writer, timeout_ms)


def describe_files_response(reader: Reader) -> list[DescribedFile]:
    """In the order of the request."""
    reader.int32()
    files = reader.array(_described_file)
    reader.tags()
    return files


def journal_follow_request(
    first: int, max_bytes: int, max_wait_ms: int, timeout_ms: int, shard: int = 0
) -> bytes:
    writer = Writer()
    writer.int32(shard)
    writer.int64(first)
    writer.int32(max_bytes)
    writer.int32(max_wait_ms)
    return end_request(writer, timeout_ms)


def journal_follow_response(reader: Reader) -> JournalPage:
    reader.int32()
    page = JournalPage(read_failure(reader), reader.int64(), reader.int64(), reader.array(_entry))
    reader.tags()
    return page


def pin_request(job: bytes, release: bool, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.uuid(job)
    writer.boolean(release)
    return end_request(writer, timeout_ms)


def pin_response(reader: Reader) -> tuple[Failure, Pinned]:
    reader.int32()
    failure, pinned = read_failure(reader), Pinned(reader.int64(), reader.int64())
    reader.tags()
    return failure, pinned


def name_settled_request(naming: NameSettled, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.uuid(naming.job)
    writer.int32(naming.attempt)
    writer.uuid(naming.topic_id)
    writer.int32(naming.partition)
    writer.string(naming.files.locator)
    for number in (*naming.files[1:], naming.entry, naming.high_watermark):
        writer.int64(number)
    writer.int32(naming.layout_version)
    return end_request(writer, timeout_ms)


def find_settled_request(topic_id: TopicId, partition: int, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.uuid(ZERO_UUID)
    writer.int32(0)
    writer.uuid(topic_id)
    writer.int32(partition)
    writer.varint(0)  # no key: none is named
    for _ in range(5):
        writer.int64(0)
    writer.int32(0)
    return end_request(writer, timeout_ms)


def settled_response(reader: Reader) -> tuple[Failure, NewestSettled]:
    reader.int32()
    failure, locator = read_failure(reader), reader.nullable_string()
    sizes = reader.int64(), reader.int64(), reader.int64()
    entry, high_watermark = reader.int64(), reader.int64()
    layout_version, log_start = reader.int32(), reader.int64()
    is_duplicate = any(reader.tags().get(_IS_DUPLICATE, b""))
    files = SettledFiles(locator, *sizes) if locator is not None else None
    return failure, NewestSettled(files, entry, high_watermark, layout_version, log_start, is_duplicate)


def end_request(writer: Writer, timeout_ms: int, tags: Mapping[int, bytes] | None = None) -> bytes:
    writer.int32(timeout_ms)
    writer.tags(tags)
    return bytes(writer.data)


def read_failure(reader: Reader) -> Failure:
    """Error code and message."""
    code = reader.int16()
    return Failure(_error(code), reader.nullable_string() or _unnamed(code))


def _error(code: int) -> ErrorName:
    return ERRORS.get(code, ErrorName.UNKNOWN_SERVER_ERROR)


def _unnamed(code: int) -> str:
    return "" if code in ERRORS else f"error code {code}"


def _topic(reader: Reader) -> TopicDescription:
    topic = TopicDescription(TopicId(reader.uuid()), reader.string(), reader.int32())
    reader.tags()
    return topic


def _found_topic(reader: Reader) -> tuple[TopicId, list[tuple[int, FoundRuns]]]:
    found = TopicId(reader.uuid()), reader.array(_found_partition)
    reader.tags()
    return found


def _found_partition(reader: Reader) -> tuple[int, FoundRuns]:
    partition, code = reader.int32(), reader.int16()
    log_start, high_watermark = reader.int64(), reader.int64()
    runs = reader.array(_found_run)
    tags = reader.tags()
    layout_version = int.from_bytes(tags.get(_LAYOUT_VERSION, b""), "big", signed=True)
    last_stable = int.from_bytes(tags.get(_LAST_STABLE, b"\xff"), "big", signed=True)
    aborted = Reader(tags[_ABORTED]).array(_aborted) if _ABORTED in tags else []
    failure = Failure(_error(code), _unnamed(code))
    return partition, FoundRuns(
        failure, layout_version, log_start, high_watermark, runs, last_stable, aborted
    )


def _found_run(reader: Reader) -> FoundRun:
    reader.int64()
    object_key = reader.string()
    start, size, base, last, max_timestamp = reader.fields(_RUN)
    tags = reader.tags()
    kind = int.from_bytes(tags.get(_OBJECT_KIND, b"\x01"), "big")
    marker = _marker(tags) if _PRODUCER_ID in tags else None
    return FoundRun(object_key, ObjectKind(kind), start, size, base, last, max_timestamp, marker)


def _marker(tags: Mapping[int, memoryview]) -> FoundMarker:
    producer_id = int.from_bytes(tags[_PRODUCER_ID], "big", signed=True)
    epoch = int.from_bytes(tags.get(_PRODUCER_EPOCH, b"\xff"), "big", signed=True)
    return FoundMarker(producer_id, epoch, any(tags.get(_IS_COMMIT, b"")))


def _aborted(reader: Reader) -> Aborted:
    aborted = Aborted(reader.int64(), reader.int64(), reader.int64())
    reader.tags()
    return aborted


def _listed_topic(reader: Reader) -> list[tuple[int, FoundOffset]]:
    reader.uuid()
    partitions = reader.array(_listed_partition)
    reader.tags()
    return partitions


def _listed_partition(reader: Reader) -> tuple[int, FoundOffset]:
    partition = reader.int32()
    found = FoundOffset(read_failure(reader), reader.int64(), reader.int64())
    reader.tags()
    return partition, found


def _described_file(reader: Reader) -> DescribedFile:
    object_key, code, message = reader.string(), reader.int16(), reader.nullable_string()
    has_live_batches = reader.boolean()
    reader.tags()
    if code == RESOURCE_NOT_FOUND:
        return DescribedFile(Failure(ErrorName.NONE), object_key, False, False)
    failure = Failure(_error(code), message or _unnamed(code))
    return DescribedFile(failure, object_key, not failure, has_live_batches)


def _entry(reader: Reader) -> JournalEntry:
    entry = JournalEntry(reader.int64(), reader.bytes_())
    reader.tags()
    return entry
