"""The next entry waits for the clients whose results the last one had: by count, for a moment, and not where
that is in vain."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
import uvloop
from structlog.testing import capture_logs

from adapters.journals.metadata import entry_prefix
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination import commit_delay as commit_delay_module
from gateway.coordination.commit_delay import RECENT_S, CommitDelay
from gateway.coordination.shard import Shard
from gateway.timers import timerfd
from gateway.timers.timerfd import TimerFd
from ledger.errors import StoreUnavailable
from ledger.journal import GROUP_COMMIT_BATCHES, decode_entry
from ledger.partitions.requests import CommitFile, ReserveProducerIds
from ledger.requests import Request
from ledger.topics.requests import CreateTopic
from tests.support.journalled import batches_in_order, locator, topic_id
from tests.support.shards import journal_of, open_shard

FOR_LONG_S = 60.0
SHORT_S = 0.05
WAIT_S = 20.0
NOW = 1_000.0


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def begun_wait(delay: CommitDelay, now: float = NOW) -> asyncio.Task[None]:
    task = asyncio.create_task(delay.wait(now))
    await settled()
    return task


async def test_a_wait_ends_when_all_expected_requests_have_arrived() -> None:
    delay = CommitDelay(FOR_LONG_S)
    delay.expect(3, NOW)
    delay.arrived()
    task = await begun_wait(delay)
    delay.arrived()
    await settled()
    assert not task.done()
    delay.arrived()
    await asyncio.wait_for(task, WAIT_S)
    delay.close()


async def test_an_entry_does_not_wait_for_a_request_that_has_arrived_already() -> None:
    delay = CommitDelay(FOR_LONG_S)
    delay.expect(1, NOW)
    delay.arrived()
    assert (await begun_wait(delay)).done()
    delay.close()


async def test_an_entry_does_not_wait_for_a_client_whose_result_was_long_ago() -> None:
    delay = CommitDelay(FOR_LONG_S)
    delay.expect(8, NOW)
    delay.arrived()
    assert (await begun_wait(delay, NOW + 2 * RECENT_S)).done()
    delay.close()


async def test_entries_wait_ever_more_rarely_where_clients_do_not_come_back() -> None:
    delay, tried = CommitDelay(SHORT_S), list[int]()
    for entry in range(20):
        delay.expect(8, NOW)
        delay.arrived()
        task = await begun_wait(delay)
        if not task.done():
            tried.append(entry)
        await asyncio.wait_for(task, WAIT_S)
    assert tried == [0, 2, 6, 14]
    delay.close()


async def test_entries_wait_again_where_clients_come_back_again() -> None:
    delay = CommitDelay(SHORT_S)
    delay.expect(8, NOW)
    delay.arrived()
    await delay.wait(NOW)
    delay.expect(8, NOW)
    await delay.wait(NOW)  # left out, as the first was in vain
    for _ in range(3):
        delay.expect(8, NOW)
        delay.arrived()
        task = await begun_wait(delay)
        assert not task.done()
        for _ in range(3):
            delay.arrived()  # half of them is worth it
        await asyncio.wait_for(task, WAIT_S)
    delay.close()


async def test_a_request_that_has_waited_already_ends_the_wait() -> None:
    delay = CommitDelay(FOR_LONG_S)
    delay.expect(8, NOW)
    delay.arrived()
    task = await begun_wait(delay)
    delay.skip()
    await asyncio.wait_for(task, WAIT_S)
    delay.skip()
    assert (await begun_wait(delay)).done()
    delay.close()


async def test_without_a_timer_no_entry_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timerfd, "_libc", object())
    delay = CommitDelay(FOR_LONG_S)
    with capture_logs() as logs:
        for _ in range(3):
            delay.expect(8, NOW)
            delay.arrived()
            assert (await begun_wait(delay)).done()
    assert [entry["event"] for entry in logs] == ["journal.cannot_gather"]
    delay.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_timer_fd_fires_once_for_each_time_that_it_is_armed(run: Callable[..., None]) -> None:
    run(_arm_and_disarm())


async def _arm_and_disarm() -> None:
    fired = list[float]()
    loop = asyncio.get_running_loop()
    timer = TimerFd(0.0002, lambda: fired.append(loop.time()))
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
    found = await journal_of(shard).store.scan(prefix)
    return [len(decode_entry(versioned.value, key).records) for key, versioned in found]


@pytest.fixture
def recent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_delay_module, "RECENT_S", FOR_LONG_S)


async def test_clients_in_step_share_their_entries_and_a_file_does_not_wait(
    recent_for_long: None,
) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, commit_delay=CommitDelay(FOR_LONG_S))
    try:
        requests: Sequence[Request] = [ReserveProducerIds(1)] * 4
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(shard.submit, requests))
            first, *others = requests
            pending = shard.submit(first)
            await settled()
            assert not pending.done()
            await asyncio.gather(pending, *map(shard.submit, others))
            assert await entries_of(shard) == [3, 4, 4]
            pending = shard.submit(CreateTopic("t", topic_id(1), 1, {}))
            await settled()
            assert not pending.done()
            await shard.submit(CommitFile(locator(1, 1), 100, []))
            assert pending.done()
    finally:
        await shard.close()


async def test_a_request_that_did_not_fit_into_an_entry_does_not_wait_for_others(
    recent_for_long: None,
) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, commit_delay=CommitDelay(FOR_LONG_S))
    try:
        await shard.submit(CreateTopic("t", topic_id(1), 1, {}))
        most = GROUP_COMMIT_BATCHES * 2 // 3
        batches = batches_in_order(topic_id(1), 0, [1] * most)
        file1, file2 = (CommitFile(locator(i, 1), 100 * most, batches) for i in (1, 2))
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(shard.submit, [ReserveProducerIds(1)] * 2 + [file1, file2]))
        assert await entries_of(shard) == [3, 1, 3, 1]
    finally:
        await shard.close()


async def test_a_shard_that_closes_during_the_commit_delay_fails_what_waits(recent_for_long: None) -> None:
    shard = await open_shard(MemoryMetadata(), None, None, 1, lambda: 1, commit_delay=CommitDelay(FOR_LONG_S))
    await asyncio.gather(*map(shard.submit, [ReserveProducerIds(1)] * 2))
    pending = shard.submit(ReserveProducerIds(1))
    await settled()
    assert not pending.done()
    await shard.close()
    with pytest.raises(StoreUnavailable):
        await pending
