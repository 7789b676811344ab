"""Fetch sessions (KIP-227): what a client need not repeat, and what an answer may leave out. Pure.

| epoch in the request    | session id | what happens                                                |
|-------------------------|------------|-------------------------------------------------------------|
| 0                       | any        | the session named is closed; a new one is made if there is room |
| -1                      | any        | the session named is closed; no new one                      |
| the session's next      | known      | incremental: the request's changes are applied to the session |
| another                 | known      | INVALID_FETCH_SESSION_EPOCH                                  |
| any other than 0 and -1 | unknown    | FETCH_SESSION_ID_NOT_FOUND                                   |

A session belongs to the principal that made it: for anybody else its id does not exist. Nobody is
privileged here, as a replica id is only a claim.

A large session looks at few of its partitions in a fetch. One that was reported to its end is *quiet*: it
is left out until its log moves (`FetchSessions.touched`) or the client asks for something else of it. So an
incremental fetch costs what has moved, and not what the session has.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

from gateway.wire.errors import ErrorCode
from gateway.wire.messages.fetch import (
    FIRST_WITH_TOPIC_IDS,
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
from ledger.partitions import PartitionLog

INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
MIN_EVICTION_AGE_MS: Final = 120_000
UNTOLD: Final = -1
MAX_SESSION_PARTITIONS: Final = 10_000
"""A fetch of more gets no session, as in Kafka when its cache of sessions is full."""
MAX_SESSION_UNKNOWN: Final = 1_000
"""The same for one of more partitions that do not exist: each would be an error in every answer."""
QUIET_FROM: Final = 64
"""In a session of fewer partitions all are looked at in every fetch."""

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic (its name before version 13, its id from then on) and partition."""

_NOBODY: Final[Mapping[int, PartitionKey]] = {}


@dataclass(slots=True)
class AskedPartition:
    """One partition of a fetch, and what its session last told the client of it.

    `name` is empty as long as a topic id has not been resolved.
    """

    name: str
    topic_id: bytes
    request: FetchPartition
    high_watermark: int = UNTOLD
    log_start: int = UNTOLD

    def tell(self, answer: FetchPartitionResponse) -> bool:
        """Take note of an answer. True if it has news, so that it must be sent."""
        news = bool(answer.records) or answer.error_code != ErrorCode.NONE
        news |= answer.diverging_epoch is not None
        news |= self.high_watermark != answer.high_watermark or self.log_start != answer.log_start_offset
        # After an error the partition is news again as soon as the error has gone.
        self.high_watermark = UNTOLD if answer.error_code != ErrorCode.NONE else answer.high_watermark
        self.log_start = answer.log_start_offset
        return news


@dataclass(slots=True)
class FetchSession:
    session_id: int
    principal: str
    uses_topic_ids: bool
    created_ms: int
    partitions: dict[PartitionKey, AskedPartition]
    epoch: int = INITIAL_EPOCH + 1
    """The epoch that the next request must carry."""
    size: int = 0
    """How many partitions it had when it was last used."""
    used_ms: int = 0
    evictable: bool = False
    active: dict[PartitionKey, AskedPartition] = field(default_factory=dict)
    """Those that are not quiet, in their order. The very dict of all partitions while none is."""
    quiet: dict[PartitionKey, int] = field(default_factory=dict)
    """Partition numbers of the quiet ones."""
    stirred: list[AskedPartition] = field(default_factory=list)
    """Those that were quiet and have moved since the last fetch began."""
    on_stirred: Callable[[], None] | None = None
    """Wakes the fetch of this session that is parked."""

    def __post_init__(self) -> None:
        self.active = self.partitions

    @property
    def has_quiet(self) -> bool:
        return self.active is not self.partitions

    def update(self, request: FetchRequest, uses_topic_ids: bool) -> None:
        for key, asked in _asked(request, uses_topic_ids).items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = self.active[key] = asked
            else:
                known.request = asked.request
        for topic in request.forgotten_topics:
            for index in topic.partitions:
                key = (topic.topic_id if uses_topic_ids else topic.name, index)
                self.partitions.pop(key, None)
                self.active.pop(key, None)

    def to_the_end(self, key: PartitionKey) -> None:
        """Let the next answer begin with others."""
        self.partitions[key] = self.partitions.pop(key)
        if self.has_quiet:
            self.active[key] = self.active.pop(key)


