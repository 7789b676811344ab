"""OffsetDelete (47), v0.

KIP-496: removes offsets of a group, unless its members subscribe to the topic.
"""

from collections.abc import Sequence
from typing import Final

from gateway.groups.messages import RETRIABLE
from gateway.groups.offset_commit import OUTCOME_UNKNOWN
from gateway.requests.audit import audit, in_words
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ledger.errors import ErrorName
from ledger.groups.state import OffsetKey

UNKNOWN: Final = ErrorName.UNKNOWN_TOPIC_OR_PARTITION
CERTAINTY: Final = {ErrorName.NONE: "", OUTCOME_UNKNOWN: " (outcome unknown)"}
"""What an audit event adds to a partition, by its error. With other errors it was certainly not deleted."""


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not request.group_id:
        return _refused(context, ErrorName.INVALID_GROUP_ID)
    slices = context.slices
    requested = [
        (topic.name, part.partition_index)
        async for topic in slices.paced(request.topics)
        async for part in slices.paced(topic.partitions)
    ]
    deadline = context.journal_deadline()
    is_confirmed = await context.services.topics.confirm_partitions_absent(requested, deadline, slices)
    keys = {pair: _key(context, *pair) async for pair in slices.paced(requested)}
    known = [(pair, key) async for pair in slices.paced(requested) if (key := keys[pair]) is not None]
    rows = [(name, key) async for (name, _), key in slices.paced(known)]
    errors = await _remove(context, request.group_id, rows, deadline)
    if isinstance(errors, str):
        return _refused(context, errors)
    # Unknown partitions first, as in Kafka, which returns them before it calls the coordinator.
    missing_error = UNKNOWN if is_confirmed else RETRIABLE
    results = [(pair, missing_error) async for pair in slices.paced(requested) if keys[pair] is None]
    results += [(pair, error) async for (pair, _), error in slices.paced(zip(known, errors, strict=True))]
    for kept in (requested, known, rows, results):
        slices.keep(kept)
    slices.keep(keys)
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    async for (name, partition), error in slices.paced(results):
        topic = topics.setdefault(name, OffsetDeleteResponseTopic(name))
        topic.partitions.append(OffsetDeleteResponsePartition(partition, ERROR_CODES[error]))
        if error is not ErrorName.NONE and context.error == ErrorName.NONE:
            context.error = error
    return OffsetDeleteResponse(topics=list(topics.values()))


async def _remove(
    context: RequestContext, group_id: str, rows: Sequence[tuple[str, OffsetKey]], deadline: float
) -> ErrorName | list[ErrorName]:
    # Until there is a result, the outcome is unknown: the client may hang up.
    errors: ErrorName | list[ErrorName] = [OUTCOME_UNKNOWN] * len(rows)
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


def _deletion(done: tuple[str, int, ErrorName]) -> str:
    name, index, error = done
    return f"{name}-{index}{CERTAINTY[error]}"


def _key(context: RequestContext, name: str, partition: int) -> OffsetKey | None:
    topic = context.services.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return None
    return topic.topic_id, partition


def _refused(context: RequestContext, error: ErrorName) -> OffsetDeleteResponse:
    context.error = error
    return OffsetDeleteResponse(error_code=ERROR_CODES[error])
