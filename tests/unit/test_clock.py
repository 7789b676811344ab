"""Clocks that jump, step back or were ahead: what is believed, and that ages continue."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.clock import CHECK_MS, MAX_JUMP_MS, TRUST_MS, ClockWatch, SteadyClock
from gateway.coordination.shard import Shard
from gateway.groups.offset_expiry import _Rule
from gateway.host import clock_ms
from gateway.housekeeping.garbage import PRODUCER_EXPIRATION_MS
from gateway.housekeeping.retention import Retention
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch
from ledger.groups.state import BY_RETENTION, CommittedOffset
from ledger.partitions.requests import DeleteRecords
from ledger.topics.requests import CreateTopic
from tests.support.embedded import GRACE_MS, WAIT_S, Client, Embedded
from tests.support.in_memory import in_memory_gateway
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

BEGUN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEN_YEARS_MS = 3650 * DAY_MS
MINUTES_10 = 600_000


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


def test_a_clock_that_runs_and_is_set_by_less_than_a_day_is_believed() -> None:
    host = Host()
    clock = SteadyClock(host.wall, host.boot)
    for ms in (1, CHECK_MS - 1, CHECK_MS, 30 * DAY_MS):
        host.pass_ms(ms)
        assert clock() == host.wall_ms
    for step in (MINUTES_10, -MINUTES_10, MAX_JUMP_MS, -MAX_JUMP_MS, -TEN_YEARS_MS, TEN_YEARS_MS):
        host.wall_ms += step
        assert clock() == host.wall_ms
        assert clock.jump is None


def test_a_jump_of_more_than_a_day_is_not_believed_until_the_clock_is_set_right() -> None:
    host = Host()
    clock = SteadyClock(host.wall, host.boot)
    host.pass_ms(HOUR_MS)
    right = clock()
    host.wall_ms += TEN_YEARS_MS
    host.pass_ms(MINUTES_10)
    assert clock() == right + MINUTES_10
    assert clock.jump is not None
    assert (clock.jump.clock_ms, clock.jump.believed_ms) == (host.wall_ms, right + MINUTES_10)
    host.wall_ms -= TEN_YEARS_MS
    assert clock() == host.wall_ms == right + MINUTES_10
    assert clock.jump is None


def test_a_host_that_was_suspended_for_a_week_has_not_jumped() -> None:
    host = Host()
    clock = SteadyClock(host.wall, host.boot)
    host.pass_ms(7 * DAY_MS)
    assert clock() == host.wall_ms and clock.jump is None


def test_a_clock_that_stood_before_this_was_released_is_believed_when_it_is_set() -> None:
    host = Host(wall_ms=5_000)
    clock = SteadyClock(host.wall, host.boot)
    host.pass_ms(HOUR_MS)
    host.wall_ms = BEGUN_MS
    assert clock() == BEGUN_MS and clock.jump is None
    host.wall_ms += TEN_YEARS_MS
    assert clock() == BEGUN_MS


def test_a_jump_up_to_the_time_of_the_journal_and_what_passed_since_is_believed() -> None:
    host = Host(wall_ms=BEGUN_MS - 100 * DAY_MS)
    clock = SteadyClock(host.wall, host.boot)
    clock.trust(BEGUN_MS)
    host.pass_ms(TRUST_MS)
    believed = clock()
    right = BEGUN_MS + TRUST_MS
    seen = []
    for host.wall_ms in (right + MAX_JUMP_MS + 1, right + MAX_JUMP_MS):
        seen.append(clock())
    assert seen == [believed, right + MAX_JUMP_MS]


async def test_batches_are_judged_and_stamped_by_the_host_while_its_jump_is_not_believed() -> None:
    async with in_memory_gateway() as gateway:
        services = gateway.running.services
        clock = services.clock
        assert isinstance(clock, SteadyClock)
        clock._booted_ms = clock._trusted_ms = clock._booted_ms - 10 * DAY_MS
        clock._checked_ms = 0
        assert clock.jump is not None
        now_ms = clock_ms()
        for kind in ("CreateTime", "LogAppendTime"):
            await gateway.create(kind, message_timestamp_type=kind)
            batch = bytes(build_batch([Record(value=b"x")], base_timestamp=now_ms))
            data = TopicProduceData(kind, partition_data=[PartitionProduceData(0, batch)])
            response = await gateway.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, 5000, [data]))
            assert response.responses[0].partition_responses[0].error_code == 0
            (run,) = services.shard.state.topics.by_name[kind].partitions[0].runs()
            assert now_ms <= run.max_timestamp <= clock_ms()


async def opened(clock: Callable[[], int], elapsed: Callable[[], int] | None = None) -> Shard:
    return await open_shard(MemoryMetadata(), None, None, 1, clock, elapsed=elapsed)


async def create(shard: Shard, number: int) -> int:
    """The time of an entry that is written now."""
    request = CreateTopic(f"t{number}", topic_id(number), 1, {})
    await shard.ask(request, asyncio.get_running_loop().time() + WAIT_S)
    return shard.state.entry_time_ms


async def test_time_goes_at_half_speed_until_a_clock_that_is_behind_has_caught_up() -> None:
    host = Host()
    shard = await opened(host.wall, host.boot)
    host.pass_ms(HOUR_MS)
    ahead = await create(shard, 1)
    host.wall_ms -= MINUTES_10
    assert shard.now_ms() == ahead
    times = []
    for number in range(2, 26):
        host.pass_ms(60_000)
        times.append(await create(shard, number) - ahead)
    assert times[:20] == [30_000 * minute for minute in range(1, 21)]
    assert times[20:] == [660_000, 720_000, 780_000, 840_000]
    assert shard.state.entry_time_ms == host.wall_ms
    await shard.close()


async def test_entry_times_never_go_back_whatever_happens_to_the_clock() -> None:
    host = Host()
    shard = await opened(host.wall, host.boot)
    seen = [shard.now_ms()]
    for number, step in enumerate((0, -HOUR_MS, 10, -DAY_MS, 20 * DAY_MS, -19 * DAY_MS, 5, 400 * DAY_MS), 1):
        host.wall_ms += step
        host.pass_ms(1_000)
        seen += [await create(shard, number), shard.now_ms()]
        host.pass_ms(2_000)
    assert seen == sorted(seen)
    await shard.close()


def reasons(watch: ClockWatch) -> list[str]:
    return [row["reason"] for row in watch.warnings()]


async def test_a_jump_of_ten_minutes_and_back_is_no_warning_and_one_of_ten_years_names_both_times() -> None:
    host, alarms = Host(), list[str]()
    clock = SteadyClock(host.wall, host.boot)
    shard = await opened(clock, host.boot)
    watch = ClockWatch(shard, clock, HOUR_MS, alarms.append)
    for number, step in enumerate((MINUTES_10, -MINUTES_10), 1):
        host.wall_ms += step
        await create(shard, number)
        watch.check()
        assert reasons(watch) == []
    assert watch.ahead_ms == MINUTES_10
    host.wall_ms += TEN_YEARS_MS
    for _ in range(3):
        watch.check()
    (warning,) = watch.warnings()
    assert warning["reason"] == "clock_jumped"
    assert "2037-01-12T08:00:00Z" in warning["detail"] and "2027-01-15T08:10:00Z" in warning["detail"]
    assert alarms == ["clock.jumped"]
    host.wall_ms -= TEN_YEARS_MS
    watch.check()
    assert reasons(watch) == []
    await shard.close()


async def test_a_clock_behind_the_journal_by_more_than_the_grace_is_a_warning_that_names_both_times() -> None:
    host, alarms = Host(), list[str]()
    shard = await opened(host.wall, host.boot)
    host.wall_ms -= 2 * HOUR_MS
    watch = ClockWatch(shard, SteadyClock(host.wall, host.boot), HOUR_MS, alarms.append)
    for _ in range(3):
        watch.check()
    (warning,) = watch.warnings()
    assert warning["reason"] == "clock_behind"
    assert "2027-01-15T08:00:00Z" in warning["detail"] and "2027-01-15T06:00:00Z" in warning["detail"]
    assert (watch.ahead_ms, alarms) == (2 * HOUR_MS, ["clock.behind"])
    await shard.close()


class AheadEmbedded(Embedded):
    """On a host whose time since boot lets the shard's time continue."""

    host: Host

    async def start(self) -> "AheadEmbedded":
        await super().start()
        self.shard.replica.elapsed = self.host.boot
        self.garbage._clock = self.host.wall
        return self


