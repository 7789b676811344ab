"""What a fetch may see and how much of it: KIP-74's budgets, Kafka's errors. Pure.

Budgets: partitions are served in order, each up to its own maximum and what is left of the request's.
The first batch of the first partition that has data is served whatever its size. A batch that does not
fit ends its partition; the rest of the partition's share then counts as used up, as in Kafka, where it
is filled with a part of that batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.fetch.hints import PositionHints
from gateway.fetch.sessions import AskedPartition
from gateway.fetch.stream import BatchStream, open_stream
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import EpochEndOffset, FetchPartition, FetchPartitionResponse
from ledger.batch.header import HEADER_BYTES, LEADER_EPOCH
from ledger.partitions import PartitionLog
from ledger.topics import Topics
from ledger.types import Buffer, TopicId

READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
FIRST_BATCH_BYTES: Final = 4 * 1024
"""Read at least, where the first batch must be served however small the maximum."""

_ABSENT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NEGATIVE: Final = _ABSENT | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE}


@dataclass(slots=True, eq=False)
class Want:
    """One partition of a fetch in the making. `request` is as it was when the fetch began: a later
    request of the session may change `asked` meanwhile."""

    asked: AskedPartition
    request: FetchPartition
    is_from_broker: bool = False
    """Asked for by a broker that says it follows; there are no followers."""
    log: PartitionLog | None = None
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    is_diverging: bool = False
    was_found: bool = False
    """At an earlier look it was there."""
    max_bytes: int = 0
    stream: BatchStream | None = None

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self.stream = None

    @property
    def is_absent(self) -> bool:
        """No such topic or partition."""
        return self.error in _ABSENT

    @property
    def is_negative(self) -> bool:
        """The state says no, and perhaps only because it is not the newest: needs a barrier as proof."""
        return self.is_diverging or self.error in _NEGATIVE

    @property
    def available(self) -> int:
        """How many bytes could be served, up to the partition's maximum."""
        stream = self.stream
        return min(stream.available + stream.beyond, self.max_bytes) if stream is not None else 0


@dataclass(frozen=True, slots=True)
class Share:
    """What a partition gets: its first `batches` batches of `size` bytes; `missing` bytes must be read
    before that is final."""

    want: Want
    batches: int
    size: int
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Shares:
    shares: Sequence[Share]
    out_of_budget: bool
    """The request's own maximum is used up."""

    @property
    def missing(self) -> list[Share]:
        return [share for share in self.shares if share.missing]


def look(want: Want, topics: Topics, isolation: int, max_bytes: int, hints: PositionHints) -> None:
    """Find the partition and what of it can be served, or the error. Safe to repeat on a newer state."""
    want.error, want.stream, want.is_diverging = ErrorCode.NONE, None, False
    want.log = find_log(want.asked, topics)
    if want.log is None:
        want.error = _absence(want.asked, topics)
        return
    log, request = want.log, want.request
    want.was_found = True
    # Unlike ListOffsets, Fetch takes any negative epoch for none.
    want.error = check_epoch(max(request.current_leader_epoch, NO_EPOCH))
    if want.error is ErrorCode.NONE and want.is_from_broker:
        want.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if want.error is not ErrorCode.NONE:
        return
    want.high_watermark, want.last_stable, want.log_start = log.high_watermark, log.last_stable, log.log_start
    if _is_divergent(request, log):
        want.is_diverging = True
    elif (
        request.last_fetched_epoch > LEADER_EPOCH
        or not log.log_start <= request.fetch_offset <= log.high_watermark
    ):
        want.error = ErrorCode.OFFSET_OUT_OF_RANGE
    elif request.max_bytes < 0 and request.fetch_offset < log.high_watermark:
        want.error = ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka fails at the first byte it would read
    else:
        want.max_bytes = min(max(request.max_bytes, 0), max_bytes)
        _open(want, log, isolation, max(want.max_bytes, HEADER_BYTES), hints)


