"""Invariant 5 under transactions: the ledger against a model that only knows lists.

Any mix of requests in an entry, also of producers that are fenced or confused, and any restart; readers of
committed records and of all records are checked after each.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.groups.requests import CommitOffsets, RemoveGroup, RemoveOffsets
from ledger.groups.state import OffsetRow
from ledger.image import all_rows
from ledger.partitions.markers import is_marker, marker_of
from ledger.partitions.requests import CommitBatch, CommitFile, DeleteRecords, DrainRuns, ProducerTransaction
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.requests import LedgerResult, Refused, Request
from ledger.rows import digest
from ledger.swaps.requests import Swapped, SwapSegments, TakePin
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    ExpireTransactionalIds,
    InitTransactionalId,
    PendOffsets,
    TopicPartition,
    WriteMarkers,
)
from ledger.transactions.rules import Expected
from ledger.transactions.state import Transactions
from tests.model.transactions import Marker, ModelId, ModelLog, Place, TransactionsModel
from tests.support.journalled import JournalledLedger, locator, topic_id
from tests.support.swapping import JOB, swap_of

SEEDS = 20_000 if os.environ.get("DRAGOMAN_TEST_FULL") else 150
AT_ONCE = 50
ENTRIES = 60
PARTITIONS = 2
NAMES = ("one", "two", "three")
GROUPS = ("g", "h")
MOST = 1 << 40
_GONE = (ErrorName.UNKNOWN_TOPIC_OR_PARTITION, ErrorName.UNKNOWN_TOPIC_ID)
Segment = tuple[str, int]
"""Locator, and where a run begins."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.partitions.state.CHUNK_RUNS", 3)


