"""CreateTopics, versions 2-7 (KIP-4, KIP-525 for the configs in the answer)."""

import asyncio
import uuid
from collections import Counter

from gateway.context import RequestContext
from gateway.handlers.auditing import audited, new_topic_fields
from gateway.handlers.throttling import mutation_quota, throttle_mutations
from gateway.quotas.mutations import MutationQuota
from gateway.topics.creation import NewTopic, plan_topic
from gateway.topics.describing import describe_topic
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ledger.requests import Refused

REPLICATION_FACTOR = 1
STRICT_FROM = 6


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    deadline = context.deadline(request.timeout_ms)
    quota = mutation_quota(context, STRICT_FROM)
    results = await asyncio.gather(
        *(
            _create(context, topic, request.validate_only, quota, deadline)
            for topic in request.topics
            if times[topic.name] == 1
        )
    )
    doubled = [
        _refused(name, Refused("INVALID_REQUEST", "Duplicate topic name."))
        for name, n in times.items()
        if n > 1
    ]
    return CreateTopicsResponse(throttle_mutations(context, quota), [*results, *doubled])


async def _create(
    context: RequestContext,
    topic: CreatableTopic,
    validate_only: bool,
    quota: MutationQuota,
    deadline: float,
) -> CreatableTopicResult:
    room = context.services.topics
    refused = room.check_name(topic.name)
    if refused is not None:
        return _refused(topic.name, refused)
    if room.get(topic.name) is not None:
        return _refused(topic.name, Refused("TOPIC_ALREADY_EXISTS", f"Topic '{topic.name}' already exists."))
    planned = plan_topic(topic, room.rules())
    if isinstance(planned, Refused):
        return _refused(topic.name, planned)
    refused = quota.take(planned.partitions)
    if refused is not None:
        return _refused(topic.name, refused)
    if validate_only:
        # Kafka names an id here too, which no topic will have.
        return _accepted(context, topic, planned, uuid.uuid4().bytes)
    creation = room.create(planned, deadline)
    created = await audited(context, creation, "topic.created", **new_topic_fields(planned))
    if isinstance(created, Refused):
        return _refused(topic.name, created)
    return _accepted(context, topic, planned, created.topic_id)


def _accepted(
    context: RequestContext, asked: CreatableTopic, planned: NewTopic, topic_id: bytes
) -> CreatableTopicResult:
    # What was set is told in the words of the client, as Kafka does.
    given = {config.name: config.value for config in asked.configs}
    configs = [
        CreatableTopicConfigs(
            value.config.name, given.get(value.config.name, value.value), config_source=value.source
        )
        for value in describe_topic(planned.configs, context.services.configs.defaults)
    ]
    return CreatableTopicResult(
        name=planned.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=planned.partitions,
        replication_factor=REPLICATION_FACTOR,
        configs=configs,
    )


def _refused(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=ErrorCode[refused.error], error_message=refused.message or None
    )
