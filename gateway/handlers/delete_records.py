"""DeleteRecords, versions 0-2 (KIP-107): raises the log start offset of partitions."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.handlers.auditing import UNKNOWN_OUTCOME, audit, in_words
from gateway.requests.slicing import CALL_UNITS
from gateway.topics.describing import topic_value
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ledger.requests import Refused
from ledger.topics import INTERNAL_TOPICS

AT_ONCE: Final = 100
NO_WATERMARK: Final = -1

Key = tuple[str, int]


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """A partition that is given twice gets the last offset, as in Kafka."""
    slices = context.slices
    asked = {
        (topic.name, partition.partition_index): partition.offset
        async for topic in slices.paced(request.topics)
        async for partition in slices.paced(topic.partitions)
    }
    # Kafka's timeout is for followers, of which there are none; the journal gets its own time at least.
    deadline = max(context.deadline(request.timeout_ms), context.journal_deadline())
    may_deny = await context.services.topics.prove_partitions_unknown(asked, deadline, slices)
    keys = list(asked)
    answers: list[int | Refused] = []
    try:
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            if slices.is_due(CALL_UNITS * len(part)):
                await slices.turn()
            answers += await asyncio.gather(
                *(_delete(context, key, asked[key], may_deny, deadline) for key in part)
            )
    finally:
        _audit(context, asked, answers)
    topics: dict[str, DeleteRecordsTopicResult] = {}
    async for (name, index), answer in slices.paced(zip(keys, answers, strict=True)):
        result = topics.setdefault(name, DeleteRecordsTopicResult(name))
        result.partitions.append(_result(index, answer))
    return DeleteRecordsResponse(topics=list(topics.values()))


async def _delete(
    context: RequestContext, key: Key, offset: int, may_deny: bool, deadline: float
) -> int | Refused:
    name, index = key
    room = context.services.topics
    topic = room.get(name)
    if name in INTERNAL_TOPICS:
        return Refused("INVALID_TOPIC_EXCEPTION")
    if topic is None or room.partition(name, index) is None:
        return Refused("UNKNOWN_TOPIC_OR_PARTITION" if may_deny else "REQUEST_TIMED_OUT")
    policy = topic_value("cleanup.policy", topic.configs, context.services.configs.defaults).split(",")
    if "compact" in policy and "delete" not in policy:
        return Refused("POLICY_VIOLATION")
    return await room.delete_records(topic, index, offset, deadline)


def _audit(context: RequestContext, asked: Mapping[Key, int], answers: Sequence[int | Refused]) -> None:
    """One event for the whole request, since a request may concern very many partitions. The outcome of
    those without an answer is not known."""
    done: list[tuple[Key, int, str]] = []
    unknown = [UNKNOWN_OUTCOME] * (len(asked) - len(answers))
    for (key, offset), answer in zip(asked.items(), [*answers, *unknown], strict=True):
        if not isinstance(answer, Refused):
            done.append((key, answer, ""))
        elif answer.error == UNKNOWN_OUTCOME.error:
            done.append((key, offset, " (outcome unknown)"))
    if done:
        audit(context, "records.deleted", partitions=in_words(done, _deletion))


def _deletion(done: tuple[Key, int, str]) -> str:
    (name, index), offset, certainty = done
    return f"{name}-{index} before {offset}{certainty}"


def _result(index: int, answer: int | Refused) -> DeleteRecordsPartitionResult:
    if isinstance(answer, Refused):
        return DeleteRecordsPartitionResult(index, NO_WATERMARK, ErrorCode[answer.error])
    return DeleteRecordsPartitionResult(index, answer)
