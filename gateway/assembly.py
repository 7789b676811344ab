"""Starts a gateway from its settings: stores, shard, services, server; and closes them in reverse.

The only module that imports the adapters.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from adapters.open import METADATA_FILE as METADATA_FILE
from adapters.open import (
    Access,
    UnknownStore,
    directory_of,
    open_blobs,
    open_image,
    open_metadata,
    open_segments,
    urls_in,
)
from gateway.addresses import Address, Listener, parse_address, parse_bindings
from gateway.admin.readiness import Readiness
from gateway.admin.server import AdminServer, admin_address
from gateway.admin.shards import ShardFacts, shard_page
from gateway.configs.describe import topic_value
from gateway.configs.service import ConfigService
from gateway.coordination.claim import Claim, check_claim, put_claim
from gateway.coordination.clock import ClockWatch, SteadyClock, boot_ms, clock_ms
from gateway.coordination.cluster_id import claim_cluster_id, verify_cluster_id, verify_unclaimed
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.journal import Journal
from gateway.coordination.opening import open_shard
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.shard import Shard
from gateway.datadir import DATA_SETTING, DataDirectory, DirectoryLock
from gateway.fetch.cache import RunCache
from gateway.fetch.list_offsets import ListOffsetsService
from gateway.fetch.operation import FetchOptions
from gateway.fetch.reader import RunReader
from gateway.fetch.service import FetchService
from gateway.fetch.sessions import FetchSessions
from gateway.groups.coordinator import GroupCoordinator
from gateway.groups.offset_expiry import OffsetExpiry
from gateway.groups.offset_manager import OffsetManager
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.producers import ProducerRelief
from gateway.housekeeping.retention import Retention
from gateway.housekeeping.steps import OwnerHousekeeping, owner_steps, replica_steps
from gateway.network.acceptor import open_sockets, warn_of_plaintext
from gateway.network.server import Server
from gateway.produce.producer_ids import ProducerIds
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicies
from gateway.quotas.manager import ClientQuotaManager
from gateway.requests.context import Services
from gateway.router import HANDLERS, RequestRouter, served_versions
from gateway.scheduling.batch_opening import BatchOpener
from gateway.scheduling.slices import SliceScheduler
from gateway.security.tls import Certificates
from gateway.settings import ConfigError, Settings
from gateway.telemetry.metrics import Metrics, ShardView
from gateway.telemetry.stores import StoreWatch, TimedBlobs, TimedMetadata, TimedSegments
from gateway.topics.service import TopicService
from gateway.version import product_version
from ledger.objects.uploads import INCARNATION_BYTES, Uploader
from ledger.partitions.producers import ProducerBounds
from ledger.ports import Blobs, ImageStore, MetadataStore, SegmentStore
from ledger.state import LedgerState

log = structlog.get_logger()

BACKUP_OPEN_FILE: Final = "backup-open"
CLOSE_SECONDS: Final = 10.0
DEAD_OFFSETS_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that listens and owns its shard."""

    services: Services
    shard: Shard
    owner_scope: OwnerScope
    ended: asyncio.Event
    """Set when this gateway cannot go on: when the shard is lost, until it can follow another owner."""
    listeners: Sequence[Listener]
    bound: Sequence[Address]
    admin: Address | None
    reload: Callable[[], None]
    """Read certificates again."""


@dataclass(frozen=True, slots=True)
class Stores:
    metadata: MetadataStore
    segments: SegmentStore
    blobs: Blobs
    image: ImageStore | None
    watch: StoreWatch
    directories: Sequence[Path]
    """Local directories that the stores write to."""


