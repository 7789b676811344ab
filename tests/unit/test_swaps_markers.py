"""Swaps across ends of transactions: what the ledger forgets is in the segment, or the swap is refused."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.image import all_rows
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.markers import is_marker
from ledger.partitions.requests import CommitBatch, CommitFile, DeleteRecords, DrainRuns, ProducerTransaction
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused
from ledger.rows import digest
from ledger.swaps.requests import SegmentRun, SwapMarker, Swapped, SwapSegments, TakePin
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import EndTransaction, InitTransactionalId, ProducerEpoch
from tests.support.journalled import JournalledLedger, locator, topic_id
from tests.support.swapping import JOB, swap_of

TOPIC = topic_id(1)
NAMES = ("a", "b")
RECORDS = 10
Step = tuple[str, int]
"""What the producer of a number does: "sends", "commits" or "aborts"."""
SHORT: Sequence[Step] = [
    step
    for is_commit in (True, False, True, True, False)
    for step in (("sends", 0), ("commits" if is_commit else "aborts", 0))
]


class Played:
    """One partition, two producers, each batch in an object of its own."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.ledger = JournalledLedger()
        self.ledger.submit(CreateTopic("t", TOPIC, 1, {}), TakePin(JOB))
        results = self.ledger.submit(*[InitTransactionalId(name, 60_000) for name in NAMES])
        self.producers = [result for result in results if isinstance(result, ProducerEpoch)]
        self.sequences = [0, 0]
        self.objects = 0
        self.open = [False, False]
        for kind, number in steps:
            self.ledger.now_ms += 7
            if kind == "sends":
                self.send(number)
            elif self.open[number]:
                self.end(number, kind == "commits")

    def send(self, number: int) -> None:
        producer, name, flags = self.producers[number], NAMES[number], TRANSACTIONAL_BIT
        first = self.sequences[number]
        batch = CommitBatch(TOPIC, 0, 0, 100, RECORDS, 5, flags, producer.producer_id, producer.epoch, first)
        claimed = {0: ProducerTransaction(name, adds=True, is_abortable=True)}
        self.objects += 1
        where = locator(self.objects, self.ledger.now_ms)
        self.ledger.submit(CommitFile(where, 100, [batch], transactions=claimed))
        self.sequences[number] += RECORDS
        self.open[number] = True

    def end(self, number: int, is_commit: bool) -> None:
        producer = self.producers[number]
        end = EndTransaction(NAMES[number], producer.producer_id, producer.epoch, is_commit, bumps=True)
        (ended,) = self.ledger.submit(end)
        assert isinstance(ended, ProducerEpoch), ended
        self.producers[number], self.sequences[number], self.open[number] = ended, 0, False

    @property
    def log(self) -> PartitionLog:
        return self.ledger.state.topics.by_id[TOPIC].partitions[0]

    def swap(self, begin: int = 0, end: int | None = None, **form: Any) -> SwapSegments:
        return swap_of(self.log, list(self.log.runs())[begin:end], self.ledger.now_ms, **form)

    def isolation(self) -> tuple[int, int, dict[int, int], list[AbortedTransaction], object]:
        """All that readers of committed records and producers depend on."""
        log = self.log
        producers = {
            producer_id: (known.epoch, known.last_sequence, list(known.batches))
            for producer_id, known in log.producers.items()
        }
        isolation = log.isolation
        return log.high_watermark, log.last_stable, dict(isolation.open), list(isolation.aborted), producers

    def is_refused(self, swap: SwapSegments) -> str:
        before = digest(all_rows(self.ledger.state))
        (result,) = self.ledger.submit(swap)
        assert isinstance(result, Refused) and result.error is ErrorName.INVALID_REQUEST, result
        assert digest(all_rows(self.ledger.state)) == before
        return result.message


