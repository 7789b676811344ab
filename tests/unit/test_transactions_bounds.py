"""How much transactions may hold: ids, partitions, groups and offsets, and what is counted of them."""

from collections.abc import Iterator

import pytest

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.groups.requests import OffsetsStored
from ledger.groups.state import BY_RETENTION, OFFSET_BYTES, OffsetRow
from ledger.overlay import Overlay
from ledger.partitions.producers import ProducerBounds
from ledger.partitions.requests import CommitBatch, CommitFile, Committed, FileCommit, ProducerTransaction
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.registry import decide
from ledger.requests import Done, Refused
from ledger.topics.requests import CreateTopic
from ledger.transactions import decide as deciding
from ledger.transactions.records import AddedToTransaction
from ledger.transactions.requests import (
    MAX_PARTITIONS,
    MAX_PENDING,
    WORK_OF_ONE,
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Transactions
from tests.support.journalled import JournalledLedger, locator, topic_id

TOPIC = topic_id(1)
PARTITIONS = 3_000
_OBJECTS = iter(range(1, 1_000_000))


@pytest.fixture
def ledger() -> Iterator[JournalledLedger]:
    made = JournalledLedger(LEVEL_WITH_TRANSACTIONS)
    made.submit(CreateTopic("t", TOPIC, PARTITIONS, {}))
    yield made


def begun(ledger: JournalledLedger, name: str = "a") -> ProducerEpoch:
    (result,) = ledger.submit(InitTransactionalId(name, 60_000))
    assert isinstance(result, ProducerEpoch)
    return result


def error(result: object) -> ErrorName | None:
    return result.error if isinstance(result, Refused) else None


def sent(producer: ProducerEpoch, sequence: int, *, adds: bool, partition: int = 0) -> CommitFile:
    batch = CommitBatch(
        *(TOPIC, partition, 0, 100, 1, 0, TRANSACTIONAL_BIT, producer.producer_id, producer.epoch, sequence)
    )
    claimed = {batch.start: ProducerTransaction("a", adds, is_abortable=True)}
    return CommitFile(locator(next(_OBJECTS), 1_000_000), 100, [batch], transactions=claimed)


def pended(producer: ProducerEpoch, first: int, count: int, metadata: str = "") -> PendOffsets:
    rows = [OffsetRow(TOPIC, at, 1, -1, BY_RETENTION, metadata) for at in range(first, first + count)]
    return PendOffsets("g", "a", producer.producer_id, producer.epoch, rows, adds=True)


def ended(producer: ProducerEpoch, *, is_commit: bool) -> EndTransaction:
    return EndTransaction("a", producer.producer_id, producer.epoch, is_commit, bumps=True)


def counted(ledger: JournalledLedger) -> tuple[int, int]:
    """(touched, pending bytes), which journal, image and snapshot must agree on."""
    states = (ledger.state, ledger.from_journal(), ledger.from_image(), ledger.from_snapshot())
    found = {(state.part(Transactions).touched, state.part(Transactions).pending_bytes) for state in states}
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("adds", "expected"), [(True, ErrorName.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, None)]
)
def test_a_producer_of_version_2_begins_with_sequence_0(
    ledger: JournalledLedger, adds: bool, expected: ErrorName | None
) -> None:
    producer = begun(ledger)
    ledger.submit(AddToTransaction("a", *producer[:2], [TopicPartition(TOPIC, 0)]))
    (commit,) = ledger.submit(sent(producer, 7, adds=adds))
    assert isinstance(commit, FileCommit)
    assert error(commit.results[0]) == expected
    (commit,) = ledger.submit(sent(producer, 8 if expected is None else 0, adds=adds))
    assert isinstance(commit, FileCommit) and isinstance(commit.results[0], Committed)


