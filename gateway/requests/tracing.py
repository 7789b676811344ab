"""The trace of one request, if it is sampled."""

from functools import partial
from typing import Any

from gateway.completion import Completion
from gateway.requests.context import RequestContext
from gateway.telemetry.logs import MAX_NAME
from gateway.telemetry.traces import Attributes, RequestTrace, TracedCompletion, Traces


def begin_trace(
    traces: Traces, name: str, context: RequestContext, body_bytes: int, completion: Completion[Any]
) -> tuple[RequestTrace | None, Completion[Any]]:
    """The trace, and the completion that ends it."""
    trace = traces.begin(name, partial(_attributes, context, body_bytes))
    if trace is None:
        return None, completion
    return trace, TracedCompletion(trace, completion, lambda: context.error)


def _attributes(context: RequestContext, body_bytes: int) -> Attributes:
    """What the span of a request says of it."""
    return {
        "messaging.system": "kafka",
        "kafka.api.version": context.header.api_version,
        "kafka.correlation_id": context.header.correlation_id,
        "kafka.client_id": context.client_id[:MAX_NAME],
        "dragoman.connection": context.connection_id,
        "dragoman.request.bytes": body_bytes,
    }
