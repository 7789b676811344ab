"""OffsetCommit, versions 2-10 (KIP-848, KIP-848's topic ids from 10 on): a group has read up to here.

Partitions that are not there are told first, as Kafka does, whoever commits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.context import Cancellable, MessageReply, RequestContext
from gateway.groups.commits import NONE, NOT_NOW
from gateway.groups.offsets import Committer
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
from ledger.types import TopicId

IDS_FROM: Final = 10
TELLS_MISSING_GROUPS_FROM: Final = 9
NO_RETENTION: Final = -1
LAST_TIME_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Asked:
    """One partition, and its place in the ledger or why it has none."""

    topic: OffsetCommitRequestTopic
    partition: OffsetCommitRequestPartition
    row: OffsetRow | None
    error: str = NONE


def start(context: RequestContext, request: OffsetCommitRequest, reply: MessageReply) -> Cancellable | None:
    """Submitted before this returns, unless a partition is not there: that must be proved first."""
    rows = _rows(context, request)
    if rows is None:
        return Waiting(context, partial(_wait, context, request), reply)
    if not rows:
        reply.answer(OffsetCommitResponse())
        return None

    def tell(errors: list[str]) -> None:
        reply.answer(_told_all(context, request, errors))

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
        topic_id, count = found.topic_id, len(found.partitions)
        for asked in topic.partitions:
            index = asked.partition_index
            if not 0 <= index < count:
                return None
            metadata = asked.committed_metadata or ""
            rows.append(
                OffsetRow(
                    topic_id, index, asked.committed_offset, asked.committed_leader_epoch, expire_ms, metadata
                )
            )
    return rows


def _told_all(
    context: RequestContext, request: OffsetCommitRequest, errors: Sequence[str]
) -> OffsetCommitResponse:
    """One error a partition, in the order of the request."""
    topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    at = iter(errors)
    for asked in request.topics:
        if not asked.partitions:
            continue
        topic = topics.get((asked.name, asked.topic_id))
        if topic is None:
            topic = OffsetCommitResponseTopic(asked.name, asked.topic_id)
            topics[asked.name, asked.topic_id] = topic
        for partition in asked.partitions:
            error = next(at)
            code = 0 if error == NONE else _code(context, _told(context, error))
            topic.partitions.append(OffsetCommitResponsePartition(partition.partition_index, code))
    return OffsetCommitResponse(topics=list(topics.values()))


async def _wait(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    by_id = context.header.api_version >= IDS_FROM
    deadline = context.journal_deadline()
    may_deny = await _prove(context, request, by_id, deadline)
    asked = [
        _look_up(context, request, topic, partition, may_deny)
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = [one for one in asked if one.row is not None]
    answered = [(one, one.error) for one in asked if one.row is None]
    if known:
        rows = [one.row for one in known if one.row is not None]
        errors = await context.services.group_offsets.commit(_committer(request), rows, deadline)
        answered += zip(known, [_told(context, error) for error in errors], strict=True)
    return _response(context, answered)


async def _prove(context: RequestContext, request: OffsetCommitRequest, by_id: bool, deadline: float) -> bool:
    """Whether what is not known here may be said to be unknown."""
    topics = context.services.topics
    if by_id:
        return await topics.prove_unknown([TopicId(topic.topic_id) for topic in request.topics], deadline)
    return await topics.prove_partitions_unknown(
        [
            (topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ],
        deadline,
    )


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
    if found is not None and 0 <= partition.partition_index < len(found.partitions):
        row = OffsetRow(
            found.topic_id,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            _expire_ms(context, request.retention_time_ms),
            partition.committed_metadata or "",
        )
        return _Asked(topic, partition, row)
    if not may_deny:
        return _Asked(topic, partition, None, NOT_NOW)
    is_unknown_id = found is None and by_id
    return _Asked(
        topic, partition, None, "UNKNOWN_TOPIC_ID" if is_unknown_id else "UNKNOWN_TOPIC_OR_PARTITION"
    )


def _expire_ms(context: RequestContext, retention_ms: int) -> int:
    if retention_ms == NO_RETENTION:
        return BY_RETENTION
    return min(max(context.services.clock() + retention_ms, 0), LAST_TIME_MS)


def _told(context: RequestContext, error: str) -> str:
    is_old = context.header.api_version < TELLS_MISSING_GROUPS_FROM
    return "ILLEGAL_GENERATION" if is_old and error == "GROUP_ID_NOT_FOUND" else error


def _response(context: RequestContext, answered: list[tuple[_Asked, str]]) -> OffsetCommitResponse:
    topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for one, error in answered:
        key = (one.topic.name, one.topic.topic_id)
        if key not in topics:
            topics[key] = OffsetCommitResponseTopic(*key)
        code = _code(context, error)
        topics[key].partitions.append(OffsetCommitResponsePartition(one.partition.partition_index, code))
    return OffsetCommitResponse(topics=list(topics.values()))


def _code(context: RequestContext, error: str) -> int:
    """And count the request under its first error."""
    if error != NONE and context.error == NONE:
        context.error = error
    return ErrorCode[error]