@asynccontextmanager
async def running_gateway(settings: Settings) -> AsyncIterator[RunningGateway]:
    """Start everything. At the end drain, and close everything in reverse order.

    Raises ConfigError, the StoreErrors of `ledger.errors`, and `gateway.network.acceptor.ListenFailed`.
    """
    bindings = parse_bindings(settings.listeners.listen, settings.listeners.advertise)
    admin_bind = parse_address(settings.admin.listen, "admin.listen") if settings.admin.listen else None
    certificates = Certificates(settings.tls) if any(binding.is_tls for binding in bindings) else None
    metrics = Metrics()
    metrics.built(product_version())
    async with AsyncExitStack() as stack:
        stores = await _open_stores(settings, stack, metrics)
        clock = SteadyClock()
        shard = await _open_shard(settings, stores, clock)
        stack.push_async_callback(shard.close)
        space = _watch_space(settings, stores, shard, metrics, stack)
        await _claim(stores, shard)
        configs = ConfigService(shard, settings)
        watch = ClockWatch(shard, clock, settings.ledger.orphan_grace_ms, metrics.alarm)
        metrics.clock_behind_seconds.set_function(lambda: watch.ahead_ms / 1000)
        rule = SnapshotRule(settings.ledger.snapshot_bytes)
        checkpointer = Checkpointer(shard, stores.image, stores.blobs, rule, shard.replica.clock)
        _start_replica_steps(checkpointer, watch, space, stack)
        services = await _open_services(settings, stores, shard, configs, space, stack, metrics)
        garbage = _garbage_collector(settings, stores, shard, space, metrics)
        housekeeping = _owner_housekeeping(settings, services, shard, checkpointer, garbage, space)
        scope = await _begin_owner_scope(shard, services.groups, housekeeping, stack)
        facts = _shard_facts(settings, checkpointer, garbage, metrics)
        readiness = _readiness(settings, stores, shard, space)
        # Before the clients' listeners, so that its pages report "shutting down" while those are drained.
        reasons, shards = readiness.reasons, partial(_shard_pages, shard, facts)
        pages = AdminServer(metrics, product_version(), reasons, shards, settings.admin, watch.warnings)
        admin = await _open_admin(admin_bind, pages, stack)
        router = RequestRouter(services)
        wait_ms = services.quotas.connection_wait_ms
        server = Server(settings.limits, router, metrics, certificates, wait_ms)
        stack.push_async_callback(server.close)
        listeners = await server.listen(bindings)
        # First at shutdown: waiting requests are answered, so that the drain need not wait for them.
        stack.callback(services.fetch.close)
        stack.callback(services.groups.close)
        stack.callback(setattr, readiness, "is_draining", True)
        reload = certificates.reload if certificates is not None else _nothing_to_reload
        yield RunningGateway(services, shard, scope, shard.lost, listeners, server.bound, admin, reload)


async def _open_shard(settings: Settings, stores: Stores, clock: SteadyClock) -> Shard:
    journal = Journal(stores.metadata, 0)
    await verify_unclaimed(journal, stores.blobs)
    shard = await open_shard(
        stores.metadata,
        stores.blobs,
        stores.image,
        settings.broker.node_id,
        clock,
        commit_delay=CommitDelay(),
        verify=partial(_verify_claim, journal, stores.blobs),
        elapsed=boot_ms,
        feature_level=settings.ledger.feature_level,
    )
    clock.trust(shard.state.entry_time_ms)
    return shard


async def _verify_claim(journal: Journal, blobs: Blobs, state: LedgerState) -> None:
    if state.applied:
        await verify_cluster_id(blobs, state.cluster_id)
    await check_claim(journal, blobs)


async def _claim(stores: Stores, shard: Shard) -> None:
    """Right after the entry that began the epoch. A journal in memory claims nothing, since it is not
    kept."""
    state, is_lasting = shard.state, stores.image is not None
    await claim_cluster_id(stores.blobs, state.cluster_id, lasting=is_lasting)
    if is_lasting:
        claim = Claim(state.cluster_id, state.epoch, state.applied - 1, shard.replica.last_nonce)
        await put_claim(stores.blobs, shard.journal.shard, claim)


def _nothing_to_reload() -> None:
    log.info("gateway.nothing_to_reload", reason="there is no SSL:// listener")


