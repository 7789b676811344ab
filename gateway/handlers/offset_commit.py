"""OffsetCommit (8), v2-10.

Errors of partitions that do not exist come first in the response, as in Kafka, whichever member commits.

v2: RetentionTimeMs. v3: throttle time. v4: throttled after the response. v5: no RetentionTimeMs. v6:
CommittedLeaderEpoch. v7: GroupInstanceId (KIP-345). v8: flexible. v9: member epochs, GROUP_ID_NOT_FOUND
(KIP-848). v10: topic ids instead of names (KIP-848).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from gateway.completion import Cancellable, Completion
from gateway.groups.messages import RETRIABLE
from gateway.groups.offset_manager import Committer
from gateway.requests.context import RequestContext
from gateway.requests.deferred import defer
from gateway.requests.offset_resets import AuditedCompletion, auditing, finding_moves, offset_moves
from gateway.topics.service import TopicKey
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ledger.errors import ErrorName
from ledger.groups.state import BY_RETENTION, OffsetRow
from ledger.topics.state import Topic
from ledger.types import TopicId

FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9
NO_RETENTION: Final = -1
ROWS_AT_ONCE: Final = 1_000
"""Offsets that are decided, and applied, in one event-loop iteration."""
UNITS_A_ROW: Final = 3
LAST_TIME_MS: Final = 2**63 - 1


_Place: TypeAlias = tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]


@dataclass(frozen=True, slots=True)
class _Requested:
    """One partition, and the row to commit or the error."""

    place: _Place
    row: OffsetRow | None
    error: ErrorName = ErrorName.NONE


def start(
    context: RequestContext, request: OffsetCommitRequest, completion: Completion[object]
) -> Cancellable | None:
    """Submits before this returns, unless a partition is not known, which must be confirmed first."""
    moves = offset_moves(context, request)
    if moves is None:
        return _start(context, request, completion)
    audited = AuditedCompletion(context, request.group_id, moves, completion)
    return audited.watch(_start(context, request, audited))


def _start(
    context: RequestContext, request: OffsetCommitRequest, completion: Completion[object]
) -> Cancellable | None:
    rows = _rows(context, request)
    if rows is None:
        return defer(context, partial(wait, context, request), completion)
    if not rows:
        completion.set_result(OffsetCommitResponse())
        return None
    responding = _Responding(context, request, completion)
    deadline = context.journal_deadline()
    return context.services.group_offsets.start(_committer(request), rows, deadline, responding)


class _Responding:
    """Completion of the commit: makes the response of the errors of its rows."""

    __slots__ = ("_completion", "_context", "_request")

    def __init__(
        self, context: RequestContext, request: OffsetCommitRequest, completion: Completion[object]
    ) -> None:
        self._context = context
        self._request = request
        self._completion = completion

    def done(self) -> bool:
        return self._completion.done()

    def set_result(self, errors: list[ErrorName], /) -> None:
        context = self._context
        returned = [_error_in_version(context, error) for error in errors]
        response = _response(context, zip(_partitions(self._request), returned, strict=True))
        self._completion.set_result(response)

    def set_exception(self, error: Exception, /) -> None:
        self._completion.set_exception(error)


def _committer(request: OffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )


def _rows(context: RequestContext, request: OffsetCommitRequest) -> list[OffsetRow] | None:
    """The rows to commit, in order; None if one of the partitions is not known."""
    by_id = context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    topics = context.services.shard.state.topics
    expire_ms = _expire_ms(context, request.retention_time_ms)
    rows: list[OffsetRow] = []
    for topic in request.topics:
        found = topics.by_id.get(TopicId(topic.topic_id)) if by_id else topics.by_name.get(topic.name)
        if found is None:
            return None
        for requested in topic.partitions:
            row = _row(found, requested, expire_ms)
            if row is None:
                return None
            rows.append(row)
    return rows


def _row(topic: Topic, requested: OffsetCommitRequestPartition, expire_ms: int) -> OffsetRow | None:
    """None if the topic has no such partition."""
    if not 0 <= requested.partition_index < len(topic.partitions.made):
        return None
    return OffsetRow(
        topic.topic_id,
        requested.partition_index,
        requested.committed_offset,
        requested.committed_leader_epoch,
        expire_ms,
        requested.committed_metadata or "",
    )


def _partitions(request: OffsetCommitRequest) -> list[_Place]:
    return [(topic, partition) for topic in request.topics for partition in topic.partitions]


async def wait_in_slices(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """The same as `start`, for very many partitions, ROWS_AT_ONCE at a time."""
    moves = await context.slices.drive(finding_moves(context, request))
    if moves is None:
        return await wait(context, request)
    with auditing(context, request.group_id, moves) as audit_response:
        response = await wait(context, request)
        audit_response(response)
    return response


async def wait(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    by_id = context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    deadline = context.journal_deadline()
    slices = context.slices
    places = [
        (topic, partition)
        async for topic in slices.paced(request.topics)
        async for partition in slices.paced(topic.partitions)
    ]
    is_confirmed = await _confirm_absent(context, places, by_id, deadline)
    known: list[tuple[_Place, OffsetRow]] = []
    results: list[tuple[_Place, ErrorName]] = []
    slices.kept += places, known, results
    async for place in slices.paced(places):
        one = _look_up(context, request, *place, is_confirmed)
        if one.row is None:
            results.append((one.place, one.error))
        else:
            known.append((one.place, one.row))
    for start in range(0, len(known), ROWS_AT_ONCE):
        part = known[start : start + ROWS_AT_ONCE]
        if slices.is_due(UNITS_A_ROW * len(part)):
            await slices.next_slice()
        rows = [row for _, row in part]
        errors = await context.services.group_offsets.commit(_committer(request), rows, deadline)
        returned = [_error_in_version(context, error) for error in errors]
        results += zip([place for place, _ in part], returned, strict=True)
    response = _Response(context)
    slices.kept.append(response.topics)
    async for place, error in slices.paced(results):
        response.add(place, error)
    return response.made()


async def _confirm_absent(
    context: RequestContext, places: Sequence[_Place], by_id: bool, deadline: float
) -> bool:
    """Whether it is certain that partitions which are not known here do not exist."""
    topics, slices = context.services.topics, context.slices
    if by_id:
        ids = slices.keep([TopicId(topic.topic_id) async for topic, _ in slices.paced(places)])
        return await topics.confirm_absent(ids, deadline, context.slices)
    named = slices.keep([(topic.name, part.partition_index) async for topic, part in slices.paced(places)])
    return await topics.confirm_partitions_absent(named, deadline, context.slices)


def _look_up(
    context: RequestContext,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    is_confirmed: bool,
) -> _Requested:
    by_id = context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    key: TopicKey = TopicId(topic.topic_id) if by_id else topic.name
    found = context.services.topics.get(key)
    expire_ms = _expire_ms(context, request.retention_time_ms)
    row = _row(found, partition, expire_ms) if found is not None else None
    if row is not None:
        return _Requested((topic, partition), row)
    if not is_confirmed:
        return _Requested((topic, partition), None, RETRIABLE)
    is_unknown_id = found is None and by_id
    error = ErrorName.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorName.UNKNOWN_TOPIC_OR_PARTITION
    return _Requested((topic, partition), None, error)


def _expire_ms(context: RequestContext, retention_ms: int) -> int:
    if retention_ms == NO_RETENTION:
        return BY_RETENTION
    return min(max(context.services.clock() + retention_ms, 0), LAST_TIME_MS)


def _error_in_version(context: RequestContext, error: ErrorName) -> ErrorName:
    is_old = context.header.api_version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
    return ErrorName.ILLEGAL_GENERATION if is_old and error == ErrorName.GROUP_ID_NOT_FOUND else error


def _response(context: RequestContext, results: Iterable[tuple[_Place, ErrorName]]) -> OffsetCommitResponse:
    response = _Response(context)
    for place, error in results:
        response.add(place, error)
    return response.made()


class _Response:
    """A response in the making; the request is counted under its first error."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}

    def add(self, place: _Place, error: ErrorName) -> None:
        topic, partition = place
        key = (topic.name, topic.topic_id)
        result = self.topics.get(key)
        if result is None:
            result = self.topics[key] = OffsetCommitResponseTopic(*key)
        result.partitions.append(OffsetCommitResponsePartition(partition.partition_index, ERROR_CODES[error]))
        if error is not ErrorName.NONE and self._context.error == ErrorName.NONE:
            self._context.error = error

    def made(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=list(self.topics.values()))
