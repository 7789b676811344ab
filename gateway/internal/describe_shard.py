"""DescribeShard (20005), v0.

What a job needs to begin: the cluster, the store of the records, how far the journal is, and topics in the
order of their ids, a page at a time. It follows a barrier: a topic that was created before the request is
there.

A client whose certificate is not among internal.principals gets that as an error and nothing else. All other
requests of it close the connection.
"""

from collections.abc import Generator, Sequence
from heapq import nsmallest
from typing import Final

from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import denied
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.describe_shard import (
    DescribeShardRequest,
    DescribeShardResponse,
    ShardTopic,
)
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.types import TopicId

MAX_TOPICS: Final = 1_000
TOPICS_A_STEP: Final = 1_000


async def handle(
    access: ShardAccess, context: RequestContext, request: DescribeShardRequest
) -> DescribeShardResponse:
    if refusal := access.refusal_of(context.listener.name, context.principal):
        denied(context, ErrorName.CLUSTER_AUTHORIZATION_FAILED, refusal)
        code = ERROR_CODES[ErrorName.CLUSTER_AUTHORIZATION_FAILED]
        return DescribeShardResponse(error_code=code, error_message=refusal)
    refused = access.check_shard(request.shard) or await access.confirm(context.deadline(request.timeout_ms))
    state = access.shard.state
    response = DescribeShardResponse(
        cluster_id=state.cluster_id,
        data_url=access.data_url,
        feature_level=state.feature_level,
        applied_entries=state.applied,
        entry_time_ms=state.entry_time_ms,
    )
    if isinstance(refused, Refused):
        response.error_code = ERROR_CODES[refused.error]
        response.error_message = refused.message or None
        return response
    wanted = min(max(request.max_topics, 0), MAX_TOPICS)
    ids = context.slices.keep(list(state.topics.by_id))
    found = await context.slices.drive(_next_ids(ids, request.after, wanted + 1))
    response.has_more = len(found) > wanted
    by_id = access.shard.state.topics.by_id
    for topic_id in found[:wanted]:
        # Other work went on between the slices.
        topic = by_id.get(topic_id)
        if topic is not None:
            response.topics.append(ShardTopic(topic_id, topic.name, len(topic.partitions)))
    return response


def _next_ids(ids: Sequence[TopicId], after: bytes, limit: int) -> Generator[int, None, Sequence[TopicId]]:
    """The `limit` smallest ids that come after one. Yields how many were looked at."""
    smallest: Sequence[TopicId] = []
    for first in range(0, len(ids), TOPICS_A_STEP):
        some = ids[first : first + TOPICS_A_STEP]
        later = [topic_id for topic_id in some if topic_id > after]
        smallest = nsmallest(limit, [*smallest, *later])
        yield len(some)
    return smallest
