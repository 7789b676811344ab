"""The next entry waits for whom the last has told: by count, for a moment, and not where that is in vain."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
import uvloop
from structlog.testing import capture_logs

from adapters.metadata.memory import MemoryMetadata
from gateway.coordination import brief
from gateway.coordination import gathering as gathering_module
from gateway.coordination.brief import BriefTimer
from gateway.coordination.gathering import RECENT_S, Gathering
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from ledger.errors import StoreUnavailable
from ledger.journal import GROUP_COMMIT_BATCHES, decode_entry, entry_prefix
from ledger.requests import CommitFile, CreateTopic, Request, ReserveProducerIds
from tests.model.harness import batches_in_order, locator, topic_id

FOR_LONG_S = 60.0
SHORT_S = 0.05
WAIT_S = 20.0
NOW = 1_000.0


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def begun(gathering: Gathering, now: float = NOW) -> asyncio.Task[None]:
    task = asyncio.create_task(gathering.gather(now))
    await settled()
    return task


async def test_it_ends_with_the_last_of_those_who_were_told() -> None:
    gathering = Gathering(FOR_LONG_S)
    gathering.told(3, NOW)
    gathering.came()
    task = await begun(gathering)
    gathering.came()
    await settled()
    assert not task.done()
    gathering.came()
    await asyncio.wait_for(task, WAIT_S)
    gathering.close()


async def test_nobody_waits_for_one_who_has_come_back_already() -> None:
    gathering = Gathering(FOR_LONG_S)
    gathering.told(1, NOW)
    gathering.came()
    assert (await begun(gathering)).done()
    gathering.close()


async def test_who_was_told_long_ago_is_not_waited_for() -> None:
    gathering = Gathering(FOR_LONG_S)
    gathering.told(8, NOW)
    gathering.came()
    assert (await begun(gathering, NOW + 2 * RECENT_S)).done()
    gathering.close()


async def test_where_they_do_not_come_back_it_is_tried_ever_more_rarely() -> None:
    gathering, tried = Gathering(SHORT_S), list[int]()
    for entry in range(20):
        gathering.told(8, NOW)
        gathering.came()
        task = await begun(gathering)
        if not task.done():
            tried.append(entry)
        await asyncio.wait_for(task, WAIT_S)
    assert tried == [0, 2, 6, 14]
    gathering.close()


async def test_where_they_come_back_again_it_goes_on() -> None:
    gathering = Gathering(SHORT_S)
    gathering.told(8, NOW)
    gathering.came()
    await gathering.gather(NOW)
    gathering.told(8, NOW)
    await gathering.gather(NOW)  # left out, as the first was in vain
    for _ in range(3):
        gathering.told(8, NOW)
        gathering.came()
        task = await begun(gathering)
        assert not task.done()
        for _ in range(3):
            gathering.came()  # half of them is worth it
        await asyncio.wait_for(task, WAIT_S)
    gathering.close()


async def test_who_has_waited_for_company_already_ends_it() -> None:
    gathering = Gathering(FOR_LONG_S)
    gathering.told(8, NOW)
    gathering.came()
    task = await begun(gathering)
    gathering.hurry()
    await asyncio.wait_for(task, WAIT_S)
    gathering.hurry()
    assert (await begun(gathering)).done()
    gathering.close()


async def test_without_a_timer_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "_libc", object())
    gathering = Gathering(FOR_LONG_S)
    with capture_logs() as logs:
        for _ in range(3):
            gathering.told(8, NOW)
            gathering.came()
            assert (await begun(gathering)).done()
    assert [entry["event"] for entry in logs] == ["journal.cannot_gather"]
    gathering.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_brief_timer_fires_once_for_each_time_that_it_is_armed(run: Callable[..., None]) -> None:
    run(_arm_and_disarm())


async def _arm_and_disarm() -> None:
    fired = list[float]()
    loop = asyncio.get_running_loop()
    timer = BriefTimer(0.0002, lambda: fired.append(loop.time()))
    timer.arm()
    await asyncio.sleep(0.05)
    assert len(fired) == 1
    timer.arm()
    timer.disarm()
    await asyncio.sleep(0.05)
    assert len(fired) == 1
    timer.arm()
    timer.close()
    await asyncio.sleep(0.05)
    assert len(fired) == 1


async def entries_of(shard: Shard) -> Sequence[int]:
    """How many records each entry has."""
    prefix = entry_prefix(0)
    found = await shard.journal.store.scan(prefix)
    return [len(decode_entry(versioned.value, key).records) for key, versioned in found]


@pytest.fixture
def recent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering_module, "RECENT_S", FOR_LONG_S)


async def test_clients_in_step_share_their_entries_and_a_file_waits_for_nobody(
    recent_for_long: None,
) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, gathering=Gathering(FOR_LONG_S))
    try:
        asked: Sequence[Request] = [ReserveProducerIds(1)] * 4
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(shard.submit, asked))
            first, *others = asked
            came = shard.submit(first)
            await settled()
            assert not came.done()
            await asyncio.gather(came, *map(shard.submit, others))
            assert await entries_of(shard) == [2, 4, 4]
            came = shard.submit(CreateTopic("t", topic_id(1), 1, {}))
            await settled()
            assert not came.done()
            await shard.submit(CommitFile(locator(1, 1), 100, []))
            assert came.done()
    finally:
        await shard.close()


async def test_who_had_no_room_in_an_entry_waits_for_nobody(recent_for_long: None) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, gathering=Gathering(FOR_LONG_S))
    try:
        await shard.submit(CreateTopic("t", topic_id(1), 1, {}))
        most = GROUP_COMMIT_BATCHES * 2 // 3
        batches = batches_in_order(topic_id(1), 0, [1] * most)
        file1, file2 = (CommitFile(locator(i, 1), 100 * most, batches) for i in (1, 2))
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(shard.submit, [ReserveProducerIds(1)] * 2 + [file1, file2]))
        assert await entries_of(shard) == [2, 1, 3, 1]
    finally:
        await shard.close()


async def test_a_shard_that_closes_while_it_gathers_fails_who_waits(recent_for_long: None) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, gathering=Gathering(FOR_LONG_S))
    await asyncio.gather(*map(shard.submit, [ReserveProducerIds(1)] * 2))
    came = shard.submit(ReserveProducerIds(1))
    await settled()
    assert not came.done()
    await shard.close()
    with pytest.raises(StoreUnavailable):
        await came
