"""What requests of one journal entry may do to each other."""

import pytest

from ledger.errors import ErrorName
from ledger.image import all_rows, restore
from ledger.objects.requests import RaiseFloor
from ledger.objects.state import max_object_number
from ledger.partitions import state as ledger_partitions
from ledger.partitions.requests import (
    CommitFile,
    Committed,
    DeleteRecords,
    DrainRuns,
    ExpireProducers,
    FileCommit,
    Reserved,
    ReserveProducerIds,
    StaleObject,
)
from ledger.partitions.runs import committed_ms
from ledger.partitions.state import PartitionLog
from ledger.requests import Done, Refused
from ledger.rows import digest
from ledger.topics.requests import Created, CreateTopic, Deleted, DeleteTopic
from tests.support.journalled import JournalledLedger, batches_in_order, commit_batch, locator, topic_id

TOPIC = topic_id(1)
WHERE = locator(1, 1_000_000)


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    return ledger


def log_of(ledger: JournalledLedger, partition: int = 0) -> PartitionLog:
    return ledger.state.topics.by_id[TOPIC].partitions[partition]


def file_of(counts: list[int], start: int = 0, partition: int = 0, where: str = WHERE) -> CommitFile:
    batches = batches_in_order(TOPIC, partition, counts, start)
    return CommitFile(where, start + 100 * len(counts), batches)


def test_a_batch_committed_with_the_deletion_of_those_before_it_stays(ledger: JournalledLedger) -> None:
    ledger.submit(file_of([3]))
    ledger.submit(DeleteRecords(TOPIC, 0, -1))
    results = ledger.submit(file_of([2], start=100), DrainRuns(10))
    assert results == [FileCommit([Committed(3, 3)]), Done(1)]
    assert [(run.base, run.last, run.start) for run in log_of(ledger).find(3, 1 << 20)] == [(3, 4, 100)]
    assert ledger.state.objects.by_locator[WHERE].live_runs == 1


def test_a_run_without_a_timestamp_says_when_it_was_committed_whatever_its_batches_say(
    ledger: JournalledLedger,
) -> None:
    batches = [commit_batch(TOPIC, 0, 100 * n, max_timestamp=stamp) for n, stamp in enumerate((-7, -9))]
    ledger.submit(CommitFile(WHERE, 200, batches))
    (run,) = log_of(ledger).runs()
    assert (run.base, run.last, committed_ms(run.max_timestamp)) == (0, 1, ledger.now_ms)


def test_nothing_new_is_taken_from_an_object_that_the_same_entry_may_close(ledger: JournalledLedger) -> None:
    first = file_of([3])
    ledger.submit(first)
    ledger.submit(DeleteRecords(TOPIC, 0, -1))
    results = ledger.submit(DrainRuns(10), file_of([2], start=100), first)
    assert results == [Done(1), StaleObject(), FileCommit([Committed(0, 3, duplicate=True)])]
    assert ledger.state.objects.by_locator[WHERE].closed
    assert log_of(ledger).high_watermark == 3


def test_nothing_new_is_taken_from_an_object_below_the_floor_of_the_same_entry(
    ledger: JournalledLedger,
) -> None:
    old, new = locator(1, 1_000_000), locator(2, 1_000_002)
    ledger.now_ms = 1_000_002
    results = ledger.submit(
        file_of([1], where=old),
        RaiseFloor(1_000_001),
        file_of([1], start=100, where=old),
        file_of([1], where=old),
        file_of([1], where=new),
    )
    assert results == [
        FileCommit([Committed(0, 0)]),
        Done(1),
        StaleObject(),
        FileCommit([Committed(0, 0, duplicate=True)]),
        FileCommit([Committed(1, 0)]),
    ]


def test_commits_of_one_entry_continue_where_the_one_before_ended(ledger: JournalledLedger) -> None:
    results = ledger.submit(file_of([2, 3]), file_of([4], start=200), file_of([1], start=300, partition=1))
    assert results == [
        FileCommit([Committed(0, 0), Committed(2, 0)]),
        FileCommit([Committed(5, 0)]),
        FileCommit([Committed(0, 0)]),
    ]
    # One run: the batches are adjacent in one object.
    assert [(run.base, run.last) for run in log_of(ledger).runs()] == [(0, 8)]


