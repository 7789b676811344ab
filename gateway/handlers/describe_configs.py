"""DescribeConfigs, versions 1-4 (KIP-133, KIP-226, KIP-569), for topics, groups and this gateway."""

from collections.abc import Sequence

from gateway.context import RequestContext
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


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    names = [
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == ResourceType.TOPIC
    ]
    may_deny = await context.services.topics.prove_unknown(names, context.journal_deadline())
    return DescribeConfigsResponse(
        results=[_describe(context, request, resource, may_deny) for resource in request.resources]
    )


def _describe(
    context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    may_deny: bool,
) -> DescribeConfigsResult:
    match resource.resource_type:
        case ResourceType.TOPIC:
            found = _topic(context, request, resource.resource_name, may_deny)
        case ResourceType.BROKER:
            found = _broker(context, request, resource.resource_name)
        case ResourceType.GROUP:
            found = _group(context, request, resource.resource_name)
        case kind:
            found = Refused("INVALID_REQUEST", f"Resources of type {kind} have no configs here.")
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if isinstance(found, Refused):
        result.error_code, result.error_message = ErrorCode[found.error], found.message
    else:
        wanted = set(resource.configuration_keys or ())
        result.configs = [config for config in found if not wanted or config.name in wanted]
    return result


def _topic(
    context: RequestContext, request: DescribeConfigsRequest, name: str, may_deny: bool
) -> list[DescribeConfigsResourceResult] | Refused:
    reason = check_topic_name(name)
    if reason is not None:
        return Refused("INVALID_TOPIC_EXCEPTION", f"Topic name is invalid: {reason}")
    topic = context.services.topics.get(name)
    if topic is None:
        if not may_deny:
            return Refused("REQUEST_TIMED_OUT", "The journal did not answer in time.")
        return Refused("UNKNOWN_TOPIC_OR_PARTITION")
    values = describe_topic(topic.configs, context.services.configs.defaults)
    return [_topic_result(value, request) for value in values]


def _broker(
    context: RequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult] | Refused:
    refused = check_broker_name(name, context.services.node_id)
    if refused is not None:
        return refused
    defaults = context.services.configs.defaults
    values = describe_broker(context.services.settings, defaults) if name else describe_common(defaults)
    return [_broker_result(value, request) for value in values]


def _group(
    context: RequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult] | Refused:
    if not name:
        return Refused("INVALID_REQUEST", "Groups have no configs in common; name one.")
    values = describe_group_configs(context.services.configs.of_group(name))
    return [_group_result(value, request) for value in values]


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
