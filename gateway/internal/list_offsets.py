"""DisklessListOffsets (97), v0.

KIP-1164: exact offsets of partitions by topic id, for the special timestamps alone: -1 latest, -2 earliest,
-3 the greatest timestamp, -4 earliest local (as earliest), -5 latest tiered (offset -1: there is no tier).
"""

from dataclasses import dataclass
from typing import Final

from gateway.fetch.list_offsets import MAX_TIMESTAMP, OffsetQuery, OffsetResult
from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import Owner
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.internal.diskless_list_offsets import (
    DisklessListOffsetsRequest,
    DisklessListOffsetsResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from ledger.requests import Refused
from ledger.topics.state import Topic
from ledger.types import TopicId

CLIENTS_VERSION: Final = 9
"""Of ListOffsets, for the searches: the first that knows all these timestamps."""
ALL_RECORDS: Final = 0
"""The isolation level."""
NOT_SPECIAL: Final = "only the timestamps -1 to -5 are looked up here"


@dataclass(frozen=True, slots=True)
class _Search:
    """A partition whose batches must be read."""

    topic: Topic
    response: ListOffsetsPartitionResponse


async def handle(
    access: ShardAccess, context: RequestContext, request: DisklessListOffsetsRequest
) -> DisklessListOffsetsResponse:
    slices, deadline = context.slices, context.deadline(request.timeout_ms)
    refused = await access.confirm(deadline)
    searches: list[_Search] = []
    topics = []
    async for topic in slices.paced(request.topics):
        parts = []
        async for part in slices.paced(topic.partitions):
            parts.append(response := _at_once(access, topic.topic_id, part, refused))
            if part.timestamp == MAX_TIMESTAMP and not response.error_code:
                known = access.shard.state.topics.by_id[TopicId(topic.topic_id)]
                searches.append(_Search(known, response))
        topics.append(ListOffsetsTopicResponse(topic.topic_id, slices.keep(parts)))
    if searches:
        await _search(access, context, slices.keep(searches), deadline)
    return DisklessListOffsetsResponse(topics=slices.keep(topics))


def _at_once(
    access: ShardAccess, topic_id: bytes, part: ListOffsetsPartition, refused: Refused | None
) -> ListOffsetsPartitionResponse:
    """What the ledger knows; nothing yet of the greatest timestamp."""
    log = refused or access.partition(topic_id, part.partition_index)
    response = ListOffsetsPartitionResponse(part.partition_index)
    if isinstance(log, Refused):
        response.error_code, response.error_message = ERROR_CODES[log.error], log.message or None
        return response
    match part.timestamp:
        case -1:
            response.offset = log.high_watermark
        case -2 | -4:
            response.offset = log.log_start
        case -3 | -5:
            pass
        case _:
            response.error_code, response.error_message = ErrorCode.INVALID_REQUEST, NOT_SPECIAL
    return response


async def _search(
    access: ShardAccess, context: RequestContext, searches: list[_Search], deadline: float
) -> None:
    queries = [
        OffsetQuery(search.topic.name, search.response.partition_index, MAX_TIMESTAMP) for search in searches
    ]
    results = await context.services.offsets.list_offsets(
        CLIENTS_VERSION,
        context.slices.keep(queries),
        ALL_RECORDS,
        deadline,
        context.slices,
        Owner(context.connection_id, context.peer_host),
    )
    async for search, result in context.slices.paced(zip(searches, results, strict=True)):
        _found(access, search, result)


def _found(access: ShardAccess, search: _Search, result: OffsetResult) -> None:
    """The search goes by name: meanwhile another topic may have got it."""
    response, topics = search.response, access.shard.state.topics
    if search.topic.topic_id not in topics.by_id:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return
    response.error_code = result.error
    response.timestamp, response.offset = result.timestamp, result.offset
