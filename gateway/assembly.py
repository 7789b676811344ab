"""Starts a gateway from its settings: stores, shard, services, server; and closes them in reverse."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from gateway.addresses import (
    INTERNAL_SETTING,
    Address,
    Binding,
    Listener,
    parse_address,
    parse_bindings,
)
from gateway.admin.readiness import Readiness
from gateway.admin.server import AdminServer, admin_address
from gateway.admin.shards import ShardFacts, shard_page
from gateway.admin.tls import admin_certificates
from gateway.admin.waiting import waiting_pages
from gateway.config import parse_time
from gateway.configs.service import ConfigService
from gateway.console.server import Console, GatewayFacts
from gateway.coordination.absence import Absence
from gateway.coordination.claim import claim_data, verify_data, verify_place
from gateway.coordination.clock import ClockWatch, SteadyClock
from gateway.coordination.clocks import Clocks
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.damping import Candidate, Damping
from gateway.coordination.free_space import FreeSpace, MadeAhead
from gateway.coordination.inline_limits import InlineLimits
from gateway.coordination.life_signs import LifeSigns
from gateway.coordination.marking import Marking
from gateway.coordination.opening import open_shard
from gateway.coordination.owner_scope import OwnerPart, OwnerScope
from gateway.coordination.ownership_watch import OwnershipWatch
from gateway.coordination.shard import Shard
from gateway.coordination.store_clock import StoreClock
from gateway.coordination.store_quota import StoreQuota
from gateway.coordination.time_hold import TimeHold
from gateway.host import COUNTS_SUSPEND, dice_of
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.inline_moves import InlineMover
from gateway.housekeeping.merging import JobStart
from gateway.housekeeping.pins import PinExpiry, oldest_pin_s
from gateway.housekeeping.requested_snapshots import RequestedSnapshots
from gateway.housekeeping.steps import replica_steps
from gateway.internal.listener import InternalListener, bindings_of
from gateway.internal.shard_access import ShardAccess
from gateway.network.acceptor import open_sockets, warn_of_plaintext
from gateway.network.links import Listening
from gateway.network.server import Server
from gateway.network.sockets import Sockets
from gateway.requests.context import Services
from gateway.router import RequestRouter
from gateway.security.tls import Certificates
from gateway.service_assembly import (
    begin_merging,
    garbage_collector,
    merging_of,
    open_services,
    owner_housekeeping,
)
from gateway.settings import Settings
from gateway.store_assembly import (
    OPENER,
    StoreOpening,
    Stores,
    StoreUrls,
    data_url_of,
    inline_bytes_of,
    let_go_on_in_log,
    log_directory_of,
    set_inline_rule,
)
from gateway.telemetry.metrics import Metrics
from gateway.version import product_version
from gateway.world import World
from ledger.cluster.requests import Description
from ledger.state import LedgerState
from ledger.swaps.state import Pins

log = structlog.get_logger()

FINISH_S: Final = 5.0
"""For what was begun at the start and has not ended when the gateway does."""
HOST: Final = World(OPENER, Sockets())
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
    urls: StoreUrls
    quota: StoreQuota
    """Of the metadata store."""
    internal: InternalListener


@asynccontextmanager
async def running_gateway(
    settings: Settings, world: World = HOST, absence: Absence | None = None
) -> AsyncIterator[RunningGateway]:
    """Start everything, by default in this host's world. At the end drain, and close everything in reverse
    order. With `absence` only if no other gateway owns the shard: see `gateway.coordination.absence`.
    Raises ConfigError, the StoreErrors of `ledger.errors`, and `gateway.network.acceptor.ListenFailed`.
    """
    bindings = parse_bindings(settings.listeners.listen, settings.listeners.advertise)
    internal_bindings = bindings_of(settings)
    candidate = _candidate(settings, bindings, world)
    certificates = Certificates(settings.tls) if any(binding.is_tls for binding in bindings) else None
    metrics = _new_metrics()
    async with AsyncExitStack() as stack:
        stores = await _open_stores(settings, stack, metrics, world)
        clocks = await _clocks(settings, stores, world)
        await _try_to_listen(stores, bindings, internal_bindings, _admin_bind(settings), world)
        shard = await _open_shard(settings, stores, clocks, world, candidate, metrics, absence)
        stack.push_async_callback(shard.close)
        space, quota = await _watch_space(settings, stores, shard, metrics, stack)
        marking = await _claim(stores, shard, world)
        watch = _watch_clocks(settings, shard, clocks, stores, metrics)
        mover, checkpointer = _checkpointing(settings, stores, shard, quota, metrics, world)
        _start_replica_steps(checkpointer, watch, clocks.store, space, quota, stack)
        segments, configs = stores.segments, ConfigService(shard, settings)
        services = await open_services(settings, segments, shard, configs, space, stack, metrics, world)
        garbage = _garbage_collector(settings, stores, shard, space, metrics, checkpointer)
        housekeeping = owner_housekeeping(settings, services, shard, checkpointer, garbage, space)
        snapshots = _requested_snapshots(stores, shard, checkpointer, world)
        access = _shard_access(settings, shard, stores.urls, mover, snapshots)
        # The first ends last, so its last mark covers what the others have written.
        parts = marking, LifeSigns(shard, candidate), services.groups, housekeeping, mover, access.pins
        scope = await _begin_owner_scope(shard, parts, stack)
        facts = _shard_facts(settings, shard, checkpointer, garbage, metrics)
        readiness = _readiness(settings, stores, shard, space, quota, watch)
        # Before the clients' listeners, so that its pages report "shutting down" while those are drained.
        pages = _admin_server(settings, services, readiness, partial(_shard_pages, shard, facts), world)
        admin = await _open_admin(_admin_bind(settings), pages, stack)
        internal = await _open_internal(settings, services, access, stores.urls.directory, stack, world)
        job, wait_ms = JobStart(internal.connect_child, world), services.quotas.connection_wait_ms
        server = Server(settings.limits, RequestRouter(services), metrics, certificates, wait_ms, world.links)
        stack.push_async_callback(server.close)
        listeners = await server.listen(bindings)
        _watch_ownership(shard, server, stack)
        await begin_merging(merging_of(settings, shard, segments, space, metrics, job), scope, stack)
        stack.callback(_answer_waiting, services, internal, readiness)
        reload, urls = partial(_reload, certificates, internal.certificates, pages.certificates), stores.urls
        places = listeners, server.bound, admin
        yield RunningGateway(services, shard, scope, shard.lost, *places, reload, urls, quota, internal)


def _new_metrics() -> Metrics:
    metrics = Metrics()
    metrics.built(product_version())
    return metrics


def _answer_waiting(services: Services, internal: InternalListener, readiness: Readiness) -> None:
    """First at shutdown: requests that wait are answered, so that the drain need not wait for them."""
    readiness.is_draining = True
    internal.stop_waiting()
    services.groups.close()
    services.fetch.close()


async def _open_stores(settings: Settings, stack: AsyncExitStack, metrics: Metrics, world: World) -> Stores:
    opening = StoreOpening(settings, world.stores, world.random_bytes)
    stores = await opening.open(stack, metrics)
    # Over a store that breaks a promise two gateways would both number the same offsets.
    await opening.far.prove()
    # Nothing large is written at first, so a start does not wait for this.
    uploads = asyncio.create_task(opening.far.prove_uploads(), name="proof of uploads")
    stack.push_async_callback(_finish, uploads)
    return stores


async def _try_to_listen(
    stores: Stores,
    bindings: Sequence[Binding],
    internal: Sequence[Binding],
    admin: Address | None,
    world: World,
) -> None:
    """Raises ListenFailed. A gateway that nobody can connect to must not replace another, where it could."""
    if stores.journal.exclusive:
        return
    opened: list[Listening | socket.socket] = []
    try:
        for flag, some in (("--listen", bindings), (INTERNAL_SETTING, internal)):
            for one in some:
                opened += await world.links.listen(one.bind, flag)
        if admin is not None:
            opened += await open_sockets(admin, "--admin")
    finally:
        for listening in opened:
            listening.close()


async def _clocks(settings: Settings, stores: Stores, world: World) -> Clocks:
    steady = SteadyClock(world.wall_ms, world.boot_ms if COUNTS_SUSPEND else None)
    store = StoreClock(stores.far.unix_ms, world.wall_ms)
    await store.look()
    return Clocks(steady, store, parse_time(settings.ledger.time_is_right_until))


def _watch_clocks(
    settings: Settings, shard: Shard, clocks: Clocks, stores: Stores, metrics: Metrics
) -> ClockWatch:
    assert shard.time_hold is not None

    def of_places() -> dict[str, str]:
        failing = stores.far.failing_places
        named = [
            f"segments that were adopted from {place} cannot be read: {failing[place]}" for place in failing
        ]
        return {"adopted_place": "; ".join(named)} if named else {}

    others = clocks.store.warnings, shard.time_hold.warnings, of_places
    watch = ClockWatch(shard, clocks.steady, settings.ledger.orphan_grace_ms, metrics.alarm, others)
    metrics.clock_behind_seconds.set_function(lambda: watch.ahead_ms / 1000)
    return watch


def _candidate(settings: Settings, bindings: Sequence[Binding], world: World) -> Candidate:
    address = ", ".join(f"{binding.name}://{binding.advertised}" for binding in bindings)
    return Candidate(settings.broker.node_id, Description(world.host_name(), address))


def _admin_bind(settings: Settings) -> Address | None:
    return parse_address(settings.admin.listen, "admin.listen") if settings.admin.listen else None


async def _open_shard(  # noqa: PLR0913 - the stores of a gateway, and who may own them
    settings: Settings,
    stores: Stores,
    clocks: Clocks,
    world: World,
    candidate: Candidate,
    metrics: Metrics,
    absence: Absence | None,
) -> Shard:
    async def verify(state: LedgerState) -> None:
        await verify_data(stores.journal, stores.blobs, state, identity=stores.identity)
        if absence is not None:
            await absence.verify(stores.journal, stores.blobs, state)

    await verify_place(stores.journal, stores.blobs)
    bind = _admin_bind(settings)
    listen = partial(open_sockets, bind, "--admin") if bind is not None else None
    pages = partial(waiting_pages, listen, settings, metrics, product_version())
    wait_s = settings.ledger.takeover_wait_ms / 1000
    right_until_ms = None if stores.journal.exclusive else clocks.right_until_ms()
    described = replace(candidate.described, store=stores.identity, right_until_ms=right_until_ms)
    shard = await open_shard(
        stores.journal,
        stores.blobs,
        stores.image,
        settings.broker.node_id,
        clocks.steady,
        commit_delay=CommitDelay(timer=world.timer),
        verify=verify,
        elapsed=world.boot_ms,
        feature_level=settings.ledger.feature_level,
        random=world.random_bytes,
        described=described,
        damping=Damping(candidate, wait_s, dice_of(world.random_bytes), clocks.steady, pages),
        yields=absence is not None,
    )
    let_go_on_in_log(settings.storage, shard.state.feature_level)
    clocks.steady.trust(shard.state.entry_time_ms)
    shard.time_hold = TimeHold(shard, clocks.steady, clocks.right_until_ms)
    return shard


def _garbage_collector(
    settings: Settings,
    stores: Stores,
    shard: Shard,
    space: FreeSpace,
    metrics: Metrics,
    checkpointer: Checkpointer,
) -> GarbageCollector:
    return garbage_collector(settings, stores.segments, shard, space, metrics, checkpointer, stores.blobs)


def _checkpointing(
    settings: Settings, stores: Stores, shard: Shard, quota: StoreQuota, metrics: Metrics, world: World
) -> tuple[InlineMover, Checkpointer]:
    mover = _inline_mover(settings, stores, shard, quota, metrics)
    rule = SnapshotRule(settings.ledger.snapshot_bytes)
    random, precise = world.random_bytes, world.precise_s
    clock = shard.replica.clock
    stores_of = stores.image, stores.blobs
    return mover, Checkpointer(shard, *stores_of, rule, clock, random, precise, quota, mover.move)


def _inline_mover(
    settings: Settings, stores: Stores, shard: Shard, quota: StoreQuota, metrics: Metrics
) -> InlineMover:
    """Also where no draft travels in an entry any more: some may be there."""
    wait_s = settings.ledger.commit_timeout_ms / 1000
    mover = InlineMover(shard, stores.segments, wait_s, quota_share=lambda: quota.share, alarm=metrics.alarm)
    quota.held_refusal = mover.refusal
    limits = InlineLimits(
        inline_bytes_of(stores.urls, settings.storage),
        settings.storage.inline_rate,
        asyncio.get_running_loop().time,
        held_bytes=lambda: mover.held_bytes,
        quota_share=lambda: quota.share,
    )
    set_inline_rule(stores.journal, limits)
    metrics.watch_inline(lambda: limits.total_bytes, lambda: len(shard.state.objects.inline))
    return mover


async def _claim(stores: Stores, shard: Shard, world: World) -> Marking:
    """Claim the data for this epoch. Returns what says from then on which entries were durable."""
    clock, is_lasting = shard.replica.clock, stores.urls.is_lasting
    await claim_data(shard, stores.blobs, is_lasting=is_lasting)
    return Marking(shard, stores.blobs, clock, world.random_bytes, is_lasting=is_lasting)


def _watch_ownership(shard: Shard, server: Server, stack: AsyncExitStack) -> None:
    looking = OwnershipWatch(shard, lambda: server.has_clients).run()
    stack.push_async_callback(_end, asyncio.create_task(looking, name="ownership"))


def _requested_snapshots(
    stores: Stores, shard: Shard, checkpointer: Checkpointer, world: World
) -> RequestedSnapshots:
    return RequestedSnapshots(shard, checkpointer, stores.blobs, world.wall_ms, world.random_bytes)


def _shard_access(
    settings: Settings, shard: Shard, urls: StoreUrls, mover: InlineMover, snapshots: RequestedSnapshots
) -> ShardAccess:
    loop_time = asyncio.get_running_loop().time
    wait_s = settings.ledger.commit_timeout_ms / 1000
    pins = PinExpiry(shard, lambda: int(loop_time() * 1000), loop_time, wait_s)
    return ShardAccess(shard, data_url_of(urls), pins, mover, snapshots)


async def _open_internal(
    settings: Settings,
    services: Services,
    access: ShardAccess,
    directory: Path | None,
    stack: AsyncExitStack,
    world: World,
) -> InternalListener:
    internal = InternalListener(settings, services, access, directory, world.links)
    stack.push_async_callback(internal.close)
    await internal.open()
    return internal


def _reload(*certificates: Certificates | None) -> None:
    there = [some for some in certificates if some is not None]
    for some in there:
        some.reload()
    if not there:
        log.info("gateway.nothing_to_reload", reason="there is no SSL:// listener")


async def _watch_space(
    settings: Settings, stores: Stores, shard: Shard, metrics: Metrics, stack: AsyncExitStack
) -> tuple[FreeSpace, StoreQuota]:
    """On local disks, and of the quota of the metadata store."""
    space = FreeSpace(stores.directories, settings.storage.reserve_bytes, ahead=_made_ahead(stores))
    quota = StoreQuota(stores.metered, settings.storage.etcd_quota_bytes)

    def keep_for_deletions() -> None:
        shard.growth_refusal = space.refusal if space.is_critical else quota.refusal
        shard.topic_refusal = quota.topic_refusal
        space.store_refusal = quota.full or quota.refusal

    space.on_change = quota.on_change = keep_for_deletions
    space.start()
    stack.callback(space.close)
    metrics.watch_space(lambda: space.free_bytes, lambda: space.refused)
    metrics.watch_quota(lambda: quota.usage)
    await quota.measure()
    return space, quota


def _made_ahead(stores: Stores) -> MadeAhead | None:
    at = log_directory_of(stores.urls.metadata)
    return MadeAhead(at, stores.ahead_bytes) if at is not None else None


def _start_replica_steps(
    checkpointer: Checkpointer,
    watch: ClockWatch,
    store_clock: StoreClock,
    space: FreeSpace,
    quota: StoreQuota,
    stack: AsyncExitStack,
) -> None:
    watch.check()
    housekeeper = replica_steps(checkpointer, watch, space, quota, store_clock)
    stack.push_async_callback(checkpointer.write_last_image)
    task = asyncio.create_task(housekeeper.run(), name="housekeeper")
    stack.push_async_callback(_end, task)


async def _begin_owner_scope(shard: Shard, parts: Sequence[OwnerPart], stack: AsyncExitStack) -> OwnerScope:
    """In the order of the parts."""
    scope = OwnerScope(shard)
    for part in parts:
        scope.add(part)
    # After the drain.
    stack.push_async_callback(scope.end)
    await scope.begin()
    return scope


def _shard_facts(
    settings: Settings, shard: Shard, checkpointer: Checkpointer, garbage: GarbageCollector, metrics: Metrics
) -> ShardFacts:
    metrics.orphan_objects.set_function(lambda: garbage.orphans_left)
    metrics.pins.set_function(lambda: len(shard.state.part(Pins)))
    metrics.oldest_pin_seconds.set_function(lambda: oldest_pin_s(shard))
    return ShardFacts(
        settings.broker.node_id,
        image_entries=lambda: checkpointer.imaged,
        snapshot_entries=lambda: checkpointer.snapshotted,
        orphan_objects=lambda: garbage.orphans_left,
    )


def _readiness(
    settings: Settings, stores: Stores, shard: Shard, space: FreeSpace, quota: StoreQuota, clocks: ClockWatch
) -> Readiness:
    health, directory = stores.watch.health, stores.urls.directory
    warned, min_free_bytes = (clocks.warnings, health.warnings), settings.storage.min_free_bytes
    return Readiness(shard, health.failing, space, directory, min_free_bytes, quota=quota, warned=warned)


async def _finish(task: asyncio.Task[None]) -> None:
    """It deletes what it wrote, so it may go on for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FINISH_S):
            await task


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _shard_pages(shard: Shard, facts: ShardFacts) -> list[dict[str, object]]:
    return [dict(shard_page(shard, facts))]


def _admin_server(
    settings: Settings,
    services: Services,
    readiness: Readiness,
    shards: Callable[[], Sequence[Mapping[str, object]]],
    world: World,
) -> AdminServer:
    admin, version = settings.admin, product_version()
    reasons, warnings = readiness.reasons, readiness.warnings
    server = AdminServer(services.metrics, version, reasons, shards, admin, warnings)
    server.certificates = admin_certificates(settings)
    if admin.console and admin.listen:
        shard = services.shard
        facts = GatewayFacts(version, reasons, warnings, lambda: shard.state.epoch)
        server.console = Console(services, admin, facts, world)
    return server


async def _open_admin(bind: Address | None, admin: AdminServer, stack: AsyncExitStack) -> Address | None:
    if bind is None:
        return None
    sockets = await open_sockets(bind, "--admin")
    hosts = [str(sock.getsockname()[0]) for sock in sockets]
    if admin.certificates is None:
        warn_of_plaintext(f"admin {bind}", hosts, "let it listen on loopback")
    stack.push_async_callback(admin.close)
    await admin.start(sockets)
    return admin_address(sockets, bind)
