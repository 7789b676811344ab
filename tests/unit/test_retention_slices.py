"""A check of retention deletes all that is due, a slice of each partition at a time, and does not keep other
steps of housekeeping waiting."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from gateway.coordination.free_space import FreeSpace
from gateway.housekeeping.garbage import DRAIN_SLICE_S
from gateway.housekeeping.housekeeper import TICK_S, Housekeeper
from gateway.housekeeping.retention import CHECK_SLICE_S, SLICE_RUNS, Retention
from gateway.housekeeping.steps import owner_steps
from ledger.errors import StoreUnavailable
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.retention import UNLIMITED, RetainedFrom, retention_offset
from ledger.partitions.state import PartitionLog
from ledger.requests import Request
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.embedded import GRACE_MS, WAIT_S, Clock, Embedded
from tests.support.journalled import commit_batch, locator, topic_id
from tests.support.loop_time import longest_turn

TOPIC: Final = topic_id(1)
RUN_BYTES: Final = 100
OF_A_COMMIT: Final = 1_000
RETENTION_MS: Final = 60_000
MANY: Final = 2 * SLICE_RUNS + 1
BY_TIME: Final = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS), "retention.bytes": "-1"}
BY_BYTES: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "300"}
MOST_S: Final = 0.020
TRIES: Final = 3


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, Clock()) as opened:
        yield opened


async def write(host: Embedded, runs: int, partition: int = 0) -> None:
    """Runs of one record each, which are not adjacent where they are stored."""
    for first in range(0, runs, OF_A_COMMIT):
        count, now_ms = min(OF_A_COMMIT, runs - first), host.clock.now_ms
        batches = [
            commit_batch(TOPIC, partition, 2 * RUN_BYTES * n, size=RUN_BYTES, max_timestamp=now_ms)
            for n in range(count)
        ]
        where = locator(host.shard.state.applied, now_ms)
        await host.ask(CommitFile(where, 2 * RUN_BYTES * count, batches))


async def written(host: Embedded, configs: dict[str, str], *runs: int) -> Sequence[PartitionLog]:
    """So many runs that retention.ms has made due, by partition, and three more each."""
    await host.ask(CreateTopic("t", TOPIC, len(runs), configs))
    for partition, count in enumerate(runs):
        await write(host, count, partition)
    host.clock.now_ms += RETENTION_MS + 1
    for partition in range(len(runs)):
        await write(host, 3, partition)
    return host.shard.state.topics.by_id[TOPIC].partitions


def retention_of(host: Embedded) -> Retention:
    return Retention(host.shard, lambda name, configs: configs[name], host.clock, WAIT_S)


@pytest.mark.parametrize("configs", [BY_TIME, BY_BYTES], ids=["by time", "by bytes"])
@pytest.mark.parametrize("undrained", [0, MANY], ids=["all drained", "dead runs before them"])
async def test_all_that_is_due_goes_in_one_check(
    host: Embedded, configs: dict[str, str], undrained: int
) -> None:
    (log,) = await written(host, configs, undrained + MANY)
    if undrained:
        await host.ask(DeleteRecords(TOPIC, 0, undrained))
        assert log.droppable(undrained + 1) == undrained
    retention = retention_of(host)
    assert await retention.apply() == 1
    assert log.log_start == undrained + MANY and log.high_watermark == log.log_start + 3
    assert await retention.apply() == 0


async def test_retention_bytes_keeps_what_it_says_while_clients_delete_and_write_between_slices(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = await written(host, BY_BYTES, MANY)
    ask, requests = host.shard.ask, list[Request]()

    async def asking(request: Request, deadline: float) -> object:
        requests.append(request)
        if len(requests) == 1:
            await ask(DeleteRecords(TOPIC, 0, SLICE_RUNS + 10), deadline)
            await write(host, 2)
        return await ask(request, deadline)

    monkeypatch.setattr(host.shard, "ask", asking)
    await retention_of(host).apply()
    assert log.high_watermark - log.log_start == 3


async def test_partitions_of_which_little_is_due_do_not_wait_for_those_of_which_much_is(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = await written(host, BY_TIME, MANY, 5)
    ask, requests = host.shard.ask, list[Request]()

    async def asking(request: Request, deadline: float) -> object:
        requests.append(request)
        return await ask(request, deadline)

    monkeypatch.setattr(host.shard, "ask", asking)
    entries = host.shard.state.applied
    assert await retention_of(host).apply() == 2
    assert [log.log_start for log in logs] == [MANY, 5]
    raises = [(one.partition, one.offset) for one in requests if isinstance(one, DeleteRecords)]
    assert raises == [(0, SLICE_RUNS), (1, 5), (0, 2 * SLICE_RUNS), (0, MANY)]
    # What was raised is drained in between.
    assert 0 < logs[0].droppable(MANY) <= SLICE_RUNS and not logs[1].droppable(1)
    drains = sum(isinstance(one, DrainRuns) for one in requests)
    assert host.shard.state.applied - entries <= 3 + drains


async def test_a_topic_that_is_deleted_between_two_slices_ends_its_retention(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(host, BY_TIME, MANY)
    ask = host.shard.ask

    async def asking(request: Request, deadline: float) -> object:
        if isinstance(request, DrainRuns) and TOPIC in host.shard.state.topics.by_id:
            await ask(DeleteTopic(TOPIC), deadline)
        return await ask(request, deadline)

    monkeypatch.setattr(host.shard, "ask", asking)
    assert await retention_of(host).apply() == 1
    assert not host.shard.state.logs


async def test_with_more_dead_runs_than_are_counted_at_once_nothing_goes_by_size(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.partitions.retention.MAX_DEAD_RUNS", 10)
    (log,) = await written(host, BY_BYTES, 20)
    for dead, found in [(10, RetainedFrom(20, False)), (11, RetainedFrom(11, False))]:
        await host.ask(DeleteRecords(TOPIC, 0, dead))
        assert retention_offset(log, UNLIMITED, 300, 0, SLICE_RUNS, lambda _: 0) == found
    # They are drained, and it is looked again.
    assert await retention_of(host).apply() == 1
    assert log.log_start == 20


@pytest.mark.serial
@pytest.mark.parametrize("configs", [BY_TIME, BY_BYTES], ids=["by time", "by bytes"])
async def test_very_many_runs_that_are_due_do_not_hold_the_loop(
    tmp_path: Path, configs: dict[str, str]
) -> None:
    longest = []
    for number in range(TRIES):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with Embedded(directory, Clock()) as host:
            await written(host, configs, 10 * SLICE_RUNS, 10 * SLICE_RUNS)
            longest.append(await longest_turn(retention_of(host).apply()))
    assert min(longest) < MOST_S, longest


async def test_the_loop_goes_on_between_two_slices(host: Embedded) -> None:
    await written(host, BY_TIME, MANY, MANY)
    turns, seen = 0, set[tuple[int, ...]]()
    checking = asyncio.ensure_future(retention_of(host).apply())
    while not checking.done():
        await asyncio.sleep(0)
        turns += 1
        seen.add(tuple(log.log_start for log in host.shard.state.logs.values()))
    assert turns >= 6 and len(seen) >= 4


async def test_retention_is_checked_more_often_while_the_disk_is_full(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(f_frsize=1, f_bavail=1 << 40, f_blocks=1 << 40)
    space = FreeSpace([host.root], 1 << 20, lambda _: cast(Any, status))
    steps = dict[str, Callable[[], Awaitable[object]]]()

    def add(
        _: Housekeeper, name: str, every_s: float, run: Callable[[], Awaitable[object]], **__: float
    ) -> None:
        steps[name] = run

    monkeypatch.setattr(Housekeeper, "add", add)
    owner_steps(host.checkpointer, host.garbage, retention_of(host), GRACE_MS, 1, space)
    (log,) = await written(host, BY_TIME, 5)
    log_start = []
    for status.f_bavail in (1 << 40, 0):
        space.measure()
        await steps["retention on a full disk"]()
        log_start.append(log.log_start)
    assert log_start == [0, 5]


class SlowJournal:
    """Each request takes so long, by the time of the loop."""

    def __init__(self, host: Embedded, monkeypatch: pytest.MonkeyPatch, took_s: float) -> None:
        self.skew_s = 0.0
        self.requests = list[Request]()
        self.fails = False
        self._host, self._ask = host, host.shard.ask
        self._took_s = took_s
        monkeypatch.setattr(host.shard, "ask", self._asking)

    def loop_time(self) -> float:
        return self._host.loop_time() + self.skew_s

    async def _asking(self, request: Request, deadline: float) -> object:
        if self.fails:
            raise StoreUnavailable("on purpose")
        self.requests.append(request)
        self.skew_s += self._took_s
        return await self._ask(request, deadline)

    def retention(self) -> Retention:
        values: Callable[[str, Any], str] = lambda name, configs: configs[name]  # noqa: E731
        return Retention(self._host.shard, values, self._host.clock, WAIT_S, loop_time=self.loop_time)


async def test_a_long_check_goes_on_after_the_other_steps(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = await written(host, BY_TIME, MANY, 5)
    journal = SlowJournal(host, monkeypatch, CHECK_SLICE_S * 0.6)
    retention = journal.retention()
    assert await retention.go_on() == 0
    assert await retention.apply() == 2
    log_starts, steps = [logs[0].log_start], 0
    while logs[0].log_start < MANY:
        before = len(journal.requests)
        await retention.go_on()
        steps += 1
        assert 1 <= len(journal.requests) - before <= 3
        log_starts.append(logs[0].log_start)
    assert log_starts[0] == SLICE_RUNS and steps >= 2
    await retention.go_on()
    before = len(journal.requests)
    assert await retention.go_on() == 0 and len(journal.requests) == before


async def test_a_check_that_is_due_again_leaves_no_partition_out(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.housekeeping.retention.AT_ONCE", 1)
    logs = await written(host, BY_TIME, *[2] * 8)
    retention = SlowJournal(host, monkeypatch, CHECK_SLICE_S).retention()
    for _ in range(3 * len(logs)):
        await retention.apply()
        await write(host, 1)
        host.clock.now_ms += RETENTION_MS + 1
    assert all(log.log_start >= 2 for log in logs)


async def test_a_check_that_has_failed_or_is_of_another_epoch_does_not_go_on(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = await written(host, BY_TIME, MANY)
    journal = SlowJournal(host, monkeypatch, CHECK_SLICE_S)
    retention = journal.retention()
    for ending in ("epoch", "failure"):
        assert await retention.apply() == 1
        journal.fails = ending == "failure"
        if journal.fails:
            with pytest.raises(StoreUnavailable):
                await retention.go_on()
            journal.fails = False
        else:
            host.shard.state.epoch += 1
        before = len(journal.requests)
        assert await retention.go_on() == 0 and len(journal.requests) == before
        while log.droppable(1):
            await host.garbage.drain(journal.loop_time)


async def test_many_runs_of_a_deleted_topic_are_dropped_in_several_steps(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(host, BY_TIME, 2 * MANY)
    await host.ask(DeleteTopic(TOPIC))
    journal = SlowJournal(host, monkeypatch, DRAIN_SLICE_S * 0.6)
    await host.garbage.drain(journal.loop_time)
    assert len(journal.requests) == 2 and host.shard.state.draining
    while host.shard.state.draining:
        await host.garbage.drain(journal.loop_time)
    assert not host.shard.state.logs


async def test_what_a_check_has_left_is_due_at_the_next_tick(
    host: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_s = dict[str, float]()
    monkeypatch.setattr(
        Housekeeper, "add", lambda _, name, seconds, __, **___: every_s.update({name: seconds})
    )
    owner_steps(host.checkpointer, host.garbage, retention_of(host), GRACE_MS, 300_000)
    assert every_s["more retention"] == TICK_S and every_s["retention"] == 300
