"""CreatePartitions (37), v0-3.

KIP-195: topics grow, never shrink.

v1: throttled after the response. v2: flexible. v3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from gateway.quotas.mutations import MutationQuota
from gateway.requests.alter_resources import NO_TIME
from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.requests.throttling import mutation_quota, throttle_mutations
from gateway.topics.growing import check_growth
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ledger.errors import ErrorName
from ledger.requests import Refused

FIRST_VERSION_WITH_STRICT_CHECKS = 3


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    slices = context.slices
    times = Counter([topic.name async for topic in slices.paced(request.topics)])
    deadline = context.change_deadline(request.timeout_ms)
    once = [topic async for topic in slices.paced(request.topics) if times[topic.name] == 1]
    quota = mutation_quota(context, FIRST_VERSION_WITH_STRICT_CHECKS)
    # A topic is refused only by the newest state.
    outdated = await context.services.topics.barrier(deadline) if request.timeout_ms > 0 else NO_TIME
    refusals: Sequence[Refused | None] = [outdated] * len(once)
    if outdated is None:

        def grow(topic: CreatePartitionsTopic) -> Coroutine[Any, Any, Refused | None]:
            return _grow(context, topic, request.validate_only, quota, deadline)

        refusals = await slices.gather(grow, once)
    duplicates = [
        _result(name, Refused(ErrorName.INVALID_REQUEST, "Duplicate topic name."))
        async for name, n in slices.paced(times.items())
        if n > 1
    ]
    results = [
        _result(topic.name, refused)
        async for topic, refused in slices.paced(zip(once, refusals, strict=True))
    ]
    return CreatePartitionsResponse(throttle_mutations(context, quota), [*duplicates, *results])


async def _grow(
    context: RequestContext,
    requested: CreatePartitionsTopic,
    validate_only: bool,
    quota: MutationQuota,
    deadline: float,
) -> Refused | None:
    service = context.services.topics
    topic = service.get(requested.name)
    if topic is None:
        return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic of this name.")
    before = len(topic.partitions)
    refused = check_growth(requested, before, service.creation_limits())
    refused = refused or quota.take(requested.count - before)
    if refused is not None or validate_only:
        return refused
    growth = service.grow(topic, requested.count, deadline)
    return await audited(
        context, growth, "topic.grown", topic=topic.name, partitions=requested.count, before=before
    )


def _result(name: str, refused: Refused | None) -> CreatePartitionsTopicResult:
    if refused is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, ERROR_CODES[refused.error], refused.message or None)