class FetchKind(Enum):
    SESSIONLESS = "sessionless"
    FULL = "full"
    INCREMENTAL = "incremental"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FetchContext:
    """A fetch as its session makes it: which partitions, in which order."""

    kind: FetchKind
    uses_topic_ids: bool
    principal: str
    partitions: Sequence[AskedPartition] = ()
    session: FetchSession | None = None
    answer_epoch: int = 0
    """The epoch that the session must still have when an incremental fetch is answered."""
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class FetchSessions:
    """The sessions of a gateway, at most `slots` of them with at most `max_partitions` in all.

    A new session may take the place of one that was not used for `min_age_ms`, or that is older than
    that and has fewer partitions (Kafka's rules). `new_id` gives random ids above 0.
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
    """By partition number, in which sessions it is quiet, and under which key."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, version: int, request: FetchRequest, principal: str, now_ms: int) -> FetchContext:
        """What to fetch. Changes the session that the request names, if it may."""
        by_id = version >= FIRST_WITH_TOPIC_IDS
        session = self._sessions.get(request.session_id)
        if session is not None and session.principal != principal:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH):
            if session is not None:
                self._remove(session)
            kind = FetchKind.FULL if request.session_epoch == INITIAL_EPOCH else FetchKind.SESSIONLESS
            return FetchContext(kind, by_id, principal, list(_asked(request, by_id).values()))
        if session is None:
            return _refused(by_id, principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return _refused(by_id, principal, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            return _refused(by_id, principal, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, request, now_ms)

    def begin_large(self, version: int, request: FetchRequest, principal: str) -> FetchContext:
        """The same for a request of more partitions than a session may have. They are left to the caller,
        who takes them in slices."""
        by_id = version >= FIRST_WITH_TOPIC_IDS
        session = self._sessions.get(request.session_id)
        if session is not None and session.principal == principal:
            self._remove(session)
        if request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH):
            return FetchContext(FetchKind.SESSIONLESS, by_id, principal)
        return _refused(by_id, principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def finish(
        self,
        context: FetchContext,
        answers: Iterable[tuple[AskedPartition, FetchPartitionResponse]],
        now_ms: int,
    ) -> FetchResponse:
        """The response to a fetch that `begin` let through, with only what must be told."""
        match context.kind:
            case FetchKind.FULL:
                told = list(answers)
                session_id = self._create(context, told, now_ms)
                return FetchResponse(_by_topic(told, context.uses_topic_ids), session_id=session_id)
            case FetchKind.INCREMENTAL if context.session is not None:
                session = context.session
                if session.epoch != context.answer_epoch:
                    error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
                    return FetchResponse((), error, session.session_id)
                news = self._news(session, answers)
                if sum([answer.error_code != ErrorCode.NONE for _, answer in news]) > MAX_SESSION_UNKNOWN:
                    # Every answer would repeat them; the client begins anew, without a session.
                    self._remove(session)
                return FetchResponse(_by_topic(news, session.uses_topic_ids), session_id=session.session_id)
            case FetchKind.REFUSED:
                return FetchResponse((), context.error)
            case _:
                return FetchResponse(_by_topic(answers, context.uses_topic_ids))

    def rest(
        self, context: FetchContext, session_id: int, at_end: Iterable[tuple[AskedPartition, int]]
    ) -> None:
        """Of the fetch that was finished last, these partitions (with their numbers) have nothing to report
        until they move."""
        session = self._sessions.get(session_id)
        if session is None or len(session.partitions) < QUIET_FROM:
            return
        if context.session is not None and session.epoch != context.answer_epoch:
            return
        if not session.has_quiet:
            session.active = dict(session.partitions)
        for asked, number in at_end:
            key = partition_key(asked, session.uses_topic_ids)
            if session.active.get(key) is asked:
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
            for session_id, key in self._watched.pop(log.number, _NOBODY).items():
                session = self._sessions[session_id]
                del session.quiet[key]
                asked = session.active[key] = session.partitions[key]
                session.stirred.append(asked)
                if session.on_stirred is not None:
                    session.on_stirred()

    def throttle(self, context: FetchContext, throttle_ms: int) -> FetchResponse:
        """The empty response to a client over its quota. What its session was told stays as it was; a full
        fetch makes none."""
        session = context.session
        if context.kind is not FetchKind.INCREMENTAL or session is None:
            return FetchResponse((), throttle_time_ms=throttle_ms)
        is_newest = session.epoch == context.answer_epoch
        error = ErrorCode.NONE if is_newest else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return FetchResponse((), error, session.session_id, throttle_ms)

    def _continue(self, session: FetchSession, request: FetchRequest, now_ms: int) -> FetchContext:
        by_id = session.uses_topic_ids
        if session.quiet:
            self._stir(session, request)
        session.update(request, by_id)
        if not session.partitions:
            self._remove(session)
            asked = list(_asked(request, by_id).values())
            return FetchContext(FetchKind.SESSIONLESS, by_id, session.principal, asked)
        self._touch(session, now_ms)
        if self.partition_count > self.max_partitions or session.size > MAX_SESSION_PARTITIONS:
            # A session that grew beyond all bounds is closed; the client makes a new one with a full fetch.
            self._remove(session)
            return _refused(by_id, session.principal, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.stirred.clear()
        is_plain = request.replica_id < 0 and request.max_bytes >= 0
        asked = list((session.active if is_plain else session.partitions).values())
        return FetchContext(
            FetchKind.INCREMENTAL, by_id, session.principal, asked, session, answer_epoch=session.epoch
        )

    @staticmethod
    def _news(
        session: FetchSession, answers: Iterable[tuple[AskedPartition, FetchPartitionResponse]]
    ) -> list[tuple[AskedPartition, FetchPartitionResponse]]:
        news = []
        for asked, answer in answers:
            key = partition_key(asked, session.uses_topic_ids)
            if session.partitions.get(key) is not asked or not asked.tell(answer):
                continue
            news.append((asked, answer))
            if answer.records:
                # The next answer begins with those that got nothing now.
                session.to_the_end(key)
        return news

    def _create(
        self,
        context: FetchContext,
        told: Sequence[tuple[AskedPartition, FetchPartitionResponse]],
        now_ms: int,
    ) -> int:
        """A session that has just told these answers; NO_SESSION_ID if there is no room for it."""
        is_too_large = len(told) > MAX_SESSION_PARTITIONS or _count_unknown(told) > MAX_SESSION_UNKNOWN
        if (
            is_too_large
            or _count_unknown(told) > MAX_SESSION_UNKNOWN
            or not self._has_room(len(told), now_ms)
        ):
            return NO_SESSION_ID
        session_id = self.new_id()
        while session_id in self._sessions or session_id <= NO_SESSION_ID:
            session_id = self.new_id()
        partitions = {}
        for asked, answer in told:
            asked.high_watermark, asked.log_start = answer.high_watermark, answer.log_start_offset
            partitions[partition_key(asked, context.uses_topic_ids)] = asked
        session = FetchSession(session_id, context.principal, context.uses_topic_ids, now_ms, partitions)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _has_room(self, size: int, now_ms: int) -> bool:
        if self.partition_count + size > self.max_partitions or not self.slots:
            return False
        return len(self._sessions) < self.slots or self._evict(size, now_ms)

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
        # An answer that is still under way must not find the session as it left it.
        session.epoch = SESSIONLESS_EPOCH

    def _stir(self, session: FetchSession, request: FetchRequest) -> None:
        """What a request names is looked at again, whether or not it has moved."""
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


def _count_unknown(told: Sequence[tuple[AskedPartition, FetchPartitionResponse]]) -> int:
    return (
        sum([answer.error_code in _UNKNOWN for _, answer in told]) if len(told) > MAX_SESSION_UNKNOWN else 0
    )


def next_epoch(epoch: int) -> int:
    """Epochs count from 1 and begin again there after the largest int32."""
    return epoch + 1 if epoch < MAX_EPOCH else INITIAL_EPOCH + 1


def partition_key(asked: AskedPartition, by_id: bool) -> PartitionKey:
    return (asked.topic_id if by_id else asked.name, asked.request.index)


def _asked(request: FetchRequest, by_id: bool) -> dict[PartitionKey, AskedPartition]:
    """The request's partitions in its order; of a partition named twice, what was said last."""
    asked: dict[PartitionKey, AskedPartition] = {}
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.name
        for partition in topic.partitions:
            asked[key, partition.index] = AskedPartition(topic.name, topic.topic_id, partition)
    return asked


def _refused(by_id: bool, principal: str, error: ErrorCode) -> FetchContext:
    return FetchContext(FetchKind.REFUSED, by_id, principal, error=error)


def _by_topic(
    answers: Iterable[tuple[AskedPartition, FetchPartitionResponse]], by_id: bool
) -> list[FetchTopicResponse]:
    """Neighbours of one topic together; the order of the partitions stays."""
    topics: list[FetchTopicResponse] = []
    last: str | bytes | None = None
    partitions: list[FetchPartitionResponse] = []
    for asked, answer in answers:
        topic = asked.topic_id if by_id else asked.name
        if topic != last:
            last, partitions = topic, []
            topics.append(FetchTopicResponse("" if by_id else asked.name, asked.topic_id, partitions))
        partitions.append(answer)
    return topics
