"""A collector of OpenTelemetry on loopback, which keeps the spans that it gets (OTLP over HTTP)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    is_error: bool


@dataclass(slots=True)
class Collector:
    port: int
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request."""
    answers: threading.Event = field(default_factory=threading.Event)
    """While it is not set, requests are not answered."""

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}/v1/traces"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [_span(one) for one in scope.spans]


def _span(one: Any) -> Span:
    attributes = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}
    return Span(
        one.name,
        one.trace_id,
        one.span_id,
        one.parent_span_id,
        one.start_time_unix_nano,
        one.end_time_unix_nano,
        attributes,
        one.status.code == one.status.STATUS_CODE_ERROR,
    )


@contextmanager
def running_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers.append(dict(self.headers))
            collector.answers.wait()
            collector.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    collector = Collector(server.server_address[1])
    collector.answers.set()
    thread = threading.Thread(target=server.serve_forever, name="collector")
    thread.start()
    try:
        yield collector
    finally:
        collector.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
