"""Counters and gauges for Prometheus. Labels are few and bounded: never a topic, client or address."""

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.telemetry.tallies import Tallies, Timings

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series and tell nothing here

ALARMS = (
    "clock.behind",
    "clock.jumped",
    "fetch.batch_damaged",
    "fetch.damaged_batch_passed",
    "fetch.object_missing",
    "garbage.not_deleted",
    "list_offsets.batch_damaged",
    "list_offsets.object_missing",
)
"""Those that are known, so that each is there with 0 before the first: a rate needs that."""
_STORE_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class ShardView:
    """Where a shard's figures are read."""

    shard: int
    is_owner: Callable[[], bool]
    entries: Callable[[], int]
    """Journal entries applied, since the beginning of the journal."""
    live_runs: Callable[[], int]
    topics: Callable[[], int]
    partitions: Callable[[], int]
    follower_lag: Callable[[], int]
    """Durable journal entries that this gateway has not applied; an owner applies what it writes, so 0."""


class _ShardCollector(Collector):
    def __init__(self, view: ShardView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        view, label = self._view, [str(self._view.shard)]
        entries = CounterMetricFamily("dragoman_journal_entries", "Journal entries applied", labels=["shard"])
        entries.add_metric(label, view.entries())
        owner = GaugeMetricFamily("dragoman_shard_owner", "1 if this gateway is the owner", labels=["shard"])
        owner.add_metric(label, int(view.is_owner()))
        runs = GaugeMetricFamily("dragoman_live_runs", "Runs in the ledger")
        runs.add_metric([], view.live_runs())
        topics = GaugeMetricFamily("dragoman_topics", "Topics")
        topics.add_metric([], view.topics())
        partitions = GaugeMetricFamily("dragoman_partitions", "Partitions of all topics")
        partitions.add_metric([], view.partitions())
        lag = GaugeMetricFamily("dragoman_follower_lag_entries", "Durable entries not yet applied here")
        lag.add_metric([], view.follower_lag())
        return entries, owner, runs, topics, partitions, lag


class _SpaceCollector(Collector):
    def __init__(self, free_bytes: Callable[[], int | None], refused: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        free = GaugeMetricFamily(
            "dragoman_disk_free_bytes", "Free bytes of the disk with the least to spare, as last looked at"
        )
        if (free_bytes := self._free_bytes()) is not None:
            free.add_metric([], free_bytes)
        refused = CounterMetricFamily(
            "dragoman_disk_refused_batches", "Batches refused since a disk has only its reserve left"
        )
        refused.add_metric([], self._refused())
        return free, refused


class Metrics:
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._requests = Tallies("dragoman_requests", "Requests answered or refused", ["api", "error"])
        self._request_seconds = Timings(
            "dragoman_request_seconds", "From the start of a request to its answer", ["api"], _REQUEST_BUCKETS
        )
        self._work_seconds = Timings(
            "dragoman_request_work_seconds",
            "The same without waiting for others: fetches for records, members for their group",
            ["api"],
            _REQUEST_BUCKETS,
        )
        produced = Tallies("dragoman_produce_bytes", "Record batch bytes taken")
        fetched = Tallies("dragoman_fetch_bytes", "Record batch bytes served")
        self.produce_bytes, self.fetch_bytes = produced.labels(), fetched.labels()
        self.buffer_bytes = Gauge(
            "dragoman_buffer_bytes", "Bytes of unanswered requests and unsent answers", registry=registry
        )
        self.connections = Gauge("dragoman_connections", "Open client connections", registry=registry)
        self.connections_refused = Counter(
            "dragoman_connections_refused", "Connections closed by the gateway", ["reason"], registry=registry
        )
        self._alarms = Counter(
            "dragoman_alarms",
            "What a human must look at: stored data that is damaged, missing or stays, and clocks",
            ["reason"],
            registry=registry,
        )
        for reason in ALARMS:
            self._alarms.labels(reason)
        self.store_seconds = Timings(
            "dragoman_store_seconds",
            "Calls of the backing stores: metadata, segments and blobs",
            ["store", "op"],
            _STORE_BUCKETS,
        )
        self.store_errors = Counter(
            "dragoman_store_errors",
            "Calls of a backing store that failed",
            ["store", "op"],
            registry=registry,
        )
        self.orphan_objects = Gauge(
            "dragoman_orphan_objects",
            "Stored objects that no journal entry names, as the last sweep left them",
            registry=registry,
        )
        self.clock_behind_seconds = Gauge(
            "dragoman_clock_behind_seconds",
            "How far the journal's last entry is ahead of the clock",
            registry=registry,
        )
        self.throttle_seconds = Counter(
            "dragoman_throttle_seconds",
            "For how long clients over a quota were told to wait",
            ["quota"],
            registry=registry,
        )
        self.throttles = Counter(
            "dragoman_throttles", "Requests and connections over a quota", ["quota"], registry=registry
        )
        self.groups = Gauge(
            "dragoman_groups", "Consumer groups, and those that only have offsets", registry=registry
        )
        self.group_members = Gauge("dragoman_group_members", "Members of all groups", registry=registry)
        self._build_info = Gauge(
            "dragoman_build_info",
            "1, with the versions of what runs",
            ["version", "python"],
            registry=registry,
        )
        times = self._request_seconds, self._work_seconds, self.store_seconds
        for collector in (self._requests, *times, produced, fetched):
            registry.register(collector)
        ProcessCollector(registry=registry)

    def alarm(self, reason: str) -> None:
        """Count one. `reason` is the name of its log event."""
        self._alarms.labels(reason).inc()

    def built(self, version: str) -> None:
        """Say what runs."""
        self._build_info.labels(version, platform.python_version()).set(1)

    def request_done(self, api: str, error: str, seconds: float, parked_s: float = 0.0) -> None:
        """Count one request, which for `parked_s` of its time waited for others."""
        self._requests.labels(api, error).value += 1
        self._request_seconds.labels(api).observe(seconds)
        self._work_seconds.labels(api).observe(seconds - parked_s)

    def moved_bytes(self) -> int:
        """Record batch bytes taken and served in all."""
        return self.produce_bytes.value + self.fetch_bytes.value

    def throttled(self, quota: str, seconds: float) -> None:
        """Count one client that must wait. `quota` is the key of the quota."""
        self.throttles.labels(quota).inc()
        self.throttle_seconds.labels(quota).inc(seconds)

    def watch_shard(self, shard: ShardView) -> None:
        """Read a shard's figures whenever the metrics are asked for."""
        self.registry.register(_ShardCollector(shard))

    def watch_space(self, free_bytes: Callable[[], int | None], refused: Callable[[], int]) -> None:
        """Read what is free on the disk with the least to spare, and how many batches it had no room for."""
        self.registry.register(_SpaceCollector(free_bytes, refused))

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self.registry)