def test_a_transaction_to_which_no_partition_was_added_may_be_committed(ledger: JournalledLedger) -> None:
    producer = begun(ledger)
    assert ledger.submit(AddToTransaction("a", *producer[:2])) == [Done(0)]
    assert ledger.state.part(Transactions).by_id["a"].is_open
    ledger.write_image()
    assert isinstance(ledger.submit(ended(producer, is_commit=True))[0], ProducerEpoch)
    assert counted(ledger) == (0, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_open_transactions_touch_is_counted(ledger: JournalledLedger, is_commit: bool) -> None:
    producer = begun(ledger)
    ledger.submit(sent(producer, 0, adds=True), sent(producer, 0, adds=True, partition=1))
    # The second time the offsets take the place of the first ones.
    ledger.submit(pended(producer, 0, 5), pended(producer, 2, 5, "four"))
    ledger.write_image()
    touched = 2 + 1 + 7
    assert counted(ledger) == (touched, 7 * OFFSET_BYTES + 5 * len("four"))
    ledger.submit(ended(producer, is_commit=is_commit))
    assert counted(ledger) == (0, 0)


def test_the_offsets_of_a_transaction_have_a_bound_also_within_an_entry(ledger: JournalledLedger) -> None:
    producer = begun(ledger)
    first, second = ledger.submit(pended(producer, 0, MAX_PENDING - 1), pended(producer, MAX_PENDING, 2))
    assert isinstance(first, OffsetsStored)
    assert error(second) is ErrorName.TRANSACTION_ABORTABLE
    (third,) = ledger.submit(pended(producer, MAX_PENDING, 1))
    assert isinstance(third, OffsetsStored)


def test_all_open_transactions_together_have_a_bound(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "MAX_TOUCHED", 3)
    producer = begun(ledger)
    ledger.submit(AddToTransaction("a", *producer[:2], [TopicPartition(TOPIC, at) for at in range(3)]))
    results = ledger.submit(
        AddToTransaction("a", *producer[:2], [TopicPartition(TOPIC, 3)]), pended(producer, 0, 1)
    )
    assert [error(result) for result in results] == [ErrorName.TRANSACTION_ABORTABLE] * 2
    # What is there already needs nothing more, and an end makes it free.
    (again,) = ledger.submit(AddToTransaction("a", *producer[:2], [TopicPartition(TOPIC, 2)]))
    assert again == Done(0)
    (after,) = ledger.submit(ended(producer, is_commit=True))
    assert isinstance(after, ProducerEpoch)
    (one,) = ledger.submit(AddToTransaction("a", *after[:2], [TopicPartition(TOPIC, 3)]))
    assert one == Done(1)


def test_long_ids_are_taken_while_there_are_few(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "MAX_TRANSACTIONAL_IDS", 3)
    monkeypatch.setattr(deciding, "MAX_LONG_IDS", 1)
    begun(ledger, "x" * 30_000)
    (long,) = ledger.submit(InitTransactionalId("y" * 30_000, 60_000))
    assert error(long) is ErrorName.COORDINATOR_NOT_AVAILABLE
    for name in "ab":
        begun(ledger, name)
    (fourth,) = ledger.submit(InitTransactionalId("c", 60_000))
    assert error(fourth) is ErrorName.COORDINATOR_NOT_AVAILABLE
    begun(ledger, "a")


def test_the_work_of_an_end_is_that_of_what_is_open(ledger: JournalledLedger) -> None:
    """So that many small transactions may end in one entry."""
    producer = begun(ledger)
    ledger.submit(AddToTransaction("a", *producer[:2], [TopicPartition(TOPIC, at) for at in range(40)]))
    for request in (ended(producer, is_commit=True), InitTransactionalId("a", 60_000)):
        assert decide(ledger.state, Overlay(ledger.state), request, 1).work == WORK_OF_ONE + 10


def test_the_last_stable_offset_is_that_of_the_first_transaction_after_a_restart(
    ledger: JournalledLedger,
) -> None:
    # The one with the greater producer id begins first.
    second, first = begun(ledger, "b"), begun(ledger)
    assert first.producer_id > second.producer_id
    ledger.submit(sent(first, 0, adds=True))
    batch = CommitBatch(TOPIC, 0, 0, 100, 1, 0, TRANSACTIONAL_BIT, second.producer_id, second.epoch, 0)
    claimed = {0: ProducerTransaction("b", adds=True, is_abortable=True)}
    ledger.submit(CommitFile(locator(next(_OBJECTS), 1_000_000), 100, [batch], transactions=claimed))
    ledger.write_image()
    for state in (ledger.state, ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert state.topics.by_id[TOPIC].partitions[0].last_stable == 0


def test_markers_make_no_more_producers_be_remembered_than_may_be(ledger: JournalledLedger) -> None:
    ledger.state.producer_bounds = ProducerBounds(total=5, partition=1)
    producer = begun(ledger)

    def adding(*partitions: int, name: str = "a", by: ProducerEpoch = producer) -> ErrorName | None:
        named = [TopicPartition(TOPIC, at) for at in partitions]
        (result,) = ledger.submit(AddToTransaction(name, *by[:2], named))
        return error(result)

    assert adding(0, 1, 2, 3) is None
    assert adding(4, 5) is ErrorName.COORDINATOR_NOT_AVAILABLE
    assert adding(4) is None
    (after,) = ledger.submit(ended(producer, is_commit=False))
    assert isinstance(after, ProducerEpoch)
    assert ledger.state.producer_count == 5
    # Where it is known already it goes on; elsewhere, and with another one, there is no more of it.
    assert adding(0, 1, by=after) is None
    assert adding(5, by=after) is ErrorName.COORDINATOR_NOT_AVAILABLE
    other = begun(ledger, "b")
    ledger.state.producer_bounds = ProducerBounds(total=100, partition=1)
    assert adding(0, name="b", by=other) is ErrorName.COORDINATOR_NOT_AVAILABLE
    assert adding(6, name="b", by=other) is None


def test_the_partitions_that_a_draft_adds_are_one_record(
    ledger: JournalledLedger,
) -> None:
    producer = begun(ledger)

    def commit(partitions: range) -> CommitFile:
        batches = [
            CommitBatch(TOPIC, at, at * 100, 100, 1, 0, TRANSACTIONAL_BIT, *producer[:2], 0)
            for at in partitions
        ]
        claimed = {one.start: ProducerTransaction("a", adds=True, is_abortable=True) for one in batches}
        return CommitFile(locator(next(_OBJECTS), 1_000_000), 1 << 30, batches, transactions=claimed)

    ledger.submit(commit(range(900)))
    entry = Overlay(ledger.state)
    decision = decide(ledger.state, entry, commit(range(900, MAX_PARTITIONS + 10)), 1)
    assert isinstance(decision.result, FileCommit)
    refused = [one for one in decision.result.results if isinstance(one, Refused)]
    assert [one.error for one in refused] == [ErrorName.TRANSACTION_ABORTABLE] * 10
    added, _ = decision.records
    assert isinstance(added, AddedToTransaction)
    assert list(added.numbers) == [
        ledger.state.topics.by_id[TOPIC].partitions[at].number for at in range(900, MAX_PARTITIONS)
    ]