@asynccontextmanager
async def opened_stores(settings: Settings, *, thorough: bool = False) -> AsyncIterator[Stores]:
    """The stores alone, with the data directory locked, for commands on an offline ledger.
    `thorough`: after a check of the metadata store's structure.

    Raises ConfigError and the StoreErrors of `ledger.errors`: StoreLocked while a gateway runs.
    """
    async with AsyncExitStack() as stack:
        yield await _open_stores(settings, stack, Metrics(), thorough=thorough)


def opened_blobs(directory: Path) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a backup, for writing. Without a lock, so unfinished puts of other processes are left
    alone."""
    return _opened_blobs(directory, Access.SHARED)


def opened_source(directory: Path) -> AbstractAsyncContextManager[Blobs]:
    """The blobs of a data directory or of a backup, for reading: nothing in it is created or changed."""
    return _opened_blobs(directory, Access.READ_ONLY)


@asynccontextmanager
async def _opened_blobs(directory: Path, access: Access) -> AsyncIterator[Blobs]:
    blobs = open_blobs(f"file:{directory}", access)
    try:
        yield blobs
    finally:
        await blobs.close()


async def _open_stores(
    settings: Settings, stack: AsyncExitStack, metrics: Metrics, *, thorough: bool = False
) -> Stores:
    """Opens every store, each in a wrapper that measures its calls."""
    storage = settings.storage
    watch = StoreWatch(metrics)
    directory = Path(storage.data_dir)
    urls = urls_in(directory, storage.metadata, storage.data)
    locked = None
    if urls.image is not None or not storage.data:
        stack.callback(DataDirectory(directory).close)
        locked = directory
    try:
        metadata = open_metadata(urls.metadata, thorough=thorough)
        stack.push_async_callback(metadata.close)
        if metadata.exclusive:
            # If only one gateway can write the metadata, only that one may delete from the data.
            _lock_data(directory_of(urls.segments), locked, stack)
        segments = open_segments(urls.segments, roll_age_ms=settings.ledger.orphan_grace_ms // 4)
        stack.push_async_callback(segments.close)
        blobs = open_blobs(urls.blobs)
        stack.push_async_callback(blobs.close)
    except UnknownStore as error:
        raise ConfigError(str(error)) from error
    if not storage.allow_unsafe_acks:
        _check_durable(metadata, segments)
    named = (directory_of(urls.metadata), directory_of(urls.segments))
    directories = [found for found in named if found is not None]
    timed = TimedMetadata(metadata, watch), TimedSegments(segments, watch), TimedBlobs(blobs, watch)
    if urls.image is None:
        return Stores(*timed, None, watch, directories)
    image = open_image(urls.image)
    stack.push_async_callback(image.close)
    return Stores(*timed, image, watch, [directory, *directories])


def _lock_data(directory: Path | None, locked: Path | None, stack: AsyncExitStack) -> None:
    if directory is None or not directory.absolute().parent.is_dir():
        return  # opening the store reports what is missing
    if locked is None or directory.resolve() != locked.resolve():
        stack.callback(DirectoryLock(directory, DATA_SETTING).close)


def _check_durable(metadata: MetadataStore, segments: SegmentStore) -> None:
    for setting, is_durable in (
        ("storage.metadata", metadata.durable_ack),
        ("storage.data", segments.capabilities.durable_ack),
    ):
        if not is_durable:
            raise ConfigError(
                f"{setting}: what this store acknowledges does not survive loss of power; "
                "to use it nevertheless set storage.allow_unsafe_acks=true"
            )


def _watch_space(
    settings: Settings, stores: Stores, shard: Shard, metrics: Metrics, stack: AsyncExitStack
) -> FreeSpace:
    space = FreeSpace(stores.directories, settings.storage.reserve_bytes)

    def keep_for_deletions() -> None:
        shard.growth_refusal = space.refusal if space.is_critical else ""

    space.on_change = keep_for_deletions
    space.start()
    stack.callback(space.close)
    metrics.watch_space(lambda: space.free_bytes, lambda: space.refused)
    return space


def _start_replica_steps(
    checkpointer: Checkpointer, watch: ClockWatch, space: FreeSpace, stack: AsyncExitStack
) -> None:
    watch.check()
    housekeeper = replica_steps(checkpointer, watch, space)
    stack.push_async_callback(checkpointer.write_last_image)
    task = asyncio.create_task(housekeeper.run(), name="housekeeper")
    stack.push_async_callback(_end, task)


def _garbage_collector(
    settings: Settings, stores: Stores, shard: Shard, space: FreeSpace, metrics: Metrics
) -> GarbageCollector:
    # An operator announces a copy of a running gateway's data by this file.
    backup_open = Path(settings.storage.data_dir) / BACKUP_OPEN_FILE
    return GarbageCollector(
        shard,
        stores.segments,
        settings.ledger.orphan_grace_ms,
        shard.replica.clock,
        settings.ledger.commit_timeout_ms / 1000,
        is_disk_full=lambda: space.is_full and not backup_open.exists(),
        alarm=metrics.alarm,
        elapsed=_monotonic_ms,
    )


async def _begin_owner_scope(
    shard: Shard, groups: GroupCoordinator, housekeeping: OwnerHousekeeping, stack: AsyncExitStack
) -> OwnerScope:
    scope = OwnerScope(shard)
    scope.add(groups)
    scope.add(housekeeping)
    # After the drain.
    stack.push_async_callback(scope.end)
    await scope.begin()
    return scope


def _shard_facts(
    settings: Settings, checkpointer: Checkpointer, garbage: GarbageCollector, metrics: Metrics
) -> ShardFacts:
    metrics.orphan_objects.set_function(lambda: garbage.orphans_left)
    return ShardFacts(
        settings.broker.node_id,
        image_entries=lambda: checkpointer.imaged,
        snapshot_entries=lambda: checkpointer.snapshotted,
        orphan_objects=lambda: garbage.orphans_left,
    )


def _owner_housekeeping(
    settings: Settings,
    services: Services,
    shard: Shard,
    checkpointer: Checkpointer,
    garbage: GarbageCollector,
    space: FreeSpace,
) -> OwnerHousekeeping:
    ledger, groups, limits = settings.ledger, settings.groups, settings.limits
    clock, wait_s = shard.replica.clock, ledger.commit_timeout_ms / 1000
    retention = Retention(shard, _topic_configs(services.configs), clock, wait_s)
    check_ms = settings.broker.log_retention_check_interval_ms
    steps = owner_steps(checkpointer, garbage, retention, ledger.orphan_grace_ms, check_ms, space)
    retention_ms = groups.offsets_retention_minutes * 60_000
    expiry = OffsetExpiry(shard, services.groups, retention_ms, clock, wait_s)
    steps.add("offsets", groups.offsets_retention_check_interval_ms / 1000, expiry.apply)
    steps.add("dead offsets", DEAD_OFFSETS_S, expiry.drain)
    shard.state.producer_bounds = ProducerBounds(limits.producers, limits.partition_producers)
    relief = ProducerRelief(shard, services.produce.crowded, shard.now_ms, wait_s, _monotonic_ms)
    return OwnerHousekeeping(checkpointer, garbage, relief, steps)


def _readiness(settings: Settings, stores: Stores, shard: Shard, space: FreeSpace) -> Readiness:
    storage = settings.storage
    directory = Path(storage.data_dir)
    writes_there = stores.image is not None or not storage.data
    return Readiness(
        shard, stores.watch.health.failing, space, directory if writes_there else None, storage.min_free_bytes
    )


def _topic_configs(service: ConfigService) -> Callable[[str, Mapping[str, str]], str]:
    """From the name of a topic config and the configs set on the topic to the value in force."""
    return lambda name, configs: topic_value(name, configs, service.defaults)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _open_services(  # noqa: PLR0913 - what is assembled
    settings: Settings,
    stores: Stores,
    shard: Shard,
    configs: ConfigService,
    space: FreeSpace,
    stack: AsyncExitStack,
    metrics: Metrics,
) -> Services:
    metrics.watch_shard(_view_of(shard))
    cache = RunCache(settings.cache.run_bytes)
    opener = BatchOpener()
    stack.callback(opener.close)
    # The host's clock, not the steady one: clients probably share it, also after a jump.
    options = _produce_options(settings)
    produce = ProduceService(shard, stores.segments, options, clock_ms, cache.put, space, opener)
    stack.push_async_callback(produce.close, CLOSE_SECONDS)
    reader = RunReader(stores.segments, cache, _locator_of(shard), metrics.alarm)
    offsets = ListOffsetsService(shard, reader, opener, settings.limits.decompressed_bytes)
    groups = GroupCoordinator(shard, settings)
    metrics.groups.set_function(lambda: groups.group_count)
    metrics.group_members.set_function(lambda: groups.member_count)
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
        fetch=_fetch_service(settings, shard, reader),
        offsets=offsets,
        topics=TopicService(shard, settings, configs),
        configs=configs,
        groups=groups,
        group_offsets=group_offsets,
        quotas=ClientQuotaManager(shard, settings.quotas, _monotonic_ms),
        producer_ids=ProducerIds(shard),
        cluster_id=shard.state.cluster_id,
        node_id=settings.broker.node_id,
        metrics=metrics,
        clock=shard.replica.clock,
        served=served_versions(HANDLERS),
        scheduler=SliceScheduler(settings.limits.request_memory_bytes),
    )


def _produce_options(settings: Settings) -> ProduceOptions:
    ledger = settings.ledger
    return ProduceOptions(
        ledger.draft_bytes,
        ledger.draft_batches,
        ledger.drafts_in_flight,
        ledger.linger_ms,
        Uploader(settings.broker.node_id, secrets.token_bytes(INCARNATION_BYTES)),
    )


def _fetch_service(settings: Settings, shard: Shard, reader: RunReader) -> FetchService:
    limits = settings.limits
    sessions = FetchSessions(limits.fetch_sessions, _fetch_session_id, limits.fetch_partitions)
    options = FetchOptions(
        in_flight_bytes=limits.fetch_bytes,
        partitions_in_memory=limits.fetch_partitions,
        longest_wait_s=limits.request_timeout_ms / 1000,
        ledger_wait_s=settings.ledger.commit_timeout_ms / 1000,
    )
    return FetchService(shard, reader, sessions, options, shard.replica.clock)


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _locator_of(shard: Shard) -> Callable[[int], str]:
    """The locator of an object's number, in the state of the time of the call."""
    return lambda number: shard.state.objects.locator(number)


def _shard_pages(shard: Shard, facts: ShardFacts) -> list[dict[str, object]]:
    return [dict(shard_page(shard, facts))]


def _view_of(shard: Shard) -> ShardView:
    return ShardView(
        shard=shard.journal.shard,
        is_owner=lambda: shard.broken is None,
        entries=lambda: shard.state.applied,
        topics=lambda: len(shard.state.topics.by_id),
        partitions=lambda: shard.state.logs.in_topics,
        live_runs=lambda: sum(partition.run_count for partition in shard.state.logs.values()),
        follower_lag=lambda: 0,
    )


def _fetch_session_id() -> int:
    return secrets.randbelow(2**31 - 1) + 1


async def _open_admin(bind: Address | None, admin: AdminServer, stack: AsyncExitStack) -> Address | None:
    if bind is None:
        return None
    sockets = await open_sockets(bind, "--admin")
    warn_of_plaintext(f"admin {bind}", sockets, "let it listen on loopback")
    stack.push_async_callback(admin.close)
    await admin.start(sockets)
    return admin_address(sockets, bind)
