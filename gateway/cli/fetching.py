"""Records of any Kafka endpoint, fetched by a command: of several topics, and over restarts of a broker."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.cli.client import ClientError
from gateway.cli.endpoint import Endpoint, Refusal, TopicInfo, Unreachable
from gateway.cli.offsets import EARLIEST, LATEST, list_offsets
from gateway.cli.output import talk
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from ledger.batch.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchHeader,
    verify_crc,
)
from ledger.batch.records import Record, open_batch

MAX_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
PATIENCE_S: Final = 30.0
"""How long to retry after a gateway that responded before fails: it may be restarting."""
RETRY_S: Final = 0.2

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

Partition = tuple[str, int]
"""Topic and index."""


@dataclass(frozen=True, slots=True)
class Consumed:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    record: Record


class Patience:
    """Retries of a transient failure, for PATIENCE_S from the first one after a success."""

    def __init__(self) -> None:
        self._until: float | None = None

    def renew(self) -> None:
        self._until = None

    def wait_after(self, error: ClientError) -> None:
        """Raises the error if it is not transient, or has lasted for PATIENCE_S."""
        if isinstance(error, Unreachable) or (isinstance(error, Refusal) and not _may_pass(error.error)):
            raise error
        if self._until is None:
            self._until = time.monotonic() + PATIENCE_S
            talk(f"{error}; trying again for {PATIENCE_S:.0f} s.")
        elif time.monotonic() > self._until:
            raise ClientError(f"{error}; gave up after {PATIENCE_S:.0f} s") from error
        time.sleep(RETRY_S)


def fetched(
    endpoint: Endpoint,
    topics: Mapping[str, TopicInfo],
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None,
    between: Callable[[], object] = lambda: None,
    isolation: int = READ_UNCOMMITTED,
) -> Iterator[Consumed]:
    """Records from these offsets on, for ever or up to `ends`. `between` is called before each request, which
    lasts for MAX_WAIT_MS while there is nothing to read. With READ_COMMITTED without those of aborted
    transactions, and up to the first open one. Refusal, ClientError."""
    positions = dict(starts)
    patience = Patience()
    while True:
        if ends is not None:
            positions = {part: at for part, at in positions.items() if at < ends[part]}
        if not positions:
            return
        for leader in sorted({_leader(topics, partition) for partition in positions}):
            between()
            mine = {part: at for part, at in positions.items() if _leader(topics, part) == leader}
            failure = None
            try:
                responses = _fetch(endpoint, leader, mine, isolation)
            except ClientError as error:
                responses, failure = [], error
            for topic, data in responses:
                partition = (topic, data.partition_index)
                if data.error_code:
                    failure = _refusal(endpoint, topics[topic], partition, mine[partition], data.error_code)
                    continue
                yield from _records(partition, data, positions, None if ends is None else ends[partition])
            if failure is None:
                patience.renew()
                continue
            patience.wait_after(failure)
            topics = _with_leaders(endpoint, topics)
            break


def _leader(topics: Mapping[str, TopicInfo], partition: Partition) -> int:
    topic, index = partition
    return topics[topic].leaders[index]


def _may_pass(error: ErrorCode) -> bool:
    """In Kafka an unknown topic is retriable too. Here the topic existed before, so it was deleted."""
    return error.retriable and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _with_leaders(endpoint: Endpoint, topics: Mapping[str, TopicInfo]) -> Mapping[str, TopicInfo]:
    """The topics of a new Metadata response; the old ones while there is no response."""
    try:
        return endpoint.topics(sorted(topics))
    except ClientError:
        return topics


def _fetch(
    endpoint: Endpoint, leader: int, positions: Mapping[Partition, int], isolation: int
) -> Sequence[tuple[str, Any]]:
    """Topic and response of each partition that has records or an error. ClientError."""
    # A broker fills its response in this order: the next request begins with what this one may not have had.
    topics: dict[str, FetchTopic] = {}
    for (name, partition), offset in positions.items():
        topics.setdefault(name, FetchTopic(name)).partitions.append(
            FetchPartition(partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        )
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation,
        topics=list(topics.values()),
    )
    response = endpoint.ask(ApiKey.FETCH, request, leader, 4)
    if response.error_code:
        raise Refusal(f"fetch of {', '.join(topics)}", response.error_code)
    return [(topic.topic, data) for topic in response.responses for data in topic.partitions]


def _refusal(
    endpoint: Endpoint, topic: TopicInfo, partition: Partition, offset: int, code: int
) -> ClientError:
    what = f"fetch of {topic.name}-{partition[1]} from offset {offset}"
    if code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return Refusal(what, code)
    first = list_offsets(endpoint, topic, EARLIEST)[partition[1]]
    end = list_offsets(endpoint, topic, LATEST)[partition[1]]
    return Refusal(what, code, f"offsets {first} to {end} are there; choose one with --from")


def _records(
    key: Partition, data: Any, positions: dict[Partition, int], end: int | None
) -> Iterator[Consumed]:
    """Records of one response from the partition's position on. Advances the position, and puts a partition
    that had records behind the others."""
    topic, partition = key
    aborted = _Aborted(data.aborted_transactions or ())
    for batch in whole_batches(memoryview(data.records or b"")):
        if not verify_crc(batch):
            raise ClientError(f"a batch of {topic}-{partition} does not match its CRC")
        header, records = opened_batch(f"{topic}-{partition}", batch, DECOMPRESSED_BYTES)
        for record in () if aborted.leaves_out(header) else records:
            offset = header.base_offset + record.offset_delta
            if offset < positions[key]:
                continue
            if end is not None and offset >= end:
                break
            positions[key] = offset + 1
            yield Consumed(topic, partition, offset, _timestamp(header, record), record)
        last = header.base_offset + header.last_offset_delta
        positions[key] = max(positions[key], last + 1)
    if data.records:
        positions[key] = positions.pop(key)


def opened_batch(
    partition: str, batch: memoryview, max_decompressed_bytes: int
) -> tuple[BatchHeader, Iterator[Record]]:
    """Header and records of exactly one batch of this partition, each made when it is wanted. ClientError,
    also from the records."""
    try:
        header, records = open_batch(batch, max_decompressed_bytes)
    except BatchError as error:
        raise _unreadable(partition, error) from error
    return header, _readable(partition, records)


def _readable(partition: str, records: Iterator[Record]) -> Iterator[Record]:
    try:
        yield from records
    except BatchError as error:
        raise _unreadable(partition, error) from error


def _unreadable(partition: str, error: BatchError) -> ClientError:
    return ClientError(f"a batch of {partition} cannot be read: {error}")


class _Aborted:
    """Which batches of a response are of aborted transactions. A broker lists those for READ_COMMITTED."""

    def __init__(self, transactions: Sequence[Any]) -> None:
        self._ahead = sorted(((one.first_offset, one.producer_id) for one in transactions), reverse=True)
        self._open: set[int] = set()

    def leaves_out(self, header: Any) -> bool:
        """Whether this batch has no records for consumers. Batches come in the order of their offsets."""
        last = header.base_offset + header.last_offset_delta
        while self._ahead and self._ahead[-1][0] <= last:
            self._open.add(self._ahead.pop()[1])
        if header.attributes & CONTROL_BIT:
            # The end of its producer's transaction.
            self._open.discard(header.producer_id)
            return True
        return bool(header.attributes & TRANSACTIONAL_BIT) and header.producer_id in self._open


def _timestamp(header: Any, record: Record) -> int:
    if header.attributes & LOG_APPEND_TIME_BIT:
        return int(header.max_timestamp)
    return int(header.base_timestamp + record.timestamp_delta)


def whole_batches(view: memoryview) -> Iterator[memoryview]:
    """Batches of a fetch response; a broker may cut the last one off."""
    while len(view) >= HEADER_BYTES:
        size = LENGTH_PREFIX_BYTES + int.from_bytes(view[LENGTH_AT : LENGTH_AT + 4], "big")
        if size > len(view):
            return
        yield view[:size]
        view = view[size:]
