"""DescribeConfigs (32), v1-4.

KIP-133, of topics, groups and this gateway. Admin clients name all their topics in one request. So each
resource is described once, up to half the memory of large requests: 50,000 topics with synonyms. A resource
that is named again counts as a repeat, within `limits.response_bytes`.

v1: synonyms and sources (KIP-226). v2: throttled after the response. v3: types and documentation (KIP-569).
v4: flexible.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from gateway.configs.alter import ResourceType, check_broker_name
from gateway.configs.defaults import Synonym
from gateway.configs.describe import (
    BrokerValue,
    TopicValue,
    describe_broker,
    describe_common,
    describe_topic,
)
from gateway.configs.group_configs import DOC, GroupValue, describe_group_configs
from gateway.requests.config_results import Chunks, result_encoder
from gateway.requests.context import RequestContext
from gateway.requests.response_cache import Encoded
from gateway.requests.response_size import ResponseSize, ResponseTooLarge
from gateway.scheduling.slices import CHECK_EVERY
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.topics.state import check_topic_name

FIXED_BYTES: Final = 12
"""Of a config or a synonym, encoded, without its texts."""
BROKER_BYTES: Final = 64 * 1024
"""More than the configs of a broker take."""
RESULT_BYTES: Final = 400
"""Of a result in the making, without its configs: copies of its name."""
REFUSED_BYTES: Final = 64
"""Of a result that reports that it did not fit."""
UNITS_A_RESOURCE: Final = 10
UNITS_A_SOURCE: Final = 150
"""To compute configs that are not known yet."""
TOO_LARGE: Final = Refused(ErrorName.INVALID_REQUEST, "The response would be too large.")


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> Encoded:
    names = [
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == ResourceType.TOPIC
    ]
    is_confirmed = await context.services.topics.confirm_absent(
        names, context.journal_deadline(), context.slices
    )
    described = _Described(context, request, is_confirmed)
    if len(request.resources) * UNITS_A_RESOURCE >= CHECK_EVERY:
        await _enter(context, request, described)
    encoder, chunks = described.encoder, Chunks()
    async for resource in context.slices.paced(request.resources, UNITS_A_RESOURCE):
        for part in described.result(resource):
            chunks.add(part)
    chunks.add(encoder.end)
    return Encoded(encoder.begin(len(request.resources)), True, chunks.all())


async def _enter(context: RequestContext, request: DescribeConfigsRequest, described: "_Described") -> None:
    """Enter the queue of heavy requests again, with this response's memory, if that is more than usual."""
    named = set[tuple[int, str]]()
    needed = 0
    async for resource in context.slices.paced(request.resources):
        name = resource.resource_type, resource.resource_name
        if name not in named:
            named.add(name)
            needed += RESULT_BYTES + described.max_bytes(resource)
    needed = min(needed, described.max_first_bytes)
    usual = context.services.settings.limits.response_bytes
    if needed > usual // 2:
        context.slices.leave()
        context.slices.bytes += needed + usual // 2
        await context.slices.next_slice()


