"""OffsetDelete, version 0 (KIP-496): forget offsets of a group, unless its members read the topic."""

from collections.abc import Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.groups.commits import NONE, NOT_NOW
from gateway.handlers.auditing import audit, in_words
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ledger.groups import OffsetKey

UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PARTITION"
CERTAINTY: Final = {NONE: "", NOT_NOW: " (outcome unknown)"}
"""What an event adds to a partition, by the error that is answered; others are refused for certain."""


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not request.group_id:
        return _refused(context, "INVALID_GROUP_ID")
    slices = context.slices
    asked = [
        (topic.name, part.partition_index)
        async for topic in slices.paced(request.topics)
        for part in topic.partitions
    ]
    deadline = context.journal_deadline()
    may_deny = await context.services.topics.prove_partitions_unknown(asked, deadline, slices)
    keys = {pair: _key(context, *pair) async for pair in slices.paced(asked)}
    known = [(pair, key) for pair in asked if (key := keys[pair]) is not None]
    rows = [(name, key) for (name, _), key in known]
    errors = await _removed(context, request.group_id, rows, deadline)
    if isinstance(errors, str):
        return _refused(context, errors)
    # Unknown ones first, as Kafka does, which sorts them out before it asks the coordinator.
    answered = [(pair, UNKNOWN if may_deny else NOT_NOW) for pair in asked if keys[pair] is None]
    answered += [(pair, error) for (pair, _), error in zip(known, errors, strict=True)]
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    async for (name, partition), error in slices.paced(answered):
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name))
        topic.partitions.append(OffsetDeleteResponsePartition(partition, ErrorCode[error]))
        if error != NONE and context.error == NONE:
            context.error = error
    return OffsetDeleteResponse(topics=list(topics.values()))


async def _removed(
    context: RequestContext, group_id: str, rows: Sequence[tuple[str, OffsetKey]], deadline: float
) -> str | list[str]:
    # Until they are answered, the outcome is not known: the client may hang up.
    errors: str | list[str] = [NOT_NOW] * len(rows)
    try:
        errors = await context.services.group_offsets.remove(group_id, rows, deadline)
        return errors
    finally:
        of_each = [errors] * len(rows) if isinstance(errors, str) else errors
        done = [
            (name, key[1], error)
            for (name, key), error in zip(rows, of_each, strict=True)
            if error in CERTAINTY
        ]
        if done:
            audit(context, "offsets.deleted", group=group_id, partitions=in_words(done, _deletion))


def _deletion(done: tuple[str, int, str]) -> str:
    name, index, error = done
    return f"{name}-{index}{CERTAINTY[error]}"


def _key(context: RequestContext, name: str, partition: int) -> OffsetKey | None:
    log = context.services.topics.partition(name, partition)
    return None if log is None else (log.topic_id, log.index)


def _refused(context: RequestContext, error: str) -> OffsetDeleteResponse:
    context.error = error
    return OffsetDeleteResponse(error_code=ErrorCode[error])
