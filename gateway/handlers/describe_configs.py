"""DescribeConfigs, versions 1-4 (KIP-133, KIP-226, KIP-569), for topics, groups and this gateway."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.requests.response_size import ResponseTooLarge
from gateway.topics.altering import ResourceType, check_broker_name
from gateway.topics.defaults import Synonym
from gateway.topics.describing import (
    BrokerValue,
    TopicValue,
    describe_broker,
    describe_common,
    describe_topic,
)
from gateway.topics.group_configs import DOC, GroupValue, describe_group_configs
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ledger.requests import Refused
from ledger.topics import check_topic_name

FIXED_BYTES: Final = 12
"""Of a config or a synonym, encoded, without its texts."""
UNITS_A_RESOURCE: Final = 10


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    names = [
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == ResourceType.TOPIC
    ]
    may_deny = await context.services.topics.prove_unknown(names, context.journal_deadline(), context.slices)
    described = _Described(context, request, may_deny)
    return DescribeConfigsResponse(
        results=[
            described.result(resource)
            async for resource in context.slices.paced(request.resources, UNITS_A_RESOURCE)
        ]
    )


class _Described:
    """The resources of one response. Those whose configs are the same share them: most topics have none of
    their own."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest, may_deny: bool) -> None:
        self._context = context
        self._request = request
        self._may_deny = may_deny
        self._size = context.response_size()
        self._known: dict[object, tuple[list[DescribeConfigsResourceResult], int]] = {}
        """By what they follow from: configs, and what they are encoded to."""

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            found = self._found(resource)
        except ResponseTooLarge:
            found = Refused("INVALID_REQUEST", "The response would be too large.")
        if isinstance(found, Refused):
            result.error_code, result.error_message = ErrorCode[found.error], found.message
        else:
            result.configs = found
        return result

    def _found(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult] | Refused:
        refused = _check(self._context, resource, self._may_deny)
        if refused is not None:
            return refused
        wanted = frozenset(resource.configuration_keys or ())
        key = (resource.resource_type, _source(self._context, resource), wanted)
        known = self._known.get(key)
        if known is not None:
            configs, encoded_bytes = known
            self._size.take(encoded_bytes=encoded_bytes)
            return configs
        configs = [
            config
            for config in _configs(self._context, self._request, resource)
            if not wanted or config.name in wanted
        ]
        encoded_bytes = sum(map(_encoded_bytes, configs))
        self._size.take(sum(1 + len(config.synonyms) for config in configs), encoded_bytes)
        self._known[key] = configs, encoded_bytes
        return configs


def _check(context: RequestContext, resource: DescribeConfigsResource, may_deny: bool) -> Refused | None:
    """Why a resource cannot be described."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _check_topic(context, name, may_deny)
        case ResourceType.BROKER:
            return check_broker_name(name, context.services.node_id)
        case ResourceType.GROUP if not name:
            return Refused("INVALID_REQUEST", "Groups have no configs in common; name one.")
        case ResourceType.GROUP:
            return None
        case kind:
            return Refused("INVALID_REQUEST", f"Resources of type {kind} have no configs here.")


def _check_topic(context: RequestContext, name: str, may_deny: bool) -> Refused | None:
    reason = check_topic_name(name)
    if reason is not None:
        return Refused("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")
    if context.services.topics.get(name) is not None:
        return None
    if not may_deny:
        return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
    return Refused("UNKNOWN_TOPIC_OR_PARTITION")


def _source(context: RequestContext, resource: DescribeConfigsResource) -> object:
    """What the configs of a resource that may be described follow from."""
    match resource.resource_type:
        case ResourceType.TOPIC:
            return frozenset(_own_configs(context, resource.resource_name).items())
        case ResourceType.GROUP:
            return frozenset(context.services.configs.of_group(resource.resource_name).items())
        case _:
            return resource.resource_name


def _own_configs(context: RequestContext, name: str) -> Mapping[str, str]:
    topic = context.services.topics.get(name)
    return {} if topic is None else topic.configs


def _configs(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    name, defaults = resource.resource_name, context.services.configs.defaults
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic_values = describe_topic(_own_configs(context, name), defaults)
            return [_topic_result(value, request) for value in topic_values]
        case ResourceType.GROUP:
            group_values = describe_group_configs(context.services.configs.of_group(name))
            return [_group_result(value, request) for value in group_values]
    values = describe_broker(context.services.settings, defaults) if name else describe_common(defaults)
    return [_broker_result(value, request) for value in values]


def _encoded_bytes(config: DescribeConfigsResourceResult) -> int:
    texts = (config.name, config.value, config.documentation)
    synonyms = sum(FIXED_BYTES + len(one.name) + len(one.value or "") for one in config.synonyms)
    return FIXED_BYTES + sum(len(text or "") for text in texts) + synonyms


def _topic_result(value: TopicValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.config.name,
        value=value.value,
        config_source=value.source,
        synonyms=_synonyms(value.synonyms, request),
        config_type=value.config.type,
        documentation=value.config.doc if request.include_documentation else None,
    )


def _broker_result(value: BrokerValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.name,
        value=value.value,
        read_only=not value.is_dynamic,
        config_source=value.source,
        synonyms=_synonyms(value.synonyms, request),
        config_type=value.type,
        documentation=value.doc if request.include_documentation else None,
    )


def _group_result(value: GroupValue, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.config.name,
        value=value.value,
        config_source=value.source,
        synonyms=_synonyms(value.synonyms, request),
        config_type=value.config.type,
        documentation=DOC if request.include_documentation else None,
    )


def _synonyms(synonyms: Sequence[Synonym], request: DescribeConfigsRequest) -> list[DescribeConfigsSynonym]:
    if not request.include_synonyms:
        return []
    return [DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source) for synonym in synonyms]
