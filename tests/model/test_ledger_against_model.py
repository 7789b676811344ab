"""The ledger against a model that only knows lists: any order of requests, any restart."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger.image import all_rows, digest
from ledger.requests import (
    CommitBatch,
    CommitFile,
    Committed,
    Created,
    CreateTopic,
    Deleted,
    DeleteRecords,
    DeleteTopic,
    DrainRuns,
    FileCommit,
    ForgetObjects,
    LowWatermark,
    RaiseFloor,
    Refused,
    Reserved,
    ReserveProducerIds,
    StaleObject,
)
from tests.model.harness import JournalledLedger, locator, topic_id

NAMES = ["a", "b", "c"]
GRACE_MS = 1_000


class ModelPartition:
    """`batches` of (base offset, record count, identity); a producer's log is a list of its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, str]] = []
        self.log_start = 0
        self.end = 0
        self.sequences: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}


class LedgerAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = JournalledLedger()
        self.objects = 0
        self.topics: dict[str, tuple[bytes, list[ModelPartition]]] = {}
        self.ids_given: set[bytes] = set()
        self.stored: dict[tuple[str, int], tuple[int, int, str]] = {}
        """What lies in the objects: (locator, start) -> (size, records, identity)."""
        self.open_object = self.new_object()
        self.object_end = 0
        self.commits: list[tuple[CommitFile, FileCommit]] = []
        self.next_topic = 1
        self.next_identity = 0
        self.producer_ids: list[int] = []

    def new_object(self) -> str:
        self.object_end = 0
        self.objects += 1
        return locator(self.objects, self.ledger.now_ms)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 3))
    def create(self, name: str, partitions: int) -> None:
        fresh = topic_id(self.next_topic)
        self.next_topic += 1
        (answer,) = self.ledger.ask(CreateTopic(name, fresh, partitions, {"retention.ms": "1"}))
        if name in self.topics:
            assert isinstance(answer, Refused)
            return
        assert answer == Created(fresh)
        self.topics[name] = (fresh, [ModelPartition() for _ in range(partitions)])

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name not in self.topics:
            return
        fresh, _ = self.topics.pop(name)
        assert self.ledger.ask(DeleteTopic(fresh)) == [Deleted()]

    @rule()
    def reserve(self) -> None:
        (answer,) = self.ledger.ask(ReserveProducerIds(1))
        assert isinstance(answer, Reserved)
        assert answer.first not in self.producer_ids
        self.producer_ids.append(answer.first)

    @precondition(lambda self: self.topics)
    @rule(seed=st.integers(0, 2**32), drafts=st.integers(1, 2))
    def commit(self, seed: int, drafts: int) -> None:
        choose = random.Random(seed)
        files = [self.draft(choose) for _ in range(drafts)]
        answers = self.ledger.ask(*files)
        for file, answer in zip(files, answers, strict=True):
            if isinstance(answer, StaleObject):
                assert self.ledger.state.files.refuses(file.locator)
                self.open_object = self.new_object()
                continue
            assert isinstance(answer, FileCommit)
            for batch, result in zip(file.batches, answer.results, strict=True):
                self.judge(file.locator, batch, result)
            self.commits.append((file, answer))

    def draft(self, choose: random.Random) -> CommitFile:
        if choose.random() < 0.1:
            self.open_object = self.new_object()
        batches: list[CommitBatch] = []
        names = choose.choices(list(self.topics), k=choose.randint(1, 3))
        for name in names:
            fresh, partitions = self.topics[name]
            partition = choose.randrange(len(partitions))
            for _ in range(choose.randint(1, 3)):
                batches.append(self.batch(choose, fresh, partition, partitions[partition]))
        return CommitFile(self.open_object, self.object_end, batches)

    def batch(
        self, choose: random.Random, fresh: bytes, partition: int, model: ModelPartition
    ) -> CommitBatch:
        records, size = choose.randint(1, 4), choose.randint(70, 90)
        producer = (-1, -1, -1)
        if self.producer_ids and choose.random() < 0.7:
            producer_id = choose.choice(self.producer_ids)
            epoch, log = model.sequences.get(producer_id, (0, []))
            expected = log[-1][1] + 1 if log else 0
            kind = choose.random()
            if kind < 0.2 and log:
                first, last, _ = choose.choice(log)  # a retry, perhaps a very old one
                records, producer = last - first + 1, (producer_id, epoch, first)
            elif kind < 0.3:
                producer = (producer_id, epoch, expected + choose.randint(1, 3))
            elif kind < 0.4:
                producer = (producer_id, epoch + choose.choice([-1, 1]), choose.choice([0, expected]))
            else:
                producer = (producer_id, epoch, expected)
            producer = (producer[0], max(producer[1], 0), producer[2])
        start = self.object_end
        self.object_end += size
        identity = f"batch {self.next_identity}"
        self.next_identity += 1
        self.stored[self.open_object, start] = (size, records, identity)
        from ledger.types import TopicId

        return CommitBatch(TopicId(fresh), partition, start, size, records, 7, 0, *producer)

    def judge(self, where: str, batch: CommitBatch, result: Committed | Refused) -> None:
        partitions = next(p for fresh, p in self.topics.values() if fresh == batch.topic_id)
        model = partitions[batch.partition]
        verdict = self.expected(model, batch)
        if isinstance(verdict, str):
            assert result == Refused(verdict, getattr(result, "message", "")), (verdict, result)
            return
        assert isinstance(result, Committed)
        assert result.log_start == model.log_start
        if verdict is not None:
            assert result.duplicate and result.base_offset == verdict
            return
        assert not result.duplicate
        assert result.base_offset == model.end
        _, records, identity = self.stored[where, batch.start]
        model.batches.append((model.end, records, identity))
        if batch.producer_id >= 0:
            epoch, log = model.sequences.get(batch.producer_id, (batch.producer_epoch, []))
            log = log if epoch == batch.producer_epoch else []
            last = batch.base_sequence + records - 1
            log = [*log, (batch.base_sequence, last, model.end)]
            model.sequences[batch.producer_id] = (batch.producer_epoch, log)
        model.end += records

    def expected(self, model: ModelPartition, batch: CommitBatch) -> str | int | None:
        """An error, the first answer to a repeat, or None for a batch to be taken."""
        known = model.sequences.get(batch.producer_id)
        if batch.producer_id < 0 or known is None:
            return None
        epoch, log = known
        if batch.producer_epoch < epoch:
            return "INVALID_PRODUCER_EPOCH"
        if batch.producer_epoch > epoch:
            return None if batch.base_sequence == 0 else "OUT_OF_ORDER_SEQUENCE_NUMBER"
        last = batch.base_sequence + batch.record_count - 1
        for known_first, known_last, base in log[-5:]:
            if (known_first, known_last) == (batch.base_sequence, last):
                return base
        return None if batch.base_sequence == log[-1][1] + 1 else "OUT_OF_ORDER_SEQUENCE_NUMBER"

    @precondition(lambda self: self.commits)
    @rule(seed=st.integers(0, 2**32))
    def repeat_a_commit(self, seed: int) -> None:
        """Asked again, the first answer is given, or the object is too old: never new offsets."""
        file, first = random.Random(seed).choice(self.commits)
        known = self.ledger.state.files.by_locator.get(file.locator)
        if known is None or not len(known.starts):
            return
        if any(isinstance(result, Refused) or result.duplicate for result in first.results):
            return
        before = {number: log.high_watermark for number, log in self.ledger.state.logs.items()}
        (answer,) = self.ledger.ask(file)
        assert isinstance(answer, FileCommit)
        assert [r.base_offset for r in answer.results] == [r.base_offset for r in first.results]  # type: ignore[union-attr]
        assert all(isinstance(r, Committed) and r.duplicate for r in answer.results)
        assert before == {number: log.high_watermark for number, log in self.ledger.state.logs.items()}

    @precondition(lambda self: self.topics)
    @rule(seed=st.integers(0, 2**32))
    def delete_records(self, seed: int) -> None:
        choose = random.Random(seed)
        fresh, partitions = choose.choice(list(self.topics.values()))
        at = choose.randrange(len(partitions))
        model = partitions[at]
        offset = choose.choice([-1, choose.randint(0, model.end + 1)])
        from ledger.types import TopicId

        (answer,) = self.ledger.ask(DeleteRecords(TopicId(fresh), at, offset))
        wanted = model.end if offset == -1 else offset
        if wanted > model.end:
            assert answer == Refused("OFFSET_OUT_OF_RANGE")
            return
        model.log_start = max(model.log_start, wanted)
        assert answer == LowWatermark(model.log_start)

    @rule(limit=st.integers(1, 5))
    def drain(self, limit: int) -> None:
        self.ledger.ask(DrainRuns(limit))

    @rule()
    def sweep(self) -> None:
        """Bytes of closed objects go after the grace; an object with live runs never does."""
        self.ledger.now_ms += GRACE_MS
        self.ledger.ask(RaiseFloor(self.ledger.now_ms - GRACE_MS))
        due = list(self.ledger.state.files.due_garbage(self.ledger.now_ms, GRACE_MS))
        assert all(stored.live_runs == 0 for stored in due)
        for stored in due:
            for where in [key for key in self.stored if key[0] == stored.locator]:
                del self.stored[where]
        self.ledger.ask(ForgetObjects([stored.number for stored in due]))

    @rule()
    def write_image(self) -> None:
        self.ledger.write_image()

    @rule(source=st.sampled_from(["image", "journal", "snapshot"]))
    def restart(self, source: str) -> None:
        """A restart from any source gives the same state, and goes on from there."""
        before = digest(all_rows(self.ledger.state))
        if source == "image":
            if not self.ledger.image:
                self.ledger.write_image()
            restored = self.ledger.from_image()
        else:
            restored = self.ledger.from_journal() if source == "journal" else self.ledger.from_snapshot()
        assert digest(all_rows(restored)) == before
        restored.dirty = self.ledger.state.dirty
        self.ledger.state = restored

    @invariant()
    def every_offset_lies_where_the_ledger_says(self) -> None:
        state = self.ledger.state
        assert set(state.topics.by_name) == set(self.topics)
        for name, (fresh, partitions) in self.topics.items():
            topic = state.topics.by_name[name]
            assert topic.topic_id == fresh
            for model, log in zip(partitions, topic.partitions, strict=True):
                assert (log.log_start, log.high_watermark) == (model.log_start, model.end)
                found = [
                    (base, records, identity)
                    for run in log.runs()
                    for base, records, identity in self.walk(state.files.locator(run.object_number), run)
                ]
                readable = [batch for batch in model.batches if batch[0] + batch[1] > model.log_start]
                assert found[len(found) - len(readable) :] == readable
                assert log.size_bytes == sum(run.size for run in log.runs())

    def walk(self, where: str, run) -> list[tuple[int, int, str]]:  # type: ignore[no-untyped-def]
        found, start, base = [], run.start, run.base
        while start < run.start + run.size:
            size, records, identity = self.stored[where, start]
            found.append((base, records, identity))
            start += size
            base += records
        assert base == run.last + 1
        return found

    @invariant()
    def live_runs_are_counted(self) -> None:
        counts: dict[int, int] = {}
        for log in self.ledger.state.logs.values():
            for run in log.runs():
                counts[run.object_number] = counts.get(run.object_number, 0) + 1
        files = self.ledger.state.files
        assert counts == {n: stored.live_runs for n, stored in files.by_number.items() if stored.live_runs}
        assert set(files.garbage) == {n for n, stored in files.by_number.items() if not stored.live_runs}


TestLedgerAgainstModel = LedgerAgainstModel.TestCase
TestLedgerAgainstModel.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
