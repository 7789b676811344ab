"""Fetch (1), v4-18.

Decodes from bytes and encodes to buffers; the fetch service does the rest.
"""

from collections.abc import Generator
from functools import partial
from typing import Final

from gateway.fetch.unknown_partitions import UnknownPartitionFilter
from gateway.quotas.alter import FETCH
from gateway.requests.context import RequestContext
from gateway.requests.throttling import throttle_fetch
from gateway.response import Response
from gateway.scheduling.freeing import Kept
from gateway.scheduling.slices import RESPONSE_BYTES, Owner
from gateway.wire.errors import ErrorCode, NeedsSlices
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from gateway.wire.messages.fetch_decoding import decode_small_fetch, decoding_fetch
from gateway.wire.messages.fetch_encoding import encode_fetch_response, encoding_fetch_response
from gateway.wire.messages.produce import LeaderIdAndEpoch
from ledger.batch.header import LEADER_EPOCH
from ledger.errors import ErrorName
from ledger.types import TopicId

ISOLATION_LEVELS: Final = (0, 1)
FIRST_VERSION_WITH_LEADER: Final = 16


async def handle(context: RequestContext, body: memoryview) -> Response:
    """Raises Malformed, for which the connection is closed."""
    version = context.header.api_version
    absent = None
    try:
        request = decode_small_fetch(version, body)
    except NeedsSlices:
        request, absent = await _decoded(context, version, body)
    if request.isolation_level not in ISOLATION_LEVELS and _names_a_topic(context, request):
        context.error = ErrorCode.UNKNOWN_SERVER_ERROR.name
        refused = await _refused(context, version, request)
        return Response(await context.slices.drive(encoding_fetch_response(version, refused)))
    services = context.services
    max_bytes = services.quotas.max_at_once(FETCH, context.user, context.client_id)
    request.max_bytes = int(min(request.max_bytes, max_bytes))
    throttle = partial(throttle_fetch, context)
    owner = Owner(context.connection_id, context.peer_host)
    result = await services.fetch.fetch(
        version,
        request,
        context.principal,
        context.received_at,
        throttle,
        owner,
        context,
        absent,
    )
    response = result.response
    try:
        if request.replica_id >= 0 and version >= FIRST_VERSION_WITH_LEADER:
            _name_leader(response, services.node_id)
        context.error = _first_error(response)
        if context.is_heavy or response.absent is not None:
            buffers = await context.slices.drive_heavy(encoding_fetch_response(version, response))
        else:
            buffers = encode_fetch_response(version, response)
    except BaseException:
        # Cancelled while it was encoded, or failed.
        if result.on_sent is not None:
            result.on_sent()
        raise
    return Response(buffers, result.on_sent)


async def _decoded(
    context: RequestContext, version: int, body: memoryview
) -> tuple[FetchRequest, AbsentPartitions | None]:
    """A large request, and those of its partitions that do not exist if there are many."""
    services = context.services
    unknown = UnknownPartitionFilter(services.shard.state.topics, await services.fetch.is_newest())

    def decoding(max_items: int, kept: Kept) -> Generator[int, None, FetchRequest]:
        return decoding_fetch(version, body, max_items, unknown.existing, kept)

    request = await context.decoded(decoding, len(body))
    context.leave()
    # The fetch service charges the memory of the partitions, and of the records to `limits.fetch_bytes`.
    context.slices.bytes = min(context.slices.bytes, RESPONSE_BYTES)
    return request, unknown.absent_of(request)


def _names_a_topic(context: RequestContext, request: FetchRequest) -> bool:
    topics = context.services.shard.state.topics
    return any(
        topic.name in topics.by_name or TopicId(topic.topic_id) in topics.by_id for topic in request.topics
    )


async def _refused(context: RequestContext, version: int, request: FetchRequest) -> FetchResponse:
    """Kafka's response where it fails before it reads any partition."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
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
    return ErrorName.NONE
