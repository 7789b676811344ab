"""Counters and gauges for Prometheus. Labels are few and bounded: never a topic, client or address."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series and tell nothing here

_REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STORE_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "dragoman_requests", "Requests answered or refused", ["api", "error"], registry=registry
        )
        self.request_seconds = Histogram(
            "dragoman_request_seconds",
            "From the start of a request to its answer",
            ["api"],
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self.produce_bytes = Counter("dragoman_produce_bytes", "Record batch bytes taken", registry=registry)
        self.fetch_bytes = Counter("dragoman_fetch_bytes", "Record batch bytes served", registry=registry)
        self.buffer_bytes = Gauge(
            "dragoman_buffer_bytes", "Bytes of unanswered requests and unsent answers", registry=registry
        )
        self.connections = Gauge("dragoman_connections", "Open client connections", registry=registry)
        self.connections_refused = Counter(
            "dragoman_connections_refused", "Connections closed by the gateway", ["reason"], registry=registry
        )
        self.store_seconds = Histogram(
            "dragoman_store_seconds",
            "Calls to a backing store",
            ["store", "op"],
            buckets=_STORE_BUCKETS,
            registry=registry,
        )
        self.store_errors = Counter("dragoman_store_errors", "Failed calls", ["store"], registry=registry)
        self.alarms = Counter(
            "dragoman_alarms", "Stored data that is not as the ledger says", registry=registry
        )
        self.journal_entries = Counter(
            "dragoman_journal_entries", "Journal entries appended", ["shard"], registry=registry
        )
        self.shard_owner = Gauge(
            "dragoman_shard_owner", "1 where this gateway owns the shard", ["shard"], registry=registry
        )
        self.live_runs = Gauge("dragoman_live_runs", "Runs in the ledger", registry=registry)
        self.orphan_objects = Gauge(
            "dragoman_orphan_objects", "Objects stored but never committed", registry=registry
        )
        self._by_request: dict[tuple[str, str], Counter] = {}
        self._by_api: dict[str, Histogram] = {}

    def request_done(self, api: str, error: str, seconds: float) -> None:
        """Count one request. Label look-ups are kept, as they cost more than the counting."""
        counter = self._by_request.get((api, error))
        if counter is None:
            counter = self._by_request[api, error] = self.requests.labels(api, error)
        counter.inc()
        histogram = self._by_api.get(api)
        if histogram is None:
            histogram = self._by_api[api] = self.request_seconds.labels(api)
        histogram.observe(seconds)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
