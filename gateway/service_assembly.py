"""Makes the services of a gateway, and the housekeeping of its owner."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from gateway.admin.topic_series import TopicSeries, TopicSources
from gateway.admin.totals import Totals
from gateway.admin.transaction_totals import TransactionTotals
from gateway.configs.describe import topic_value
from gateway.configs.service import ConfigService
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.shard import Shard
from gateway.fetch.cache import RunCache
from gateway.fetch.list_offsets import ListOffsetsService
from gateway.fetch.operation import FetchOptions
from gateway.fetch.reader import RunReader
from gateway.fetch.service import FetchService
from gateway.fetch.sessions import FetchSessions
from gateway.groups.coordinator import GroupCoordinator, log_note
from gateway.groups.machine import Note, RebalanceReason
from gateway.groups.offset_expiry import OffsetExpiry
from gateway.groups.offset_manager import OffsetManager
from gateway.groups.totals import GroupTotals
from gateway.groups.transactional_offsets import TransactionalOffsets
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.holds import BackupHolds, BackupOpen
from gateway.housekeeping.housekeeper import Housekeeper
from gateway.housekeeping.merging import JobStart, MergeOptions, Merging, job_options
from gateway.housekeeping.producers import ProducerRelief
from gateway.housekeeping.retention import Retention
from gateway.housekeeping.sparse_logs import SparseLogs
from gateway.housekeeping.steps import OwnerHousekeeping, owner_steps
from gateway.produce.producer_ids import ProducerIds
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicies
from gateway.quotas.manager import ClientQuotaManager
from gateway.requests.context import Services
from gateway.router import HANDLERS, served_versions
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import SliceScheduler
from gateway.settings import ConfigError, Settings
from gateway.telemetry.metrics import CacheView, Metrics, ShardView
from gateway.telemetry.transactions import TransactionOutcome, TransactionView
from gateway.topics.service import TopicService
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transactions.expiry import ExpiryClocks, TransactionExpiry
from gateway.version import product_version
from gateway.world import World
from ledger.merging.plan import MergePolicy
from ledger.objects.state import ObjectState
from ledger.objects.uploads import INCARNATION_BYTES, Uploader
from ledger.partitions.producers import ProducerBounds
from ledger.ports import Blobs, SegmentStore

BACKUP_OPEN_FILE: Final = "backup-open"
CLOSE_SECONDS: Final = 10.0
DEAD_OFFSETS_S: Final = 5.0
TIME_HOLD_S: Final = 5.0
MAX_SESSION_ID: Final = 2**31 - 1


async def open_services(  # noqa: PLR0913 - what is assembled
    settings: Settings,
    segments: SegmentStore,
    shard: Shard,
    configs: ConfigService,
    space: FreeSpace,
    stack: AsyncExitStack,
    metrics: Metrics,
    world: World,
) -> Services:
    cache = RunCache(settings.cache.run_bytes)
    opener = BatchOpener(world.thread_pool, world.cpu_s)
    stack.callback(opener.close)
    # The host's clock, not the steady one: clients probably share it, also after a jump.
    options = _produce_options(settings, world)
    produce = ProduceService(shard, segments, options, world.wall_ms, cache, space, opener)
    stack.push_async_callback(produce.close, CLOSE_SECONDS)
    _observe(produce, settings, metrics, stack)
    reader = _run_reader(segments, cache, shard, stack, metrics)
    offsets = ListOffsetsService(shard, reader, opener, settings.limits.decompressed_bytes)
    groups = _group_coordinator(settings, shard, metrics, world)
    watch_services(settings, metrics, shard, groups, reader)
    group_offsets = OffsetManager(shard, groups, settings)
    # After the drain: until then requests that wait for the journal have their own deadline.
    stack.callback(group_offsets.close)
    return Services(
        settings=settings,
        shard=shard,
        produce=produce,
        topic_policies=TopicPolicies(
            _topic_configs(configs), settings.limits.decompressed_bytes, lambda: configs.defaults
        ),
        fetch=_fetch_service(settings, shard, reader, metrics, world),
        offsets=offsets,
        topics=TopicService(shard, settings, configs, world.new_uuid4),
        configs=configs,
        groups=groups,
        group_offsets=group_offsets,
        transactions=_transaction_coordinator(settings, shard, metrics, produce.crowded, stack),
        transactional_offsets=TransactionalOffsets(shard, groups, group_offsets),
        quotas=ClientQuotaManager(shard, settings.quotas, _monotonic_ms),
        producer_ids=ProducerIds(shard),
        cluster_id=shard.state.cluster_id,
        node_id=settings.broker.node_id,
        metrics=metrics,
        clock=shard.replica.clock,
        served=served_versions(HANDLERS),
        scheduler=SliceScheduler(settings.limits.request_memory_bytes, world.precise_s),
    )


def _observe(produce: ProduceService, settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> None:
    """Count what is produced, and trace it where that is enabled. Raises ConfigError."""
    produce.traffic = metrics.traffic
    traces = settings.traces
    if not traces.endpoint:
        return
    try:
        # Only here: it takes memory, and a tenth of a second to load.
        from gateway.telemetry.otel import OtelTraces
    except ImportError as error:
        raise ConfigError("traces.endpoint needs the extra otel: pip install 'dragoman[otel]'") from error
    made = OtelTraces(traces.endpoint, traces.one_in, product_version(), settings.broker.node_id)
    produce.traces = made
    stack.push_async_callback(made.close)


def watch_services(
    settings: Settings, metrics: Metrics, shard: Shard, groups: GroupCoordinator, reader: RunReader
) -> None:
    """Read their figures for each page of metrics."""
    totals = Totals(lambda: shard.state)
    metrics.before_page(totals.count)
    metrics.watch_shard(_view_of(shard, totals))
    metrics.name_rebalances(_label(reason) for reason in RebalanceReason)
    of_groups = GroupTotals(groups)
    metrics.before_page(of_groups.count)
    metrics.groups.set_function(lambda: of_groups.groups)
    metrics.group_members.set_function(lambda: of_groups.members)
    metrics.watch_groups(lambda: of_groups.by_state)
    _watch_transactions(metrics, shard)
    cache = reader.cache
    metrics.watch_cache(
        CacheView(
            cache.max_bytes,
            lambda: cache.held_bytes,
            lambda: reader.hit_bytes,
            lambda: reader.missed_bytes,
        )
    )
    if settings.metrics.topics:
        metrics.traffic.count_topics(lambda: shard.state.topics.by_id)
        sources = TopicSources(lambda: shard.state, groups.members_of, metrics.traffic)
        metrics.add_part(TopicSeries(sources, settings.metrics.series).page)


def _watch_transactions(metrics: Metrics, shard: Shard) -> None:
    totals = TransactionTotals(lambda: shard.state, shard.now_ms)
    metrics.before_page(totals.count)
    view = TransactionView(lambda: totals.open, lambda: totals.oldest_ms, lambda: totals.by_state)
    metrics.watch_transactions(view)


def _noted(rebalance_began: Callable[[str], None], group_id: str, note: Note) -> None:
    log_note(group_id, note)
    if note.rebalance is not None:
        rebalance_began(_label(note.rebalance))


def _label(reason: RebalanceReason) -> str:
    return reason.name.lower()


def _run_reader(
    segments: SegmentStore, cache: RunCache, shard: Shard, stack: AsyncExitStack, metrics: Metrics
) -> RunReader:
    reader = RunReader(segments, cache, _objects_of(shard), metrics.alarm)
    if reader.objects is not None:
        metrics.watch_object_reads(reader.objects.counts)
        stack.push_async_callback(reader.close)
    return reader


def _produce_options(settings: Settings, world: World) -> ProduceOptions:
    ledger = settings.ledger
    return ProduceOptions(
        ledger.draft_bytes,
        ledger.draft_batches,
        ledger.drafts_in_flight,
        ledger.linger_ms,
        Uploader(settings.broker.node_id, world.random_bytes(INCARNATION_BYTES)),
        ledger.upload_bytes,
    )


def _group_coordinator(settings: Settings, shard: Shard, metrics: Metrics, world: World) -> GroupCoordinator:
    on_note = partial(_noted, metrics.rebalance_began)
    return GroupCoordinator(shard, settings, lambda: str(world.new_uuid4()), on_note)


def _transaction_coordinator(
    settings: Settings, shard: Shard, metrics: Metrics, crowded: set[int], stack: AsyncExitStack
) -> TransactionCoordinator:
    longest_ms = settings.transactions.transaction_max_timeout_ms
    coordinator = TransactionCoordinator(shard, longest_ms, metrics.transaction_ended, crowded)
    stack.callback(coordinator.close)
    return coordinator


def _fetch_service(
    settings: Settings, shard: Shard, reader: RunReader, metrics: Metrics, world: World
) -> FetchService:
    limits = settings.limits
    sessions = FetchSessions(
        limits.fetch_sessions, partial(_fetch_session_id, world), limits.fetch_partitions
    )
    options = FetchOptions(
        in_flight_bytes=limits.fetch_bytes,
        partitions_in_memory=limits.fetch_partitions,
        longest_wait_s=limits.request_timeout_ms / 1000,
        ledger_wait_s=settings.ledger.commit_timeout_ms / 1000,
    )
    service = FetchService(shard, reader, sessions, options, shard.replica.clock)
    service.traffic = metrics.traffic
    return service


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _objects_of(shard: Shard) -> Callable[[int], ObjectState]:
    """The object of a number, in the state of the time of the call."""
    return lambda number: shard.state.objects.by_number[number]


def garbage_collector(  # noqa: PLR0913 - what is assembled
    settings: Settings,
    segments: SegmentStore,
    shard: Shard,
    space: FreeSpace,
    metrics: Metrics,
    checkpointer: Checkpointer,
    blobs: Blobs,
) -> GarbageCollector:
    clock = shard.replica.clock
    backup_open = BackupOpen(Path(settings.storage.data_dir) / BACKUP_OPEN_FILE, clock)

    def surely_past_ms() -> int:
        return max(clock(), shard.now_ms()) - shard.doubted_ms()

    return GarbageCollector(
        shard,
        segments,
        settings.ledger.orphan_grace_ms,
        shard.replica.clock,
        settings.ledger.commit_timeout_ms / 1000,
        is_disk_full=lambda: space.is_full,
        alarm=metrics.alarm,
        elapsed=_monotonic_ms,
        snapshotted=lambda: checkpointer.snapshotted,
        holds=BackupHolds(blobs, shard.journal.shard, surely_past_ms),
        is_being_copied=backup_open.is_open,
    )


def owner_housekeeping(
    settings: Settings,
    services: Services,
    shard: Shard,
    checkpointer: Checkpointer,
    garbage: GarbageCollector,
    space: FreeSpace,
) -> OwnerHousekeeping:
    ledger, groups, limits = settings.ledger, settings.groups, settings.limits
    clock, wait_s = shard.replica.clock, ledger.commit_timeout_ms / 1000
    retention = Retention(shard, _topic_configs(services.configs), clock, wait_s, shard.doubted_ms)
    check_ms = settings.broker.log_retention_check_interval_ms
    steps = owner_steps(checkpointer, garbage, retention, ledger.orphan_grace_ms, check_ms, space)
    retention_ms = groups.offsets_retention_minutes * 60_000
    expiry = OffsetExpiry(shard, services.groups, retention_ms, clock, wait_s, shard.doubted_ms)
    steps.add("offsets", groups.offsets_retention_check_interval_ms / 1000, expiry.apply)
    if shard.time_hold is not None:
        steps.add("time", TIME_HOLD_S, shard.time_hold.check)
    steps.add("dead offsets", DEAD_OFFSETS_S, expiry.drain)
    _add_transactions(steps, settings, shard, services.metrics)
    shard.state.producer_bounds = ProducerBounds(limits.producers, limits.partition_producers)
    relief = ProducerRelief(shard, services.produce.crowded, shard.now_ms, wait_s, _monotonic_ms)
    return OwnerHousekeeping(checkpointer, garbage, relief, steps)


def _add_transactions(steps: Housekeeper, settings: Settings, shard: Shard, metrics: Metrics) -> None:
    config, wait_s = settings.transactions, settings.ledger.commit_timeout_ms / 1000
    expiry = TransactionExpiry(
        shard,
        ExpiryClocks(shard.now_ms, _monotonic_ms, shard.doubted_ms),
        config.transactional_id_expiration_ms,
        wait_s,
        partial(metrics.transaction_ended, TransactionOutcome.TIMED_OUT),
    )
    abort_s = config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
    forget_s = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
    steps.add("transactions", abort_s, expiry.abort_timed_out)
    steps.add("transactional ids", forget_s, expiry.forget_unused)


def merging_of(
    settings: Settings,
    shard: Shard,
    segments: SegmentStore,
    space: FreeSpace,
    metrics: Metrics,
    jobs: JobStart,
) -> Merging | None:
    """None where no other process can read the records, or none can be started."""
    stores = job_options(settings.storage)
    start = jobs.host.start_child
    if start is None or stores is None:
        return None
    merge_runs = settings.housekeeping.merge_runs
    # Where the setting is low, so are partitions with few runs merged.
    policy = {"due_runs": min(max(merge_runs, 1), MergePolicy().due_runs)}
    options = MergeOptions(
        merge_runs,
        {"far": stores, "policy": policy},
        lambda: space.refusal or shard.growth_refusal,
        jobs.host.random_bytes,
        SparseLogs(shard, segments).find,
    )
    return Merging(shard, options, jobs.connect, start, metrics)


async def begin_merging(merging: Merging | None, scope: OwnerScope, stack: AsyncExitStack) -> None:
    """While the gateway is the owner; until `stack` ends."""
    if merging is not None:
        await scope.join(merging)
        # Before the drain, which closes its connection.
        stack.push_async_callback(merging.end_epoch)


def _topic_configs(service: ConfigService) -> Callable[[str, Mapping[str, str]], str]:
    """From the name of a topic config and the configs set on the topic to the value in force."""
    return lambda name, configs: topic_value(name, configs, service.defaults)


def _view_of(shard: Shard, totals: Totals) -> ShardView:
    return ShardView(
        shard=shard.journal.shard,
        is_owner=lambda: shard.broken is None,
        entries=lambda: shard.state.applied,
        topics=lambda: len(shard.state.topics.by_id),
        partitions=lambda: shard.state.logs.in_topics,
        live_runs=lambda: totals.live_runs,
        live_bytes=lambda: totals.live_bytes,
        follower_lag=lambda: 0,
    )


def _fetch_session_id(world: World) -> int:
    return int.from_bytes(world.random_bytes(8), "big") % MAX_SESSION_ID + 1
