"""Topics of very many partitions: what a blank one costs, and how long one step of anything takes.

Times are CPU time of the thread, without collections of garbage.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from ledger.cut import StateCut, take_dirty_rows
from ledger.image import all_rows, restore
from ledger.journal import apply_entry, begin_entry, decode_entry, go_on
from ledger.partitions.decide import MAX_DRAINED
from ledger.partitions.requests import CommitFile, DeleteRecords, DrainRuns
from ledger.partitions.rows import PARTITION
from ledger.partitions.state import PartitionLog
from ledger.requests import Done, Request
from ledger.rows import Row, digest
from ledger.state import LedgerState
from ledger.topics.apply import SLICE_PARTITIONS
from ledger.topics.requests import AddPartitions, CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.quiet import as_if_quiet

MANY: Final = 100_000
LONGEST_S: Final = 0.010
SLACK: Final = 5.0
"""For machines that do other work besides."""
MAX_PARTITION_BYTES: Final = 300
TOPIC: Final = topic_id(1)


@pytest.fixture
def ledger() -> Iterator[JournalledLedger]:
    gc.collect()
    gc.disable()
    yield JournalledLedger()
    gc.enable()


def create(partitions: int, number: int = 1) -> CreateTopic:
    return CreateTopic(f"t{number}", topic_id(number), partitions, {})


def entry_of(ledger: JournalledLedger, *requests: Request) -> bytes:
    ledger.submit(*requests)
    return ledger.entries[-1]


def commit(ledger: JournalledLedger, partitions: range, topic: int = 1) -> None:
    """A batch of a producer of its own to each."""
    for first in range(partitions.start, partitions.stop, 1_000):
        some = range(first, min(first + 1_000, partitions.stop))
        batches = [
            commit_batch(topic_id(topic), index, at * 100, producer=(index, 0, 0))
            for at, index in enumerate(some)
        ]
        where = locator(len(ledger.entries), ledger.now_ms)
        ledger.submit(CommitFile(where, 100 * len(some), batches))


def timed(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return as_if_quiet(time.thread_time() - began)


def longest_step(steps: Iterator[None]) -> float:
    longest = 0.0
    while True:
        began = time.thread_time()
        if next(steps, steps) is steps:
            return as_if_quiet(longest)
        longest = max(longest, time.thread_time() - began)


def copied(ledger: JournalledLedger) -> LedgerState:
    return restore(list(all_rows(ledger.state)))


def test_an_empty_partition_takes_at_most_300_bytes_blank_or_not(ledger: JournalledLedger) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ledger.submit(create(MANY))
        blank, _ = tracemalloc.get_traced_memory()
        assert all(log.high_watermark == 0 for log in ledger.state.topics.by_id[TOPIC].partitions)
        made, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (blank - before) / MANY < 10
    assert (made - before) / MANY <= MAX_PARTITION_BYTES


def test_a_topic_of_very_many_partitions_is_created_and_grown_at_once(ledger: JournalledLedger) -> None:
    creation, growth = entry_of(ledger, create(MANY)), entry_of(ledger, AddPartitions(TOPIC, 2 * MANY))
    state = LedgerState()
    apply_entry(state, decode_entry(ledger.entries[0], "e"))
    for data in (creation, growth):
        entry = decode_entry(data, "e")
        assert timed(lambda: apply_entry(state, entry)) < SLACK * LONGEST_S  # noqa: B023 - called at once
    assert len(state.topics.by_id[TOPIC].partitions) == state.logs.in_topics == 2 * MANY
    assert len(data) < 100


def test_a_topic_of_very_many_partitions_in_use_is_deleted_in_slices(ledger: JournalledLedger) -> None:
    ledger.submit(create(MANY), create(3, 2))
    commit(ledger, range(MANY))
    state = ledger.from_journal()
    entry = decode_entry(entry_of(ledger, DeleteTopic(TOPIC), DeleteTopic(topic_id(2))), "e")
    touched = list[list[PartitionLog]]()
    longest = timed(lambda: touched.append(begin_entry(state, entry)))
    # No request sees a part of it.
    assert not state.topics.by_id and not state.logs.in_topics
    slices = 1
    while state.leaving:
        longest, slices = max(longest, timed(lambda: touched.append(go_on(state)))), slices + 1
    assert longest < SLACK * LONGEST_S
    assert slices == MANY // SLICE_PARTITIONS + 1
    assert [len(logs) for logs in touched] == [SLICE_PARTITIONS] * (MANY // SLICE_PARTITIONS) + [0]
    assert state.producer_count == 0 and len(state.draining) == len(state.logs) == state.logs.deleted == MANY
    assert digest(all_rows(state)) == digest(all_rows(ledger.state))


def test_the_runs_of_very_many_deleted_partitions_are_drained_in_slices(ledger: JournalledLedger) -> None:
    ledger.submit(create(2_000))
    commit(ledger, range(2_000))
    ledger.submit(DeleteTopic(TOPIC))
    assert ledger.submit(DrainRuns(100_000)) == [Done(MAX_DRAINED)]
    while ledger.state.draining:
        ledger.submit(DrainRuns(100_000))
    assert not ledger.state.logs and ledger.state.logs.deleted == 0


@pytest.mark.parametrize("is_whole", [False, True], ids=["what changed", "everything"])
@pytest.mark.parametrize("in_use", [0, 20_000])
def test_rows_of_very_many_partitions_are_made_in_small_steps(
    ledger: JournalledLedger, in_use: int, is_whole: bool
) -> None:
    ledger.submit(create(MANY))
    commit(ledger, range(in_use))
    expected = digest(all_rows(ledger.state))
    cuts: list[StateCut] = []
    assert timed(lambda: cuts.append(StateCut(ledger.state, whole=is_whole))) < SLACK * LONGEST_S
    (cut,) = cuts
    assert longest_step(cut.begin()) < SLACK * LONGEST_S
    rest = cut.rest()
    next(rest)
    # What happens meanwhile is not in it, and costs an entry little more.
    applied = [timed(lambda: commit(ledger, range(first, first + 1_000))) for first in (19_500, 50_000)]  # noqa: B023
    ledger.submit(DeleteTopic(TOPIC))
    assert longest_step(rest) < SLACK * LONGEST_S
    assert max(applied) < SLACK * 3 * LONGEST_S
    assert digest(row for row in cut.rows() if row.value is not None) == expected


def test_partitions_that_a_topic_got_at_different_times_are_found_and_restored(
    ledger: JournalledLedger,
) -> None:
    ledger.submit(create(2), create(3, 2))
    ledger.submit(AddPartitions(TOPIC, 4), AddPartitions(topic_id(2), 5))
    ledger.submit(AddPartitions(TOPIC, 5))
    commit(ledger, range(3, 4))
    for state in (ledger.state, copied(ledger), ledger.from_journal()):
        partitions = state.topics.by_id[TOPIC].partitions
        assert [log.number for log in partitions] == [0, 1, 5, 6, 9]
        assert [log.number for log in state.topics.by_id[topic_id(2)].partitions] == [2, 3, 4, 7, 8]
        assert [log.index for log in partitions] == list(range(5)) == [p.index for p in partitions[:]]
        assert partitions[-1] is partitions[4] is state.logs[9]
        assert [log.high_watermark for log in partitions] == [0, 0, 0, 1, 0]
        assert list(state.logs.numbers()) and state.logs.in_topics == 10
        with pytest.raises(IndexError):
            partitions[5]
        with pytest.raises(KeyError):
            state.logs[10]


def test_only_partitions_that_something_concerned_are_made(ledger: JournalledLedger) -> None:
    ledger.submit(create(1_000))
    commit(ledger, range(500, 502))
    ledger.submit(DeleteRecords(TOPIC, 500, -1))
    assert [log.index for log in ledger.state.logs.values()] == [500, 501]
    assert sorted(log.index for log in copied(ledger).logs.values()) == [500, 501]
    assert ledger.state.logs.get(7) is None and ledger.state.logs[7].index == 7


def test_a_blank_partition_of_a_deleted_topic_is_found_by_nobody_else(ledger: JournalledLedger) -> None:
    ledger.submit(create(3))
    partitions = ledger.state.topics.by_id[TOPIC].partitions
    ledger.submit(DeleteTopic(TOPIC))
    blank = partitions[1]
    assert blank.deleted and (blank.number, blank.index, len(partitions)) == (1, 1, 3)
    assert not ledger.state.logs and list(ledger.state.logs.numbers()) == []


def test_rows_of_blank_partitions_are_written_once_and_deleted_once(ledger: JournalledLedger) -> None:
    take_dirty_rows(ledger.state)
    ledger.submit(create(3))
    commit(ledger, range(1, 2))
    rows = of_partitions(take_dirty_rows(ledger.state))
    assert sorted(rows) == of_partitions(sorted(all_rows(ledger.state))) and len(rows) == 3
    assert not of_partitions(take_dirty_rows(ledger.state))
    ledger.submit(DeleteTopic(TOPIC), DrainRuns(1))
    while ledger.state.draining:
        ledger.submit(DrainRuns(1))
    gone = of_partitions(take_dirty_rows(ledger.state))
    assert sorted(gone) == [row._replace(value=None) for row in sorted(rows)]


def of_partitions(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.section == PARTITION]


def test_a_topic_that_went_before_its_partitions_were_written_leaves_no_row(ledger: JournalledLedger) -> None:
    ledger.submit(create(3))
    StateCut(ledger.state).give_up()
    ledger.submit(DeleteTopic(TOPIC))
    assert all(row.value is None for row in of_partitions(take_dirty_rows(ledger.state)))
