"""OffsetForLeaderEpoch, versions 2-4 (KIP-101, KIP-320): where a leader's records end.

The leader epoch is 0 for ever, so all records are of epoch 0 and it ends at the high watermark. Nothing is
known of later epochs; those below 0 end where the log begins.
"""

from typing import Final

from gateway.context import RequestContext
from gateway.fetch.planning import NO_EPOCH, check_epoch
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

NOTHING: Final = -1


async def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Any replica id is a consumer's: there are no followers."""
    refused = await context.services.topics.barrier(context.journal_deadline())
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    _end(context, topic.topic, asked, refused)
                    async for asked in context.slices.paced(topic.partitions)
                ],
            )
            async for topic in context.slices.paced(request.topics)
        ]
    )


def _end(
    context: RequestContext, name: str, asked: OffsetForLeaderPartition, refused: Refused | None
) -> EpochEndOffset:
    if refused is not None:
        return EpochEndOffset(ErrorCode[refused.error], asked.partition)
    log = context.services.topics.partition(name, asked.partition)
    if log is None:
        return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
    error = check_epoch(asked.current_leader_epoch)
    if error is not ErrorCode.NONE or asked.leader_epoch == NO_EPOCH or asked.leader_epoch > LEADER_EPOCH:
        return EpochEndOffset(error, asked.partition, NO_EPOCH, NOTHING)
    end = log.high_watermark if asked.leader_epoch == LEADER_EPOCH else log.log_start
    return EpochEndOffset(error, asked.partition, asked.leader_epoch, end)
