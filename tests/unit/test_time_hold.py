"""A jump of entry time by more than an hour holds what deletes by age, until it is confirmed or for a day."""

import asyncio
from dataclasses import dataclass
from os import urandom
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.config import parse_time
from gateway.coordination.clock import STEP_MS, SteadyClock
from gateway.coordination.shard import Shard
from gateway.coordination.store_clock import StoreClock
from gateway.coordination.time_hold import TimeHold
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.retention import Retention
from gateway.settings import ConfigError
from ledger.cluster.decide import MAX_STEP_MS
from ledger.cluster.owners import HOLD_MS, Jump, Owners
from ledger.cluster.records import LEVEL_WITH_JUMPS
from ledger.cluster.requests import Description
from ledger.errors import StoreUnavailable
from ledger.keys import RANDOM_BYTES, uuid7
from ledger.partitions.requests import CommitBatch, CommitFile, FileCommit
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.embedded import BEGUN_MS as WRITTEN_MS
from tests.support.embedded import WAIT_S, Client, Embedded
from tests.support.journalled import topic_id
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

BEGUN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
NEVER, ALWAYS = 0, 1 << 60


@dataclass
class Host:
    """A host's clock, which may be set, and its time since boot, which may not."""

    wall_ms: int = BEGUN_MS
    boot_ms: int = 5_000

    def wall(self) -> int:
        return self.wall_ms

    def boot(self) -> int:
        return self.boot_ms

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.boot_ms += ms


class Started:
    """A gateway on a host, over stores that others have used before."""

    def __init__(self, host: Host, shard: Shard, right_until_ms: int) -> None:
        self.host = host
        self.shard = shard
        self.right_until_ms = right_until_ms
        self.clock = SteadyClock(host.wall, host.boot)
        self.hold = TimeHold(shard, self.clock, lambda: self.right_until_ms)


@dataclass
class Cluster:
    store: MemoryMetadata
    blobs: MemoryBlobs

    async def start(
        self, host: Host, right_until_ms: int = NEVER, feature_level: int = 0, *, alone: bool = False
    ) -> Started:
        shard = await open_shard(
            self.store,
            self.blobs,
            None,
            1,
            host.wall,
            elapsed=host.boot,
            feature_level=feature_level,
            described=Description("h", "a", right_until_ms=None if alone else right_until_ms),
        )
        return Started(host, shard, right_until_ms)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(MemoryMetadata(exclusive=False), MemoryBlobs())


async def test_the_first_owner_of_a_journal_has_jumped_nowhere(cluster: Cluster) -> None:
    started = await cluster.start(Host())
    assert not started.hold.is_held and not started.hold.warnings()


@pytest.mark.parametrize(("step_ms", "is_held"), [(MAX_STEP_MS, False), (MAX_STEP_MS + 1, True)])
async def test_an_owner_that_begins_more_than_an_hour_later_holds_for_a_day(
    cluster: Cluster, step_ms: int, is_held: bool
) -> None:
    await cluster.start(Host())
    host = Host(BEGUN_MS + step_ms)
    started = await cluster.start(host)
    assert started.hold.is_held is is_held
    if not is_held:
        return
    warning = started.hold.warnings()["time_held"]
    assert "2027-01-15T09:00:00Z" in warning and "2027-01-16T09:00:00Z" in warning
    assert "ledger.time_is_right_until=2027-01-15T09:00:01Z" in warning
    host.pass_ms(HOLD_MS - 1)
    await started.hold.check()
    assert started.hold.is_held
    host.pass_ms(1)
    assert not started.hold.is_held and not started.hold.warnings()


async def test_what_another_clock_or_an_operator_confirms_is_not_held(cluster: Cluster) -> None:
    await cluster.start(Host())
    later = BEGUN_MS + 5 * HOUR_MS
    assert not (await cluster.start(Host(later), later)).hold.is_held


