"""Traces by the SDK of OpenTelemetry, sent to a collector with OTLP over HTTP. Needs the extra `otel`.

https://opentelemetry.io/docs/specs/otel/trace/sdk/, https://opentelemetry.io/docs/specs/otlp/. What has no
setting here is as the SDK reads it from its variables OTEL_* (headers, CA, attributes of the resource).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from gateway.telemetry.traces import NO_ERROR, Attributes, RequestTrace

MAX_TRACES_PER_S: Final = 100
"""Making spans takes the event loop's time, and the requests of one draft end together."""
EXPORT_TIMEOUT_S: Final = 3.0
"""Also about how long a shutdown waits for a collector."""
QUEUE_SPANS: Final = 4096
"""Spans that wait for the collector; further ones are dropped."""


class OtelTraces:
    """Sampled requests of one gateway."""

    def __init__(self, endpoint: str, one_in: int, version: str, node_id: int) -> None:
        resource = Resource.create(
            {"service.name": "dragoman", "service.version": version, "service.instance.id": str(node_id)}
        )
        exporter = OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S)
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(1 / one_in), resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS))
        self._tracer = self._provider.get_tracer("dragoman", version)
        self._left, self._second = MAX_TRACES_PER_S, 0

    def now_ns(self) -> int:
        return time.time_ns()

    def begin(self, name: str, attributes: Callable[[], Attributes]) -> RequestTrace | None:
        now_ns = time.time_ns()
        if now_ns // 1_000_000_000 != self._second:
            self._second, self._left = now_ns // 1_000_000_000, MAX_TRACES_PER_S
        if self._left <= 0:
            return None
        span = self._tracer.start_span(name, kind=SpanKind.SERVER, start_time=now_ns)
        if not span.is_recording():
            return None
        self._left -= 1
        span.set_attributes(attributes())
        return _OtelRequest(self._tracer, span, now_ns)

    async def close(self) -> None:
        """Send what waits, as far as the collector takes it."""
        # In a thread: a collector that hangs must not keep the gateway from closing its stores.
        await asyncio.to_thread(self._provider.shutdown)


class _OtelRequest:
    __slots__ = ("_has_ended", "_parent", "_span", "_tracer", "began_ns")

    def __init__(self, tracer: Any, span: Any, began_ns: int) -> None:
        self._tracer = tracer
        self._span = span
        self._parent = set_span_in_context(span)
        self._has_ended = False
        self.began_ns = began_ns

    def stage(self, name: str, began_ns: int, ended_ns: int, attributes: Attributes) -> None:
        span = self._tracer.start_span(
            name, context=self._parent, start_time=began_ns, attributes=dict(attributes)
        )
        span.end(max(ended_ns, began_ns))

    def end(self, error: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._span.set_attribute("dragoman.error", error)
        if error != NO_ERROR:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(max(time.time_ns(), self.began_ns))
