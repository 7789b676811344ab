"""What a commit says of batches before it: no producer that the ledger does not know begins after them."""

import pytest

from ledger.errors import ErrorName
from ledger.journal import decode_entry
from ledger.objects.requests import RaiseFloor
from ledger.partitions.producers import MAX_SEQUENCE, ProducerBounds
from ledger.partitions.requests import (
    CommitFile,
    Committed,
    ExpireProducers,
    FileCommit,
    ProducerKey,
    StaleObject,
)
from ledger.requests import LedgerResult, Refused
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

TOPIC = topic_id(1)
PRODUCER = 7


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 2, {}))
    return ledger


def key_of(partition: int = 0, producer: int = PRODUCER, epoch: int = 0) -> ProducerKey:
    return TOPIC, partition, producer, epoch


def draft(
    number: int,
    *sequences: int,
    first: dict[ProducerKey, int] | None = None,
    epoch: int = 0,
    producer: int = 7,
) -> CommitFile:
    """Batches of one record of one producer in partition 0, in an object of their own."""
    batches = [
        commit_batch(TOPIC, 0, 100 * at, producer=(producer, epoch, sequence))
        for at, sequence in enumerate(sequences)
    ]
    return CommitFile(locator(number, 1_000_000), 100 * len(batches), batches, first)


def committed(*bases: int) -> FileCommit:
    return FileCommit([Committed(base, 0) for base in bases])


def out_of_order(sequence: int, expected: int) -> Refused:
    reason = f"sequence {sequence} came where {expected} was expected"
    return Refused(ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)


def results(result: LedgerResult) -> list[object]:
    assert isinstance(result, FileCommit)
    return list(result.results)


def test_a_new_producer_begins_with_the_sequence_that_is_named_or_one_before_it(
    ledger: JournalledLedger,
) -> None:
    first = {key_of(): 5}
    (refused,) = ledger.submit(draft(1, 6, 7, first=first))
    assert results(refused) == [out_of_order(6, 5), out_of_order(7, 5)]
    assert ledger.submit(draft(2, 5, 6, first=first), draft(3, 7, first=first)) == [
        committed(0, 1),
        committed(2),
    ]
    ledger.submit(CreateTopic("other", topic_id(2), 1, {}))
    assert ledger.submit(draft(4, 4, 5, first={key_of(producer=8): 5}, producer=8)) == [committed(3, 4)]


def test_a_sequence_that_is_named_may_be_on_the_other_side_of_the_wrap(ledger: JournalledLedger) -> None:
    first = {key_of(): MAX_SEQUENCE}
    (refused,) = ledger.submit(draft(1, 0, first=first))
    assert results(refused) == [out_of_order(0, MAX_SEQUENCE)]
    assert ledger.submit(draft(2, MAX_SEQUENCE, 0, first=first)) == [committed(0, 1)]


@pytest.mark.parametrize(
    "other", [key_of(1), key_of(producer=8), key_of(epoch=1), (topic_id(2), 0, PRODUCER, 0)]
)
def test_what_is_named_of_another_partition_producer_or_epoch_is_no_obstacle(
    ledger: JournalledLedger, other: ProducerKey
) -> None:
    assert ledger.submit(draft(1, 6, first={other: 5})) == [committed(0)]


@pytest.mark.parametrize("in_one_entry", [True, False])
def test_once_the_draft_before_is_committed_the_sequences_of_the_ledger_count(
    ledger: JournalledLedger, in_one_entry: bool
) -> None:
    named = [draft(1, 0, 1), draft(2, 2, first={key_of(): 0}), draft(3, 4, 3, 2, first={key_of(): 0})]
    if in_one_entry:
        answers = ledger.submit(*named)
    else:
        answers = [answer for request in named for answer in ledger.submit(request)]
    assert answers[:2] == [committed(0, 1), committed(2)]
    assert results(answers[2]) == [out_of_order(4, 3), Committed(3, 0), Committed(2, 0, duplicate=True)]


def test_a_draft_is_refused_behind_one_whose_object_was_too_old(ledger: JournalledLedger) -> None:
    ledger.now_ms += 1
    ledger.submit(RaiseFloor(ledger.now_ms))
    stale = CommitFile(locator(1, 1_000_000), 100, draft(1, 0).batches)
    fresh = CommitFile(locator(2, ledger.now_ms), 100, draft(2, 1).batches, {key_of(): 0})
    answers = ledger.submit(stale, fresh)
    assert answers[0] == StaleObject()
    assert results(answers[1]) == [out_of_order(1, 0)]


def test_a_draft_is_refused_behind_one_whose_producer_had_no_capacity(ledger: JournalledLedger) -> None:
    ledger.state.producer_bounds = ProducerBounds(0, 0)
    (refused,) = ledger.submit(draft(1, 0))
    assert [result.error for result in results(refused) if isinstance(result, Refused)] == [
        "NOT_ENOUGH_REPLICAS"
    ]
    ledger.state.producer_bounds = ProducerBounds(10, 10)
    (refused,) = ledger.submit(draft(2, 1, first={key_of(): 0}))
    assert results(refused) == [out_of_order(1, 0)]


def test_a_producer_that_was_forgotten_begins_like_a_new_one(ledger: JournalledLedger) -> None:
    ledger.submit(draft(1, 0, 1))
    ledger.submit(ExpireProducers(ledger.now_ms + 1, 10, partitions=[0, 1]))
    (refused,) = ledger.submit(draft(2, 3, first={key_of(): 2}))
    assert results(refused) == [out_of_order(3, 2)]
    assert ledger.submit(draft(3, 2, first={key_of(): 2})) == [committed(2)]


def test_a_producer_that_was_known_without_an_epoch_begins_like_a_new_one(ledger: JournalledLedger) -> None:
    ledger.submit(draft(1, 9, epoch=-1))
    (refused,) = ledger.submit(draft(2, 6, first={key_of(): 5}))
    assert results(refused) == [out_of_order(6, 5)]
    assert ledger.submit(draft(3, 5, first={key_of(): 5})) == [committed(1)]


def test_what_is_named_is_not_journaled(ledger: JournalledLedger) -> None:
    ledger.submit(draft(1, 5, first={key_of(): 5}))
    other = JournalledLedger()
    other.submit(CreateTopic("t", TOPIC, 2, {}))
    other.submit(draft(1, 5))
    ours, theirs = (decode_entry(host.entries[-1], "entry").records for host in (ledger, other))
    assert ours == theirs
    assert ledger.entries == other.entries
