"""Transactions in the midst of all that changes a ledger: readers of committed records see each committed
transaction whole, and nothing of an aborted one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.batch.control import MarkerType, read_marker
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.errors import ErrorName
from ledger.groups.requests import CommitOffsets, OffsetsStored, RemoveGroup, RemoveOffsets
from ledger.groups.state import OffsetRow
from ledger.image import all_rows
from ledger.partitions.markers import is_marker, marker_bytes, marker_of
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    Committed,
    DeleteRecords,
    DrainRuns,
    FileCommit,
    ProducerTransaction,
)
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.requests import Refused
from ledger.rows import digest
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions.requests import (
    AbortTransaction,
    AddToTransaction,
    EndTransaction,
    InitTransactionalId,
    PendOffsets,
    ProducerEpoch,
    TopicPartition,
)
from ledger.transactions.state import Transactions
from ledger.types import TopicId
from tests.support.journalled import JournalledLedger, locator, topic_id

PARTITIONS = 3
NAMES = ("one", "two", "three")
STEPS = (
    *("begin",) * 2,
    *("send",) * 8,
    *("plain",) * 2,
    *("end",) * 5,
    *("pend", "commit offset") * 2,
    "delete offset",
    "delete group",
    "time out",
    "delete records",
    "drain",
    "recreate",
    "restart",
    "image",
    "image steps",
    "image fails",
)


@pytest.fixture(autouse=True, scope="module")
def small_chunks_and_a_level_to_come() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ledger.partitions.state.CHUNK_RUNS", 3)
        for module in ("ledger.cluster.records", "ledger.image"):
            patch.setattr(f"{module}.NEWEST_LEVEL", LEVEL_WITH_TRANSACTIONS)
        yield


@dataclass
class Client:
    """A producer with a transactional id. `bumps`: it is of transaction version 2."""

    name: str
    bumps: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    written: dict[tuple[TopicId, int], list[int]] = field(default_factory=dict)
    """Offsets of its open transaction, by partition."""
    pending: dict[tuple[TopicId, int], int] = field(default_factory=dict)
    is_open: bool = False


class History:
    """A ledger and what must be true of it."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.ledger = JournalledLedger(LEVEL_WITH_TRANSACTIONS)
        self.clients = [Client(name, bumps=bool(at % 2)) for at, name in enumerate(NAMES)]
        self.committed: dict[tuple[TopicId, int], set[int]] = {}
        self.aborted: dict[tuple[TopicId, int], set[int]] = {}
        self.offsets: dict[tuple[TopicId, int], tuple[int, int]] = {}
        """(order, offset) that the group has committed."""
        self.order = 0
        self.objects = self.topics = self.ends = 0
        self.create()

    def create(self) -> None:
        self.topics += 1
        self.topic = topic_id(self.topics)
        self.ledger.submit(CreateTopic(f"t{self.topics}", self.topic, PARTITIONS, {}))

    def logs(self) -> list[PartitionLog]:
        return self.ledger.state.topics.by_id[self.topic].partitions[:]

    def step(self, name: str) -> None:
        self.ledger.now_ms += self.dice.randrange(3)
        client = self.dice.choice(self.clients)
        steps: dict[str, Callable[[], object]] = {
            "begin": lambda: self.begin(client),
            "send": lambda: self.send(client),
            "plain": lambda: self.commit([self.batch(-1, -1, -1, 0)], None),
            "end": lambda: self.end(client),
            "pend": lambda: self.pend(client),
            "commit offset": self.commit_offset,
            "delete offset": self.delete_offset,
            "delete group": self.delete_group,
            "time out": lambda: self.time_out(client),
            "delete records": self.delete_records,
            "drain": lambda: self.ledger.submit(DrainRuns(self.dice.randint(1, 5))),
            "recreate": self.recreate,
            "restart": lambda: self.ledger.restart(self.dice.choice(["image", "snapshot", "journal"])),
            "image": self.ledger.write_image,
            "image steps": self.image_steps,
            "image fails": lambda: self.ledger.end_image(fails=True),
        }
        steps[name]()

    def delete_records(self) -> None:
        log = self.dice.choice(self.logs())
        offset = self.dice.randint(log.log_start, log.high_watermark)
        self.ledger.submit(DeleteRecords(self.topic, log.index, offset))

    def image_steps(self) -> None:
        self.ledger.begin_image()
        self.ledger.continue_image(self.dice.randrange(12))

    def recreate(self) -> None:
        self.ledger.submit(DeleteTopic(self.topic))
        for client in self.clients:
            client.written = {}
            client.pending = {}
            client.sequences = {}
        self.offsets = {}
        self.create()

    def begin(self, client: Client) -> None:
        (given_,) = self.ledger.submit(InitTransactionalId(client.name, 60_000))
        assert isinstance(given_, ProducerEpoch)
        assert given_.aborted is client.is_open
        if client.is_open:
            self.over(client, is_commit=False)
        client.producer_id, client.epoch, client.sequences = given_.producer_id, given_.epoch, {}

    def send(self, client: Client) -> None:
        if client.producer_id < 0:
            return
        partition = self.dice.randrange(PARTITIONS)
        if not client.bumps:
            adding = AddToTransaction(
                client.name, client.producer_id, client.epoch, [TopicPartition(self.topic, partition)]
            )
            (added,) = self.ledger.submit(adding)
            assert not isinstance(added, Refused)
            client.is_open = True
        key = self.topic, partition
        sequence = client.sequences.get(key, 0)
        count = self.dice.randint(1, 3)
        batch = self.batch(client.producer_id, client.epoch, sequence, TRANSACTIONAL_BIT, partition, count)
        claimed = {batch.start: ProducerTransaction(client.name, client.bumps, is_abortable=True)}
        (result,) = self.commit([batch], claimed)
        assert isinstance(result, Committed), result
        client.is_open = True
        client.sequences[key] = sequence + count
        client.written.setdefault(key, []).extend(range(result.base_offset, result.base_offset + count))

    def batch(
        self, producer: int, epoch: int, sequence: int, flags: int, partition: int = 0, count: int = 1
    ) -> CommitBatch:
        return CommitBatch(self.topic, partition, 0, 100, count, 0, flags, producer, epoch, sequence)

    def commit(
        self, batches: list[CommitBatch], claimed: dict[int, ProducerTransaction] | None
    ) -> list[object]:
        self.objects += 1
        where = locator(self.objects, 1_000_000 + self.objects)
        (commit,) = self.ledger.submit(CommitFile(where, 100, batches, transactions=claimed))
        assert isinstance(commit, FileCommit)
        for batch, result in zip(batches, commit.results, strict=True):
            if isinstance(result, Committed) and not batch.attributes:
                key = batch.topic_id, batch.partition
                offsets = range(result.base_offset, result.base_offset + batch.record_count)
                self.committed.setdefault(key, set()).update(offsets)
        return list(commit.results)

    def end(self, client: Client) -> None:
        is_commit = self.dice.random() < 0.6
        request = EndTransaction(client.name, client.producer_id, client.epoch, is_commit, client.bumps)
        (ended,) = self.ledger.submit(request)
        if not client.is_open:
            assert isinstance(ended, Refused) or not (is_commit and client.bumps) or client.producer_id < 0
            if isinstance(ended, ProducerEpoch):
                self.goes_on(client, ended)
            return
        assert isinstance(ended, ProducerEpoch), ended
        # A repeat changes nothing.
        (given_,) = self.ledger.submit(request)
        assert isinstance(given_, ProducerEpoch) and given_._replace(ended_before=False) == ended
        self.over(client, is_commit)
        self.goes_on(client, ended)

    def goes_on(self, client: Client, ended: ProducerEpoch) -> None:
        if client.bumps:
            assert (ended.producer_id, ended.epoch) in (
                (client.producer_id, client.epoch + 1),
                (client.producer_id, client.epoch),
            )
            if ended.epoch != client.epoch:
                client.sequences = {}
        client.producer_id, client.epoch = ended.producer_id, ended.epoch

    def over(self, client: Client, is_commit: bool) -> None:
        self.ends += 1
        into = self.committed if is_commit else self.aborted
        for key, offsets in client.written.items():
            into.setdefault(key, set()).update(offsets)
        for key, order in client.pending.items():
            if is_commit and order > self.offsets.get(key, (-1, -1))[0]:
                self.offsets[key] = (order, order)
        client.written, client.pending, client.is_open = {}, {}, False

    def time_out(self, client: Client) -> None:
        known = self.ledger.state.part(Transactions).by_id.get(client.name)
        started_ms = -1 if known is None else known.started_ms
        self.ledger.submit(AbortTransaction(client.name, client.producer_id, client.epoch, started_ms))
        if client.is_open:
            self.over(client, is_commit=False)
            # Its producer is fenced.
            (refused,) = self.ledger.submit(
                EndTransaction(client.name, client.producer_id, client.epoch, True, client.bumps)
            )
            assert isinstance(refused, Refused)
            self.begin(client)

    def pend(self, client: Client) -> None:
        if client.producer_id < 0:
            return
        key = self.topic, self.dice.randrange(PARTITIONS)
        self.order += 1
        row = OffsetRow(*key, self.order)
        if not client.bumps:
            added = AddToTransaction(client.name, client.producer_id, client.epoch, groups=["g"])
            self.ledger.submit(added)
        pending = PendOffsets("g", client.name, client.producer_id, client.epoch, [row], client.bumps)
        (result,) = self.ledger.submit(pending)
        assert isinstance(result, OffsetsStored) and result.results == [None]
        client.is_open = True
        client.pending[key] = self.order
        assert self.ledger.state.part(Transactions).is_waiting("g", key)

    def commit_offset(self) -> None:
        key = self.topic, self.dice.randrange(PARTITIONS)
        self.order += 1
        self.ledger.submit(CommitOffsets("g", [OffsetRow(*key, self.order)]))
        self.offsets[key] = (self.order, self.order)

    def delete_offset(self) -> None:
        key = self.topic, self.dice.randrange(PARTITIONS)
        self.ledger.submit(RemoveOffsets("g", [key]))
        self.forget([key])

    def delete_group(self) -> None:
        self.ledger.submit(RemoveGroup("g"))
        self.forget((self.topic, index) for index in range(PARTITIONS))

    def forget(self, keys: Iterable[tuple[TopicId, int]]) -> None:
        """Offsets, and what pends of them."""
        for key in keys:
            self.offsets.pop(key, None)
            for client in self.clients:
                client.pending.pop(key, None)

    def check(self) -> None:
        for log in self.logs():
            self.check_partition(log)
        held = self.ledger.state.groups.offsets.get("g", {})
        of_topic = {key: found.offset for key, found in held.items() if key[0] == self.topic}
        assert of_topic == {key: offset for key, (_, offset) in self.offsets.items()}
        waiting = {key for client in self.clients for key in client.pending}
        transactions = self.ledger.state.part(Transactions)
        for index in range(PARTITIONS):
            assert transactions.is_waiting("g", (self.topic, index)) is ((self.topic, index) in waiting)

    def check_partition(self, log: PartitionLog) -> None:
        key = log.topic_id, log.index
        open_offsets = [min(client.written[key]) for client in self.clients if client.written.get(key)]
        first = min(open_offsets, default=log.high_watermark)
        assert log.last_stable == max(first, log.log_start)
        begin = self.dice.randint(log.log_start, max(log.log_start, log.last_stable))
        end = self.dice.randint(begin, max(begin, log.last_stable))
        committed = {offset for offset in self.committed.get(key, set()) if begin <= offset < end}
        assert self.seen(log, begin, end) == committed

    def seen(self, log: PartitionLog, begin: int, end: int) -> set[int]:
        """What a client of read_committed keeps of a fetch of [begin, end): it leaves out the records of
        producers from the first offset of their aborted transactions on, up to their markers."""
        left = sorted(log.isolation.aborted_in(begin, end), key=lambda aborted: aborted.first)
        leaving: set[int] = set()
        kept: set[int] = set()
        for run in log.find(begin, 1 << 30):
            while left and left[0].first <= run.base:
                leaving.add(left.pop(0).producer_id)
            if is_marker(run):
                marker = marker_of(run)
                assert marker == read_marker(memoryview(marker_bytes(run)))
                if marker.type is MarkerType.ABORT:
                    leaving.discard(marker.producer_id)
                continue
            for offset in range(max(run.base, begin), min(run.last + 1, end)):
                while left and left[0].first <= offset:
                    leaving.add(left.pop(0).producer_id)
                if self.producer_of(log, offset) not in leaving:
                    kept.add(offset)
        return kept

    def producer_of(self, log: PartitionLog, offset: int) -> int:
        return self.producers[log.topic_id, log.index, offset]

    @property
    def producers(self) -> dict[tuple[TopicId, int, int], int]:
        """Of each record, from the journal."""
        raise NotImplementedError