class _Described:
    """The results of one response. Resources whose configs are the same share them: most topics have none of
    their own."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest, is_confirmed: bool) -> None:
        self.encoder = result_encoder(context.header.api_version)
        self.max_first_bytes = _max_first_bytes(context)
        """Bound on the results of resources when they are named first."""
        self._context = context
        self._request = request
        self._is_confirmed = is_confirmed
        self._first, self._repeated = ResponseSize(self.max_first_bytes), context.response_size()
        with suppress(ResponseTooLarge):
            self._repeated.take(encoded_bytes=REFUSED_BYTES * len(request.resources))
        self._named = set[tuple[int, str]]()
        self._known: dict[object, bytes] = {}
        """Tails by what they are computed from. A tail that does not fit is computed each time."""
        self._known_left = context.services.settings.limits.response_bytes // 2

    def result(self, resource: DescribeConfigsResource) -> tuple[bytes, bytes]:
        """Head and tail."""
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        tail = self._tail(resource)
        if isinstance(tail, Refused):
            result.error_code, result.error_message = ERROR_CODES[tail.error], tail.message
            tail = self.encoder.none
        return self.encoder.head(result), tail

    def max_bytes(self, resource: DescribeConfigsResource) -> int:
        """An upper bound for its tail."""
        if resource.resource_type not in (ResourceType.TOPIC, ResourceType.GROUP):
            return BROKER_BYTES if _check(self._context, resource, self._is_confirmed) is None else 0
        standard = DescribeConfigsResource(resource.resource_type, "", resource.configuration_keys)
        own = _own_configs(self._context, resource)
        # As the value, and again as a synonym with its name.
        more = sum(FIXED_BYTES + len(name) + 2 * len(value.encode()) for name, value in own.items())
        return len(self._encoded(standard)) + more

    def _tail(self, resource: DescribeConfigsResource) -> bytes | Refused:
        refused = _check(self._context, resource, self._is_confirmed)
        if refused is not None:
            return refused
        name = resource.resource_type, resource.resource_name
        size = self._repeated if name in self._named else self._first
        self._named.add(name)
        if size.is_exceeded:
            return TOO_LARGE
        tail = self._encoded(resource)
        try:
            size.take(encoded_bytes=len(tail))
        except ResponseTooLarge:
            return TOO_LARGE
        return tail

    def _encoded(self, resource: DescribeConfigsResource) -> bytes:
        wanted = frozenset(resource.configuration_keys or ())
        key = (resource.resource_type, _source(self._context, resource), wanted)
        known = self._known.get(key)
        if known is not None:
            return known
        # A slice that is due ends at the next resource.
        self._context.slices.is_due(UNITS_A_SOURCE)
        configs = _configs(self._context, self._request, resource)
        tail = self.encoder.tail([config for config in configs if not wanted or config.name in wanted])
        if len(tail) <= self._known_left:
            self._known_left -= len(tail) + RESULT_BYTES
            self._known[key] = tail
        return tail


def _max_first_bytes(context: RequestContext) -> int:
    limits = context.services.settings.limits
    return max(limits.response_bytes, limits.request_memory_bytes // 2)


def _check(context: RequestContext, resource: DescribeConfigsResource, is_confirmed: bool) -> Refused | None:
    """Why a resource cannot be described."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _check_topic(context, name, is_confirmed)
        case ResourceType.BROKER:
            return check_broker_name(name, context.services.node_id)
        case ResourceType.GROUP if not name:
            return Refused(ErrorName.INVALID_REQUEST, "Groups have no configs in common; name one.")
        case ResourceType.GROUP:
            return None
        case kind:
            return Refused(ErrorName.INVALID_REQUEST, f"Resources of type {kind} have no configs here.")


def _check_topic(context: RequestContext, name: str, is_confirmed: bool) -> Refused | None:
    reason = check_topic_name(name)
    if reason is not None:
        return Refused(ErrorName.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if context.services.topics.get(name) is not None:
        return None
    if not is_confirmed:
        return Refused(ErrorName.REQUEST_TIMED_OUT, "The journal did not answer in time.")
    return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)


def _source(context: RequestContext, resource: DescribeConfigsResource) -> object:
    """What the configs of a resource that may be described follow from."""
    match resource.resource_type:
        case ResourceType.TOPIC | ResourceType.GROUP:
            return frozenset(_own_configs(context, resource).items())
        case _:
            return resource.resource_name


def _own_configs(context: RequestContext, resource: DescribeConfigsResource) -> Mapping[str, str]:
    """Of a topic or a group."""
    if resource.resource_type == ResourceType.GROUP:
        return context.services.configs.of_group(resource.resource_name)
    topic = context.services.topics.get(resource.resource_name)
    return {} if topic is None else topic.configs


def _configs(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    name, defaults = resource.resource_name, context.services.configs.defaults
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic_values = describe_topic(_own_configs(context, resource), defaults)
            return [_topic_result(value, request) for value in topic_values]
        case ResourceType.GROUP:
            group_values = describe_group_configs(_own_configs(context, resource))
            return [_group_result(value, request) for value in group_values]
    values = describe_broker(context.services.settings, defaults) if name else describe_common(defaults)
    return [_broker_result(value, request) for value in values]


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