class History:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.ledger = JournalledLedger()
        self.model = TransactionsModel()
        self.topics = self.objects = 0
        self.names: Sequence[str] = NAMES
        self.segments: dict[Segment, dict[int, Marker]] = {}
        """By run of a segment: the markers that a job has put into it."""
        self.merged_ends = 0
        self.create_topic()
        self.create_topic()

    def create_topic(self) -> None:
        self.topics += 1
        made = topic_id(self.topics)
        self.ledger.submit(CreateTopic(f"t{self.topics}", made, PARTITIONS, {}))
        self.model.topics[made] = [ModelLog() for _ in range(PARTITIONS)]

    def live(self) -> None:  # noqa: C901 - one case for each of what happens
        """One entry, or something else that happens."""
        self.ledger.now_ms += self.dice.randrange(3)
        kind = self.dice.random()
        if kind < 0.72:
            # Half of the entries are about one id.
            self.names = NAMES if self.dice.random() < 0.5 else (self.dice.choice(NAMES),)
            self.entry([self.anything() for _ in range(self.dice.randint(1, 6))])
        elif kind < 0.77:
            self.entry([self.write_markers()])
        elif kind < 0.82:
            self.delete_records()
        elif kind < 0.86:
            self.ledger.submit(DrainRuns(self.dice.randint(1, 5)))
        elif kind < 0.88:
            if len(self.model.topics) < 3:
                self.create_topic()
        elif kind < 0.92:
            self.merge()
        elif kind < 0.94:
            self.ledger.write_image()
        elif kind < 0.95:
            self.ledger.begin_image()
            self.ledger.continue_image(self.dice.randrange(12))
        elif kind < 0.96:
            self.ledger.end_image(fails=True)
        else:
            self.ledger.restart(self.dice.choice(["image", "snapshot", "journal"]))

    def entry(self, requests: list[Request]) -> LedgerResult:
        """Returns the result of the last one."""
        decided = self.ledger.decide(*requests)
        for request, decision in zip(requests, decided.decisions, strict=True):
            if isinstance(request, SwapSegments):
                continue  # the model has no runs
            try:
                self.model.judge(request, decision.result, decided.time_ms)
            except AssertionError as error:
                raise AssertionError(f"{request}: {decision.result}") from error
        self.ledger.make_durable(decided)
        return decided.decisions[-1].result

    def merge(self) -> None:
        """A segment takes the place of some runs, with whatever markers they have; also next to other
        requests of the entry, and now and then by a job that has lost a marker."""
        dice, state = self.dice, self.ledger.state
        logs = [log for each in state.topics.by_id.values() for log in each.partitions if log.run_count]
        if not logs:
            return
        log = dice.choice(logs)
        runs = list(log.runs())
        begin = dice.randrange(len(runs))
        some = runs[begin : begin + dice.randint(1, 9)]
        self.ledger.submit(TakePin(JOB))
        swap = swap_of(log, some, max(self.ledger.now_ms, state.entry_time_ms), join=dice.randint(1, 9))
        if swap.last < log.log_start:
            return  # nothing of it is left to be swapped
        if swap.markers and dice.random() < 0.2:
            result = self.entry([replace(swap, markers=swap.markers[1:])])
            assert isinstance(result, Refused) and result.error is ErrorName.INVALID_REQUEST, result
        markers = {at: marker for run in some for at, marker in self.markers_in(run)}
        others = [self.anything() for _ in range(dice.choice([0, 0, 2]))]
        result = self.entry([*others, swap])
        if isinstance(result, Refused):
            # The partition, or its last run, has changed in this very entry, or the topic has gone.
            assert others and result.error in (ErrorName.COORDINATOR_NOT_AVAILABLE, *_GONE), result
            return
        assert result == Swapped(swap.layout_version + 1, log.log_start), result
        self.merged_ends += len(swap.markers)
        for run in swap.runs:
            within = {at: marker for at, marker in markers.items() if run.base <= at <= run.last}
            self.segments[swap.segments[run.segment].locator, run.start] = within

    def markers_in(self, run: Run) -> Iterator[tuple[int, Marker]]:
        if is_marker(run):
            marker = marker_of(run)
            yield run.base, Marker(marker.producer_id, marker.producer_epoch, marker.type.name == "COMMIT")
        elif not run.dense:
            where = self.ledger.state.objects.locator(run.object_number), run.start
            yield from self.segments[where].items()

    def delete_records(self) -> None:
        place = self.place()
        log = self.model.log(place)
        if log is not None:
            log.log_start = self.dice.randint(log.log_start, len(log.slots))
            self.ledger.submit(DeleteRecords(*place, log.log_start))

    # Requests

    def anything(self) -> Request:
        dice, name = self.dice, self.dice.choice(self.names)
        known = self.known(name)
        kind = dice.random()
        if kind < 0.12 or (name not in self.model.ids and kind < 0.6):
            expected = Expected(known.producer_id, known.epoch) if dice.random() < 0.4 else None
            return InitTransactionalId(name, 60_000, expected)
        if kind < 0.45:
            return self.batches(name, known)
        if kind < 0.66:
            return EndTransaction(
                name, known.producer_id, self.epoch(known), dice.random() < 0.6, dice.random() < 0.6
            )
        if kind < 0.72:
            places = [TopicPartition(*self.place()) for _ in range(dice.randint(0, 2))]
            groups = dice.sample(GROUPS, dice.randint(0, 1))
            return AddToTransaction(name, known.producer_id, self.epoch(known), places, groups)
        if kind < 0.82:
            rows, adds = self.rows(), dice.random() < 0.7
            group = dice.choice(GROUPS)
            return PendOffsets(group, name, known.producer_id, self.epoch(known), rows, adds)
        if kind < 0.86:
            return AbortTransaction(
                name, known.producer_id, known.epoch, known.started_ms - (dice.random() < 0.2)
            )
        return self.without_transaction()

    def without_transaction(self) -> Request:
        dice, group = self.dice, self.dice.choice(GROUPS)
        kind = dice.random()
        if kind < 0.3:
            before_ms = self.ledger.now_ms - dice.choice([-1, 0, 20])
            return ExpireTransactionalIds(before_ms, 10, dice.sample(NAMES, dice.randint(1, 3)))
        if kind < 0.7:
            return CommitOffsets(group, self.rows())
        if kind < 0.8:
            return RemoveOffsets(group, [self.place() for _ in range(2)])
        if kind < 0.88:
            return RemoveGroup(group)
        if kind < 0.96 or len(self.model.topics) < 2:
            return self.plain_batch()
        # It may be the one of an open transaction, in whose entry that ends.
        return DeleteTopic(dice.choice(list(self.model.topics)))

    def known(self, name: str) -> ModelId:
        """As its producer believes: now and then it has those of another id."""
        if self.dice.random() < 0.04:
            name = self.dice.choice(NAMES)
        return self.model.ids.get(name, ModelId(99, 0, -1, 0))

    def epoch(self, known: ModelId) -> int:
        """Mostly the right one; else that of a zombie, or of no producer."""
        return known.epoch + self.dice.choices([0, -1, 1], [12, 3, 1])[0]

    def place(self) -> Place:
        """Now and then one that there is not."""
        topics = [*self.model.topics] * 8 + [topic_id(1)]
        return self.dice.choice(topics), self.dice.randrange(PARTITIONS + (self.dice.random() < 0.05))

    def rows(self) -> list[OffsetRow]:
        places = dict.fromkeys(self.place() for _ in range(self.dice.randint(1, 3)))
        return [OffsetRow(*place, self.dice.randrange(1_000)) for place in places]

    def batches(self, name: str, known: ModelId) -> CommitFile:
        """Of one request, in several partitions."""
        adds = self.dice.random() < 0.6
        made: list[CommitBatch] = []
        places = [*known.places] * 2 + [self.place()]
        chosen = dict.fromkeys(self.dice.choice(places) for _ in range(self.dice.randint(1, 2)))
        for place in chosen:
            sequence, count = self.sequence(place, known), self.dice.randint(1, 3)
            if isinstance(sequence, tuple):
                sequence, count = sequence
            made.append(
                CommitBatch(
                    *place,
                    100 * len(made),
                    100,
                    count,
                    0,
                    TRANSACTIONAL_BIT,
                    known.producer_id,
                    self.epoch(known) if self.dice.random() < 0.3 else known.epoch,
                    sequence,
                )
            )
        claimed = {batch.start: ProducerTransaction(name, adds, is_abortable=True) for batch in made}
        return CommitFile(self.new_object(), 1_000, made, transactions=claimed)

    def sequence(self, place: Place, known: ModelId) -> int | tuple[int, int]:
        """The next one; or that of an earlier batch, with its count; or a wrong one."""
        log = self.model.log(place)
        epoch, batches = (-1, []) if log is None else log.producers.get(known.producer_id, (-1, []))
        if epoch != known.epoch or not batches:
            return 0 if self.dice.random() < 0.9 else 3
        kind = self.dice.random()
        if kind < 0.2:
            first, last, _ = self.dice.choice(batches[-7:])
            return first, last - first + 1
        return batches[-1][1] + (1 if kind < 0.95 else 3)

    def plain_batch(self) -> CommitFile:
        count = self.dice.randint(1, 3)
        return CommitFile(
            self.new_object(), 1_000, [CommitBatch(*self.place(), 0, 100, count, 0, 0, -1, -1, -1)]
        )

    def new_object(self) -> str:
        self.objects += 1
        return locator(self.objects, self.ledger.now_ms + 1_000_000)

    def write_markers(self) -> WriteMarkers:
        """As an operator who ends what hangs, or is wrong."""
        known = self.known(self.dice.choice(NAMES))
        epoch = known.epoch + self.dice.choice([0, 0, 1, -1])
        places = [TopicPartition(*self.place()) for _ in range(self.dice.randint(1, 3))]
        is_commit, bumps = self.dice.random() < 0.5, self.dice.random() < 0.5
        return WriteMarkers(known.producer_id, max(epoch, 0), is_commit, places, bumps)

    # What must be true

    def check(self) -> None:
        state, model = self.ledger.state, self.model
        assert set(state.topics.by_id) == set(model.topics)
        for topic, logs in model.topics.items():
            for expected, log in zip(logs, state.topics.by_id[topic].partitions, strict=True):
                self.check_log(expected, log)
        held = state.part(Transactions)
        assert {
            name: (each.producer_id, each.epoch, each.status.value) for name, each in held.by_id.items()
        } == {name: (each.producer_id, each.epoch, each.status) for name, each in model.ids.items()}
        assert set(held.open) == {each.producer_id for each in model.ids.values() if each.is_open}
        found = {
            (group, key): committed.offset
            for group, offsets in state.groups.offsets.items()
            for key, committed in offsets.items()
            if key[0] in model.topics
        }
        assert found == {
            key: offset for key, (_, offset) in model.offsets.items() if key[1][0] in model.topics
        }
        waiting = {key for each in model.ids.values() for key in each.pending}
        for group in GROUPS:
            for topic, logs in model.topics.items():
                for index in range(len(logs)):
                    key = topic, index
                    assert held.is_waiting(group, key) is ((group, key) in waiting)

    def check_log(self, expected: ModelLog, log: PartitionLog) -> None:
        end = len(expected.slots)
        assert (log.log_start, log.high_watermark) == (expected.log_start, end)
        assert log.last_stable == expected.last_stable
        every = [slot for slot in self.read_uncommitted(log) if slot[0] >= log.log_start]
        assert [(at, slot) for at, slot in every if isinstance(slot, Marker)] == [
            (at, slot)
            for at, slot in enumerate(expected.slots)
            if at >= log.log_start and isinstance(slot, Marker)
        ]
        assert [at for at, _ in every if at >= log.log_start] == list(range(log.log_start, end))
        first = self.dice.randint(log.log_start, log.last_stable)
        last = self.dice.randint(first, log.last_stable)
        seen = read_committed(log, expected.slots, first, last)
        assert seen == {at for at in expected.committed if first <= at < last}

    def read_uncommitted(self, log: PartitionLog) -> Iterator[tuple[int, Marker | None]]:
        """Each offset, with the marker that it is."""
        for run in log.find(log.log_start, MOST):
            markers = dict(self.markers_in(run))
            yield from ((offset, markers.get(offset)) for offset in range(run.base, run.last + 1))