class Remembering(History):
    """Remembers who has written each record."""

    def __init__(self, seed: int) -> None:
        self._producers: dict[tuple[TopicId, int, int], int] = {}
        super().__init__(seed)

    @property
    def producers(self) -> dict[tuple[TopicId, int, int], int]:
        return self._producers

    def commit(
        self, batches: list[CommitBatch], claimed: dict[int, ProducerTransaction] | None
    ) -> list[object]:
        results = super().commit(batches, claimed)
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, Committed):
                for offset in range(result.base_offset, result.base_offset + batch.record_count):
                    self._producers[batch.topic_id, batch.partition, offset] = batch.producer_id
        return results


def lived(seed: int, steps: list[str]) -> History:
    history = Remembering(seed)
    for name in steps:
        history.step(name)
        history.check()
    history.ledger.write_image()
    now = digest(all_rows(history.ledger.state))
    ledger = history.ledger
    for state in (ledger.from_journal(), ledger.from_image(), ledger.from_snapshot()):
        assert digest(all_rows(state)) == now
    return history


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS), min_size=20, max_size=70))
def test_readers_of_committed_records_see_each_transaction_whole_or_not_at_all(
    seed: int, steps: list[str]
) -> None:
    lived(seed, steps)


def test_such_histories_have_many_transactions() -> None:
    ended = [lived(seed, Random(seed).choices(STEPS, k=100)).ends for seed in range(5)]
    assert sum(ended) > 40


def test_at_an_older_level_no_transactional_id_is_given() -> None:
    (refused,) = JournalledLedger(LEVEL_WITH_TRANSACTIONS - 1).submit(InitTransactionalId("t", 1_000))
    assert isinstance(refused, Refused)
    assert refused.error is ErrorName.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
