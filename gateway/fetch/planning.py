"""What a fetch may read and how much of it: KIP-74's budgets, Kafka's errors. Pure.

Budgets: partitions are served in order, each up to its own maximum and what is left of the request's.
The first batch of the first partition that has records is served whatever its size. A batch that does not
fit ends its partition; the rest of the partition's share then counts as used up, as in Kafka, which
fills it with a part of that batch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.sessions import SessionPartition
from gateway.fetch.stream import BatchStream, open_stream
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
)
from ledger.batch.header import HEADER_BYTES, LEADER_EPOCH
from ledger.partitions.aborted import NONE_ABORTED, AbortedTransactions
from ledger.partitions.isolation import aborted_in
from ledger.partitions.state import PartitionLog
from ledger.topics.state import Topic, Topics
from ledger.types import ZERO_TOPIC_ID, Buffer, TopicId

READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
NO_REPLICA: Final = -1
"""No replica is preferred for reading."""
FIRST_BATCH_BYTES: Final = 4 * 1024
"""Bytes to read at least where the first batch must be served whatever its size."""

_NO_LOGS: Final[Sequence[PartitionLog | None]] = ()
_ABSENT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_MAY_BE_OUTDATED: Final = _ABSENT | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE}


class PartitionFetch(msgspec.Struct, eq=False):
    """One partition of a fetch under way. `request` is as it was when the fetch began: a later request of the
    session may change that of `partition` meanwhile."""

    partition: SessionPartition
    request: FetchPartition
    is_from_broker: bool = False
    """Requested by a broker that claims to be a follower; there are no followers."""
    log: PartitionLog | None = None
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    is_diverging: bool = False
    was_found: bool = False
    """It existed at an earlier plan."""
    was_absent: bool = False
    """It did not exist when the fetch began."""
    is_confirmed: bool = False
    """The newest state had its error as well."""
    max_bytes: int = 0
    stream: BatchStream | None = None
    is_at_end: bool = False
    """Until the partition moves, only its end is to be reported."""
    batches: int = 0
    """The number of the stream's batches that are served."""
    is_first_cut: bool = False
    """Not even the first batch fits into what the partition gets: Kafka then sends null for aborted
    transactions."""
    aborted: AbortedTransactions = NONE_ABORTED
    """Aborted transactions of the partition, as of the last plan."""

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self.stream = None

    @property
    def is_exceptional(self) -> bool:
        """There is an error or a divergence to report."""
        return self.error is not ErrorCode.NONE or self.is_diverging

    @property
    def is_absent(self) -> bool:
        """The topic or the partition does not exist."""
        return self.error in _ABSENT

    @property
    def may_be_outdated(self) -> bool:
        """An outdated state may be the reason for the error: a barrier has to confirm it."""
        return self.is_diverging or self.error in _MAY_BE_OUTDATED

    @property
    def has_moved(self) -> bool:
        """Whether the partition is no longer as it was when it was last planned."""
        log = self.log
        return log is not None and (
            log.high_watermark != self.high_watermark or log.log_start != self.log_start or log.deleted
        )

    @property
    def available(self) -> int:
        """Bytes that could be served, up to the partition's maximum."""
        stream = self.stream
        return min(stream.available + stream.beyond, self.max_bytes) if stream is not None else 0


class MissingBytes(NamedTuple):
    """`size` bytes of a stream must be read before it is final what its partition gets."""

    fetched: PartitionFetch
    stream: BatchStream
    size: int


class Shares(NamedTuple):
    missing: list[MissingBytes]
    out_of_budget: bool
    """The request's own maximum is used up."""