async def test_a_gateway_that_alone_can_write_believes_its_clock_at_the_start(cluster: Cluster) -> None:
    """Decision 0015: the clock at the start is the measure."""
    await cluster.start(Host())
    assert not (await cluster.start(Host(BEGUN_MS + 5 * HOUR_MS), alone=True)).hold.is_held


async def test_a_hold_outlives_restarts_and_snapshots_until_it_is_confirmed(cluster: Cluster) -> None:
    await cluster.start(Host())
    host = Host(BEGUN_MS + 5 * HOUR_MS)
    started = await cluster.start(host)
    checkpointer = Checkpointer(started.shard, None, cluster.blobs, SnapshotRule(1), host.wall)
    for _ in range(3):
        await started.shard.ask(CreateTopic("t", topic_id(1), 1, {}), deadline())
        await checkpointer.snapshot()
    await checkpointer.prune()
    host.pass_ms(60_000)
    again = await cluster.start(host)
    assert again.hold.is_held and again.hold.until_ms == BEGUN_MS + 5 * HOUR_MS + HOLD_MS
    confirmed = await cluster.start(host, BEGUN_MS + 6 * HOUR_MS)
    assert not confirmed.hold.is_held
    assert not (await cluster.start(host)).hold.is_held


async def test_a_hold_ends_when_the_store_s_clock_confirms_it_later(cluster: Cluster) -> None:
    await cluster.start(Host())
    started = await cluster.start(Host(BEGUN_MS + 5 * HOUR_MS))
    started.right_until_ms = BEGUN_MS + 5 * HOUR_MS - 1
    await started.hold.check()
    assert started.hold.is_held
    started.right_until_ms += 1
    await started.hold.check()
    assert not started.hold.is_held
    assert not (await cluster.start(started.host)).hold.is_held


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


@pytest.mark.parametrize("level", [1, 2])
async def test_a_clock_that_jumps_in_the_middle_of_a_run_holds_at_once(cluster: Cluster, level: int) -> None:
    host = Host()
    started = await cluster.start(host, feature_level=level)
    host.pass_ms(30 * HOUR_MS)
    assert not started.hold.is_held
    host.wall_ms += STEP_MS + 1
    assert started.hold.is_held
    await started.hold.check()
    assert started.hold.is_held
    journaled = started.shard.state.part(Owners).held_until_ms
    assert journaled == (host.wall_ms + HOLD_MS if level == 2 else 0)
    host.pass_ms(HOLD_MS)
    assert not started.hold.is_held


async def test_a_jump_that_the_store_confirms_holds_nothing(cluster: Cluster) -> None:
    host = Host()
    started = await cluster.start(host, ALWAYS)
    host.wall_ms += 2 * STEP_MS
    await started.hold.check()
    assert not started.hold.is_held and not started.shard.state.part(Owners).held_until_ms


async def test_a_gateway_that_is_idle_for_hours_has_not_jumped(cluster: Cluster) -> None:
    host = Host()
    started = await cluster.start(host)
    for _ in range(5):
        host.pass_ms(10 * HOUR_MS)
        await started.shard.ask(CreateTopic("t", topic_id(1), 1, {}), deadline())
        await started.hold.check()
        assert not started.hold.is_held


