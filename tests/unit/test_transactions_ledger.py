"""What requests of transactions are to each other within one entry, and what a commit refuses."""

from collections.abc import Iterator, Sequence

import pytest

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.groups.requests import CommitOffsets
from ledger.groups.state import OffsetRow
from ledger.objects.state import NEVER_MS
from ledger.overlay import Overlay
from ledger.partitions.markers import is_marker, marker_of
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    Committed,
    ExpireProducers,
    FileCommit,
    ProducerTransaction,
)
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.registry import decide
from ledger.requests import Done, Refused, Request
from ledger.topics.requests import CreateTopic
from ledger.transactions import decide as deciding
from ledger.transactions.requests import (
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    MarkersWritten,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
    WriteMarkers,
)
from ledger.transactions.rules import Expected
from ledger.transactions.state import EXHAUSTED_EPOCH, Status, Transactions
from tests.support.journalled import JournalledLedger, locator, topic_id

TOPIC = topic_id(1)
FIRST, SECOND = ProducerEpoch(0, 0), ProducerEpoch(0, 1)


@pytest.fixture(autouse=True, scope="module")
def a_level_to_come() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("ledger.cluster.records", "ledger.image"):
            patch.setattr(f"{module}.NEWEST_LEVEL", LEVEL_WITH_TRANSACTIONS)
        yield


@pytest.fixture
def ledger() -> JournalledLedger:
    ledger = JournalledLedger(LEVEL_WITH_TRANSACTIONS)
    ledger.submit(CreateTopic("t", TOPIC, 3, {}), InitTransactionalId("a", 60_000))
    return ledger


_OBJECTS = iter(range(1, 1_000_000))


def sent(
    producer: tuple[int, int],
    sequence: int,
    partition: int = 0,
    *,
    name: str | None = "a",
    adds: bool = True,
    flags: int = TRANSACTIONAL_BIT,
) -> CommitFile:
    producer_id, epoch = producer
    batch = CommitBatch(TOPIC, partition, 0, 100, 1, 0, flags, producer_id, epoch, sequence)
    claimed = None
    if name is not None:
        claimed = {batch.start: ProducerTransaction(name, adds, is_abortable=True)}
    return CommitFile(locator(next(_OBJECTS), 1_000_000), 100, [batch], transactions=claimed)


def end(producer: ProducerEpoch, is_commit: bool = True, *, bumps: bool = True) -> EndTransaction:
    return EndTransaction("a", producer.producer_id, producer.epoch, is_commit, bumps)


def results_of(results: Sequence[object]) -> list[object]:
    """Of commits, the result of their one batch: its offset, or the error."""
    found: list[object] = []
    for result in results:
        if isinstance(result, FileCommit):
            (result,) = result.results
        if isinstance(result, ProducerEpoch):
            result = result._replace(ended_before=False)
        if isinstance(result, Committed):
            found.append(result.base_offset)
        else:
            found.append(result.error if isinstance(result, Refused) else result)
    return found


def log_of(ledger: JournalledLedger, partition: int = 0) -> PartitionLog:
    return ledger.state.topics.by_id[TOPIC].partitions[partition]


def markers(log: PartitionLog) -> list[tuple[int, int, str]]:
    """(offset, epoch, type)."""
    found = [run for run in log.runs() if is_marker(run)]
    return [(run.base, marker_of(run).producer_epoch, marker_of(run).type.name) for run in found]


def test_a_transaction_may_begin_end_and_begin_again_in_one_entry(ledger: JournalledLedger) -> None:
    results = ledger.submit(
        sent(FIRST[:2], 0), sent(FIRST[:2], 1), end(FIRST), sent(SECOND[:2], 0), sent(FIRST[:2], 2)
    )
    assert results_of(results) == [0, 1, SECOND, 3, ErrorName.INVALID_PRODUCER_EPOCH]
    log = log_of(ledger)
    assert markers(log) == [(2, 1, "COMMIT")]
    assert (log.last_stable, log.high_watermark) == (3, 4)
    (again,) = ledger.submit(end(SECOND, is_commit=False))
    assert again == ProducerEpoch(0, 2)
    assert markers(log) == [(2, 1, "COMMIT"), (4, 2, "ABORT")]
    assert [(found.first, found.last) for found in log.isolation.aborted] == [(3, 4)]


def test_a_transaction_that_ended_in_an_entry_has_nothing_of_it_in_the_next(ledger: JournalledLedger) -> None:
    adding = AddToTransaction("a", 0, 0, [TopicPartition(TOPIC, 1)])
    results = ledger.submit(adding, end(FIRST, bumps=False), adding, end(FIRST, False, bumps=False))
    assert results == [Done(1), FIRST, Done(1), FIRST]
    assert markers(log_of(ledger, 1)) == [(0, 0, "COMMIT"), (1, 0, "ABORT")]
    assert not log_of(ledger, 1).isolation.aborted