def plan(
    fetched: PartitionFetch, topics: Topics, isolation: int, max_bytes: int, offset_index: SparseOffsetIndex
) -> None:
    """Find the partition and what can be served of it, or its error. May be repeated on a newer state."""
    log = find_log(fetched.partition, topics)
    fetched.log, fetched.error, fetched.stream = log, ErrorCode.NONE, None
    fetched.is_diverging = fetched.is_at_end = fetched.is_first_cut = False
    if log is None:
        fetched.error = _absence(fetched.partition, topics)
        return
    request = fetched.request
    fetched.was_found = True
    # Unlike in ListOffsets, in Fetch any negative epoch is none.
    if request.current_leader_epoch > LEADER_EPOCH:
        fetched.error = ErrorCode.UNKNOWN_LEADER_EPOCH
        return
    if fetched.is_from_broker:
        fetched.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    end = log.high_watermark
    fetched.high_watermark, fetched.last_stable, fetched.log_start = end, log.last_stable, log.log_start
    if request.fetch_offset == end and request.last_fetched_epoch <= LEADER_EPOCH:
        fetched.is_at_end = True
    elif _is_divergent(request, log):
        fetched.is_diverging = True
    elif (
        request.last_fetched_epoch > LEADER_EPOCH
        or not log.log_start <= request.fetch_offset <= log.high_watermark
    ):
        fetched.error = ErrorCode.OFFSET_OUT_OF_RANGE
    elif request.max_bytes < 0 and request.fetch_offset < log.high_watermark:
        fetched.error = ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka fails at the first byte it would read
    else:
        fetched.max_bytes = min(max(request.max_bytes, 0), max_bytes)
        _open(fetched, log, isolation, max(fetched.max_bytes, HEADER_BYTES), offset_index)


def plan_ends(partitions: Sequence[PartitionFetch], topics: Topics) -> Sequence[PartitionFetch]:
    """Plan for the first time those partitions that are read up to their end, as most are: what `plan` does,
    without a call for each, and with one look-up for adjacent partitions of a topic. Returns the others."""
    others: list[PartitionFetch] = []
    topic: Topic | None = None
    name, topic_id, logs = "", b"", _NO_LOGS
    for fetched in partitions:
        partition, request = fetched.partition, fetched.request
        if partition.topic_id is not topic_id or partition.name != name:
            topic_id, name = partition.topic_id, partition.name
            topic = find_topic(partition, topics)
            logs = _NO_LOGS if topic is None else topic.partitions.made
        index = request.index
        log = logs[index] if 0 <= index < len(logs) else None
        if (
            log is None
            or topic is None
            or request.fetch_offset != log.high_watermark
            or request.last_fetched_epoch > LEADER_EPOCH
            or request.current_leader_epoch > LEADER_EPOCH
            or fetched.is_from_broker
        ):
            others.append(fetched)
            continue
        partition.name = topic.name
        fetched.log = log
        fetched.was_found = fetched.is_at_end = True
        fetched.high_watermark, fetched.last_stable, fetched.log_start = (
            log.high_watermark,
            log.last_stable,
            log.log_start,
        )
    return others


def find_topic(partition: SessionPartition, topics: Topics) -> Topic | None:
    """The topic by its id if the partition has one, else by name."""
    if partition.topic_id != ZERO_TOPIC_ID:
        return topics.by_id.get(TopicId(partition.topic_id))
    return topics.by_name.get(partition.name)


def find_log(partition: SessionPartition, topics: Topics) -> PartitionLog | None:
    """The partition by its topic's id if it has one, else by name; keeps the name of a resolved id."""
    topic = find_topic(partition, topics)
    if topic is None:
        return None
    partition.name = topic.name
    index, made = partition.request.index, topic.partitions.made
    return made[index] or topic.partitions[index] if 0 <= index < len(made) else None


def check_epoch(current_leader_epoch: int) -> ErrorCode:
    """KIP-320. The leader epoch is always 0; -1 is none."""
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if current_leader_epoch < NO_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def share_out(partitions: Sequence[PartitionFetch], max_bytes: int) -> Shares:
    """Divide the request's budget: sets how many batches each partition gets. Where bytes are missing the
    number is provisional: it assumes that they will be read."""
    missing: list[MissingBytes] = []
    left, first_is_due = max_bytes, True
    for fetched in partitions:
        fetched.batches, fetched.is_first_cut = 0, False
        stream = fetched.stream
        if stream is None or not (stream.available or stream.batches):
            continue
        limit = min(fetched.max_bytes, left)
        fetched.batches, size, missing_bytes = _share(stream, limit, first_is_due)
        fetched.is_first_cut = limit > 0 and fetched.batches == 0
        if missing_bytes:
            missing.append(MissingBytes(fetched, stream, missing_bytes))
        if size or missing_bytes:
            first_is_due = False
            left = max(0, left - max(size, min(stream.available, limit)))
    return Shares(missing, left == 0 and not first_is_due)


