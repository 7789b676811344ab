"""DeleteRecords (21), v0-2.

KIP-107: raises the log start offset of partitions.

v1: throttled after the response. v2: flexible.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.configs.describe import topic_value
from gateway.requests.audit import UNKNOWN_OUTCOME, audit, in_words
from gateway.requests.context import RequestContext
from gateway.scheduling.slices import CALL_UNITS
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.topics.state import INTERNAL_TOPICS

AT_ONCE: Final = 100
NO_WATERMARK: Final = -1

PartitionKey = tuple[str, int]


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """The last offset counts for a partition that is given twice, as in Kafka."""
    slices = context.slices
    requested = {
        (topic.name, partition.partition_index): partition.offset
        async for topic in slices.paced(request.topics)
        async for partition in slices.paced(topic.partitions)
    }
    # Kafka's timeout is for followers, of which there are none; the journal gets its own time at least.
    deadline = max(context.deadline(request.timeout_ms), context.journal_deadline())
    # Whether there are such partitions, and whether their configs let records be deleted.
    is_confirmed = await context.services.topics.barrier(deadline) is None
    keys = list(requested)
    outcomes: list[int | Refused] = []
    try:
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            if slices.is_due(CALL_UNITS * len(part)):
                await slices.next_slice()
            outcomes += await asyncio.gather(
                *(_delete(context, key, requested[key], is_confirmed, deadline) for key in part)
            )
    finally:
        _audit(context, requested, outcomes)
    topics: dict[str, DeleteRecordsTopicResult] = {}
    async for (name, index), outcome in slices.paced(zip(keys, outcomes, strict=True)):
        result = topics.setdefault(name, DeleteRecordsTopicResult(name))
        result.partitions.append(_result(index, outcome))
    return DeleteRecordsResponse(topics=list(topics.values()))


async def _delete(
    context: RequestContext, key: PartitionKey, offset: int, is_confirmed: bool, deadline: float
) -> int | Refused:
    name, index = key
    service = context.services.topics
    topic = service.get(name)
    if name in INTERNAL_TOPICS:
        return Refused(ErrorName.INVALID_TOPIC_EXCEPTION)
    if not is_confirmed:
        return Refused(ErrorName.REQUEST_TIMED_OUT)
    if topic is None or not service.has_partition(name, index):
        return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
    policy = topic_value("cleanup.policy", topic.configs, context.services.configs.defaults).split(",")
    if "compact" in policy and "delete" not in policy:
        return Refused(ErrorName.POLICY_VIOLATION)
    return await service.delete_records(topic, index, offset, deadline)


def _audit(
    context: RequestContext, requested: Mapping[PartitionKey, int], outcomes: Sequence[int | Refused]
) -> None:
    """One event for the whole request, which may have very many partitions. The outcome is unknown of those
    without a result."""
    done: list[tuple[PartitionKey, int, str]] = []
    unknown = [UNKNOWN_OUTCOME] * (len(requested) - len(outcomes))
    for (key, offset), outcome in zip(requested.items(), [*outcomes, *unknown], strict=True):
        if not isinstance(outcome, Refused):
            done.append((key, outcome, ""))
        elif outcome.error == UNKNOWN_OUTCOME.error:
            done.append((key, offset, " (outcome unknown)"))
    if done:
        audit(context, "records.deleted", partitions=in_words(done, _deletion))


def _deletion(done: tuple[PartitionKey, int, str]) -> str:
    (name, index), offset, certainty = done
    return f"{name}-{index} before {offset}{certainty}"


def _result(index: int, outcome: int | Refused) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, Refused):
        return DeleteRecordsPartitionResult(index, NO_WATERMARK, ERROR_CODES[outcome.error])
    return DeleteRecordsPartitionResult(index, outcome)
