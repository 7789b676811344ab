"""DeleteTopics (20), v1-6.

v1: throttle time. v2: throttled after the response. v3: TOPIC_DELETION_DISABLED. v4: flexible. v5:
ErrorMessage, THROTTLING_QUOTA_EXCEEDED (KIP-599). v6: Topics with names or ids (KIP-516).
"""

import uuid
from collections import Counter
from typing import Final

from gateway.quotas.mutations import MutationQuota
from gateway.requests.alter_resources import NO_TIME
from gateway.requests.audit import audited, denied
from gateway.requests.context import RequestContext
from gateway.requests.throttling import mutation_quota, throttle_mutations
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gateway.wire.primitives import ZERO_UUID
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.types import TopicId

DELETION_DISABLED: Final = "Topic deletion is disabled (broker.delete.topic.enable)."
FIRST_VERSION_WITH_DISABLED: Final = 3
FIRST_VERSION_WITH_STATES: Final = 6
FIRST_VERSION_WITH_STRICT_CHECKS: Final = 5


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if context.header.api_version >= FIRST_VERSION_WITH_STATES:
        requested = request.topics
    else:
        requested = [DeleteTopicState(name=name) for name in request.topic_names]
    slices, deadline = context.slices, context.change_deadline(request.timeout_ms)
    is_confirmed = await context.services.topics.barrier(deadline) is None
    times = Counter([_identity(context, state) async for state in slices.paced(requested)])
    results: dict[object, DeletableTopicResult] = {}
    deletions = {}
    async for state in slices.paced(requested):
        identity = _identity(context, state)
        # A name and an id are of the same topic by the newest state alone.
        refused = _check(context, state, is_confirmed and times[identity] > 1)
        if refused is None:
            refused = _check_known(context, state, is_confirmed) if request.timeout_ms > 0 else NO_TIME
        if refused is not None:
            result = _result(state, refused)
            earlier = results.get(identity, result)
            # Once by name and once by id: one result with both.
            result.name = result.name or earlier.name
            result.topic_id = max(result.topic_id, earlier.topic_id)
            results[identity] = result
        else:
            deletions[identity] = state
    quota = mutation_quota(context, FIRST_VERSION_WITH_STRICT_CHECKS)
    deleted = await slices.gather(
        lambda state: _delete(context, state, quota, deadline), list(deletions.values())
    )
    return DeleteTopicsResponse(throttle_mutations(context, quota), [*results.values(), *deleted])


def _key(state: DeleteTopicState) -> str | TopicId:
    return TopicId(state.topic_id) if state.name is None else state.name


def _identity(context: RequestContext, state: DeleteTopicState) -> object:
    """Equal for a name and the id of the same topic."""
    topic = context.services.topics.get(_key(state))
    return _key(state) if topic is None else topic.topic_id


def _check(context: RequestContext, state: DeleteTopicState, is_duplicate: bool) -> Refused | None:
    if not context.services.settings.broker.delete_topic_enable:
        is_known = context.header.api_version >= FIRST_VERSION_WITH_DISABLED
        error = ErrorName.TOPIC_DELETION_DISABLED if is_known else ErrorName.INVALID_REQUEST
        disabled = Refused(error, DELETION_DISABLED)
        denied(context, disabled.error, DELETION_DISABLED, state.name or state.topic_id.hex())
        return disabled
    if state.name is None and state.topic_id == ZERO_UUID:
        return Refused(ErrorName.INVALID_REQUEST, "Neither a topic name nor an id was given.")
    if state.name is not None and state.topic_id != ZERO_UUID:
        return Refused(ErrorName.INVALID_REQUEST, "Give a topic name or an id, not both.")
    if is_duplicate:
        return Refused(ErrorName.INVALID_REQUEST, "The topic is given more than once.")
    return None


def _check_known(context: RequestContext, state: DeleteTopicState, is_confirmed: bool) -> Refused | None:
    if not is_confirmed:
        return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
    return _unknown(state) if context.services.topics.get(_key(state)) is None else None


async def _delete(
    context: RequestContext, state: DeleteTopicState, quota: MutationQuota, deadline: float
) -> DeletableTopicResult:
    topic = context.services.topics.get(_key(state))
    if topic is None:
        return _result(state, _unknown(state))
    exceeded = quota.take(len(topic.partitions))
    if exceeded is not None:
        return _result(DeleteTopicState(topic.name, topic.topic_id), exceeded)
    deletion = context.services.topics.delete(topic.topic_id, deadline)
    topic_id = str(uuid.UUID(bytes=topic.topic_id))
    refused = await audited(context, deletion, "topic.deleted", topic=topic.name, topic_id=topic_id)
    if refused is not None and refused.error == ErrorName.UNKNOWN_TOPIC_ID:
        refused = _unknown(state)
    result = _result(state, refused)
    result.name, result.topic_id = topic.name, topic.topic_id
    return result


def _unknown(state: DeleteTopicState) -> Refused:
    if state.name is None:
        return Refused(ErrorName.UNKNOWN_TOPIC_ID, "There is no topic of this id.")
    return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic of this name.")


def _result(state: DeleteTopicState, refused: Refused | None) -> DeletableTopicResult:
    if refused is None:
        return DeletableTopicResult(name=state.name, topic_id=state.topic_id)
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id,
        error_code=ERROR_CODES[refused.error],
        error_message=refused.message or None,
    )
