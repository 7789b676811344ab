"""Searches by time pass chunks by without missing what they hold."""

import random

import pytest

from ledger.image import all_rows, restore
from ledger.partitions import state as partitions
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id


def first_as_late(log: PartitionLog, timestamp_ms: int, from_offset: int = 0) -> Run | None:
    readable = [run for run in log.runs() if run.last >= max(log.log_start, from_offset)]
    return next((run for run in readable if run.max_timestamp >= timestamp_ms), None)


def latest(log: PartitionLog, from_offset: int = 0) -> Run | None:
    first = max(log.log_start, from_offset)
    readable = [run for run in log.runs() if run.last >= first and run.max_timestamp >= 0]
    return max(readable, key=lambda run: run.max_timestamp, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_a_search_by_time_finds_what_a_look_at_every_run_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "CHUNK_RUNS", 3)
    choose = random.Random(seed)
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    for number in range(40):
        stamp = choose.choice([-1, choose.randrange(20)])
        batch = commit_batch(topic_id(1), 0, 0, max_timestamp=stamp)
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [batch]))
        if number % 10 == 9:
            ledger.submit(DeleteRecords(topic_id(1), 0, choose.randrange(number)))
            ledger.submit(DrainRuns(choose.randrange(1, 5)))
    for state in (ledger.state, restore(list(all_rows(ledger.state)))):
        log = state.topics.by_name["t"].partitions[0]
        for timestamp_ms in range(-1, 22):
            assert log.find_time(timestamp_ms) == first_as_late(log, timestamp_ms)
            for offset in range(0, 42, 5):
                assert log.find_time(timestamp_ms, offset) == first_as_late(log, timestamp_ms, offset)
        for offset in range(42):
            assert log.find_max_time(offset) == latest(log, offset)