def test_a_segment_takes_the_place_of_runs_and_of_the_ends_of_transactions_between_them() -> None:
    played = Played([*SHORT, ("sends", 1)])
    before = played.isolation()
    assert [is_marker(run) for run in played.log.runs()] == [False, True] * 5 + [False]
    (result,) = played.ledger.submit(played.swap(0, 10, join=10))
    assert result == Swapped(1, 0)
    assert [(run.base, run.last) for run in played.log.runs()] == [(0, 54), (55, 64)]
    assert played.isolation() == before
    assert [(found.first, found.last) for found in played.log.isolation.aborted] == [(11, 21), (44, 54)]
    played.end(1, is_commit=False)
    (_, last) = played.log.isolation.aborted[-2:]
    assert (last.first, last.last, played.log.last_stable) == (55, 65, 66)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"producer_id": 1}, "is another than"),
        ({"producer_id": 2**62}, "cannot be"),
        ({"epoch": 9}, "is another than"),
        ({"epoch": -1}, "cannot be"),
        ({"is_commit": True}, "is another than"),
        ({"timestamp": 1}, "is another than"),
        ({"offset": 22}, "is another than"),
    ],
)
def test_a_swap_with_another_end_of_a_transaction_is_refused(wrong: dict[str, Any], said: str) -> None:
    played = Played(SHORT)
    swap = played.swap()
    markers = list(swap.markers)
    markers[1] = markers[1]._replace(**wrong)
    assert said in played.is_refused(replace(swap, markers=markers))


def test_a_swap_that_leaves_an_end_out_or_has_one_more_is_refused() -> None:
    """As that of a job that knows nothing of transactions, too."""
    played = Played(SHORT)
    swap = played.swap()
    for markers in ([], swap.markers[1:], swap.markers[:-1], [*swap.markers, swap.markers[-1]]):
        assert "5 ends of transactions" in played.is_refused(replace(swap, markers=markers))
    plain = played.swap(0, 1)
    assert "0 ends" in played.is_refused(replace(plain, markers=[SwapMarker(5, 0, 0, True, 1)]))


def test_a_segment_without_the_offset_of_an_end_is_refused() -> None:
    played = Played(SHORT)
    swap = played.swap(0, 3, join=3)
    (run,) = swap.runs
    around = [
        SegmentRun(0, run.start, 100, 0, 9, 5),
        SegmentRun(0, run.start + 100, run.size - 100, 11, run.last, 5),
    ]
    assert "at offset 10 is in no run" in played.is_refused(replace(swap, runs=around))
    (result,) = played.ledger.submit(swap)
    assert result == Swapped(1, 0)


def test_ends_that_were_dropped_since_the_plan_are_passed_over() -> None:
    played = Played(SHORT)
    swap = played.swap()
    played.ledger.submit(DeleteRecords(TOPIC, 0, 25))
    played.ledger.submit(DrainRuns(100))
    assert next(played.log.runs()).base == 22
    assert [found.last for found in played.log.isolation.aborted] == [54]
    before = played.isolation()
    (result,) = played.ledger.submit(swap)
    assert result == Swapped(1, 25)
    assert played.isolation() == before
    played.ledger.submit(DeleteRecords(TOPIC, 0, 55))
    assert not played.log.isolation.aborted


STEPS = st.lists(
    st.tuples(st.sampled_from(["sends", "sends", "commits", "aborts"]), st.integers(0, 1)), max_size=30
)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(1, 30), st.integers(1, 12), st.lists(st.integers(0, 20), max_size=3))
def test_swaps_change_nothing_that_readers_and_producers_depend_on(
    steps: Sequence[Step], runs: int, join: int, begins: Sequence[int]
) -> None:
    """Also after a restart from the journal, an image or a snapshot."""
    played = Played(steps)
    before = played.isolation()
    for begin in begins:
        found = played.log.run_count
        if begin < found:
            (result,) = played.ledger.submit(played.swap(begin, begin + runs, join=join))
            assert isinstance(result, Swapped), result
        assert played.isolation() == before
    bounds = [(run.base, run.last) for run in played.log.runs()]
    assert all(one[1] + 1 == other[0] for one, other in pairwise(bounds))
    rows = digest(all_rows(played.ledger.state))
    played.ledger.write_image()
    for source in ("journal", "image", "snapshot"):
        played.ledger.restart(source)
        assert digest(all_rows(played.ledger.state)) == rows
        assert played.isolation() == before
