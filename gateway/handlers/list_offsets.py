"""ListOffsets (2), v1-11.

There are no followers: every replica id counts as a consumer's.
"""

from gateway.fetch.list_offsets import OffsetQuery, OffsetResult
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import Owner
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ledger.errors import ErrorName

FIRST_VERSION_WITH_TIMEOUT = 10
ISOLATION_LEVELS = (0, 1)
DEFAULT_TIMEOUT_MS = 30_000


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """As in Kafka, a partition that is named twice has one result, INVALID_REQUEST."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return await _failed(context, request)
    slices = context.slices
    named: dict[tuple[str, int], OffsetQuery] = {}
    slices.kept.append(named)
    twice: set[tuple[str, int]] = set()
    async for topic in slices.paced(request.topics):
        async for part in slices.paced(topic.partitions):
            key = (topic.name, part.partition_index)
            if key in named:
                twice.add(key)
            else:
                named[key] = OffsetQuery(*key, part.timestamp, part.current_leader_epoch)
    queries = slices.keep([query async for key, query in slices.paced(named.items()) if key not in twice])
    results = await context.services.offsets.list_offsets(
        context.header.api_version,
        queries,
        request.isolation_level,
        _deadline(context, request),
        slices,
        Owner(context.connection_id, context.peer_host),
    )
    slices.keep(results)
    by_partition = {
        (query.topic, query.partition): result
        async for query, result in slices.paced(zip(queries, results, strict=True))
    }
    slices.keep(by_partition)
    refused = OffsetResult(ErrorCode.INVALID_REQUEST)
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    slices.kept.append(topics)
    async for topic in slices.paced(request.topics):
        topics.setdefault(topic.name, [])
    async for name, index in slices.paced(named):
        result = by_partition.get((name, index), refused)
        topics[name].append(_part(index, result))
        if result.error is not ErrorCode.NONE and context.error == ErrorName.NONE:
            context.error = result.error.name
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name, parts) async for name, parts in slices.paced(topics.items())]
    )


async def _failed(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Kafka's response where it fails before it looks up any partition."""
    result = OffsetResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    context.error = result.error.name
    topics = [
        ListOffsetsTopicResponse(
            topic.name,
            [_part(part.partition_index, result) async for part in context.slices.paced(topic.partitions)],
        )
        async for topic in context.slices.paced(request.topics)
    ]
    return ListOffsetsResponse(topics=topics)


def _deadline(context: RequestContext, request: ListOffsetsRequest) -> float:
    """Loop time. From version 10 on the request has a timeout (KIP-1075)."""
    if context.header.api_version >= FIRST_VERSION_WITH_TIMEOUT and request.timeout_ms > 0:
        return context.deadline(request.timeout_ms)
    return context.deadline(DEFAULT_TIMEOUT_MS)


def _part(index: int, result: OffsetResult) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        index, result.error, result.timestamp, result.offset, result.leader_epoch
    )
