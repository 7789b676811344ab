"""DescribeConfigs, versions 1-4 (KIP-133, KIP-226, KIP-569), for topics and for this gateway."""

from collections.abc import Sequence
from typing import Final

from gateway.context import RequestContext
from gateway.topics.describing import BrokerValue, Synonym, TopicValue, describe_broker, describe_topic
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

TOPIC: Final = 2
BROKER: Final = 4


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    names = [resource.resource_name for resource in request.resources if resource.resource_type == TOPIC]
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
    if resource.resource_type == TOPIC:
        found = _topic(context, request, resource.resource_name, may_deny)
    elif resource.resource_type == BROKER:
        found = _broker(context, request, resource.resource_name)
    else:
        found = Refused(
            "INVALID_REQUEST", f"Resources of type {resource.resource_type} have no configs here."
        )
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
    values = describe_topic(topic.configs, context.services.settings.broker)
    return [_topic_result(value, request) for value in values]


def _broker(
    context: RequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult] | Refused:
    if name == "":
        return []  # cluster-wide dynamic defaults: there are none
    if name != str(context.services.node_id):
        return Refused(
            "INVALID_REQUEST", f"Expected broker id {context.services.node_id} or none, not {name!r}."
        )
    return [_broker_result(value, request) for value in describe_broker(context.services.settings)]


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
        read_only=True,
        config_source=value.source,
        synonyms=_synonyms(value.synonyms, request),
        config_type=value.type,
        documentation=value.doc if request.include_documentation else None,
    )


def _synonyms(synonyms: Sequence[Synonym], request: DescribeConfigsRequest) -> list[DescribeConfigsSynonym]:
    if not request.include_synonyms:
        return []
    return [DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source) for synonym in synonyms]