def test_a_batch_repeated_within_an_entry_gets_its_first_result(ledger: JournalledLedger) -> None:
    ids = ledger.submit(ReserveProducerIds(1))
    assert ids == [Reserved(0, 1)]
    first = CommitFile(WHERE, 100, [commit_batch(TOPIC, 0, 0, records=2, producer=(0, 0, 0))])
    again = CommitFile(WHERE, 200, [commit_batch(TOPIC, 0, 100, records=2, producer=(0, 0, 0))])
    gap = CommitFile(WHERE, 300, [commit_batch(TOPIC, 0, 200, records=2, producer=(0, 0, 3))])
    results = ledger.submit(first, again, gap)
    assert results[:2] == [FileCommit([Committed(0, 0)]), FileCommit([Committed(0, 0, duplicate=True)])]
    (last,) = results[2].results if isinstance(results[2], FileCommit) else ()
    assert isinstance(last, Refused) and last.error == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log_of(ledger).high_watermark == 2


def test_a_topic_deleted_in_an_entry_is_unknown_to_the_rest_of_it_and_its_name_free(
    ledger: JournalledLedger,
) -> None:
    results = ledger.submit(
        DeleteTopic(TOPIC), file_of([1]), DeleteTopic(TOPIC), CreateTopic("t", topic_id(2), 1, {})
    )
    assert results == [
        Deleted(),
        FileCommit([Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)]),
        Refused(ErrorName.UNKNOWN_TOPIC_ID),
        Created(topic_id(2)),
    ]
    assert ledger.state.topics.by_name["t"].topic_id == topic_id(2)


def test_two_reservations_of_an_entry_share_no_producer_id(ledger: JournalledLedger) -> None:
    assert ledger.submit(ReserveProducerIds(3), ReserveProducerIds(2)) == [Reserved(0, 3), Reserved(3, 2)]


def test_two_topics_of_an_entry_share_no_partition_number(ledger: JournalledLedger) -> None:
    ledger.submit(CreateTopic("u", topic_id(2), 3, {}), CreateTopic("v", topic_id(3), 2, {}))
    topics = ledger.state.topics.by_name
    assert [log.number for name in "tuv" for log in topics[name].partitions] == list(range(7))


def test_a_producer_that_commits_in_an_entry_is_not_expired_by_it(ledger: JournalledLedger) -> None:
    ledger.submit(ReserveProducerIds(2))
    silent = CommitFile(WHERE, 100, [commit_batch(TOPIC, 0, 0, producer=(0, 0, 0))])
    speaking = CommitFile(WHERE, 200, [commit_batch(TOPIC, 0, 100, producer=(1, 0, 0))])
    speaks = CommitFile(WHERE, 300, [commit_batch(TOPIC, 0, 200, producer=(1, 0, 1))])
    ledger.submit(silent, speaking)
    ledger.now_ms += 10
    results = ledger.submit(speaks, ExpireProducers(ledger.now_ms, 10, list(ledger.state.logs)))
    assert results == [FileCommit([Committed(2, 0)]), Done(1)]
    assert list(log_of(ledger).producers) == [1]


def test_runs_are_drained_in_slices_across_chunks(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_partitions, "CHUNK_RUNS", 3)
    for number in range(8):
        ledger.submit(file_of([1], start=200 * number))
    assert [len(chunk) for chunk in log_of(ledger).chunks] == [3, 3, 2]
    ledger.submit(DeleteTopic(TOPIC))
    assert [ledger.submit(DrainRuns(3)) for _ in range(4)] == [[Done(3)], [Done(3)], [Done(2)], [Done(0)]]
    assert ledger.state.objects.by_locator[WHERE].closed
    assert not ledger.state.logs and not ledger.state.draining


@pytest.mark.parametrize("together", [True, False], ids=["one entry", "two entries"])
@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_for_which_no_object_number_is_left_is_refused_and_not_journaled(
    together: bool, level: int
) -> None:
    ledger = JournalledLedger(level)
    most = max_object_number(level)
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    ledger.state.objects.next_number = most
    last, beyond = [
        CommitFile(locator(number, 1_000_000), 200, [commit_batch(topic_id(1), 0, start) for start in starts])
        for number, starts in ((1, [0]), (2, [0, 100]))
    ]
    results = ledger.submit(last, beyond) if together else ledger.submit(last) + ledger.submit(beyond)
    assert results[0] == FileCommit([Committed(0, 0)])
    assert isinstance(results[1], FileCommit)
    assert [type(result) for result in results[1].results] == [Refused, Refused]
    assert list(ledger.state.objects.by_number) == [most]
    restored = restore(all_rows(ledger.state))
    assert digest(all_rows(restored)) == digest(all_rows(ledger.state))
    # A repeat of committed batches still gets its results.
    more = CommitFile(last.locator, 300, [*last.batches, commit_batch(topic_id(1), 0, 100)])
    (again,) = ledger.submit(more)
    assert isinstance(again, FileCommit)
    assert [type(result) for result in again.results] == [Committed, Committed]
