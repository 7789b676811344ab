"""OffsetFetch, versions 1-10 (KIP-709: several groups from 8 on; topic ids from 10 on): how far groups have
read. A partition without a committed offset has -1, and a group that is not there has committed none.

Member and epoch matter to groups of the new protocol only; there are no transactions that could hold an
offset open, so all are stable.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.groups.commits import NOT_NOW
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
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
        size = context.response_size()
        answers = [await _fetch(context, group, size) async for group in context.slices.paced(groups)]
    else:
        context.error = NOT_NOW
        answers = [OffsetFetchResponseGroup(group.group_id, [], ErrorCode[NOT_NOW]) for group in groups]
    if several:
        return OffsetFetchResponse(groups=answers)
    return await _as_old(context, request, answers[0])


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    if topics is None:
        return OffsetFetchRequestGroup(request.group_id, topics=None)
    asked = [
        OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes) for topic in topics
    ]
    return OffsetFetchRequestGroup(request.group_id, topics=asked)


async def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, size: ResponseSize
) -> OffsetFetchResponseGroup:
    try:
        size.take(1, len(group.group_id))
        return OffsetFetchResponseGroup(group.group_id, await _topics(context, group, size))
    except ResponseTooLarge:
        context.error = ErrorCode.INVALID_REQUEST.name
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.INVALID_REQUEST)


async def _topics(
    context: RequestContext, group: OffsetFetchRequestGroup, size: ResponseSize
) -> list[OffsetFetchResponseTopics]:
    held = context.services.group_offsets.of(group.group_id)
    if group.topics is None:
        size.take(len(held))
        return await _all(context, held, size)
    by_id = context.header.api_version >= IDS_FROM
    known, unknown = [], []
    async for topic in context.slices.paced(group.topics):
        key: Key = TopicId(topic.topic_id) if by_id else topic.name
        found = context.services.topics.get(key)
        answer = OffsetFetchResponseTopics(topic.name, topic.topic_id)
        if found is None and by_id:
            answer.partitions = [
                _nothing(i, ErrorCode.UNKNOWN_TOPIC_ID)
                async for i in context.slices.paced(topic.partition_indexes)
            ]
            unknown.append(answer)
        else:
            topic_id = None if found is None else found.topic_id
            answer.partitions = await _offsets(context, held, topic_id, topic.partition_indexes, size)
            known.append(answer)
    return known + unknown


async def _all(
    context: RequestContext, held: Mapping[OffsetKey, CommittedOffset], size: ResponseSize
) -> list[OffsetFetchResponseTopics]:
    """By topic name and partition. Offsets of deleted topics are nobody's."""
    partitions: dict[TopicId, list[int]] = {}
    for topic_id, partition in held:
        partitions.setdefault(topic_id, []).append(partition)
    topics = [topic for topic in map(context.services.topics.get, partitions) if topic is not None]
    return [
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            await _offsets(context, held, topic.topic_id, sorted(partitions[topic.topic_id]), size),
        )
        async for topic in context.slices.paced(sorted(topics, key=lambda topic: topic.name))
    ]


async def _offsets(
    context: RequestContext,
    held: Mapping[OffsetKey, CommittedOffset],
    topic_id: TopicId | None,
    indexes: Sequence[int],
    size: ResponseSize,
) -> list[OffsetFetchResponsePartitions]:
    """What is committed of these; their number is paid for by the request that names them."""
    found = list[OffsetFetchResponsePartitions]()
    async for index in context.slices.paced(indexes):
        committed = held.get((topic_id, index)) if topic_id is not None else None
        if committed is None:
            found.append(_nothing(index, ErrorCode.NONE))
        else:
            size.take(encoded_bytes=len(committed.metadata))
            found.append(
                OffsetFetchResponsePartitions(
                    index, committed.offset, committed.leader_epoch, committed.metadata
                )
            )
    return found


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, NO_EPOCH, "", error)


async def _as_old(
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
                async for part in context.slices.paced(topic.partitions)
            ],
        )
        async for topic in context.slices.paced(group.topics)
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
