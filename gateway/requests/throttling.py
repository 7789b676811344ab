"""Throttling (KIP-13, KIP-124, KIP-219, KIP-599): a client over its quota gets its response at once with the
throttle time, for which its connection is muted.

Sizes are those of whole requests and of the records in responses. Handler time is the event loop's time for a
request, as a percentage of one processor.
"""

from gateway.quotas.alter import FETCH, MUTATION, PRODUCE, REQUEST
from gateway.quotas.mutations import MutationQuota
from gateway.requests.context import RequestContext
from gateway.wire.apis import ApiKey, flexible

PERCENT = 100.0
_FIXED_HEADER = 10


def throttle_produce(context: RequestContext, body_bytes: int, has_response: bool) -> int:
    """Count a Produce. Returns the throttle time in ms."""
    quotas = context.services.quotas
    produce_ms = 0
    if quotas.has(PRODUCE):
        size = _request_bytes(context, body_bytes)
        produce_ms = quotas.record(PRODUCE, context.user, context.client_id, size)
    # Kafka does not throttle requests without a response by their time.
    request_ms = _handler_time_ms(context) if has_response and context.handler_time is not None else 0
    return _throttle(context, produce_ms, PRODUCE, request_ms) if produce_ms or request_ms else 0


def throttle_fetch(context: RequestContext, record_bytes: int) -> int:
    """Count a Fetch before its response. Above 0, the response must be empty, and nothing was counted."""
    quotas = context.services.quotas
    if context.handler_time is None and not quotas.has(FETCH):
        return 0
    user, client_id = context.user, context.client_id
    request_ms = _handler_time_ms(context)
    fetch_ms = quotas.record(FETCH, user, client_id, record_bytes) if quotas.has(FETCH) else 0
    if fetch_ms or request_ms:
        quotas.unrecord(FETCH, user, client_id, record_bytes)
    return _throttle(context, fetch_ms, FETCH, request_ms)


def mutation_quota(context: RequestContext, first_strict_version: int) -> MutationQuota:
    """The quota of this request. Versions before do not know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
    is_strict = context.header.api_version >= first_strict_version
    return context.services.quotas.mutations(context.user, context.client_id, is_strict)


def throttle_mutations(context: RequestContext, quota: MutationQuota) -> int:
    """Call when all is counted. Returns the throttle time in ms."""
    throttle_ms = quota.throttle_ms()
    if throttle_ms:
        context.services.metrics.throttled(MUTATION, throttle_ms / 1000)
        context.mute(throttle_ms / 1000)
    return throttle_ms


def throttle_request(context: RequestContext) -> int:
    """Count any other request."""
    return _throttle(context, 0, REQUEST, _handler_time_ms(context))


def _handler_time_ms(context: RequestContext) -> int:
    """Throttle time for the handler time, in ms. It is at most a window, as in Kafka."""
    quotas = context.services.quotas
    if context.handler_time is None or not quotas.has(REQUEST):
        return 0
    spent = PERCENT * context.handler_time.spent_s()
    longest_ms = 1000 * context.services.settings.quotas.quota_window_size_seconds
    return min(quotas.record(REQUEST, context.user, context.client_id, spent), longest_ms)


def _throttle(context: RequestContext, bandwidth_ms: int, quota: str, request_ms: int) -> int:
    throttle_ms = max(bandwidth_ms, request_ms)
    if throttle_ms:
        quota = quota if bandwidth_ms > request_ms else REQUEST
        context.services.metrics.throttled(quota, throttle_ms / 1000)
        context.mute(throttle_ms / 1000)
    return throttle_ms


def _request_bytes(context: RequestContext, body_bytes: int) -> int:
    header = context.header
    client_id = len((header.client_id or "").encode())
    tags = 1 if flexible(ApiKey(header.api_key), header.api_version) else 0
    return _FIXED_HEADER + client_id + tags + body_bytes
