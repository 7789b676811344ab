"""Fetch (API 1), versions 4 to 18: bytes in, buffers out; the fetch room does the rest."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from gateway.context import RequestContext
from gateway.fetch.sieve import Sieve
from gateway.handlers.throttling import throttle_fetch
from gateway.quotas.altering import FETCH
from gateway.requests.slicing import RESPONSE_BYTES, Owner
from gateway.wire.errors import ErrorCode, NeedsSlices
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.fetch import (
    FIRST_WITH_TOPIC_IDS,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_small_fetch,
    decoding_fetch,
    encode_fetch_response,
    encoding_fetch_response,
)
from gateway.wire.messages.produce import LeaderIdAndEpoch
from ledger.batch.header import LEADER_EPOCH
from ledger.types import Buffer, TopicId

ISOLATION_LEVELS: Final = (0, 1)
FIRST_WITH_LEADER: Final = 16


async def handle(context: RequestContext, body: memoryview) -> Sequence[Buffer]:
    """Raises Malformed, for which the connection is closed."""
    version = context.header.api_version
    absent = None
    try:
        request = decode_small_fetch(version, body)
    except NeedsSlices:
        request, absent = await _decoded(context, version, body)
    if request.isolation_level not in ISOLATION_LEVELS and _names_a_topic(context, request):
        context.error = ErrorCode.UNKNOWN_SERVER_ERROR.name
        return await context.slices.drive(
            encoding_fetch_response(version, await _refused(context, version, request))
        )
    services = context.services
    most = services.quotas.most_at_once(FETCH, context.user, context.client_id)
    request.max_bytes = int(min(request.max_bytes, most))
    throttle = partial(throttle_fetch, context)
    owner = Owner(context.connection_id, context.peer_host)
    response = await services.fetch.fetch(
        version,
        request,
        context.principal,
        context.received_at,
        throttle,
        context.hold,
        owner,
        context,
        absent,
    )
    if request.replica_id >= 0 and version >= FIRST_WITH_LEADER:
        _name_leader(response, services.node_id)
    context.error = _first_error(response)
    services.metrics.fetch_bytes.value += _record_bytes(response)
    if context.is_heavy or response.absent is not None:
        return await context.slices.drive_heavy(encoding_fetch_response(version, response))
    return encode_fetch_response(version, response)


async def _decoded(
    context: RequestContext, version: int, body: memoryview
) -> tuple[FetchRequest, AbsentPartitions | None]:
    """A large request, without those of its partitions that do not exist if there are many."""
    services = context.services
    sieve = Sieve(services.shard.state.topics, await services.fetch.is_newest())

    def decoding(most: int) -> Generator[int, None, FetchRequest]:
        return decoding_fetch(version, body, most, sieve.existing)

    request = await context.decoded(decoding, len(body))
    context.leave()
    # The rest is charged by the fetch room, and to `limits.fetch_bytes`.
    context.slices.bytes = min(context.slices.bytes, RESPONSE_BYTES)
    return request, sieve.absent_of(request)


def _names_a_topic(context: RequestContext, request: FetchRequest) -> bool:
    topics = context.services.shard.state.topics
    return any(
        topic.name in topics.by_name or TopicId(topic.topic_id) in topics.by_id for topic in request.topics
    )


async def _refused(context: RequestContext, version: int, request: FetchRequest) -> FetchResponse:
    """Kafka's answer where it fails before it looks at any partition."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    if version >= FIRST_WITH_TOPIC_IDS:
        return FetchResponse([], error)
    topics = [
        FetchTopicResponse(
            topic.name,
            topic.topic_id,
            [
                FetchPartitionResponse(part.index, error, aborted_transactions=())
                async for part in context.slices.paced(topic.partitions)
            ],
        )
        async for topic in context.slices.paced(request.topics)
    ]
    return FetchResponse(topics, error)


def _name_leader(response: FetchResponse, node_id: int) -> None:
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                part.current_leader = LeaderIdAndEpoch(node_id, LEADER_EPOCH)


def _first_error(response: FetchResponse) -> str:
    if response.error_code:
        return ErrorCode(response.error_code).name
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return ErrorCode(partition.error_code).name
    for _, _, error_code, _ in response.absent or ():
        return ErrorCode(error_code).name
    return ErrorCode.NONE.name


def _record_bytes(response: FetchResponse) -> int:
    return sum(
        len(buffer)
        for topic in response.topics
        for partition in topic.partitions
        for buffer in partition.records or ()
    )