async def life(root: Path, host: Host) -> AheadEmbedded:
    steady = SteadyClock(host.wall, host.boot)
    embedded = AheadEmbedded(root, steady, roll_age_ms=GRACE_MS // 4)  # type: ignore[arg-type]
    embedded.host = host
    return await embedded.start()


@pytest.mark.parametrize("jumps_while_it_runs", [True, False])
async def test_bytes_are_freed_for_thirty_days_after_one_record_was_written_ten_years_ahead(
    tmp_path: Path, jumps_while_it_runs: bool
) -> None:
    host = Host()
    if not jumps_while_it_runs:
        host.wall_ms += TEN_YEARS_MS
    first = await life(tmp_path, host)
    await first.ask(CreateTopic("t", topic_id(1), 1, {}))
    if jumps_while_it_runs:
        host.wall_ms += TEN_YEARS_MS
    assert await first.send("t", 0, Client(1).batch("t", 0)) == [0]
    await first.stop()
    host.wall_ms -= TEN_YEARS_MS

    second = await life(tmp_path, host)
    was_ahead = second.shard.state.entry_time_ms > host.wall_ms
    assert was_ahead is not jumps_while_it_runs
    client, keys = Client(2), set()
    for _ in range(30):
        host.pass_ms(DAY_MS)
        (base,) = await second.send("t", 0, client.batch("t", 0))
        assert isinstance(base, int)
        keys |= await second.objects()
        await second.ask(DeleteRecords(topic_id(1), 0, -1))
        await second.sweep()
        await second.garbage.expire_producers(second.loop_time)
    assert len(keys) > 25, "files are rolled by their age"
    assert len(await second.objects()) <= 2
    assert list(second.log("t").producers) == [2]
    assert PRODUCER_EXPIRATION_MS == DAY_MS
    await second.stop()


async def test_records_without_a_timestamp_expire_although_they_were_committed_ahead_of_the_clock(
    tmp_path: Path,
) -> None:
    host = Host(wall_ms=BEGUN_MS + TEN_YEARS_MS)
    embedded = await life(tmp_path, host)
    configs = {"cleanup.policy": "delete", "retention.ms": "2000", "retention.bytes": "-1"}
    await embedded.ask(CreateTopic("t", topic_id(1), 1, configs))
    host.wall_ms -= TEN_YEARS_MS
    batch = build_batch([Record(value=b"x")], base_timestamp=-1)
    assert await embedded.send("t", 0, batch) == [0]
    retention = Retention(embedded.shard, lambda name, values: values[name], host.wall, WAIT_S)
    raised = [await retention.apply()]
    host.pass_ms(4_002)
    raised.append(await retention.apply())
    assert raised == [0, 1]
    await embedded.stop()


@pytest.mark.parametrize("passed_ms", [TRUST_MS + 1, 30 * DAY_MS])
async def test_records_stay_when_a_clock_jumps_to_the_time_of_a_journal_ahead_long_after_the_start(
    tmp_path: Path, passed_ms: int
) -> None:
    """A clock that has been wrong once, and wrote the journal, is wrong again."""
    host = Host(wall_ms=BEGUN_MS + TEN_YEARS_MS)
    embedded = await life(tmp_path, host)
    configs = {"cleanup.policy": "delete", "retention.ms": str(60 * DAY_MS), "retention.bytes": "-1"}
    await embedded.ask(CreateTopic("t", topic_id(1), 1, configs))
    host.wall_ms -= TEN_YEARS_MS
    clock = SteadyClock(host.wall, host.boot)
    clock.trust(embedded.shard.state.entry_time_ms)
    batch = build_batch([Record(value=b"x")], base_timestamp=host.wall_ms)
    assert await embedded.send("t", 0, batch) == [0]
    host.pass_ms(passed_ms)
    host.wall_ms += TEN_YEARS_MS
    retention = Retention(embedded.shard, lambda name, values: values[name], clock, WAIT_S)
    assert await retention.apply() == 0
    assert clock.jump is not None
    await embedded.stop()


@pytest.mark.parametrize(
    ("expire_ms", "clock_ms", "now_ms", "doubted_ms", "expired"),
    [
        (BY_RETENTION, 0, BEGUN_MS + 999, 0, False),
        (BY_RETENTION, 0, BEGUN_MS + 1_000, 0, True),
        (500, 499, BEGUN_MS + 1_000, 0, False),
        (500, 500, 0, 0, True),
        (BY_RETENTION, BEGUN_MS + 999, BEGUN_MS + TEN_YEARS_MS, 0, False),
        (BY_RETENTION, BEGUN_MS + 1_000, BEGUN_MS + TEN_YEARS_MS, 0, True),
        (BY_RETENTION, BEGUN_MS + 5_999, BEGUN_MS + 5_999, 5_000, False),
        (BY_RETENTION, BEGUN_MS + 6_000, BEGUN_MS + 6_000, 5_000, True),
        (500, 5_499, 0, 5_000, False),
        (500, 5_500, 0, 5_000, True),
    ],
)
def test_offsets_age_by_the_time_that_stamped_them_and_go_at_times_of_the_clock(
    expire_ms: int, clock_ms: int, now_ms: int, doubted_ms: int, expired: bool
) -> None:
    committed = CommittedOffset(0, -1, "", BEGUN_MS, expire_ms)
    assert _Rule().has_expired(committed, clock_ms, now_ms, 1_000, doubted_ms) is expired


async def test_a_producer_is_not_silent_because_the_journal_got_ahead_after_its_last_batch(
    tmp_path: Path,
) -> None:
    host = Host()
    embedded = await life(tmp_path, host)
    await embedded.ask(CreateTopic("t", topic_id(1), 1, {}))
    await embedded.send("t", 0, Client(1).batch("t", 0))
    host.wall_ms += MAX_JUMP_MS
    await embedded.send("t", 0, Client(2).batch("t", 0))
    host.wall_ms -= MAX_JUMP_MS
    known = []
    for ms in (HOUR_MS, PRODUCER_EXPIRATION_MS - HOUR_MS, 1, PRODUCER_EXPIRATION_MS):
        host.pass_ms(ms)
        await embedded.garbage.expire_producers(embedded.loop_time)
        known.append(list(embedded.log("t").producers))
    assert known == [[1, 2], [1, 2], [2], []]
    await embedded.stop()
