"""CreatePartitions, versions 0-3 (KIP-195): topics grow, never shrink."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from gateway.context import RequestContext
from gateway.handlers.altering import NO_TIME
from gateway.handlers.auditing import audited
from gateway.handlers.throttling import mutation_quota, throttle_mutations
from gateway.quotas.mutations import MutationQuota
from gateway.topics.growing import check_growth
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ledger.requests import Refused

STRICT_FROM = 3


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    slices = context.slices
    times = Counter([topic.name async for topic in slices.paced(request.topics)])
    deadline = context.change_deadline(request.timeout_ms)
    may_deny = await context.services.topics.prove_unknown(times, deadline, slices)
    once = [topic async for topic in slices.paced(request.topics) if times[topic.name] == 1]
    quota = mutation_quota(context, STRICT_FROM)
    answers: Sequence[Refused | None] = [NO_TIME] * len(once)
    if request.timeout_ms > 0:

        def grow(topic: CreatePartitionsTopic) -> Coroutine[Any, Any, Refused | None]:
            return _grow(context, topic, request.validate_only, quota, may_deny, deadline)

        answers = await slices.gather(grow, once)
    doubled = [
        _result(name, Refused("INVALID_REQUEST", "Duplicate topic name."))
        async for name, n in slices.paced(times.items())
        if n > 1
    ]
    results = [
        _result(topic.name, answer) async for topic, answer in slices.paced(zip(once, answers, strict=True))
    ]
    return CreatePartitionsResponse(throttle_mutations(context, quota), [*doubled, *results])


async def _grow(
    context: RequestContext,
    asked: CreatePartitionsTopic,
    validate_only: bool,
    quota: MutationQuota,
    may_deny: bool,
    deadline: float,
) -> Refused | None:
    room = context.services.topics
    topic = room.get(asked.name)
    if topic is None:
        return unknown_topic(may_deny)
    before = len(topic.partitions)
    refused = check_growth(asked, before, room.rules())
    refused = refused or quota.take(asked.count - before)
    if refused is not None or validate_only:
        return refused
    growth = room.grow(topic, asked.count, deadline)
    return await audited(
        context, growth, "topic.grown", topic=topic.name, partitions=asked.count, before=before
    )


def unknown_topic(may_deny: bool) -> Refused:
    if not may_deny:
        return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
    return Refused("UNKNOWN_TOPIC_OR_PARTITION", "There is no topic of this name.")


def _result(name: str, refused: Refused | None) -> CreatePartitionsTopicResult:
    if refused is None:
        return CreatePartitionsTopicResult(name)
    return CreatePartitionsTopicResult(name, ErrorCode[refused.error], refused.message or None)
