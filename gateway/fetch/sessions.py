"""Fetch sessions (KIP-227): what a client need not repeat, and what a response may leave out. Pure.

| epoch in the request    | session id | what happens                                                |
|-------------------------|------------|-------------------------------------------------------------|
| 0                       | any        | the named session is closed; a new one is made if there is a slot |
| -1                      | any        | the named session is closed; no new one                      |
| the session's next      | known      | incremental: the request's changes are applied to the session |
| another                 | known      | INVALID_FETCH_SESSION_EPOCH                                  |
| any other than 0 and -1 | unknown    | FETCH_SESSION_ID_NOT_FOUND                                   |

A session belongs to the principal that made it: for any other principal its id does not exist. No client is
privileged, since a replica id is only a claim.

A fetch of a large session plans few of its partitions. One that was reported to its end is *quiet*: it is
left out until its log moves (`FetchSessions.touched`) or the client names it in a request. So the cost of an
incremental fetch follows the partitions that have moved, and not the size of the session.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    NO_SESSION_ID,
    SESSIONLESS_EPOCH,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from ledger.partitions.state import PartitionLog

INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
MIN_EVICTION_AGE_MS: Final = 120_000
NOT_YET_SENT: Final = -1
MAX_SESSION_PARTITIONS: Final = 10_000
"""A fetch of more gets no session, as in Kafka when its cache of sessions is full."""
EVICTED_AT_ONCE: Final = 2_000
"""Partitions of unused sessions after which one fetch evicts no further session."""
MAX_SESSION_UNKNOWN: Final = 1_000
"""Nor does a fetch of more partitions that do not exist: each would be an error in every response."""
MIN_QUIET_PARTITIONS: Final = 64
"""In a session of fewer partitions every fetch plans all of them."""

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic (its name before version 13, its id from then on) and partition."""

_NO_SESSIONS: Final[Mapping[int, PartitionKey]] = {}


class SessionPartition(msgspec.Struct):
    """One partition of a fetch, and what its session last sent to the client about it.

    `name` is empty until the topic id is resolved.
    """

    name: str
    topic_id: bytes
    request: FetchPartition
    high_watermark: int = NOT_YET_SENT
    log_start: int = NOT_YET_SENT

    def update(self, response: FetchPartitionResponse) -> bool:
        """Remember the response. True if it has news, so that it must be sent."""
        news = bool(response.records) or response.error_code != ErrorCode.NONE
        news |= response.diverging_epoch is not None
        news |= self.high_watermark != response.high_watermark or self.log_start != response.log_start_offset
        # After an error the next response without one has news again.
        self.high_watermark = (
            NOT_YET_SENT if response.error_code != ErrorCode.NONE else response.high_watermark
        )
        self.log_start = response.log_start_offset
        return news


@dataclass(slots=True)
class FetchSession:
    session_id: int
    principal: str
    uses_topic_ids: bool
    created_ms: int
    partitions: dict[PartitionKey, SessionPartition]
    epoch: int = INITIAL_EPOCH + 1
    """The epoch that the next request must carry."""
    size: int = 0
    """The number of its partitions when it was last used."""
    used_ms: int = 0
    evictable: bool = False
    active: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    """Those that are not quiet, in their order. The same dict as `partitions` until one is quiet."""
    quiet: dict[PartitionKey, int] = field(default_factory=dict)
    """Partition numbers of the quiet ones."""
    moved: list[SessionPartition] = field(default_factory=list)
    """Those that were quiet and have moved since the last fetch began."""
    on_moved: Callable[[], None] | None = None
    """Wakes the parked fetch of this session."""

    def __post_init__(self) -> None:
        self.active = self.partitions

    @property
    def has_quiet(self) -> bool:
        return self.active is not self.partitions

    def update(self, request: FetchRequest, uses_topic_ids: bool) -> None:
        for key, partition in _requested(request, uses_topic_ids).items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = self.active[key] = partition
            else:
                known.request = partition.request
        for topic in request.forgotten_topics:
            for index in topic.partitions:
                key = (topic.topic_id if uses_topic_ids else topic.name, index)
                self.partitions.pop(key, None)
                self.active.pop(key, None)

    def move_to_end(self, key: PartitionKey) -> None:
        """Let the next response begin with other partitions."""
        self.partitions[key] = self.partitions.pop(key)
        if self.has_quiet:
            self.active[key] = self.active.pop(key)


