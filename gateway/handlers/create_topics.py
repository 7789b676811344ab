"""CreateTopics (19), v2-7.

KIP-4.

v2: throttle time. v3: throttled after the response. v4: -1 for the default partitions and replication factor
(KIP-464). v5: flexible; configs in the response (KIP-525). v6: THROTTLING_QUOTA_EXCEEDED (KIP-599). v7:
TopicId in the response (KIP-516).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gateway.configs.describe import describe_topic
from gateway.quotas.mutations import MutationQuota
from gateway.requests.alter_resources import NO_TIME
from gateway.requests.audit import audited, new_topic_fields
from gateway.requests.context import RequestContext
from gateway.requests.response_size import ResponseTooLarge
from gateway.requests.throttling import mutation_quota, throttle_mutations
from gateway.topics.creation import NewTopic, plan_topic
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ledger.errors import ErrorName
from ledger.requests import Refused

REPLICATION_FACTOR: Final = 1
FIRST_VERSION_WITH_CONFIGS: Final = 5
FIXED_BYTES: Final = 6
"""Of a config, encoded, without its strings."""
AT_ONCE: Final = 200
UNITS_A_TOPIC: Final = 5
FIRST_VERSION_WITH_STRICT_CHECKS = 6

_Created = tuple[NewTopic, bytes]
"""A topic and its id."""


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter([topic.name async for topic in context.slices.paced(request.topics)])
    deadline = context.change_deadline(request.timeout_ms)
    quota = mutation_quota(context, FIRST_VERSION_WITH_STRICT_CHECKS)
    outdated = await _outdated(context, request, deadline)
    described = _Described(context)
    once = [topic async for topic in context.slices.paced(request.topics) if times[topic.name] == 1]
    results = list[CreatableTopicResult]()
    # Topics that are refused or only validated cost little; the rest go to the journal together.
    for start in range(0, len(once), AT_ONCE):
        part = once[start : start + AT_ONCE]
        planned = [
            outdated or _plan(context, topic, quota)
            async for topic in context.slices.paced(part, UNITS_A_TOPIC)
        ]
        created = await _create_all(context, planned, request.validate_only, deadline)
        results += [
            _refused(topic.name, one) if isinstance(one, Refused) else described.result(topic, *one)
            async for topic, one in context.slices.paced(zip(part, created, strict=True), UNITS_A_TOPIC)
        ]
    duplicates = [
        _refused(name, Refused(ErrorName.INVALID_REQUEST, "Duplicate topic name."))
        async for name, n in context.slices.paced(times.items())
        if n > 1
    ]
    return CreateTopicsResponse(throttle_mutations(context, quota), [*results, *duplicates])


async def _outdated(context: RequestContext, request: CreateTopicsRequest, deadline: float) -> Refused | None:
    """Why nothing can be planned: a topic is refused only by the newest state."""
    return await context.services.topics.barrier(deadline) if request.timeout_ms > 0 else NO_TIME


def _plan(context: RequestContext, topic: CreatableTopic, quota: MutationQuota) -> NewTopic | Refused:
    """What to create for one topic. It counts against the quota, also if it is only validated."""
    service = context.services.topics
    refused = service.check_name(topic.name)
    if refused is not None:
        return refused
    if service.get(topic.name) is not None:
        return Refused(ErrorName.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    planned = plan_topic(topic, service.creation_limits())
    if isinstance(planned, Refused):
        return planned
    return quota.take(planned.partitions) or planned


async def _create_all(
    context: RequestContext, planned: Sequence[NewTopic | Refused], validate_only: bool, deadline: float
) -> list[_Created | Refused]:
    """Create those that may be created, together; none if they are only validated."""
    if validate_only:
        # Kafka also returns an id here, which no topic will have.
        new_id = context.services.topics.new_id
        return [one if isinstance(one, Refused) else (one, new_id()) for one in planned]
    allowed = [one for one in planned if isinstance(one, NewTopic)]
    created = iter(await asyncio.gather(*(_create(context, topic, deadline) for topic in allowed)))
    return [one if isinstance(one, Refused) else next(created) for one in planned]


async def _create(context: RequestContext, topic: NewTopic, deadline: float) -> _Created | Refused:
    creation = context.services.topics.create(topic, deadline)
    created = await audited(context, creation, "topic.created", **new_topic_fields(topic))
    return created if isinstance(created, Refused) else (topic, created.topic_id)


class _Described:
    """The topics of one response. Those with the same configs share them; the encoder copies them."""

    def __init__(self, context: RequestContext) -> None:
        self._has_configs = context.header.api_version >= FIRST_VERSION_WITH_CONFIGS
        self._defaults = context.services.configs.defaults
        self._size = context.response_size()
        self._known: dict[object, tuple[list[CreatableTopicConfigs], int]] = {}

    def result(self, requested: CreatableTopic, planned: NewTopic, topic_id: bytes) -> CreatableTopicResult:
        result = CreatableTopicResult(
            name=planned.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=planned.partitions,
            replication_factor=REPLICATION_FACTOR,
        )
        if self._has_configs:
            try:
                result.configs = self._configs(requested, planned)
            except ResponseTooLarge:
                # The topic was created. Its configs are left out, as if the client must not describe them.
                result.configs, result.topic_config_error_code = None, ErrorCode.INVALID_REQUEST
        return result

    def _configs(self, requested: CreatableTopic, planned: NewTopic) -> list[CreatableTopicConfigs]:
        # A value that was set is returned as the client spelled it, as in Kafka.
        given = {config.name: config.value for config in requested.configs}
        key = (frozenset(planned.configs.items()), frozenset(given.items()))
        known = self._known.get(key)
        if known is not None:
            configs, encoded_bytes = known
            self._size.take(encoded_bytes=encoded_bytes)
            return configs
        configs = [
            CreatableTopicConfigs(
                value.config.name, given.get(value.config.name, value.value), config_source=value.source
            )
            for value in describe_topic(planned.configs, self._defaults)
        ]
        encoded_bytes = sum(FIXED_BYTES + len(one.name) + len(one.value or "") for one in configs)
        self._size.take(len(configs), encoded_bytes)
        self._known[key] = configs, encoded_bytes
        return configs


def _refused(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=ERROR_CODES[refused.error], error_message=refused.message or None
    )