@pytest.mark.parametrize("level", [2, LEVEL_WITH_JUMPS])
async def test_a_jump_makes_nothing_older_and_bytes_and_garbage_go(tmp_path: Path, level: int) -> None:
    host = Host()
    steady = SteadyClock(host.wall, host.boot)
    embedded = Embedded(tmp_path, steady)  # type: ignore[arg-type]
    await embedded.start()
    shard = embedded.shard
    shard.state.feature_level = level
    shard.time_hold = TimeHold(shard, steady, lambda: NEVER)
    client = Client(7)
    due_ms = host.wall_ms - WRITTEN_MS + 5 * HOUR_MS
    for name, number in (("old", 1), ("large", 2)):
        configs = {"cleanup.policy": "delete", "retention.ms": str(due_ms), "retention.bytes": "-1"}
        if name == "large":
            configs |= {"retention.ms": "-1", "retention.bytes": "1"}
        await embedded.ask(CreateTopic(name, topic_id(number), 1, configs))
    for _ in range(3):
        # In turn, so that each batch is a run.
        for name in ("old", "large"):
            await embedded.send(name, 0, client.batch(name, 0))
    retention = Retention(shard, lambda name, values: values[name], steady, WAIT_S, shard.doubted_ms)
    host.wall_ms += 23 * HOUR_MS
    await shard.time_hold.check()
    host.pass_ms(3 * HOUR_MS)
    assert await retention.apply() == 1 and embedded.log("old").log_start == 0
    assert embedded.log("large").log_start > 0
    await embedded.sweep()
    await embedded.garbage.expire_producers(embedded.loop_time)
    assert shard.state.objects.floor_ms < BEGUN_MS + 3 * HOUR_MS and embedded.log("old").producers
    assert (shard.state.objects.floor_ms > BEGUN_MS + 2 * HOUR_MS) == (level == LEVEL_WITH_JUMPS)
    # What is too old without the jump goes, where the journal knows how long that is.
    host.pass_ms(3 * HOUR_MS)
    assert await retention.apply() == (level == LEVEL_WITH_JUMPS)
    host.pass_ms(HOLD_MS)
    assert await retention.apply() == (level != LEVEL_WITH_JUMPS) and embedded.log("old").log_start > 0
    await embedded.sweep()
    await embedded.garbage.expire_producers(embedded.loop_time)
    assert shard.state.objects.floor_ms > BEGUN_MS + 2 * HOUR_MS and not embedded.log("old").producers
    await embedded.stop()


async def test_a_clock_that_jumps_while_retention_is_at_work_deletes_nothing(tmp_path: Path) -> None:
    host = Host()
    steady = SteadyClock(host.wall, host.boot)

    def jump() -> int:
        host.wall_ms += 23 * HOUR_MS
        return steady()

    async with Embedded(tmp_path, steady) as embedded:  # type: ignore[arg-type]
        shard = embedded.shard
        shard.time_hold = TimeHold(shard, steady, lambda: NEVER)
        due_ms = host.wall_ms - WRITTEN_MS + 2 * HOUR_MS
        configs = {"cleanup.policy": "delete", "retention.ms": str(due_ms), "retention.bytes": "-1"}
        await embedded.ask(CreateTopic("t", topic_id(1), 1, configs))
        for _ in range(3):
            await embedded.send("t", 0, Client(7).batch("t", 0))
        retention = Retention(shard, lambda name, values: values[name], jump, WAIT_S, shard.doubted_ms)
        assert await retention.apply() == 0 and embedded.log("t").log_start == 0


# Jumps again and again


async def test_a_gateway_that_is_stopped_each_night_deletes_by_age_all_the_same(cluster: Cluster) -> None:
    """On a host that is switched off, over a store that tells no time."""
    retention_ms, night_ms = 48 * HOUR_MS, 14 * HOUR_MS
    configs = {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "retention.bytes": "-1"}
    first = await cluster.start(Host(), feature_level=LEVEL_WITH_JUMPS)
    await first.shard.ask(CreateTopic("t", topic_id(1), 1, configs), deadline())
    await first.shard.close()
    now_ms, written = BEGUN_MS, list[int]()
    for day in range(20):
        host = Host(now_ms + night_ms)
        started = await cluster.start(host)
        shard, log = started.shard, started.shard.state.logs[0]
        shard.time_hold = started.hold
        retention = Retention(
            shard, lambda name, values: values[name], started.clock, WAIT_S, shard.doubted_ms
        )
        for _ in range(10):
            host.pass_ms(HOUR_MS)
            await commit(shard, host.wall_ms)
            written.append(host.wall_ms)
            await started.hold.check()
            await retention.apply()
            assert started.hold.is_held and (day or "14.0 h" in started.hold.warnings()["time_held"])
            youngest_gone_ms = written[log.log_start - 1] if log.log_start else 0
            assert youngest_gone_ms < host.wall_ms - retention_ms
            assert written[log.log_start] >= host.wall_ms - retention_ms - 2 * night_ms - HOUR_MS
        now_ms = host.wall_ms
        await shard.close()
    assert log.log_start > 100


