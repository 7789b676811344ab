"""Anomalies that tests of others have found where transactions go over several requests, each by its name.

What is late here was under way for long: the producer has gone on, or another one has its id.
"""

from collections.abc import Sequence

import pytest

from ledger.errors import ErrorName
from ledger.groups.state import OffsetRow
from ledger.partitions.requests import CommitFile, DeleteRecords
from ledger.requests import Done, Request
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Transactions
from tests.support.journalled import JournalledLedger
from tests.unit.test_transactions_ledger import TOPIC, end, log_of, markers, results_of
from tests.unit.test_transactions_ledger import sent as batch_sent

FIRST, SECOND = ProducerEpoch(0, 0), ProducerEpoch(0, 1)
ENTRIES = pytest.mark.parametrize("is_one_entry", [False, True], ids=["entries", "one entry"])


def made(is_one_entry: bool, *requests: Request) -> tuple[JournalledLedger, Sequence[object]]:
    """A ledger in which producer 0 has the id `a`, and the results of these requests."""
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", TOPIC, 3, {}), InitTransactionalId("a", 60_000))
    if is_one_entry:
        return ledger, results_of(ledger.submit(*requests))
    return ledger, [results_of(ledger.submit(request))[0] for request in requests]


def sent(producer: ProducerEpoch, sequence: int, partition: int = 0, *, adds: bool = True) -> CommitFile:
    ids = producer.producer_id, producer.epoch
    return batch_sent(ids, sequence, partition, name="ab"[producer.producer_id], adds=adds)


def added(producer: ProducerEpoch) -> AddToTransaction:
    return AddToTransaction("a", producer.producer_id, producer.epoch, [TopicPartition(TOPIC, 0)])


@ENTRIES
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_late_end_never_ends_a_later_transaction(is_commit: bool, is_one_entry: bool) -> None:
    ledger, results = made(
        is_one_entry,
        *(sent(FIRST, 0), end(FIRST), sent(SECOND, 0)),
        end(FIRST, is_commit),
    )
    assert results == [0, SECOND, 2, ErrorName.PRODUCER_FENCED]
    assert log_of(ledger).last_stable == 2 and list(ledger.state.part(Transactions).open) == [0]
    assert markers(log_of(ledger)) == [(1, 1, "COMMIT")]


@ENTRIES
def test_no_write_is_lost_or_torn_by_a_repeat(is_one_entry: bool) -> None:
    """Of batches and of the end; both partitions have all of the transaction, and nothing else."""
    batches = [sent(FIRST, 0), sent(FIRST, 0, 1), sent(FIRST, 0), sent(FIRST, 1), sent(FIRST, 0, 1)]
    ledger, results = made(is_one_entry, *batches, end(FIRST), end(FIRST), sent(FIRST, 1), sent(FIRST, 2))
    fenced = ErrorName.INVALID_PRODUCER_EPOCH
    assert results == [0, 0, 0, 1, 0, SECOND, SECOND, fenced, fenced]
    assert [log_of(ledger, at).high_watermark for at in (0, 1)] == [3, 2]
    assert [log_of(ledger, at).last_stable for at in (0, 1)] == [3, 2]


@ENTRIES
def test_no_aborted_read_of_a_batch_that_comes_after_the_abort(is_one_entry: bool) -> None:
    """Of a client of transaction version 1, which goes on with another epoch as it had no response."""
    late = sent(FIRST, 0, adds=False)
    abort = EndTransaction("a", 0, 0, is_commit=False, bumps=False)
    begin = InitTransactionalId("a", 60_000)
    ledger, results = made(
        is_one_entry, added(FIRST), abort, late, begin, added(SECOND), late, sent(SECOND, 0, adds=False)
    )
    assert results[2] == ErrorName.TRANSACTION_ABORTABLE
    assert results[5:] == [ErrorName.INVALID_PRODUCER_EPOCH, 1]
    ledger.submit(EndTransaction("a", 0, 1, is_commit=True, bumps=False))
    assert markers(log_of(ledger)) == [(0, 0, "ABORT"), (2, 1, "COMMIT")]
    assert not log_of(ledger).isolation.aborted


@ENTRIES
def test_no_last_stable_offset_is_stuck(is_one_entry: bool) -> None:
    """Behind a transaction that timed out, one whose producer was replaced, and records that were deleted."""
    ledger, _ = made(False, InitTransactionalId("b", 60_000), sent(FIRST, 0), sent(ProducerEpoch(1, 0), 0))
    started_ms = ledger.state.part(Transactions).by_id["a"].started_ms
    requests: list[Request] = [
        DeleteRecords(TOPIC, 0, 1),
        AbortTransaction("a", 0, 0, started_ms),
        InitTransactionalId("b", 60_000),
    ]
    if is_one_entry:
        ledger.submit(*requests)
    else:
        for request in requests:
            ledger.submit(request)
    assert log_of(ledger).last_stable == log_of(ledger).high_watermark == 4
    assert not ledger.state.part(Transactions).open and not log_of(ledger).isolation.open


@ENTRIES
def test_a_timeout_of_another_transaction_of_the_same_epoch_ends_nothing(is_one_entry: bool) -> None:
    ledger, results = made(
        is_one_entry,
        *(added(FIRST), EndTransaction("a", 0, 0, is_commit=True, bumps=False), added(FIRST)),
        AbortTransaction("a", 0, 0, 5),
    )
    assert results[-1] == Done(0)
    assert list(ledger.state.part(Transactions).open) == [0]


@ENTRIES
@pytest.mark.parametrize("begins_again", [False, True])
def test_a_zombie_whose_id_has_expired_changes_nothing(begins_again: bool, is_one_entry: bool) -> None:
    ledger, _ = made(False, sent(FIRST, 0), end(FIRST))
    ledger.now_ms += 10
    offsets = PendOffsets("g", "a", 0, 1, [OffsetRow(TOPIC, 0, 9)], True)
    zombie: list[Request] = [sent(SECOND, 0), offsets, added(SECOND), end(SECOND), end(SECOND, False)]
    again: list[Request] = [InitTransactionalId("a", 60_000)] if begins_again else []
    requests: list[Request] = [ExpireTransactionalIds(ledger.now_ms, 9, ["a"]), *again, *zombie]
    if is_one_entry:
        results = results_of(ledger.submit(*requests))
    else:
        results = [results_of(ledger.submit(request))[0] for request in requests]
    assert set(results[-len(zombie) :]) == {ErrorName.INVALID_PRODUCER_ID_MAPPING}
    assert log_of(ledger).high_watermark == log_of(ledger).last_stable == 2
    assert not ledger.state.part(Transactions).open
