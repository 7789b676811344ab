"""Counters and gauges for Prometheus. Labels are few and bounded: never a client or address, and topics and
groups only where they are enabled (`gateway/admin/topic_series.py`)."""

import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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

from gateway.telemetry.local_metrics import LocalCounter, LocalCounters, LocalHistogram, LocalHistograms
from gateway.telemetry.object_reads import ObjectReadCounts, ObjectReadsCollector
from gateway.telemetry.traffic import Traffic
from gateway.telemetry.transactions import TransactionOutcome, TransactionsCollector, TransactionView
from ledger.ports import StoreUsage

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series and have no use here

ALARMS = (
    "adopted.place",
    "clock.behind",
    "clock.differs",
    "clock.jumped",
    "fetch.batch_damaged",
    "fetch.damaged_batch_passed",
    "fetch.object_missing",
    "garbage.not_deleted",
    "inline.missing",
    "list_offsets.batch_damaged",
    "list_offsets.object_missing",
    "time.held",
)
"""Known ones, so that each exists with 0 before its first: a rate needs that."""
MERGE_OUTCOMES: Final = ("merged", "idle", "failed")
"""An idle one has found nothing to merge."""
NOT_READY: Final = (
    "disk",
    "draining",
    "journal_outcome_unknown",
    "shard_lost",
    "store",
    "store_full",
    "waiting_for_owner",
)
"""The reasons of /readyz."""
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_STORE_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_REQUEST_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_HELP: Final[Mapping[str, str]] = {
    "dragoman_requests": "Requests, with their error",
    "dragoman_request_seconds": "From the start of a request to its response",
    "dragoman_request_work_seconds": "The same without parked time (fetches for records, members for "
    "their group)",
    "dragoman_produce_bytes": "Record batch bytes that were committed",
    "dragoman_produce_records": "Records that were committed",
    "dragoman_fetch_bytes": "Record batch bytes fetched",
    "dragoman_fetch_records": "Records of the batches fetched",
    "dragoman_loop_lag_seconds": "How late the event loop runs what is due, four samples a second",
    "dragoman_rebalances": "Rebalances of consumer groups that began, with the reason",
    "dragoman_buffer_bytes": "Bytes of unanswered requests and unsent responses",
    "dragoman_connections": "Open client connections",
    "dragoman_connections_refused": "Connections closed by the gateway",
    "dragoman_alarms": "Events that need an operator: damaged, missing or undeletable data, and clocks",
    "dragoman_store_seconds": "Calls of the backing stores: metadata, segments and blobs",
    "dragoman_store_queue_seconds": "Before that: how long calls waited for their turn, if they had to",
    "dragoman_store_errors": "Calls of a backing store that failed",
    "dragoman_store_waiting_seconds": "How long a call of a backing store has had no response, at most",
    "dragoman_orphan_objects": "Stored objects that no journal entry names, after the last sweep",
    "dragoman_merges": "Merge jobs that this gateway has started, with how they ended",
    "dragoman_merged_runs": "Runs that merge jobs have replaced by segments",
    "dragoman_merged_bytes": "Bytes of segments that merge jobs have written",
    "dragoman_merge_running": "1 while a merge job that this gateway has started runs",
    "dragoman_small_runs": "Runs outside of segments, as last counted; 0 with housekeeping.merge_runs=0",
    "dragoman_pins": "Jobs that hold what was live when they began, those of other commands too",
    "dragoman_oldest_pin_seconds": "For how long the oldest of these has held it; 0 if there is none",
    "dragoman_clock_behind_seconds": "How far the journal's last entry is ahead of the clock",
    "dragoman_denied_requests": "Requests, or parts of them, that their clients are not allowed to make",
    "dragoman_throttle_seconds": "How long clients over a quota were throttled",
    "dragoman_throttles": "Requests and connections over a quota",
    "dragoman_groups": "Consumer groups, with those that only have offsets",
    "dragoman_group_members": "Members of all groups",
    "dragoman_transactions": "Transactions that ended, with how: committed, aborted by their producer, timed "
    "out, or fenced by another producer or an operator",
    "dragoman_build_info": "1, with the versions of the gateway and of Python",
}