async def commit(shard: Shard, now_ms: int) -> None:
    """A run of an object of its own."""
    batch = CommitBatch(topic_id(1), 0, 0, 70, 1, now_ms, 0, -1, -1, -1)
    locator = f"wal/0/{uuid7(now_ms, urandom(RANDOM_BYTES))}.wal"
    assert isinstance(await shard.ask(CommitFile(locator, 70, [batch]), deadline()), FileCommit)


async def test_a_restart_after_each_idle_day_is_in_doubt_for_two_days_at_most(cluster: Cluster) -> None:
    host = Host()
    await cluster.start(host, feature_level=LEVEL_WITH_JUMPS)
    for _ in range(10):
        host.pass_ms(24 * HOUR_MS)
        started = await cluster.start(host)
        assert 24 * HOUR_MS <= started.hold.doubted_ms() <= 48 * HOUR_MS
        await started.shard.close()


async def test_a_clock_set_years_ahead_is_in_doubt_for_half_a_day_whatever_comes_then(
    cluster: Cluster,
) -> None:
    years_ms = 10 * 365 * 24 * HOUR_MS
    await (await cluster.start(Host(), feature_level=LEVEL_WITH_JUMPS)).shard.close()
    host = Host(BEGUN_MS + years_ms)
    await (await cluster.start(host)).shard.close()
    host = Host(host.wall_ms + years_ms)
    started = await cluster.start(host)
    assert started.hold.doubted_ms() == 2 * years_ms
    host.pass_ms(HOLD_MS // 2 - 1)
    assert started.hold.doubted_ms() == 2 * years_ms
    host.pass_ms(1)
    assert started.hold.doubted_ms() == years_ms
    host.pass_ms(HOLD_MS // 2)
    assert started.hold.doubted_ms() == 0
    # An operator has confirmed all of it.
    await started.shard.close()
    host = Host(host.wall_ms + years_ms)
    assert not (await cluster.start(host, ALWAYS)).hold.is_held


@given(st.lists(st.tuples(st.integers(MAX_STEP_MS + 1, 1 << 50), st.integers(0, 40 * HOUR_MS)), max_size=60))
def test_jumps_are_few_and_the_newest_is_in_doubt_for_a_day(jumps: list[tuple[int, int]]) -> None:
    owners, now_ms = Owners(), BEGUN_MS
    for size_ms, ran_ms in jumps:
        before_ms, now_ms = now_ms, now_ms + size_ms
        doubted_ms = owners.doubted_ms(before_ms)
        owners.jump(Jump(now_ms + HOLD_MS, size_ms), before_ms)
        assert len(owners.jumps) <= 25 and owners.doubted_until_ms == now_ms + HOLD_MS
        assert size_ms <= owners.doubted_ms(now_ms) <= doubted_ms + size_ms
        assert owners.doubted_ms(now_ms + HOLD_MS - 1) >= size_ms
        assert owners.doubted_ms(now_ms + HOLD_MS) == 0
        now_ms += ran_ms


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_full_disk_is_freed_by_deleting_topics_while_it_is_held(
    tmp_path: Path, is_full: bool
) -> None:
    host = Host()
    steady = SteadyClock(host.wall, host.boot)
    async with Embedded(tmp_path, steady) as embedded:  # type: ignore[arg-type]
        shard = embedded.shard
        shard.time_hold = TimeHold(shard, steady, lambda: NEVER)
        garbage = GarbageCollector(
            shard, embedded.segments, HOUR_MS, steady, WAIT_S, is_disk_full=lambda: is_full
        )
        host.wall_ms += 2 * HOUR_MS
        await shard.time_hold.check()
        await embedded.ask(CreateTopic("t", topic_id(1), 1, {}))
        await embedded.send("t", 0, Client(7).batch("t", 0))
        await embedded.ask(DeleteTopic(topic_id(1)))
        await garbage.drain(embedded.loop_time)
        host.pass_ms(60_000)
        await garbage.sweep_if_full(embedded.loop_time)
        assert shard.is_time_held
        assert len(await embedded.segments.objects()) == (0 if is_full else 1)


# The store's clock


class Store:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.ahead_ms = 0
        self.took_ms = 0
        self.fails = False
        self.tells = True

    async def unix_ms(self) -> int | None:
        """To the second, in the middle of the request."""
        if self.fails:
            raise StoreUnavailable("out of reach")
        self.host.pass_ms(self.took_ms // 2)
        seen = (self.host.wall_ms + self.ahead_ms) // 1000 * 1000
        self.host.pass_ms(self.took_ms // 2)
        return seen if self.tells else None


@pytest.mark.parametrize(
    ("ahead_ms", "took_ms", "differs"),
    [
        (0, 0, False),
        (59_000, 0, False),
        (-59_000, 0, False),
        (62_000, 0, True),
        (-62_000, 0, True),
        (0, 300_000, False),
        (500_000, 300_000, True),
        (-500_000, 300_000, True),
    ],
)
async def test_a_clock_more_than_a_minute_from_the_store_s_is_a_warning_that_names_both(
    ahead_ms: int, took_ms: int, differs: bool
) -> None:
    host = Host()
    store = Store(host)
    store.ahead_ms, store.took_ms = ahead_ms, took_ms
    clock = StoreClock(store.unix_ms, host.wall)
    assert not clock.warnings()
    await clock.look()
    assert bool(clock.warnings()) is differs
    if differs:
        assert clock.warnings()["clock_differs"].count("2027-01-15T") == 2
    store.ahead_ms = 0
    await clock.look()
    assert not clock.warnings()


async def test_a_store_that_fails_or_tells_no_time_says_nothing_new() -> None:
    host = Host()
    store = Store(host)
    clock = StoreClock(store.unix_ms, host.wall)
    assert clock.right_until_ms == 0
    store.tells = False
    await clock.look()
    assert clock.right_until_ms == 0 and not clock.warnings()
    store.tells = True
    await clock.look()
    assert clock.right_until_ms == BEGUN_MS + 60_000
    store.fails = True
    host.pass_ms(HOUR_MS)
    await clock.look()
    assert clock.right_until_ms == BEGUN_MS + 60_000


async def test_a_store_confirms_nothing_while_the_gateway_is_ahead_of_it(cluster: Cluster) -> None:
    await cluster.start(Host())
    host = Host(BEGUN_MS + 5 * HOUR_MS)
    store = Store(host)
    store.ahead_ms = -2 * HOUR_MS
    clock = StoreClock(store.unix_ms, host.wall)
    started = await cluster.start(host)
    for _ in range(3):
        await clock.look()
        started.right_until_ms = clock.right_until_ms
        await started.hold.check()
        assert started.hold.is_held and clock.warnings()
        host.pass_ms(HOUR_MS)
    # The host's clock is set right.
    host.wall_ms += store.ahead_ms
    store.ahead_ms = 0
    await clock.look()
    started.right_until_ms = clock.right_until_ms
    await started.hold.check()
    assert not started.hold.is_held and not clock.warnings()


def test_a_time_that_is_no_time_in_utc_is_refused() -> None:
    assert parse_time("") == 0
    assert parse_time("2027-01-15T08:00:00Z") == BEGUN_MS
    for text in ("2027-01-15", "1800000000000", "2027-01-15T08:00:00+01:00", "2027-13-15T08:00:00Z"):
        with pytest.raises(ConfigError, match=r"ledger\.time_is_right_until"):
            parse_time(text)


def test_a_store_that_hangs_holds_nothing_up() -> None:
    async def hang() -> int | None:
        await asyncio.Event().wait()
        return None

    async def look() -> float:
        await StoreClock(hang, Host().wall).look()
        return asyncio.get_running_loop().time()

    assert run_virtually(look) == 10.0
