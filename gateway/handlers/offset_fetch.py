"""OffsetFetch (9), v1-10.

A partition without a committed offset has -1, and so have all partitions of a group that does not exist.
MemberId and MemberEpoch only matter to groups of KIP-848. With RequireStable an offset that a transaction is
going to commit is UNSTABLE_OFFSET_COMMIT until it has ended.

v2: null means all topics, a top-level error. v3: throttle time. v4: throttled after the response. v5:
CommittedLeaderEpoch. v6: flexible. v7: RequireStable (KIP-447). v8: Groups, several at once (KIP-709). v9:
MemberId and MemberEpoch (KIP-848). v10: topic ids instead of names (KIP-848).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.requests.context import RequestContext
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.topics.service import TopicKey
from gateway.wire.error_names import ERROR_CODES
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
from ledger.errors import ErrorName
from ledger.groups.state import CommittedOffset, OffsetKey
from ledger.transactions.state import Transactions
from ledger.types import TopicId

FIRST_VERSION_WITH_BATCHES: Final = 8
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
UNREADABLE: Final = ErrorName.NOT_COORDINATOR
"""While the journal cannot be read. As in Kafka (`GroupCoordinatorService.handleOffsetFetchException`) not
COORDINATOR_NOT_AVAILABLE, which ends Java's consumers before version 3.9."""


async def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    has_batches = context.header.api_version >= FIRST_VERSION_WITH_BATCHES
    groups = request.groups if has_batches else [_as_group(request)]
    # A linearizable read: what any gateway has acknowledged must be visible.
    refused = await context.services.topics.barrier(context.journal_deadline())
    if refused is None:
        size = context.response_size()
        results = [
            await _fetch(context, group, request.require_stable, size)
            async for group in context.slices.paced(groups)
        ]
    else:
        context.error = UNREADABLE
        results = [OffsetFetchResponseGroup(group.group_id, [], ERROR_CODES[UNREADABLE]) for group in groups]
    if has_batches:
        return OffsetFetchResponse(groups=results)
    return await _before_batches(context, request, results[0])


class _Offsets:
    """Those of one group. They are looked up again each time: between two slices of a request the ledger
    changes, and what pended at its beginning may be committed at its end."""

    def __init__(self, context: RequestContext, group_id: str, require_stable: bool) -> None:
        self._services = context.services
        self._group_id = group_id
        self._require_stable = require_stable

    @property
    def committed(self) -> Mapping[OffsetKey, CommittedOffset]:
        return self._services.group_offsets.of(self._group_id)

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether the client must wait for the end of a transaction."""
        if not self._require_stable:
            return False
        return self._services.shard.state.part(Transactions).is_waiting(self._group_id, key)


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    if topics is None:
        return OffsetFetchRequestGroup(request.group_id, topics=None)
    requested = [
        OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes) for topic in topics
    ]
    return OffsetFetchRequestGroup(request.group_id, topics=requested)


async def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool, size: ResponseSize
) -> OffsetFetchResponseGroup:
    try:
        size.take(1, len(group.group_id))
        offsets = _Offsets(context, group.group_id, require_stable)
        return OffsetFetchResponseGroup(group.group_id, await _topics(context, group, offsets, size))
    except ResponseTooLarge:
        context.error = ErrorCode.INVALID_REQUEST.name
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.INVALID_REQUEST)


async def _topics(
    context: RequestContext, group: OffsetFetchRequestGroup, offsets: "_Offsets", size: ResponseSize
) -> list[OffsetFetchResponseTopics]:
    if group.topics is None:
        size.take(len(offsets.committed))
        return await _all(context, offsets, size)
    by_id = context.header.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    known, unknown = [], []
    async for topic in context.slices.paced(group.topics):
        key: TopicKey = TopicId(topic.topic_id) if by_id else topic.name
        found = context.services.topics.get(key)
        result = OffsetFetchResponseTopics(topic.name, topic.topic_id)
        if found is None and by_id:
            result.partitions = [
                _no_offset(i, ErrorCode.UNKNOWN_TOPIC_ID)
                async for i in context.slices.paced(topic.partition_indexes)
            ]
            unknown.append(result)
        else:
            topic_id = None if found is None else found.topic_id
            result.partitions = await _offsets(context, offsets, topic_id, topic.partition_indexes, size)
            known.append(result)
    return known + unknown


async def _all(
    context: RequestContext, offsets: "_Offsets", size: ResponseSize
) -> list[OffsetFetchResponseTopics]:
    """By topic name and partition, without offsets of deleted topics."""
    partitions: dict[TopicId, list[int]] = {}
    for topic_id, partition in offsets.committed:
        partitions.setdefault(topic_id, []).append(partition)
    topics = [topic for topic in map(context.services.topics.get, partitions) if topic is not None]
    return [
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            await _offsets(context, offsets, topic.topic_id, sorted(partitions[topic.topic_id]), size),
        )
        async for topic in context.slices.paced(sorted(topics, key=lambda topic: topic.name))
    ]


async def _offsets(
    context: RequestContext,
    offsets: "_Offsets",
    topic_id: TopicId | None,
    indexes: Sequence[int],
    size: ResponseSize,
) -> list[OffsetFetchResponsePartitions]:
    """The committed offsets of these partitions. Their number is not charged: the request names each."""
    found = list[OffsetFetchResponsePartitions]()
    async for index in context.slices.paced(indexes):
        if topic_id is not None and offsets.is_unstable((topic_id, index)):
            found.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            continue
        committed = offsets.committed.get((topic_id, index)) if topic_id is not None else None
        if committed is None:
            found.append(_no_offset(index, ErrorCode.NONE))
        else:
            size.take(encoded_bytes=len(committed.metadata))
            found.append(
                OffsetFetchResponsePartitions(
                    index, committed.offset, committed.leader_epoch, committed.metadata
                )
            )
    return found


def _no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NO_OFFSET, NO_EPOCH, "", error)


async def _before_batches(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """One group's result in the form of versions before 8. Version 1 has errors of partitions only."""
    if group.error_code:
        group.topics = [
            OffsetFetchResponseTopics(
                topic.name,
                partitions=[_no_offset(i, ErrorCode(group.error_code)) for i in topic.partition_indexes],
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
