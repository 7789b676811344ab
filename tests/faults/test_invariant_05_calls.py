"""Invariant 5: the high watermark never goes back, and nothing at or above it is ever found."""

import random
from pathlib import Path

import pytest

from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.topics.requests import CreateTopic
from tests.support.embedded import MOST, Client, Clock, Embedded
from tests.support.faulty import EVERY_FAULT, Fault, Faults
from tests.support.journalled import JournalledLedger, batches_in_order, locator, topic_id


def nothing_above_is_found(log: PartitionLog) -> None:
    end = log.high_watermark
    assert all(run.last < end for run in log.find(0, MOST, MOST))
    for offset in (end, end + 1, end + 1000):
        assert log.find(offset, MOST) == []
        assert log.bytes_from(offset, MOST) == 0
    latest = log.find_max_time()
    assert latest is None or latest.last < end


@pytest.mark.parametrize("seed", range(20))
def test_through_commits_deletions_and_restarts_the_high_watermark_only_rises(seed: int) -> None:
    choose, ledger = random.Random(seed), JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    high = start = 0
    for number in range(60):
        kind = choose.random()
        log = ledger.state.topics.by_name["t"].partitions[0]
        if kind < 0.5:
            counts = [choose.randint(1, 4) for _ in range(choose.randint(1, 3))]
            file = CommitFile(locator(number, 1_000_000), 300, batches_in_order(topic_id(1), 0, counts))
            decided = ledger.decide(file)
            # Decided and not durable: not visible.
            assert log.high_watermark == high
            nothing_above_is_found(log)
            if choose.random() < 0.8:
                ledger.make_durable(decided)
                assert log.high_watermark == high + sum(counts)
        elif kind < 0.6:
            ledger.submit(DeleteRecords(topic_id(1), 0, choose.choice([-1, choose.randint(0, high)])))
        elif kind < 0.7:
            ledger.submit(DrainRuns(choose.randint(1, 9)))
        elif kind < 0.8:
            ledger.write_image()
        else:
            ledger.restart(choose.choice(["image", "journal", "snapshot"]))
        log = ledger.state.topics.by_name["t"].partitions[0]
        assert log.high_watermark >= high and log.log_start >= start
        assert log.last_stable == log.high_watermark >= log.log_start
        high, start = log.high_watermark, log.log_start
        nothing_above_is_found(log)
    assert high > 20


@pytest.mark.parametrize("fault", EVERY_FAULT)
async def test_whatever_an_append_comes_to_the_high_watermark_only_rises(scratch: Path, fault: Fault) -> None:
    faults = Faults(8, fault, times=3)
    seen: list[int] = []
    async with Embedded(scratch, Clock(), faults) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        host.shard.subscribe(lambda logs: seen.extend(log.high_watermark for log in logs))
        client = Client()
        for _ in range(8):
            await host.send("t", 0, client.batch("t", 0))
            nothing_above_is_found(host.log("t"))
        acked = host.log("t").high_watermark
    assert faults.failed and seen == sorted(seen) and seen[-1] == acked >= 8
    async with Embedded(scratch, Clock()) as host:
        assert host.log("t").high_watermark == acked
