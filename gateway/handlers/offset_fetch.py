"""OffsetFetch, versions 1-10 (KIP-709: several groups from 8 on; topic ids from 10 on): how far groups have
read. A partition without a committed offset has -1, and a group that is not there has committed none.

Member and epoch matter to groups of the new protocol only; there are no transactions that could hold an
offset open, so all are stable.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.groups.commits import NOT_NOW
from gateway.handlers.answer_room import AnswerRoom, AnswerTooLarge
from gateway.topics.room import Key
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ledger.groups import CommittedOffset, OffsetKey
from ledger.types import TopicId

SEVERAL_FROM: Final = 8
IDS_FROM: Final = 10
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    several = context.header.api_version >= SEVERAL_FROM
    groups = request.groups if several else [_as_group(request)]
    # An exact read: what any gateway has acknowledged must show.
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is None:
        room = AnswerRoom()
        answers = [_fetch(context, group, room) for group in groups]
    else:
        context.error = NOT_NOW
        answers = [OffsetFetchResponseGroup(group.group_id, [], ErrorCode[NOT_NOW]) for group in groups]
    if several:
        return OffsetFetchResponse(groups=answers)
    return _as_old(context, request, answers[0])


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    if topics is None:
        return OffsetFetchRequestGroup(request.group_id, topics=None)
    asked = [
        OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes) for topic in topics
    ]
    return OffsetFetchRequestGroup(request.group_id, topics=asked)


def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, room: AnswerRoom
) -> OffsetFetchResponseGroup:
    try:
        room.take(group.group_id)
        return OffsetFetchResponseGroup(group.group_id, _topics(context, group, room))
    except AnswerTooLarge:
        context.error = ErrorCode.INVALID_REQUEST.name
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.INVALID_REQUEST)


def _topics(
    context: RequestContext, group: OffsetFetchRequestGroup, room: AnswerRoom
) -> list[OffsetFetchResponseTopics]:
    held = context.services.group_offsets.of(group.group_id)
    if group.topics is None:
        return list(_all(context, held, room))
    by_id = context.header.api_version >= IDS_FROM
    known, unknown = [], []
    for topic in group.topics:
        key: Key = TopicId(topic.topic_id) if by_id else topic.name
        found = context.services.topics.get(key)
        answer = OffsetFetchResponseTopics(topic.name, topic.topic_id)
        if found is None and by_id:
            answer.partitions = [_nothing(i, ErrorCode.UNKNOWN_TOPIC_ID) for i in topic.partition_indexes]
            unknown.append(answer)
        else:
            topic_id = None if found is None else found.topic_id
            answer.partitions = list(_offsets(held, topic_id, topic.partition_indexes, room))
            known.append(answer)
    return known + unknown


def _all(
    context: RequestContext, held: Mapping[OffsetKey, CommittedOffset], room: AnswerRoom
) -> Iterator[OffsetFetchResponseTopics]:
    """By topic name and partition. Offsets of deleted topics are nobody's."""
    partitions: dict[TopicId, list[int]] = {}
    for topic_id, partition in held:
        partitions.setdefault(topic_id, []).append(partition)
    topics = [topic for topic in map(context.services.topics.get, partitions) if topic is not None]
    for topic in sorted(topics, key=lambda topic: topic.name):
        indexes = sorted(partitions[topic.topic_id])
        yield OffsetFetchResponseTopics(
            topic.name, topic.topic_id, list(_offsets(held, topic.topic_id, indexes, room))
        )


def _offsets(
    held: Mapping[OffsetKey, CommittedOffset],
    topic_id: TopicId | None,
    indexes: Sequence[int],
    room: AnswerRoom,
) -> Iterator[OffsetFetchResponsePartitions]:
    for index in indexes:
        found = held.get((topic_id, index)) if topic_id is not None else None
        if found is None:
            yield _nothing(index, ErrorCode.NONE)
        else:
            room.take(found.metadata)
            yield OffsetFetchResponsePartitions(index, found.offset, found.leader_epoch, found.metadata)


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, NO_EPOCH, "", error)


def _as_old(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """One group's answer as versions before 8 tell it; version 1 has no error but those of partitions."""
    if group.error_code:
        group.topics = [
            OffsetFetchResponseTopics(
                topic.name,
                partitions=[_nothing(i, ErrorCode(group.error_code)) for i in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.metadata,
                    part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