class FetchKind(Enum):
    SESSIONLESS = "sessionless"
    FULL = "full"
    INCREMENTAL = "incremental"
    REFUSED = "refused"


class FetchContext(msgspec.Struct, frozen=True):
    """A fetch as its session makes it: which partitions, in which order."""

    kind: FetchKind
    uses_topic_ids: bool
    principal: str
    partitions: Sequence[SessionPartition] = ()
    session: FetchSession | None = None
    response_epoch: int = 0
    """The epoch that the session must still have when the response to an incremental fetch is made."""
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class FetchSessions:
    """The sessions of a gateway, at most `slots` of them with at most `max_partitions` in all.

    A new session may evict one that was not used for `min_age_ms`, or that is older than that and has fewer
    partitions (Kafka's rules). For its partitions it may evict several that were not used for that long:
    consumers that died have left them. `new_id` gives random ids above 0.
    """

    slots: int
    new_id: Callable[[], int]
    max_partitions: int = 500_000
    min_age_ms: int = MIN_EVICTION_AGE_MS
    partition_count: int = 0
    evictions: int = 0
    _sessions: OrderedDict[int, FetchSession] = field(default_factory=OrderedDict)
    _evictable: list[tuple[int, int]] = field(default_factory=list)
    _watched: dict[int, dict[int, PartitionKey]] = field(default_factory=dict)
    """By partition number: the sessions in which it is quiet, and its key in each."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, version: int, request: FetchRequest, principal: str, now_ms: int) -> FetchContext:
        """What to fetch. Changes the session that the request names, if the principal may use it."""
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        session = self._sessions.get(request.session_id)
        if session is not None and session.principal != principal:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH):
            if session is not None:
                self._remove(session)
            kind = FetchKind.FULL if request.session_epoch == INITIAL_EPOCH else FetchKind.SESSIONLESS
            return FetchContext(kind, by_id, principal, list(_requested(request, by_id).values()))
        if session is None:
            return _refused(by_id, principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return _refused(by_id, principal, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            return _refused(by_id, principal, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, request, now_ms)

    def begin_large(self, version: int, request: FetchRequest, principal: str) -> FetchContext:
        """As `begin`, for a request of more partitions than a session may have. The context has none of them:
        the caller adds them in slices."""
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        session = self._sessions.get(request.session_id)
        if session is not None and session.principal == principal:
            self._remove(session)
        if request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH):
            return FetchContext(FetchKind.SESSIONLESS, by_id, principal)
        return _refused(by_id, principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def finish(
        self,
        context: FetchContext,
        responses: Iterable[tuple[SessionPartition, FetchPartitionResponse]],
        now_ms: int,
    ) -> FetchResponse:
        """The response to a fetch. One of an incremental fetch has only the partitions with news."""
        match context.kind:
            case FetchKind.FULL:
                sent = list(responses)
                session_id = self._create(context, sent, now_ms)
                return FetchResponse(_by_topic(sent, context.uses_topic_ids), session_id=session_id)
            case FetchKind.INCREMENTAL if context.session is not None:
                session = context.session
                if session.epoch != context.response_epoch:
                    error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
                    return FetchResponse((), error, session.session_id)
                news = self._news(session, responses)
                if sum([response.error_code != ErrorCode.NONE for _, response in news]) > MAX_SESSION_UNKNOWN:
                    # Every response would repeat the errors; the client begins again, without a session.
                    self._remove(session)
                return FetchResponse(_by_topic(news, session.uses_topic_ids), session_id=session.session_id)
            case FetchKind.REFUSED:
                return FetchResponse((), context.error)
            case _:
                return FetchResponse(_by_topic(responses, context.uses_topic_ids))

    def mark_quiet(
        self, context: FetchContext, session_id: int, at_end: Iterable[tuple[SessionPartition, int]]
    ) -> None:
        """These partitions (with their numbers) of the last finished fetch have nothing to report until they
        move."""
        session = self._sessions.get(session_id)
        if session is None or len(session.partitions) < MIN_QUIET_PARTITIONS:
            return
        if context.session is not None and session.epoch != context.response_epoch:
            return
        if not session.has_quiet:
            session.active = dict(session.partitions)
        for partition, number in at_end:
            key = partition_key(partition, session.uses_topic_ids)
            if session.active.get(key) is partition:
                del session.active[key]
                session.quiet[key] = number
                watching = self._watched.get(number)
                if watching is None:
                    self._watched[number] = {session_id: key}
                else:
                    watching[session_id] = key

    def touched(self, logs: Iterable[PartitionLog]) -> None:
        """These partitions moved or were deleted."""
        if not self._watched:
            return
        for log in logs:
            for session_id, key in self._watched.pop(log.number, _NO_SESSIONS).items():
                session = self._sessions[session_id]
                del session.quiet[key]
                partition = session.active[key] = session.partitions[key]
                session.moved.append(partition)
                if session.on_moved is not None:
                    session.on_moved()

    def throttle(self, context: FetchContext, throttle_ms: int) -> FetchResponse:
        """The empty response to a client over its quota. Its session stays as it is; a full fetch makes
        none."""
        session = context.session
        if context.kind is not FetchKind.INCREMENTAL or session is None:
            return FetchResponse((), throttle_time_ms=throttle_ms)
        is_newest = session.epoch == context.response_epoch
        error = ErrorCode.NONE if is_newest else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchResponse((), error, session.session_id, throttle_ms)

    def _continue(self, session: FetchSession, request: FetchRequest, now_ms: int) -> FetchContext:
        by_id = session.uses_topic_ids
        if session.quiet:
            self._unquiet(session, request)
        session.update(request, by_id)
        if not session.partitions:
            self._remove(session)
            requested = list(_requested(request, by_id).values())
            return FetchContext(FetchKind.SESSIONLESS, by_id, session.principal, requested)
        self._touch(session, now_ms)
        if session.size > MAX_SESSION_PARTITIONS or not self._has_capacity(0, now_ms):
            # A session that grew beyond the bounds is closed; the client makes a new one with a full fetch.
            self._remove(session)
            return _refused(by_id, session.principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.moved.clear()
        is_plain = request.replica_id < 0 and request.max_bytes >= 0
        partitions = list((session.active if is_plain else session.partitions).values())
        return FetchContext(
            FetchKind.INCREMENTAL, by_id, session.principal, partitions, session, response_epoch=session.epoch
        )

    @staticmethod
    def _news(
        session: FetchSession, responses: Iterable[tuple[SessionPartition, FetchPartitionResponse]]
    ) -> list[tuple[SessionPartition, FetchPartitionResponse]]:
        news = []
        for partition, response in responses:
            key = partition_key(partition, session.uses_topic_ids)
            if session.partitions.get(key) is not partition or not partition.update(response):
                continue
            news.append((partition, response))
            if response.records:
                # The next response begins with the partitions that got no records now.
                session.move_to_end(key)
        return news

    def _create(
        self,
        context: FetchContext,
        sent: Sequence[tuple[SessionPartition, FetchPartitionResponse]],
        now_ms: int,
    ) -> int:
        """A session for which this is the first response; NO_SESSION_ID if there is no slot for it."""
        is_too_large = len(sent) > MAX_SESSION_PARTITIONS or _count_unknown(sent) > MAX_SESSION_UNKNOWN
        if is_too_large or not self._has_slot(len(sent), now_ms):
            return NO_SESSION_ID
        session_id = self.new_id()
        while session_id in self._sessions or session_id <= NO_SESSION_ID:
            session_id = self.new_id()
        partitions = {}
        for partition, response in sent:
            partition.high_watermark = response.high_watermark
            partition.log_start = response.log_start_offset
            partitions[partition_key(partition, context.uses_topic_ids)] = partition
        session = FetchSession(session_id, context.principal, context.uses_topic_ids, now_ms, partitions)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _has_slot(self, size: int, now_ms: int) -> bool:
        if not self.slots or not self._has_capacity(size, now_ms):
            return False
        return len(self._sessions) < self.slots or self._evict(size, now_ms)

    def _has_capacity(self, size: int, now_ms: int) -> bool:
        """Whether there may be so many partitions more. For these the sessions end that were not used for
        `min_age_ms`, the oldest first: a few in one call, and more when the client fetches again."""
        left = EVICTED_AT_ONCE if size <= self.max_partitions else 0
        while self.partition_count + size > self.max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if left <= 0 or oldest is None or now_ms - oldest.used_ms <= self.min_age_ms:
                return False
            left -= oldest.size
            self._remove(oldest)
            self.evictions += 1
        return True

    def _evict(self, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms <= self.min_age_ms:
            if not self._evictable or self._evictable[0][0] >= size:
                return False
            oldest = self._sessions[self._evictable[0][1]]
        self._remove(oldest)
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        self._unlist(session)
        self.partition_count += len(session.partitions) - session.size
        session.size = len(session.partitions)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        if now_ms - session.created_ms > self.min_age_ms:
            session.evictable = True
            insort(self._evictable, (session.size, session.session_id))

    def _remove(self, session: FetchSession) -> None:
        self._unlist(session)
        del self._sessions[session.session_id]
        self.partition_count -= session.size
        for key in list(session.quiet):
            self._unwatch(session, key)
        # A fetch that is still under way must not find the session as it left it.
        session.epoch = SESSIONLESS_EPOCH

    def _unquiet(self, session: FetchSession, request: FetchRequest) -> None:
        """A partition that the request names is planned again, whether or not it has moved."""
        by_id = session.uses_topic_ids
        for topic in chain[FetchTopic | ForgottenTopic](request.topics, request.forgotten_topics):
            name = topic.topic_id if by_id else topic.name
            for partition in topic.partitions:
                key = (name, partition if isinstance(partition, int) else partition.index)
                if key in session.quiet:
                    self._unwatch(session, key)
                    session.active[key] = session.partitions[key]

    def _unwatch(self, session: FetchSession, key: PartitionKey) -> None:
        number = session.quiet.pop(key)
        watching = self._watched[number]
        del watching[session.session_id]
        if not watching:
            del self._watched[number]

    def _unlist(self, session: FetchSession) -> None:
        if session.evictable:
            session.evictable = False
            del self._evictable[bisect_left(self._evictable, (session.size, session.session_id))]


def _count_unknown(sent: Sequence[tuple[SessionPartition, FetchPartitionResponse]]) -> int:
    if len(sent) <= MAX_SESSION_UNKNOWN:
        return 0
    return sum([response.error_code in _UNKNOWN for _, response in sent])


def next_epoch(epoch: int) -> int:
    """Epochs count from 1, and from 1 again after the largest int32."""
    return epoch + 1 if epoch < MAX_EPOCH else INITIAL_EPOCH + 1


def partition_key(partition: SessionPartition, by_id: bool) -> PartitionKey:
    return (partition.topic_id if by_id else partition.name, partition.request.index)


def _requested(request: FetchRequest, by_id: bool) -> dict[PartitionKey, SessionPartition]:
    """The request's partitions in its order. Of a partition that is named twice the last counts."""
    requested: dict[PartitionKey, SessionPartition] = {}
    for topic in request.topics:
        name, topic_id = topic.name, topic.topic_id
        key = topic_id if by_id else name
        requested |= {
            (key, partition.index): SessionPartition(name, topic_id, partition)
            for partition in topic.partitions
        }
    return requested


def _refused(by_id: bool, principal: str, error: ErrorCode) -> FetchContext:
    return FetchContext(FetchKind.REFUSED, by_id, principal, error=error)


def _by_topic(
    responses: Iterable[tuple[SessionPartition, FetchPartitionResponse]], by_id: bool
) -> list[FetchTopicResponse]:
    """Adjacent partitions of one topic together; the order of the partitions stays."""
    topics: list[FetchTopicResponse] = []
    last: str | bytes | None = None
    partitions: list[FetchPartitionResponse] = []
    for partition, response in responses:
        topic = partition.topic_id if by_id else partition.name
        if topic != last:
            last, partitions = topic, []
            name = "" if by_id else partition.name
            topics.append(FetchTopicResponse(name, partition.topic_id, partitions))
        partitions.append(response)
    return topics