def planned_bytes(missing: Sequence[MissingBytes]) -> int:
    """The most bytes that are read for these, as far as the sizes of batches are known."""
    return sum([part.stream.bytes_to_read(part.size) for part in missing])


def readable_bytes(partitions: Sequence[PartitionFetch]) -> int:
    """What counts towards min_bytes (KIP-74): all that is available, of each partition up to its maximum.
    Exact once the streams have found their offsets, an upper bound before."""
    total = 0
    for fetched in partitions:
        if fetched.stream is not None:
            total += fetched.available
    return total


def partition_response(
    fetched: PartitionFetch, isolation: int, records: Sequence[Buffer]
) -> FetchPartitionResponse:
    """The partition's part of the response, with the values that Kafka sends together with an error."""
    index = fetched.request.index
    if fetched.is_at_end:
        # As most are: there are no records, and so no aborted transactions.
        return FetchPartitionResponse(
            index,
            0,
            fetched.high_watermark,
            fetched.last_stable,
            fetched.log_start,
            () if isolation == READ_COMMITTED else None,
            is_empty=True,
        )
    if fetched.error is not ErrorCode.NONE:
        never_there = fetched.is_absent and not fetched.was_found
        return FetchPartitionResponse(index, fetched.error, aborted_transactions=() if never_there else None)
    is_told = not (fetched.is_diverging or fetched.is_first_cut)
    return FetchPartitionResponse(
        index,
        0,
        fetched.high_watermark,
        fetched.last_stable,
        fetched.log_start,
        _aborted(fetched) if is_told and isolation == READ_COMMITTED else None,
        NO_REPLICA,
        records,
        EpochEndOffset(LEADER_EPOCH, fetched.high_watermark) if fetched.is_diverging else None,
    )


def _aborted(fetched: PartitionFetch) -> Sequence[AbortedTransaction]:
    """The aborted transactions that have records among those that are sent, in the order of their ends."""
    stream = fetched.stream
    if stream is None or not fetched.batches or not fetched.aborted:
        return ()
    end = stream.batches[fetched.batches - 1].last_offset + 1
    found = aborted_in(fetched.aborted, fetched.request.fetch_offset, end)
    return [AbortedTransaction(aborted.producer_id, aborted.first) for aborted in found]


def _open(
    fetched: PartitionFetch,
    log: PartitionLog,
    isolation: int,
    max_bytes: int,
    offset_index: SparseOffsetIndex,
) -> None:
    offset = fetched.request.fetch_offset
    bound = log.last_stable if isolation == READ_COMMITTED else log.high_watermark
    fetched.aborted = log.isolation.aborted
    if offset < bound:
        fetched.stream = open_stream(log, offset, bound, max_bytes, offset_index)


def _absence(partition: SessionPartition, topics: Topics) -> ErrorCode:
    """Kafka's error for a partition that does not exist. A topic that was deleted during its session or its
    fetch was known by its name, and is looked for by that."""
    if partition.topic_id == ZERO_TOPIC_ID or TopicId(partition.topic_id) in topics.by_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not partition.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    namesake = topics.by_name.get(partition.name)
    if namesake is not None and 0 <= partition.request.index < len(namesake.partitions):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_divergent(request: FetchPartition, log: PartitionLog) -> bool:
    """KIP-595: the client has read epoch 0 beyond its end in this log."""
    return request.last_fetched_epoch == LEADER_EPOCH and request.fetch_offset > log.high_watermark


def _share(stream: BatchStream, limit: int, first_is_due: bool) -> tuple[int, int, int]:
    """(number of batches, their bytes, bytes that must still be read before that is final)."""
    count = size = 0
    for batch in stream.batches:
        grown = size + len(batch.data)
        if grown > limit and not (first_is_due and count == 0):
            return count, size, 0
        size = grown
        count += 1
    if stream.at_end:
        return count, size, 0
    left = limit - size
    if first_is_due and count == 0:
        return count, size, max(left, stream.next_size, FIRST_BATCH_BYTES)
    return count, size, left if left >= max(stream.next_size, HEADER_BYTES) else 0
