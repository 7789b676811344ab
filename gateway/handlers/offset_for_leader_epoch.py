"""OffsetForLeaderEpoch (23), v2-4.

KIP-101, KIP-320: where a leader's records end. The leader epoch is always 0, so all records are of epoch 0,
which ends at the high watermark. Later epochs are unknown; those below 0 end where the log begins.

v2: CurrentLeaderEpoch, throttle time. v3: ReplicaId. v4: flexible.
"""

from typing import Final

from gateway.fetch.planning import NO_EPOCH, check_epoch
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ledger.batch.header import LEADER_EPOCH
from ledger.requests import Refused

NO_OFFSET: Final = -1


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Every replica id counts as a consumer's: there are no followers."""
    refused = await context.services.topics.barrier(context.journal_deadline())
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    _end(context, topic.topic, requested, refused)
                    async for requested in context.slices.paced(topic.partitions)
                ],
            )
            async for topic in context.slices.paced(request.topics)
        ]
    )


def _end(
    context: RequestContext, name: str, requested: OffsetForLeaderPartition, refused: Refused | None
) -> EpochEndOffset:
    if refused is not None:
        return EpochEndOffset(ERROR_CODES[refused.error], requested.partition)
    log = context.services.topics.partition(name, requested.partition)
    if log is None:
        return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, requested.partition)
    error = check_epoch(requested.current_leader_epoch)
    if (
        error is not ErrorCode.NONE
        or requested.leader_epoch == NO_EPOCH
        or requested.leader_epoch > LEADER_EPOCH
    ):
        return EpochEndOffset(error, requested.partition, NO_EPOCH, NO_OFFSET)
    end = log.high_watermark if requested.leader_epoch == LEADER_EPOCH else log.log_start
    return EpochEndOffset(error, requested.partition, requested.leader_epoch, end)