@dataclass(frozen=True, slots=True)
class ShardView:
    """Sources of a shard's figures."""

    shard: int
    is_owner: Callable[[], bool]
    entries: Callable[[], int]
    """Journal entries applied, since the beginning of the journal."""
    live_runs: Callable[[], int]
    live_bytes: Callable[[], int]
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
        size = GaugeMetricFamily("dragoman_live_bytes", "Record batch bytes in the ledger")
        size.add_metric([], view.live_bytes())
        topics = GaugeMetricFamily("dragoman_topics", "Topics")
        topics.add_metric([], view.topics())
        partitions = GaugeMetricFamily("dragoman_partitions", "Partitions of all topics")
        partitions.add_metric([], view.partitions())
        lag = GaugeMetricFamily("dragoman_follower_lag_entries", "Durable entries not yet applied here")
        lag.add_metric([], view.follower_lag())
        return entries, owner, runs, size, topics, partitions, lag


class _ReadinessCollector(Collector):
    def __init__(self, metrics: "Metrics") -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        reasons = {reason["reason"] for reason in self._metrics.not_ready()}
        ready = GaugeMetricFamily("dragoman_ready", "1 if /readyz says so")
        ready.add_metric([], int(not reasons))
        why = GaugeMetricFamily("dragoman_not_ready", "1 for each reason of /readyz", labels=["reason"])
        for reason in sorted({*NOT_READY, *reasons}):
            why.add_metric([reason], int(reason in reasons))
        return ready, why


class _GroupStateCollector(Collector):
    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterable[Metric]:
        groups = GaugeMetricFamily(
            "dragoman_groups_by_state", "Consumer groups that have members, or had lately", labels=["state"]
        )
        for state, count in self._count().items():
            groups.add_metric([state], count)
        return (groups,)


@dataclass(frozen=True, slots=True)
class CacheView:
    """Sources of the figures of the cache of record batches."""

    max_bytes: int
    held_bytes: Callable[[], int]
    hit_bytes: Callable[[], int]
    """Bytes that reads wanted, and that were in the cache."""
    missed_bytes: Callable[[], int]


class _CacheCollector(Collector):
    def __init__(self, view: CacheView) -> None:
        self._view = view

    def collect(self) -> Iterable[Metric]:
        view = self._view
        yield GaugeMetricFamily("dragoman_cache_bytes", "Record batches in memory", view.held_bytes())
        yield GaugeMetricFamily("dragoman_cache_max_bytes", "cache.run_bytes", view.max_bytes)
        read = CounterMetricFamily(
            "dragoman_cache_read_bytes",
            "Stored bytes that fetches wanted: in the cache (hit) or not (miss)",
            labels=["result"],
        )
        read.add_metric(["hit"], view.hit_bytes())
        read.add_metric(["miss"], view.missed_bytes())
        yield read


