"""Starts a gateway from its settings: stores, shard, services, server; and closes them in reverse.

The only module that imports the adapters.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
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
    open_journal,
    open_metadata,
    open_segments,
    urls_in,
)
from gateway.addresses import Address, Listener, parse_address, parse_bindings
from gateway.admin.readiness import Readiness
from gateway.admin.server import AdminServer, admin_address
from gateway.admin.shards import ShardFacts, shard_page
from gateway.configs.service import ConfigService
from gateway.coordination.claim import claim_data, verify_data
from gateway.coordination.clock import ClockWatch, SteadyClock
from gateway.coordination.cluster_id import verify_unclaimed
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.opening import open_shard
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.shard import Shard
from gateway.datadir import DATA_SETTING, DataDirectory, DirectoryLock
from gateway.groups.coordinator import GroupCoordinator
from gateway.host import COUNTS_SUSPEND
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.steps import OwnerHousekeeping, replica_steps
from gateway.network.acceptor import open_sockets, warn_of_plaintext
from gateway.network.server import Server
from gateway.network.sockets import Sockets
from gateway.requests.context import Services
from gateway.router import RequestRouter
from gateway.security.tls import Certificates
from gateway.service_assembly import garbage_collector, open_services, owner_housekeeping
from gateway.settings import ConfigError, Settings
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, TimedBlobs, TimedMetadata, TimedSegments
from gateway.version import product_version
from gateway.world import StoreOpener, World
from ledger.ports import Blobs, ImageStore, Journal, MetadataStore, SegmentStore

log = structlog.get_logger()

HOST: Final = World(
    StoreOpener(open_metadata, open_segments, open_blobs, open_image, open_journal), Sockets()
)
"""This host, with the backends of this build."""


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
    journal: Journal
    segments: SegmentStore
    blobs: Blobs
    image: ImageStore | None
    watch: StoreWatch
    directories: Sequence[Path]
    """Local directories that the stores write to."""


@asynccontextmanager
async def running_gateway(settings: Settings, world: World = HOST) -> AsyncIterator[RunningGateway]:
    """Start everything, by default in this host's world. At the end drain, and close everything in reverse
    order.

    Raises ConfigError, the StoreErrors of `ledger.errors`, and `gateway.network.acceptor.ListenFailed`.
    """
    bindings = parse_bindings(settings.listeners.listen, settings.listeners.advertise)
    admin_bind = parse_address(settings.admin.listen, "admin.listen") if settings.admin.listen else None
    certificates = Certificates(settings.tls) if any(binding.is_tls for binding in bindings) else None
    metrics = Metrics()
    metrics.built(product_version())
    async with AsyncExitStack() as stack:
        stores = await _open_stores(settings, stack, metrics, world)
        clock = SteadyClock(world.wall_ms, world.boot_ms if COUNTS_SUSPEND else None)
        shard = await _open_shard(settings, stores, clock, world)
        stack.push_async_callback(shard.close)
        space = _watch_space(settings, stores, shard, metrics, stack)
        await claim_data(shard, stores.blobs, is_lasting=stores.image is not None)
        configs = ConfigService(shard, settings)
        watch = ClockWatch(shard, clock, settings.ledger.orphan_grace_ms, metrics.alarm)
        metrics.clock_behind_seconds.set_function(lambda: watch.ahead_ms / 1000)
        rule = SnapshotRule(settings.ledger.snapshot_bytes)
        checkpointer = Checkpointer(
            shard, stores.image, stores.blobs, rule, shard.replica.clock, world.random_bytes, world.precise_s
        )
        _start_replica_steps(checkpointer, watch, space, stack)
        services = await open_services(
            settings, stores.segments, shard, configs, space, stack, metrics, world
        )
        garbage = garbage_collector(settings, stores.segments, shard, space, metrics)
        housekeeping = owner_housekeeping(settings, services, shard, checkpointer, garbage, space)
        scope = await _begin_owner_scope(shard, services.groups, housekeeping, stack)
        facts = _shard_facts(settings, checkpointer, garbage, metrics)
        readiness = _readiness(settings, stores, shard, space)
        # Before the clients' listeners, so that its pages report "shutting down" while those are drained.
        reasons, shards = readiness.reasons, partial(_shard_pages, shard, facts)
        pages = AdminServer(metrics, product_version(), reasons, shards, settings.admin, watch.warnings)
        admin = await _open_admin(admin_bind, pages, stack)
        router = RequestRouter(services)
        wait_ms = services.quotas.connection_wait_ms
        server = Server(settings.limits, router, metrics, certificates, wait_ms, world.links)
        stack.push_async_callback(server.close)
        listeners = await server.listen(bindings)
        # First at shutdown: waiting requests are answered, so that the drain need not wait for them.
        stack.callback(services.fetch.close)
        stack.callback(services.groups.close)
        stack.callback(setattr, readiness, "is_draining", True)
        reload = certificates.reload if certificates is not None else _nothing_to_reload
        yield RunningGateway(services, shard, scope, shard.lost, listeners, server.bound, admin, reload)


async def _open_shard(settings: Settings, stores: Stores, clock: SteadyClock, world: World) -> Shard:
    await verify_unclaimed(stores.journal, stores.blobs)
    shard = await open_shard(
        stores.journal,
        stores.blobs,
        stores.image,
        settings.broker.node_id,
        clock,
        commit_delay=CommitDelay(timer=world.timer),
        verify=partial(verify_data, stores.journal, stores.blobs),
        elapsed=world.boot_ms,
        feature_level=settings.ledger.feature_level,
        random=world.random_bytes,
    )
    clock.trust(shard.state.entry_time_ms)
    return shard


def _nothing_to_reload() -> None:
    log.info("gateway.nothing_to_reload", reason="there is no SSL:// listener")


@asynccontextmanager
async def opened_stores(settings: Settings, *, thorough: bool = False) -> AsyncIterator[Stores]:
    """The stores alone, with the data directory locked, for commands on an offline ledger.
    `thorough`: after a check of the metadata store's structure.

    Raises ConfigError and the StoreErrors of `ledger.errors`: StoreLocked while a gateway runs.
    """
    async with AsyncExitStack() as stack:
        yield await _open_stores(settings, stack, Metrics(), HOST, thorough=thorough)


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
    settings: Settings,
    stack: AsyncExitStack,
    metrics: Metrics,
    world: World,
    *,
    thorough: bool = False,
) -> Stores:
    """Opens every store, each in a wrapper that measures its calls."""
    storage, opener = settings.storage, world.stores
    watch = StoreWatch(metrics)
    directory = Path(storage.data_dir)
    urls = urls_in(directory, storage.metadata, storage.data)
    locked = None
    if urls.image is not None or not storage.data:
        stack.callback(DataDirectory(directory).close)
        locked = directory
    try:
        metadata = opener.metadata(urls.metadata, thorough=thorough)
        stack.push_async_callback(metadata.close)
        if metadata.exclusive:
            # If only one gateway can write the metadata, only that one may delete from the data.
            _lock_data(directory_of(urls.segments), locked, stack)
        segments = opener.segments(urls.segments, roll_age_ms=settings.ledger.orphan_grace_ms // 4)
        stack.push_async_callback(segments.close)
        blobs = opener.blobs(urls.blobs)
        stack.push_async_callback(blobs.close)
    except UnknownStore as error:
        raise ConfigError(str(error)) from error
    if not storage.allow_unsafe_acks:
        _check_durable(metadata, segments)
    named = (directory_of(urls.metadata), directory_of(urls.segments))
    directories = [found for found in named if found is not None]
    journal = opener.journal(TimedMetadata(metadata, watch), random=world.random_bytes)
    timed = journal, TimedSegments(segments, watch), TimedBlobs(blobs, watch)
    if urls.image is None:
        return Stores(*timed, None, watch, directories)
    image = opener.image(urls.image)
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


def _readiness(settings: Settings, stores: Stores, shard: Shard, space: FreeSpace) -> Readiness:
    storage = settings.storage
    directory = Path(storage.data_dir)
    writes_there = stores.image is not None or not storage.data
    return Readiness(
        shard, stores.watch.health.failing, space, directory if writes_there else None, storage.min_free_bytes
    )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _shard_pages(shard: Shard, facts: ShardFacts) -> list[dict[str, object]]:
    return [dict(shard_page(shard, facts))]


async def _open_admin(bind: Address | None, admin: AdminServer, stack: AsyncExitStack) -> Address | None:
    if bind is None:
        return None
    sockets = await open_sockets(bind, "--admin")
    hosts = [str(sock.getsockname()[0]) for sock in sockets]
    warn_of_plaintext(f"admin {bind}", hosts, "let it listen on loopback")
    stack.push_async_callback(admin.close)
    await admin.start(sockets)
    return admin_address(sockets, bind)