def read_committed(log: PartitionLog, slots: list[int | Marker], first: int, end: int) -> set[int]:
    """What a client keeps of a fetch of [first, end): it leaves out the records of producers from the first
    offset of their aborted transactions on, up to their markers."""
    left = sorted(log.isolation.aborted_in(first, end), key=lambda aborted: aborted.first)
    leaving: set[int] = set()
    kept: set[int] = set()
    for offset in range(first, end):
        while left and left[0].first <= offset:
            leaving.add(left.pop(0).producer_id)
        slot = slots[offset]
        if isinstance(slot, Marker):
            if not slot.is_commit:
                leaving.discard(slot.producer_id)
        elif slot not in leaving:
            kept.add(offset)
    return kept


def lived(seed: int) -> History:
    history = History(seed)
    for _ in range(ENTRIES):
        history.live()
        history.check()
    ledger = history.ledger
    ledger.write_image()
    now = digest(all_rows(ledger.state))
    for state in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert digest(all_rows(state)) == now
    return history


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_readers_of_either_kind_find_what_the_model_says(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, SEEDS)):
        try:
            lived(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_such_histories_have_many_transactions_and_refusals() -> None:
    histories = [lived(seed) for seed in range(10)]
    assert sum(history.model.ends for history in histories) > 100
    assert sum(history.merged_ends for history in histories) > 20
