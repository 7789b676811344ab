"""What a fetch may see and how much of it: KIP-74's budgets, Kafka's errors. Pure.

Budgets: partitions are served in order, each up to its own maximum and what is left of the request's.
The first batch of the first partition that has data is served whatever its size. A batch that does not
fit ends its partition; the rest of the partition's share then counts as used up, as in Kafka, where it
is filled with a part of that batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.fetch.hints import PositionHints
from gateway.fetch.sessions import AskedPartition
from gateway.fetch.stream import BatchStream, open_stream
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import EpochEndOffset, FetchPartition, FetchPartitionResponse
from ledger.batch.header import HEADER_BYTES, LEADER_EPOCH
from ledger.partitions import PartitionLog
from ledger.topics import Topics
from ledger.types import ZERO_TOPIC_ID, Buffer, TopicId

READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
NO_REPLICA: Final = -1
"""To be preferred for reading."""
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
    was_absent: bool = False
    """It was not there when the fetch began."""
    is_proved: bool = False
    """What is negative about it was so in the newest state."""
    max_bytes: int = 0
    stream: BatchStream | None = None
    is_at_end: bool = False
    """There was nothing to tell but where the partition ends: so as long as it does not move."""
    batches: int = 0
    """How many of the stream's batches are served."""
    is_first_cut: bool = False
    """Not even the first fits into what the partition gets: Kafka then has null for aborted transactions."""

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self.stream = None

    @property
    def is_odd(self) -> bool:
        """There is something to tell that is no records."""
        return self.error is not ErrorCode.NONE or self.is_diverging

    @property
    def is_absent(self) -> bool:
        """No such topic or partition."""
        return self.error in _ABSENT

    @property
    def is_negative(self) -> bool:
        """The state says no, and perhaps only because it is not the newest: needs a barrier as proof."""
        return self.is_diverging or self.error in _NEGATIVE

    @property
    def has_moved(self) -> bool:
        """Whether the partition is no longer as it was at the last look."""
        log = self.log
        return log is not None and (
            log.high_watermark != self.high_watermark or log.log_start != self.log_start or log.deleted
        )

    @property
    def available(self) -> int:
        """How many bytes could be served, up to the partition's maximum."""
        stream = self.stream
        return min(stream.available + stream.beyond, self.max_bytes) if stream is not None else 0


class Lack(NamedTuple):
    """`size` bytes of a stream must be read before it is final what its partition gets."""

    want: Want
    stream: BatchStream
    size: int


class Shares(NamedTuple):
    lacks: list[Lack]
    out_of_budget: bool
    """The request's own maximum is used up."""


def look(want: Want, topics: Topics, isolation: int, max_bytes: int, hints: PositionHints) -> None:
    """Find the partition and what of it can be served, or the error. Safe to repeat on a newer state."""
    want.error, want.stream = ErrorCode.NONE, None
    want.is_diverging = want.is_at_end = want.is_first_cut = False
    log = want.log = find_log(want.asked, topics)
    if log is None:
        want.error = _absence(want.asked, topics)
        return
    request = want.request
    want.was_found = True
    # Unlike ListOffsets, Fetch takes any negative epoch for none.
    if request.current_leader_epoch > LEADER_EPOCH:
        want.error = ErrorCode.UNKNOWN_LEADER_EPOCH
        return
    if want.is_from_broker:
        want.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    end = log.high_watermark
    want.high_watermark, want.last_stable, want.log_start = end, log.last_stable, log.log_start
    if request.fetch_offset == end and request.last_fetched_epoch <= LEADER_EPOCH:
        want.is_at_end = True
    elif _is_divergent(request, log):
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


def look_again(want: Want, topics: Topics, isolation: int, max_bytes: int, hints: PositionHints) -> None:
    """The same, unless it is known what would be found."""
    if want.has_moved or not want.is_at_end:
        look(want, topics, isolation, max_bytes, hints)


def find_log(asked: AskedPartition, topics: Topics) -> PartitionLog | None:
    """The partition by its topic's id if it has one, else by name; keeps the name of a resolved id."""
    if asked.topic_id != ZERO_TOPIC_ID:
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
    """Divide the request's budget: says of each want how many batches it gets. Where bytes are missing that
    is provisional: what was read so far is counted, what is missing is taken to come."""
    lacks: list[Lack] = []
    left, first_is_due = max_bytes, True
    for want in wants:
        want.batches, want.is_first_cut = 0, False
        stream = want.stream
        if stream is None or not (stream.available or stream.batches):
            continue
        limit = min(want.max_bytes, left)
        want.batches, size, missing = _share(stream, limit, first_is_due)
        want.is_first_cut = limit > 0 and want.batches == 0
        if missing:
            lacks.append(Lack(want, stream, missing))
        if size or missing:
            first_is_due = False
            left = max(0, left - max(size, min(stream.available, limit)))
    return Shares(lacks, left == 0 and not first_is_due)


def planned_bytes(lacks: Sequence[Lack]) -> int:
    """How many bytes are read for these at most, as far as the sizes of batches are known."""
    return sum([lack.stream.to_read(lack.size) for lack in lacks])


def readable_bytes(wants: Sequence[Want]) -> int:
    """What counts against min_bytes (KIP-74): all that is there, each partition up to its maximum.
    Exact once the streams have found their offsets, before at most so much."""
    return sum([want.available for want in wants if want.stream is not None])


def answer(
    want: Want, isolation: int, outgoing: Callable[[BatchStream, int], list[Buffer]]
) -> FetchPartitionResponse:
    """The partition's part of the response, with the values that Kafka gives where there is an error."""
    index = want.request.index
    if want.error is not ErrorCode.NONE:
        never_there = want.is_absent and not want.was_found
        return FetchPartitionResponse(index, want.error, aborted_transactions=() if never_there else None)
    stream, batches = want.stream, want.batches
    return FetchPartitionResponse(
        index,
        0,
        want.high_watermark,
        want.last_stable,
        want.log_start,
        () if isolation == READ_COMMITTED and not (want.is_diverging or want.is_first_cut) else None,
        NO_REPLICA,
        outgoing(stream, batches) if stream is not None and batches else (),
        EpochEndOffset(LEADER_EPOCH, want.high_watermark) if want.is_diverging else None,
    )


def _open(want: Want, log: PartitionLog, isolation: int, max_bytes: int, hints: PositionHints) -> None:
    offset = want.request.fetch_offset
    bound = log.last_stable if isolation == READ_COMMITTED else log.high_watermark
    if offset < bound:
        want.stream = open_stream(log, offset, bound, max_bytes, hints)


def _absence(asked: AskedPartition, topics: Topics) -> ErrorCode:
    """Kafka's error for a partition that is not there. A topic that went while its session or its fetch
    lived was known by its name, and is then looked for by that."""
    if asked.topic_id == ZERO_TOPIC_ID or TopicId(asked.topic_id) in topics.by_id:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not asked.name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    namesake = topics.by_name.get(asked.name)
    if namesake is not None and 0 <= asked.request.index < len(namesake.partitions):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_divergent(request: FetchPartition, log: PartitionLog) -> bool:
    """KIP-595: the client has read epoch 0 beyond where it ends here."""
    return request.last_fetched_epoch == LEADER_EPOCH and request.fetch_offset > log.high_watermark


def _share(stream: BatchStream, limit: int, first_is_due: bool) -> tuple[int, int, int]:
    """(how many batches, their bytes, how many more must be read before that is final)."""
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