class _SpaceCollector(Collector):
    def __init__(self, free_bytes: Callable[[], int | None], refused: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        free = GaugeMetricFamily(
            "dragoman_disk_free_bytes", "Free bytes of the disk with the least spare bytes, as last measured"
        )
        if (free_bytes := self._free_bytes()) is not None:
            free.add_metric([], free_bytes)
        refused = CounterMetricFamily(
            "dragoman_disk_refused_batches", "Batches refused because a disk had only its reserve left"
        )
        refused.add_metric([], self._refused())
        return free, refused


class _QuotaCollector(Collector):
    def __init__(self, usage: Callable[[], StoreUsage | None]) -> None:
        self._usage = usage

    def collect(self) -> Iterable[Metric]:
        usage = self._usage()
        if usage is None:
            return
        for name, help_text, value in (
            ("used", "What the metadata store uses of its quota", usage.used_bytes),
            ("file", "The size of the metadata store's file, with free pages", usage.file_bytes),
            ("quota", "The quota of the metadata store", usage.quota_bytes),
        ):
            yield GaugeMetricFamily(f"dragoman_metadata_{name}_bytes", help_text, value)


class _InlineCollector(Collector):
    def __init__(self, total_bytes: Callable[[], int], entries: Callable[[], int]) -> None:
        self._total_bytes = total_bytes
        self._entries = entries

    def collect(self) -> Iterable[Metric]:
        written = "Bytes of record batches that were written inside of journal entries"
        yield CounterMetricFamily("dragoman_inline_bytes", written, self._total_bytes())
        held = "Journal entries with live batches inside, which are still to be moved into objects"
        yield GaugeMetricFamily("dragoman_inline_entries", held, self._entries())


class Metrics:
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counters("dragoman_requests", "api", "error")
        self._request_seconds = self._histograms("dragoman_request_seconds", _REQUEST_BUCKETS, "api")
        self._work_seconds = self._histograms("dragoman_request_work_seconds", _REQUEST_BUCKETS, "api")
        self._outcomes: dict[tuple[str, str], tuple[LocalCounter, LocalHistogram, LocalHistogram]] = {}
        """What is counted for a request, by API and error."""
        self.traffic = self._traffic()
        self.loop_lag = self._histograms("dragoman_loop_lag_seconds", _LAG_BUCKETS).labels()
        self.not_ready: Callable[[], Sequence[Mapping[str, str]]] = tuple
        """As /readyz has them."""
        self.registry.register(_ReadinessCollector(self))
        self._before_page: list[Callable[[], Awaitable[None]]] = []
        self._parts: list[Callable[[], Awaitable[bytes]]] = []
        self._rebalances = self._counters("dragoman_rebalances", "reason")
        self._transactions = self._counter_of("dragoman_transactions", "outcome", TransactionOutcome)
        self.buffer_bytes = self._gauge("dragoman_buffer_bytes")
        self.connections = self._gauge("dragoman_connections")
        self.connections_refused = self._counter("dragoman_connections_refused", "reason")
        self._alarms = self._counter_of("dragoman_alarms", "reason", ALARMS)
        self.store_seconds = self._histograms("dragoman_store_seconds", _STORE_BUCKETS, "store", "op")
        self.store_queue_seconds = self._histograms(
            "dragoman_store_queue_seconds", _STORE_BUCKETS, "store", "op"
        )
        self.store_errors = self._counter("dragoman_store_errors", "store", "op")
        self.store_waiting_seconds = self._gauge("dragoman_store_waiting_seconds", "store", "op")
        self.orphan_objects = self._gauge("dragoman_orphan_objects")
        self._merges = self._counter_of("dragoman_merges", "outcome", MERGE_OUTCOMES)
        self._merged_runs = self._counter("dragoman_merged_runs")
        self._merged_bytes = self._counter("dragoman_merged_bytes")
        self._merge_running = self._gauge("dragoman_merge_running")
        self._small_runs = self._gauge("dragoman_small_runs")
        self.pins = self._gauge("dragoman_pins")
        self.oldest_pin_seconds = self._gauge("dragoman_oldest_pin_seconds")
        self.clock_behind_seconds = self._gauge("dragoman_clock_behind_seconds")
        self.denied = self._counter("dragoman_denied_requests", "api", "error")
        self.throttle_seconds = self._counter("dragoman_throttle_seconds", "quota")
        self.throttles = self._counter("dragoman_throttles", "quota")
        self.groups = self._gauge("dragoman_groups")
        self.group_members = self._gauge("dragoman_group_members")
        self._build_info = self._gauge("dragoman_build_info", "version", "python")
        ProcessCollector(registry=self.registry)

    def alarm(self, reason: str) -> None:
        """Count one. `reason` is the name of its log event."""
        self._alarms.labels(reason).inc()

    def built(self, version: str) -> None:
        """Set the version."""
        self._build_info.labels(version, platform.python_version()).set(1)

    def request_done(self, api: str, error: str, seconds: float, parked_s: float = 0.0) -> None:
        """Count one request, which was parked for `parked_s` of its time."""
        outcome = self._outcomes.get((api, error))
        if outcome is None:
            outcome = self._outcomes[api, error] = (
                self._requests.labels(api, error),
                self._request_seconds.labels(api),
                self._work_seconds.labels(api),
            )
        requests, request_seconds, work_seconds = outcome
        requests.value += 1
        request_seconds.observe(seconds)
        work_seconds.observe(seconds - parked_s)

    def counted_small_runs(self, runs: int) -> None:
        """Set how many runs are outside of segments."""
        self._small_runs.set(runs)

    def merge_runs(self, is_running: bool) -> None:
        """Whether a merge job runs."""
        self._merge_running.set(is_running)

    def merge_ended(self, outcome: str, runs: int, size_bytes: int) -> None:
        """Count one merge job: its outcome is one of MERGE_OUTCOMES."""
        self._merges.labels(outcome).inc()
        self._merged_runs.inc(runs)
        self._merged_bytes.inc(size_bytes)

    def moved_bytes(self) -> int:
        """Record batch bytes produced and fetched in all."""
        return self.traffic.produced_bytes.value + self.traffic.fetched_bytes.value

    def rebalance_began(self, reason: str) -> None:
        """Count a rebalance. `reason` is one of a few words."""
        self._rebalances.labels(reason).value += 1

    def name_rebalances(self, reasons: Iterable[str]) -> None:
        """All reasons, so that each exists with 0 before its first: a rate needs that."""
        for reason in reasons:
            self._rebalances.labels(reason)

    def transaction_ended(self, outcome: TransactionOutcome) -> None:
        """Count a transaction."""
        self._transactions.labels(outcome).inc()

    def watch_transactions(self, view: TransactionView) -> None:
        """Read how many transactions there are whenever the metrics are collected."""
        self.registry.register(TransactionsCollector(view))

    def throttled(self, quota: str, seconds: float) -> None:
        """Count one client that must wait. `quota` is the key of the quota."""
        self.throttles.labels(quota).inc()
        self.throttle_seconds.labels(quota).inc(seconds)

    def watch_shard(self, shard: ShardView) -> None:
        """Read a shard's figures whenever the metrics are collected."""
        self.registry.register(_ShardCollector(shard))

    def watch_space(self, free_bytes: Callable[[], int | None], refused: Callable[[], int]) -> None:
        """Read the free bytes of the disk with the least spare bytes, and how many batches were refused."""
        self.registry.register(_SpaceCollector(free_bytes, refused))

    def watch_quota(self, usage: Callable[[], StoreUsage | None]) -> None:
        """Read how full a metadata store with a quota is."""
        self.registry.register(_QuotaCollector(usage))

    def watch_inline(self, total_bytes: Callable[[], int], entries: Callable[[], int]) -> None:
        """Read how many bytes of batches were written inside of entries, and how many entries hold some."""
        self.registry.register(_InlineCollector(total_bytes, entries))

    def watch_object_reads(self, counts: ObjectReadCounts) -> None:
        """Read how objects of a far store were read, whenever the metrics are collected."""
        self.registry.register(ObjectReadsCollector(counts))

    def watch_groups(self, by_state: Callable[[], Mapping[str, int]]) -> None:
        """Read how many groups are in each state."""
        self.registry.register(_GroupStateCollector(by_state))

    def watch_cache(self, cache: CacheView) -> None:
        """Read the figures of the cache of record batches."""
        self.registry.register(_CacheCollector(cache))

    def before_page(self, count: Callable[[], Awaitable[None]]) -> None:
        """Await this before each page: it counts what takes many iterations of the event loop."""
        self._before_page.append(count)

    def add_part(self, part: Callable[[], Awaitable[bytes]]) -> None:
        """Add the families that this returns, in the text exposition format, to each page."""
        self._parts.append(part)

    async def page(self) -> bytes:
        """All metrics in the text exposition format."""
        for count in self._before_page:
            await count()
        parts = [self.render()]
        for part in self._parts:
            parts.append(await part())
        return b"".join(parts)

    def render(self) -> bytes:
        """The same without what is counted and added for a page."""
        return generate_latest(self.registry)

    def _traffic(self) -> Traffic:
        traffic = Traffic()
        for name, counter in (
            ("dragoman_produce_bytes", traffic.produced_bytes),
            ("dragoman_produce_records", traffic.produced_records),
            ("dragoman_fetch_bytes", traffic.fetched_bytes),
            ("dragoman_fetch_records", traffic.fetched_records),
        ):
            self._counters(name).put(counter)
        return traffic

    def _gauge(self, name: str, *labels: str) -> Gauge:
        return Gauge(name, _HELP[name], labels, registry=self.registry)

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(name, _HELP[name], labels, registry=self.registry)

    def _counter_of(self, name: str, label: str, values: Iterable[str]) -> Counter:
        """Each value exists with 0 before its first."""
        counter = self._counter(name, label)
        for value in values:
            counter.labels(value)
        return counter

    def _counters(self, name: str, *labels: str) -> LocalCounters:
        counters = LocalCounters(name, _HELP[name], labels)
        self.registry.register(counters)
        return counters

    def _histograms(self, name: str, buckets: Sequence[float], *labels: str) -> LocalHistograms:
        histograms = LocalHistograms(name, _HELP[name], labels, buckets)
        self.registry.register(histograms)
        return histograms