def find_log(asked: AskedPartition, topics: Topics) -> PartitionLog | None:
    """The partition by its topic's id if it has one, else by name; keeps the name of a resolved id."""
    if any(asked.topic_id):
        topic = topics.by_id.get(TopicId(asked.topic_id))
        if topic is not None:
            asked.name = topic.name
    else:
        topic = topics.by_name.get(asked.name)
    if topic is None or not 0 <= asked.request.index < len(topic.partitions):
        return None
    return topic.partitions[asked.request.index]


def check_epoch(current_leader_epoch: int) -> ErrorCode:
    """KIP-320: the leader epoch is 0 for ever; -1 = not given."""
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if current_leader_epoch < NO_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def share_out(wants: Sequence[Want], max_bytes: int) -> Shares:
    """Divide the request's budget. Where bytes are missing the shares are provisional: what was read so
    far is counted, what is missing is taken to come."""
    shares: list[Share] = []
    left, first_is_due = max_bytes, True
    for want in wants:
        stream = want.stream
        if stream is None or not (stream.available or stream.batches):
            shares.append(Share(want, 0, 0))
            continue
        limit = min(want.max_bytes, left)
        share = _share(want, stream, limit, first_is_due)
        shares.append(share)
        if share.size or share.missing:
            first_is_due = False
            left = max(0, left - max(share.size, min(stream.available, limit)))
    return Shares(shares, left == 0 and not first_is_due)


def readable_bytes(wants: Sequence[Want]) -> int:
    """What counts against min_bytes (KIP-74): all that is there, each partition up to its maximum.
    Exact once the streams have found their offsets, before at most so much."""
    return sum(want.available for want in wants)


def answer(
    want: Want, share: Share | None, isolation: int, outgoing: Callable[[Share], list[Buffer]]
) -> FetchPartitionResponse:
    """The partition's part of the response, with the values that Kafka gives where there is an error."""
    index = want.request.index
    if want.error is not ErrorCode.NONE:
        never_there = want.is_absent and not want.was_found
        return FetchPartitionResponse(index, want.error, aborted_transactions=() if never_there else None)
    return FetchPartitionResponse(
        index,
        ErrorCode.NONE,
        want.high_watermark,
        want.last_stable,
        want.log_start,
        () if isolation == READ_COMMITTED else None,
        records=outgoing(share) if share is not None and share.batches else (),
        diverging_epoch=EpochEndOffset(LEADER_EPOCH, want.high_watermark) if want.is_diverging else None,
    )


def _open(want: Want, log: PartitionLog, isolation: int, max_bytes: int, hints: PositionHints) -> None:
    offset = want.request.fetch_offset
    bound = log.last_stable if isolation == READ_COMMITTED else log.high_watermark
    if offset < bound:
        want.stream = open_stream(log, offset, bound, max_bytes, hints)


def _absence(asked: AskedPartition, topics: Topics) -> ErrorCode:
    """Kafka's error for a partition that is not there. A topic that went while its session or its fetch
    lived was known by its name, and is then looked for by that."""
    if not any(asked.topic_id) or TopicId(asked.topic_id) in topics.by_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not asked.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    namesake = topics.by_name.get(asked.name)
    if namesake is not None and 0 <= asked.request.index < len(namesake.partitions):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _holds(log: PartitionLog, offset: int) -> bool:
    return log.log_start <= offset <= log.high_watermark


def _is_divergent(request: FetchPartition, log: PartitionLog) -> bool:
    """KIP-595: the client has read epoch 0 beyond where it ends here."""
    return request.last_fetched_epoch == LEADER_EPOCH and request.fetch_offset > log.high_watermark


def _share(want: Want, stream: BatchStream, limit: int, first_is_due: bool) -> Share:
    count = size = 0
    for batch in stream.batches:
        grown = size + len(batch.data)
        if grown > limit and not (first_is_due and count == 0):
            return Share(want, count, size)
        size = grown
        count += 1
    if stream.at_end:
        return Share(want, count, size)
    left = limit - size
    if first_is_due and count == 0:
        return Share(want, count, size, max(left, stream.next_size, FIRST_BATCH_BYTES))
    if left >= max(stream.next_size, HEADER_BYTES):
        return Share(want, count, size, left)
    return Share(want, count, size)