def test_a_transaction_that_is_aborted_at_the_last_epoch_leaves_its_producer_one_that_can_end(
    ledger: JournalledLedger,
) -> None:
    for _ in range(EXHAUSTED_EPOCH // 1_022):
        ledger.submit(*[InitTransactionalId("a", 60_000)] * 1_022)
    *_, last = ledger.submit(*[InitTransactionalId("a", 60_000)] * (EXHAUSTED_EPOCH % 1_022))
    assert last == ProducerEpoch(0, EXHAUSTED_EPOCH)
    ledger.submit(sent(last[:2], 0))
    (begun,) = ledger.submit(InitTransactionalId("a", 60_000, Expected(*last[:2])))
    assert begun == ProducerEpoch(1, 0, aborted=True)
    assert results_of(ledger.submit(sent((1, 0), 0), end(ProducerEpoch(1, 0)))) == [2, ProducerEpoch(1, 1)]
    assert markers(log_of(ledger)) == [(1, EXHAUSTED_EPOCH + 1, "ABORT"), (3, 1, "COMMIT")]


def test_after_a_marker_a_partition_refuses_older_epochs_also_outside_of_transactions(
    ledger: JournalledLedger,
) -> None:
    outside = sent(FIRST[:2], 1, flags=0, name=None)
    results = ledger.submit(sent(FIRST[:2], 0), end(FIRST), outside)
    assert results_of(results) == [0, SECOND, ErrorName.INVALID_PRODUCER_EPOCH]


def test_an_end_and_its_repeat_in_one_entry_have_one_result(ledger: JournalledLedger) -> None:
    results = ledger.submit(sent(FIRST[:2], 0), end(FIRST), end(FIRST), end(FIRST, is_commit=False))
    assert results_of(results) == [0, SECOND, SECOND, ErrorName.INVALID_TXN_STATE]
    assert [result.ended_before for result in results if isinstance(result, ProducerEpoch)] == [False, True]
    assert len(markers(log_of(ledger))) == 1


def test_ids_that_begin_in_one_entry_have_producer_ids_of_their_own(ledger: JournalledLedger) -> None:
    results = ledger.submit(*[InitTransactionalId(name, 1_000) for name in ("b", "c", "b")])
    assert results == [ProducerEpoch(1, 0), ProducerEpoch(2, 0), ProducerEpoch(1, 1)]


def test_offsets_that_pend_and_are_committed_in_one_entry(ledger: JournalledLedger) -> None:
    row = OffsetRow(TOPIC, 0, 7)
    ledger.submit(PendOffsets("g", "a", 0, 0, [row], adds=True), end(FIRST))
    assert ledger.state.groups.offsets["g"][TOPIC, 0].offset == 7
    assert not ledger.state.part(Transactions).is_waiting("g")


def test_offsets_of_a_group_that_was_not_added_are_refused_unless_they_add_it(
    ledger: JournalledLedger,
) -> None:
    row = OffsetRow(TOPIC, 0, 7)
    (refused,) = ledger.submit(PendOffsets("g", "a", 0, 0, [row], adds=False))
    assert isinstance(refused, Refused) and refused.error is ErrorName.INVALID_TXN_STATE
    ledger.submit(AddToTransaction("a", 0, 0, groups=["g"]), PendOffsets("g", "a", 0, 0, [row], adds=False))
    assert ledger.state.part(Transactions).is_waiting("g", (TOPIC, 0))


def test_an_offset_that_was_committed_later_is_not_written_over(ledger: JournalledLedger) -> None:
    ledger.submit(PendOffsets("g", "a", 0, 0, [OffsetRow(TOPIC, 0, 7)], adds=True))
    ledger.submit(CommitOffsets("g", [OffsetRow(TOPIC, 0, 3)]))
    ledger.submit(end(FIRST))
    assert ledger.state.groups.offsets["g"][TOPIC, 0].offset == 3


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (sent((0, 0), 0, name=None), ErrorName.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (sent((0, 0), 0, name="other"), ErrorName.INVALID_PRODUCER_ID_MAPPING),
        (sent((9, 0), 0), ErrorName.INVALID_PRODUCER_ID_MAPPING),
        (sent((0, 5), 0), ErrorName.INVALID_PRODUCER_EPOCH),
        (sent((0, -1), 0), ErrorName.INVALID_PRODUCER_EPOCH),
        (sent((0, 0), 0, adds=False), ErrorName.TRANSACTION_ABORTABLE),
    ],
    ids=["no id", "another id", "another producer", "a later epoch", "an older epoch", "not added"],
)
def test_what_is_not_of_the_open_transaction_is_refused(
    ledger: JournalledLedger, request_: CommitFile, error: ErrorName
) -> None:
    assert results_of(ledger.submit(request_)) == [error]
    assert log_of(ledger).high_watermark == 0
    assert ledger.state.part(Transactions).by_id["a"].status is Status.EMPTY


