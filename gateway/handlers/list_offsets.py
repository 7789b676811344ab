"""ListOffsets (API 2), versions 1 to 11. There are no followers: any replica id is a consumer's."""

from gateway.context import RequestContext
from gateway.fetch.offsets import OffsetAnswer, OffsetQuestion
from gateway.requests.slicing import Owner
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

FIRST_WITH_TIMEOUT = 10
ISOLATION_LEVELS = (0, 1)
DEFAULT_TIMEOUT_MS = 30_000


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """A partition that is asked for twice is answered once, with INVALID_REQUEST, as Kafka does."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return await _failed(context, request)
    slices = context.slices
    named: dict[tuple[str, int], OffsetQuestion] = {}
    twice: set[tuple[str, int]] = set()
    async for topic in slices.paced(request.topics):
        async for part in slices.paced(topic.partitions):
            key = (topic.name, part.partition_index)
            if key in named:
                twice.add(key)
            else:
                named[key] = OffsetQuestion(*key, part.timestamp, part.current_leader_epoch)
    questions = [question async for key, question in slices.paced(named.items()) if key not in twice]
    answers = await context.services.offsets.list_offsets(
        context.header.api_version,
        questions,
        request.isolation_level,
        _deadline(context, request),
        slices,
        Owner(context.connection_id, context.peer_host),
    )
    by_partition = {
        (q.topic, q.partition): answer
        async for q, answer in slices.paced(zip(questions, answers, strict=True))
    }
    refused = OffsetAnswer(ErrorCode.INVALID_REQUEST)
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    async for topic in slices.paced(request.topics):
        topics.setdefault(topic.name, [])
    async for name, index in slices.paced(named):
        answer = by_partition.get((name, index), refused)
        topics[name].append(_part(index, answer))
        if answer.error is not ErrorCode.NONE and context.error == ErrorCode.NONE.name:
            context.error = answer.error.name
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name, parts) async for name, parts in slices.paced(topics.items())]
    )


async def _failed(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Kafka's answer where it fails before it looks at any partition."""
    answer = OffsetAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
    context.error = answer.error.name
    topics = [
        ListOffsetsTopicResponse(
            topic.name,
            [_part(part.partition_index, answer) async for part in context.slices.paced(topic.partitions)],
        )
        async for topic in context.slices.paced(request.topics)
    ]
    return ListOffsetsResponse(topics=topics)


def _deadline(context: RequestContext, request: ListOffsetsRequest) -> float:
    """Loop time. The request has a timeout of its own from version 10 on (KIP-1075)."""
    if context.header.api_version >= FIRST_WITH_TIMEOUT and request.timeout_ms > 0:
        return context.deadline(request.timeout_ms)
    return context.deadline(DEFAULT_TIMEOUT_MS)


def _part(index: int, answer: OffsetAnswer) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        index, answer.error, answer.timestamp, answer.offset, answer.leader_epoch
    )
