"""OffsetCommit, versions 2-10 (KIP-848, KIP-848's topic ids from 10 on): a group has read up to here.

Partitions that are not there are told first, as Kafka does, whoever commits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from gateway.context import Cancellable, MessageReply, RequestContext
from gateway.groups.commits import NONE, NOT_NOW
from gateway.groups.offsets import Committer
from gateway.handlers.offset_resets import AuditedReply, auditing, noticed, noticing
from gateway.handlers.waiting import Waiting
from gateway.topics.room import Key
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ledger.groups import BY_RETENTION, OffsetRow
from ledger.topics import Topic
from ledger.types import TopicId

IDS_FROM: Final = 10
TELLS_MISSING_GROUPS_FROM: Final = 9
NO_RETENTION: Final = -1
ROWS_AT_ONCE: Final = 1_000
"""Offsets that are decided, and applied, in one turn of the loop."""
UNITS_A_ROW: Final = 3
LAST_TIME_MS: Final = 2**63 - 1


_Place: TypeAlias = tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One partition, and what is committed of it or why that cannot be."""

    place: _Place
    row: OffsetRow | None
    error: str = NONE


def start(context: RequestContext, request: OffsetCommitRequest, reply: MessageReply) -> Cancellable | None:
    """Submitted before this returns, unless a partition is not there: that must be proved first."""
    moves = noticed(context, request)
    if moves is None:
        return _start(context, request, reply)
    audited = AuditedReply(context, request.group_id, moves, reply)
    return audited.watch(_start(context, request, audited))


def _start(context: RequestContext, request: OffsetCommitRequest, reply: MessageReply) -> Cancellable | None:
    rows = _rows(context, request)
    if rows is None:
        return Waiting(context, partial(wait, context, request), reply)
    if not rows:
        reply.answer(OffsetCommitResponse())
        return None

    def tell(errors: list[str]) -> None:
        answered = zip(_partitions(request), [_told(context, error) for error in errors], strict=True)
        reply.answer(_response(context, answered))

    deadline = context.journal_deadline()
    return context.services.group_offsets.start(_committer(request), rows, deadline, tell)


def _committer(request: OffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )


def _rows(context: RequestContext, request: OffsetCommitRequest) -> list[OffsetRow] | None:
    """All that is committed, in order; None if one of the partitions is not known."""
    by_id = context.header.api_version >= IDS_FROM
    topics = context.services.shard.state.topics
    expire_ms = _expire_ms(context, request.retention_time_ms)
    rows: list[OffsetRow] = []
    for topic in request.topics:
        found = topics.by_id.get(TopicId(topic.topic_id)) if by_id else topics.by_name.get(topic.name)
        if found is None:
            return None
        for asked in topic.partitions:
            row = _row(found, asked, expire_ms)
            if row is None:
                return None
            rows.append(row)
    return rows


def _row(topic: Topic, asked: OffsetCommitRequestPartition, expire_ms: int) -> OffsetRow | None:
    """None if the topic has no such partition."""
    if not 0 <= asked.partition_index < len(topic.partitions):
        return None
    return OffsetRow(
        topic.topic_id,
        asked.partition_index,
        asked.committed_offset,
        asked.committed_leader_epoch,
        expire_ms,
        asked.committed_metadata or "",
    )


def _partitions(request: OffsetCommitRequest) -> list[_Place]:
    return [(topic, partition) for topic in request.topics for partition in topic.partitions]


async def wait_in_slices(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """What `start` does, for very many partitions. They are committed so many at a time."""
    moves = await context.slices.drive(noticing(context, request))
    if moves is None:
        return await wait(context, request)
    with auditing(context, request.group_id, moves) as tell:
        response = await wait(context, request)
        tell(response)
    return response


async def wait(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    by_id = context.header.api_version >= IDS_FROM
    deadline = context.journal_deadline()
    slices = context.slices
    places = [
        (topic, partition)
        async for topic in slices.paced(request.topics)
        async for partition in slices.paced(topic.partitions)
    ]
    may_deny = await _prove(context, places, by_id, deadline)
    known: list[tuple[_Place, OffsetRow]] = []
    answered: list[tuple[_Place, str]] = []
    async for place in slices.paced(places):
        one = _look_up(context, request, *place, may_deny)
        if one.row is None:
            answered.append((one.place, one.error))
        else:
            known.append((one.place, one.row))
    for start in range(0, len(known), ROWS_AT_ONCE):
        part = known[start : start + ROWS_AT_ONCE]
        if slices.is_due(UNITS_A_ROW * len(part)):
            await slices.turn()
        rows = [row for _, row in part]
        errors = await context.services.group_offsets.commit(_committer(request), rows, deadline)
        told = [_told(context, error) for error in errors]
        answered += zip([place for place, _ in part], told, strict=True)
    response = _Response(context)
    async for place, error in slices.paced(answered):
        response.add(place, error)
    return response.made()


async def _prove(context: RequestContext, places: Sequence[_Place], by_id: bool, deadline: float) -> bool:
    """Whether what is not known here may be said to be unknown."""
    topics, slices = context.services.topics, context.slices
    if by_id:
        ids = [TopicId(topic.topic_id) async for topic, _ in slices.paced(places)]
        return await topics.prove_unknown(ids, deadline, context.slices)
    named = [(topic.name, part.partition_index) async for topic, part in slices.paced(places)]
    return await topics.prove_partitions_unknown(named, deadline, context.slices)


def _look_up(
    context: RequestContext,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
    may_deny: bool,
) -> _Asked:
    by_id = context.header.api_version >= IDS_FROM
    key: Key = TopicId(topic.topic_id) if by_id else topic.name
    found = context.services.topics.get(key)
    expire_ms = _expire_ms(context, request.retention_time_ms)
    row = _row(found, partition, expire_ms) if found is not None else None
    if row is not None:
        return _Asked((topic, partition), row)
    if not may_deny:
        return _Asked((topic, partition), None, NOT_NOW)
    is_unknown_id = found is None and by_id
    error = "UNKNOWN_TOPIC_ID" if is_unknown_id else "UNKNOWN_TOPIC_OR_PARTITION"
    return _Asked((topic, partition), None, error)


def _expire_ms(context: RequestContext, retention_ms: int) -> int:
    if retention_ms == NO_RETENTION:
        return BY_RETENTION
    return min(max(context.services.clock() + retention_ms, 0), LAST_TIME_MS)


def _told(context: RequestContext, error: str) -> str:
    is_old = context.header.api_version < TELLS_MISSING_GROUPS_FROM
    return "ILLEGAL_GENERATION" if is_old and error == "GROUP_ID_NOT_FOUND" else error


def _response(context: RequestContext, answered: Iterable[tuple[_Place, str]]) -> OffsetCommitResponse:
    response = _Response(context)
    for place, error in answered:
        response.add(place, error)
    return response.made()


class _Response:
    """One in the making; counts the request under its first error."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}

    def add(self, place: _Place, error: str) -> None:
        topic, partition = place
        key = (topic.name, topic.topic_id)
        answered = self._topics.get(key)
        if answered is None:
            answered = self._topics[key] = OffsetCommitResponseTopic(*key)
        answered.partitions.append(OffsetCommitResponsePartition(partition.partition_index, ErrorCode[error]))
        if error != NONE and self._context.error == NONE:
            self._context.error = error

    def made(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=list(self._topics.values()))