def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(ledger: JournalledLedger) -> None:
    ledger.submit(sent(FIRST[:2], 0))
    outside = sent(FIRST[:2], 1, flags=0, name=None)
    assert results_of(ledger.submit(outside)) == [ErrorName.INVALID_TXN_STATE]
    assert results_of(ledger.submit(sent(FIRST[:2], 0, 1, flags=0, name=None))) == [0]


def test_an_entry_that_may_not_be_applied_yet_gives_its_additions_to_the_next(
    ledger: JournalledLedger,
) -> None:
    first = Overlay(ledger.state)
    added = decide(ledger.state, first, sent(FIRST[:2], 0), 2_000_000)
    second = Overlay(ledger.state, first)
    more = decide(ledger.state, second, sent(FIRST[:2], 1), 2_000_000)
    other = decide(ledger.state, second, sent(FIRST[:2], 0, 1), 2_000_000)
    assert [len(decision.records) for decision in (added, more, other)] == [3, 1, 2]
    for decision in (added, more, other):
        assert isinstance(decision.result, FileCommit)
        assert all(isinstance(result, Committed) for result in decision.result.results)


def test_a_transaction_has_so_many_partitions_at_most(
    ledger: JournalledLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "MAX_PARTITIONS", 2)
    assert results_of(ledger.submit(sent(FIRST[:2], 0), sent(FIRST[:2], 0, 1), sent(FIRST[:2], 0, 2))) == [
        0,
        0,
        ErrorName.TRANSACTION_ABORTABLE,
    ]


def test_markers_free_a_partition_that_hangs(ledger: JournalledLedger) -> None:
    ledger.submit(sent(FIRST[:2], 0))
    unknown, hanging = TopicPartition(topic_id(9), 0), TopicPartition(TOPIC, 0)
    (written,) = ledger.submit(WriteMarkers(0, 0, False, [unknown, hanging, hanging]))
    assert written == MarkersWritten([ErrorName.UNKNOWN_TOPIC_OR_PARTITION, None, None])
    log = log_of(ledger)
    assert (log.last_stable, markers(log)) == (2, [(1, 0, "ABORT")])
    (older,) = ledger.submit(WriteMarkers(0, -1, False, [hanging]))
    assert older == MarkersWritten([ErrorName.INVALID_PRODUCER_EPOCH])


def test_a_producer_with_an_open_transaction_is_never_forgotten(ledger: JournalledLedger) -> None:
    ledger.submit(sent(FIRST[:2], 0))
    expire = ExpireProducers(NEVER_MS, 10, [log_of(ledger).number])
    assert ledger.submit(expire) == [Done(0)]
    ledger.submit(end(FIRST))
    assert ledger.submit(expire) == [Done(1)]


def test_an_id_without_an_open_transaction_expires(ledger: JournalledLedger) -> None:
    ledger.submit(InitTransactionalId("b", 1_000), sent(FIRST[:2], 0))
    expire = ExpireTransactionalIds(NEVER_MS, 10, ["a", "b", "c"])
    assert deciding.expirable(ledger.state, ["a", "b", "c"], NEVER_MS, 10) == ["b"]
    assert ledger.submit(expire) == [Done(1)]
    assert set(ledger.state.part(Transactions).by_id) == {"a"}
    assert ledger.submit(InitTransactionalId("b", 1_000)) == [ProducerEpoch(2, 0)]


def test_a_marker_is_no_run_of_an_object(ledger: JournalledLedger) -> None:
    ledger.submit(sent(FIRST[:2], 0), end(FIRST))
    log = log_of(ledger)
    runs: list[Run] = list(log.runs())
    assert [is_marker(run) for run in runs] == [False, True]
    assert log.first_objects(2) == [runs[0].object_number]
    numbers, _ = log.drop(2)
    assert numbers == [runs[0].object_number]


def test_the_requests_say_what_their_records_weigh(ledger: JournalledLedger) -> None:
    names = ("long" * 100, "\N{SNOWMAN}" * 300)
    requests: list[Request] = [InitTransactionalId(name, 1_000) for name in names]
    partitions = [TopicPartition(TOPIC, index) for index in range(3)]
    requests += [AddToTransaction("a", 0, 0, partitions, names), WriteMarkers(7, 1, True, partitions)]
    requests += [PendOffsets(names[1], "a", 0, 0, [OffsetRow(TOPIC, 0, 7, metadata=names[1])], adds=True)]
    requests += [sent(FIRST[:2], 0), end(FIRST)]
    before = sum(map(len, ledger.entries))
    for request in requests:
        ledger.submit(request)
        after = sum(map(len, ledger.entries))
        assert 0 < after - before <= request.weight + 64, type(request)
        before = after
