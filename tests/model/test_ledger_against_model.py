"""The ledger against a model that only knows lists: any mix of requests in an entry, any restart."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pytest import MonkeyPatch

from ledger.cut import take_dirty_rows
from ledger.image import all_rows
from ledger.keys import created_ms
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.uploads import Upload, Uploader
from ledger.partitions import state as ledger_partitions
from ledger.partitions.producers import MAX_SEQUENCE
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    DeleteRecords,
    DrainRuns,
    ExpireProducers,
    FileCommit,
    ReserveProducerIds,
)
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.requests import Request
from ledger.rows import digest
from ledger.settings.configs import ConfigChange, ConfigOp
from ledger.swaps.requests import Pinned, ReleasePin, SwapSegments, TakePin
from ledger.swaps.state import Pins
from ledger.topics.requests import AddPartitions, AlterTopicConfigs, CreateTopic, DeleteTopic
from ledger.types import TopicId
from tests.model.groups import anything_of_groups
from tests.model.model import Model, ModelBatch, ModelPartition, ModelTopic, Place
from tests.model.swaps import JOBS, anything_of_swaps
from tests.support.journalled import DecidedEntry, JournalledLedger, locator, topic_id

FULL = bool(os.environ.get("DRAGOMAN_TEST_FULL"))
NAMES = ["a", "b", "c"]
PRODUCERS = 2
GRACE_MS = 1_000
CHUNK_RUNS = 3
UPLOADER = Uploader(1, b"u" * 16)


class LedgerAgainstModel(RuleBasedStateMachine):
    """Chunks hold three runs here, so that a few commits fill, cut and empty them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = MonkeyPatch()
        self.patch.setattr(ledger_partitions, "CHUNK_RUNS", CHUNK_RUNS)
        self.patch.setattr("ledger.topics.apply.SLICE_PARTITIONS", 2)
        self.ledger = JournalledLedger()
        self.model = Model()
        self.objects = 0
        self.next_topic = 1
        self.open_object = ""
        self.object_end = 0
        self.drafts = self.settled = 0
        """Of the one uploader."""
        self.last_partition = ("", 0)
        self.committed: list[CommitFile] = []
        self.planned: list[SwapSegments] = []
        self.high_watermarks: dict[int, int] = {}
        self.new_object()
        self.ask(CreateTopic("a", self.new_topic_id(), 2, {}), ReserveProducerIds(PRODUCERS))

    def teardown(self) -> None:
        self.patch.undo()

    # Requests

    def ask(self, *requests: Request) -> DecidedEntry:
        decided = self.ledger.decide(*requests)
        results = [decision.result for decision in decided.decisions]
        records = [decision.records for decision in decided.decisions]
        self.model.judge_entry(self.ledger.state, requests, results, records, decided.time_ms)
        for request in requests:
            if isinstance(request, ForgetObjects):
                known = self.ledger.state.objects.by_number
                self.model.forget({known[number].locator for number in request.objects})
        touched = self.ledger.make_durable(decided)
        self.check_touched(touched)
        self.committed += [
            request
            for request, result in zip(requests, results, strict=True)
            if isinstance(request, CommitFile) and isinstance(result, FileCommit)
        ]
        return decided

    def check_touched(self, touched: list[PartitionLog]) -> None:
        """Subscribers of a partition are notified of every move of its offsets."""
        numbers = {log.number for log in touched}
        for number, log in self.ledger.state.logs.items():
            if log.high_watermark != self.high_watermarks.get(number, 0):
                assert number in numbers
            self.high_watermarks[number] = log.high_watermark

    @rule(seed=st.integers(0, 2**32), requests=st.integers(1, 6))
    def an_entry_of_anything(self, seed: int, requests: int) -> None:
        choose = random.Random(seed)
        entry = [self.anything(choose) for _ in range(requests)]
        drafts = [request for request in entry if isinstance(request, CommitFile)]
        if drafts and choose.random() < 0.3:
            entry.append(choose.choice(drafts))
        self.ask(*entry)

    @rule(seed=st.integers(0, 2**32), files=st.integers(1, 3))
    def commits(self, seed: int, files: int) -> None:
        choose = random.Random(seed)
        self.ask(*[self.draft(choose) for _ in range(files)])

    @rule(seed=st.integers(0, 2**32), requests=st.integers(1, 6))
    def groups_and_settings_change(self, seed: int, requests: int) -> None:
        choose = random.Random(seed)
        entry = [self.of_groups(choose) for _ in range(requests)]
        if self.model.topics and choose.random() < 0.2:
            name = choose.choice(list(self.model.topics))
            entry.insert(choose.randrange(len(entry)), DeleteTopic(self.model.topics[name].topic_id))
        self.ask(*entry)

    @rule(seed=st.integers(0, 2**32), requests=st.integers(2, 4))
    def a_topic_changes_more_than_once_in_an_entry(self, seed: int, requests: int) -> None:
        choose = random.Random(seed)
        name = choose.choice(NAMES)
        topic = self.model.topics.get(name)
        named = topic.topic_id if topic is not None else topic_id(0)
        entry: list[Request] = []
        for _ in range(requests):
            kind = choose.random()
            if kind < 0.45:
                entry.append(AddPartitions(named, choose.randint(1, 5)))
            elif kind < 0.9:
                entry.append(self.alter_configs(choose, named))
            else:
                entry += [DeleteTopic(named), CreateTopic(name, self.new_topic_id(), 2, {})]
        self.ask(*entry)

    @rule(seed=st.integers(0, 2**32))
    def a_producer_sends_and_repeats(self, seed: int) -> None:
        """More batches than are remembered, then one of the last seven again."""
        choose = random.Random(seed)
        name, at = self.some_partition(choose)
        topic = self.model.topics.get(name)
        if topic is None:
            return
        for _ in range(choose.randint(1, 7)):
            producer_id = choose.randrange(PRODUCERS)
            batch = self.batch(choose, topic, at, self.next_of(topic.partitions[at], producer_id, choose))
            self.ask(CommitFile(self.open_object, self.object_end, [batch]))
        for producer_id, producer in list(topic.partitions[at].producers.items()):
            back = choose.randint(1, min(7, len(producer.batches)))
            first, last, _ = producer.batches[-back]
            batch = self.batch(choose, topic, at, (producer_id, producer.epoch, first))
            again = self.as_long_as(batch, first, last)
            self.ask(CommitFile(self.open_object, self.object_end, [again]))

    @rule(seed=st.integers(0, 2**32))
    def everything_is_deleted_while_commits_go_on(self, seed: int) -> None:
        """Runs and objects lose their last reader in the entry that appends to them."""
        choose = random.Random(seed)
        wipe: list[Request] = []
        for topic in self.model.topics.values():
            for at in range(len(topic.partitions)):
                wipe.append(DeleteRecords(topic.topic_id, at, -1))
        if choose.random() < 0.8:
            self.ask(*wipe)
            wipe = []
        entry = [*wipe, DrainRuns(choose.choice([1, 2, 100])), self.draft(choose), self.draft(choose)]
        choose.shuffle(entry)
        self.ask(*entry)

    @rule(seed=st.integers(0, 2**32), requests=st.integers(1, 4))
    def jobs_merge(self, seed: int, requests: int) -> None:
        """With their pins, mostly; and with other requests in the same entry, sometimes."""
        choose = random.Random(seed)
        if choose.random() < 0.8:
            self.ask(*map(TakePin, JOBS))
        entry = [self.of_swaps(choose) for _ in range(requests)]
        if choose.random() < 0.3:
            entry.insert(choose.randrange(requests), self.anything(choose))
        self.ask(*entry)
        if self.planned and choose.random() < 0.2:
            # A job that has ended, and a request of it that arrives late.
            self.ask(*map(ReleasePin, JOBS))
            self.ask(choose.choice(self.planned[-3:]))

    @rule()
    def sweep(self) -> None:
        self.ledger.now_ms += GRACE_MS
        self.ask(RaiseFloor(self.ledger.now_ms - GRACE_MS))
        self.ask(self.forget_due())

    @rule(passed_ms=st.integers(-500, 500))
    def the_clock_moves(self, passed_ms: int) -> None:
        self.ledger.now_ms += passed_ms

    @rule()
    def write_image(self) -> None:
        self.ledger.write_image()

    @rule()
    def begin_image(self) -> None:
        self.ledger.begin_image()

    @rule(steps=st.integers(1, 20))
    def continue_image(self, steps: int) -> None:
        self.ledger.continue_image(steps)

    @rule(fails=st.booleans())
    def end_image(self, fails: bool) -> None:
        """What was applied while an image was made is not in it, and found in the journal after it."""
        self.ledger.end_image(fails=fails)
        if self.ledger.image:
            assert digest(all_rows(self.ledger.from_image())) == digest(all_rows(self.ledger.state))

    @rule(source=st.sampled_from(["image", "journal", "snapshot"]))
    def restart(self, source: str) -> None:
        """A restart from any source gives the same state, and continues from there."""
        before = digest(all_rows(self.ledger.state))
        self.ledger.restart(source)
        assert digest(all_rows(self.ledger.state)) == before

    @rule()
    def a_written_image_holds_all(self) -> None:
        """Written row by row, it is in the end what a whole one would be."""
        self.ledger.write_image()
        assert self.ledger.image == {(row[0], row[1]): row[2] for row in all_rows(self.ledger.state)}
        assert len(take_dirty_rows(self.ledger.state)) == 1

    # Requests

    def anything(self, choose: random.Random) -> Request:  # noqa: C901 - one case a request
        if choose.random() < 0.25:
            return self.of_groups(choose)
        if choose.random() < 0.1:
            return self.of_swaps(choose)
        kind = choose.random()
        if kind < 0.4:
            return self.draft(choose)
        if kind < 0.5 and self.committed:
            return choose.choice(self.committed)
        if kind < 0.58:
            name = choose.choice(NAMES)
            return CreateTopic(name, self.new_topic_id(), choose.randint(1, 3), {"retention.ms": "1"})
        topic = self.model.topics.get(choose.choice(NAMES))
        named = topic.topic_id if topic is not None else topic_id(0)
        if kind < 0.62:
            return DeleteTopic(named)
        if kind < 0.64:
            return AddPartitions(named, choose.randint(1, 4))
        if kind < 0.66:
            return self.alter_configs(choose, named)
        if kind < 0.72:
            return self.delete_records(choose)
        if kind < 0.82:
            return DrainRuns(choose.choice([1, 2, 3, 100]))
        if kind < 0.88:
            before_ms = self.ledger.now_ms - choose.choice([-1, 0, 100])
            return ExpireProducers(before_ms, choose.choice([1, 1000]), list(self.ledger.state.logs))
        if kind < 0.92:
            return RaiseFloor(self.ledger.now_ms - choose.choice([0, 100, GRACE_MS]))
        if kind < 0.96:
            return self.forget_due()
        return ReserveProducerIds(choose.randint(1, 3))

    def of_swaps(self, choose: random.Random) -> Request:
        request = anything_of_swaps(choose, self.ledger.state, self.planned, self.ledger.now_ms)
        if isinstance(request, SwapSegments) and request not in self.planned:
            self.planned.append(request)
            self.copy(request)
        return request

    def copy(self, swap: SwapSegments) -> None:
        """What a job does before it asks for a swap."""
        (topic,) = [each for each in self.model.topics.values() if each.topic_id == swap.topic_id]
        batches = topic.partitions[swap.partition].batches
        for segment in swap.segments:
            self.model.created_ms[segment.locator] = created_ms(segment.locator)
        for run in swap.runs:
            copied = [batch.place for batch in batches if run.base <= batch.base <= run.last]
            self.model.swaps.copied[swap.segments[run.segment].locator, run.start] = copied

    def of_groups(self, choose: random.Random) -> Request:
        live = [topic.topic_id for topic in self.model.topics.values()]
        gone = list(self.ledger.state.groups.dead)[:2]
        topics = [topic_id(0), *gone, *live, *live]
        return anything_of_groups(choose, self.model.groups, topics, self.ledger.now_ms)

    @staticmethod
    def alter_configs(choose: random.Random, topic: TopicId) -> AlterTopicConfigs:
        changes = [
            ConfigChange(choose.choice([ConfigOp.SET, ConfigOp.DELETE]), choose.choice("ab"), str(n))
            for n in range(choose.randint(0, 3))
        ]
        return AlterTopicConfigs(topic, changes, replace=choose.random() < 0.3)

    def new_topic_id(self) -> TopicId:
        self.next_topic += 1
        return topic_id(self.next_topic)

    def new_object(self, first_byte: int = 0) -> None:
        self.objects += 1
        self.object_end = first_byte
        created_ms = max(self.ledger.now_ms, self.ledger.state.entry_time_ms)
        self.open_object = locator(self.objects, created_ms)
        self.model.created_ms[self.open_object] = created_ms

    def forget_due(self) -> ForgetObjects:
        due = list(self.ledger.state.objects.due_garbage(self.ledger.now_ms, GRACE_MS))
        for stored in due:
            assert stored.live_runs == 0
            assert 0 <= stored.closed_ms <= self.ledger.now_ms - GRACE_MS
            assert self.is_below_floor(stored.locator)
        return ForgetObjects([stored.number for stored in due])

    def delete_records(self, choose: random.Random) -> DeleteRecords:
        name, at = self.some_partition(choose)
        topic = self.model.topics.get(name)
        if topic is None:
            return DeleteRecords(topic_id(0), 0, 0)
        end = topic.partitions[at].end
        return DeleteRecords(topic.topic_id, at, choose.choice([-1, end, choose.randint(0, end + 1)]))

    def some_partition(self, choose: random.Random) -> tuple[str, int]:
        """The one of the last batch, half of the time: so that runs are joined."""
        name, at = self.last_partition
        topic = self.model.topics.get(name)
        if topic is not None and at < len(topic.partitions) and choose.random() < 0.5:
            return name, at
        if not self.model.topics:
            return "", 0
        name = choose.choice(list(self.model.topics))
        return name, choose.randrange(len(self.model.topics[name].partitions))

    def draft(self, choose: random.Random) -> CommitFile:
        known = self.ledger.state.objects.by_locator.get(self.open_object)
        is_stale = (known is not None and known.closed) or self.is_below_floor(self.open_object)
        if choose.random() < (0.8 if is_stale else 0.1):
            self.new_object(choose.choice([0, self.object_end]))
        batches: list[CommitBatch] = []
        for _ in range(choose.randint(1, 3)):
            name, at = self.some_partition(choose)
            topic = self.model.topics.get(name)
            if topic is None:
                batches.append(self.batch(choose, ModelTopic(topic_id(0), [], {}), 0, (-1, -1, -1)))
                continue
            for _ in range(choose.randint(1, 3)):
                producer = self.some_producer(choose, topic.partitions[at])
                batches.append(self.batch(choose, topic, at, producer))
            self.last_partition = name, at
        first_sequences = {
            (batch.topic_id, batch.partition, batch.producer_id, batch.producer_epoch): first
            for batch in batches
            if (first := batch.base_sequence - choose.randint(-1, 2)) >= 0 and choose.random() < 0.3
        }
        upload = None
        if choose.random() < 0.6:
            self.drafts += 1
            self.settled = choose.randint(max(self.settled, self.drafts - 5), self.drafts - 1)
            upload = Upload(UPLOADER, self.drafts, self.settled)
        return CommitFile(self.open_object, self.object_end, batches, first_sequences or None, upload=upload)

    def is_below_floor(self, name: str) -> bool:
        return self.model.created_ms[name] < self.model.floor_ms

    def some_producer(self, choose: random.Random, partition: ModelPartition) -> tuple[int, int, int]:
        if choose.random() < 0.3:
            return -1, -1, -1
        producer_id = choose.randrange(PRODUCERS)
        known = partition.producers.get(producer_id)
        kind = choose.random()
        if known is not None and kind < 0.2:
            return producer_id, known.epoch, choose.choice(known.batches[-7:])[0]  # a retry
        if known is not None and kind < 0.3:
            return producer_id, known.epoch, known.batches[-1][1] + choose.randint(2, 4) & MAX_SEQUENCE
        if known is not None and kind < 0.4:
            epoch = max(known.epoch + choose.choice([-1, 1]), 0)
            return producer_id, epoch, choose.choice([0, known.batches[-1][1] + 1 & MAX_SEQUENCE])
        return self.next_of(partition, producer_id, choose)

    @staticmethod
    def next_of(partition: ModelPartition, producer_id: int, choose: random.Random) -> tuple[int, int, int]:
        known = partition.producers.get(producer_id)
        if known is None:
            return producer_id, 0, choose.choice([0, 0, MAX_SEQUENCE - choose.randint(0, 5)])
        return producer_id, known.epoch, known.batches[-1][1] + 1 & MAX_SEQUENCE

    def batch(
        self, choose: random.Random, topic: ModelTopic, partition: int, producer: tuple[int, int, int]
    ) -> CommitBatch:
        size, start = choose.randint(70, 90), self.object_end
        self.object_end += size
        records, stamp = choose.randint(1, 4), choose.randint(0, 20)
        batch = CommitBatch(topic.topic_id, partition, start, size, records, stamp, 0, *producer)
        model = topic.partitions[partition] if topic.partitions else ModelPartition()
        for first, last, _ in model.producers[producer[0]].batches if producer[0] in model.producers else ():
            if first == producer[2] and choose.random() < 0.9:
                return self.as_long_as(batch, first, last)
        return batch

    @staticmethod
    def as_long_as(batch: CommitBatch, first: int, last: int) -> CommitBatch:
        """The same with as many records as the sequences say."""
        return CommitBatch(
            batch.topic_id,
            batch.partition,
            batch.start,
            batch.size,
            (last - first & MAX_SEQUENCE) + 1,
            batch.max_timestamp,
            batch.attributes,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )

    # What must hold after every step

    def pairs(self) -> Iterator[tuple[ModelPartition, PartitionLog]]:
        state = self.ledger.state
        assert set(state.topics.by_name) == set(self.model.topics)
        for name, model in self.model.topics.items():
            topic = state.topics.by_name[name]
            assert (topic.topic_id, dict(topic.configs)) == (model.topic_id, model.configs)
            yield from zip(model.partitions, topic.partitions, strict=True)

    @invariant()
    def every_offset_lies_where_the_ledger_says(self) -> None:
        for model, log in self.pairs():
            assert (log.log_start, log.high_watermark) == (model.log_start, model.end)
            found = [batch for run in log.runs() for batch in self.walk(model, run)]
            readable = [batch for batch in model.batches if batch.base + batch.records > model.log_start]
            assert len(found) >= len(readable)
            if log.layout_version:
                # Below the log start a swap leaves a gap: it enters no run that nothing reads.
                dropping = found[: len(found) - len(readable)]
                assert all(batch.base + batch.records <= model.log_start for batch in dropping)
                assert found[len(dropping) :] == readable
            else:
                assert found == model.batches[len(model.batches) - len(found) :]
            assert log.size_bytes == sum(run.size for run in log.runs())
            assert log.run_count == len(list(log.runs()))
            serials = [chunk.serial for chunk in log.chunks]
            assert serials == sorted(set(serials)) and max(serials, default=-1) < log.next_serial
            if not log.layout_version:
                assert serials == list(range(log.next_serial - len(log.chunks), log.next_serial))
                assert all(len(chunk) + chunk.trimmed <= CHUNK_RUNS for chunk in log.chunks)
            assert log.layout_version == self.model.swaps.layouts.get((log.topic_id, log.index), 0)

    def walk(self, model: ModelPartition, run: Run) -> list[ModelBatch]:
        """The batches of a run, by their place."""
        where = self.ledger.state.objects.locator(run.object_number)
        placed = {batch.place: batch for batch in model.batches}
        if not run.dense:
            return self.walk_copied(placed, run, where)
        found, start, base = [], run.start, run.base
        while start < run.start + run.size:
            batch = placed[where, start]
            assert batch.base == base
            found.append(batch)
            start += self.model.sizes[where, start]
            base += batch.records
        assert (start, base) == (run.start + run.size, run.last + 1)
        assert run.max_timestamp == max(batch.max_timestamp for batch in found)
        return found

    def walk_copied(self, placed: dict[Place, ModelBatch], run: Run, where: str) -> list[ModelBatch]:
        """Those of a run that a job has made."""
        found = [placed[place] for place in self.model.swaps.copied[where, run.start]]
        ends = [batch.base + batch.records for batch in found]
        assert [run.base, *ends] == [*(batch.base for batch in found), run.last + 1]
        assert run.max_timestamp == max(batch.max_timestamp for batch in found)
        return found

    @invariant()
    def pins_are_as_in_the_model_and_hold_the_floor(self) -> None:
        pins = self.ledger.state.part(Pins)
        assert {job: Pinned(*pin) for job, pin in pins.items()} == self.model.swaps.pins
        objects = self.ledger.state.objects
        assert objects.floor_ms <= objects.pinned_ms == self.model.swaps.oldest_ms

    @invariant()
    def lookups_find_what_a_walk_over_all_runs_finds(self) -> None:
        for _, log in self.pairs():
            runs = list(log.runs())
            readable = [run for run in runs if run.last >= log.log_start]
            for offset in {
                log.log_start,
                log.high_watermark - 1,
                log.high_watermark // 2,
                log.high_watermark,
            }:
                wanted = [run for run in runs if run.last >= offset and offset < log.high_watermark]
                assert log.find(offset, 1 << 40) == wanted
                assert log.find(offset, 1) == wanted[:1]
                assert log.find(offset, 1 << 40, 2) == wanted[:2]
                assert log.bytes_from(offset, 1 << 40) == sum(run.size for run in wanted)
                assert log.bytes_from(offset, 1) == (wanted[0].size if wanted else 0)
            for stamp in (0, 7, 15, 21):
                late = [run for run in readable if run.max_timestamp >= stamp]
                assert log.find_time(stamp) == (late[0] if late else None)
            latest = max((run.max_timestamp for run in readable), default=-1)
            assert log.find_max_time() == next((r for r in readable if r.max_timestamp == latest), None)

    @invariant()
    def producers_are_remembered_as_in_the_model(self) -> None:
        for model, log in self.pairs():
            assert {
                producer_id: (known.epoch, known.batches, known.last_ms)
                for producer_id, known in log.producers.items()
            } == {
                producer_id: (known.epoch, known.batches[-5:], known.last_ms)
                for producer_id, known in model.producers.items()
            }
        state = self.ledger.state
        assert state.producer_count == sum(len(log.producers) for log in state.logs.values())

    @invariant()
    def live_runs_are_counted(self) -> None:
        counts: dict[int, int] = {}
        for log in self.ledger.state.logs.values():
            for run in log.runs():
                counts[run.object_number] = counts.get(run.object_number, 0) + 1
        objects = self.ledger.state.objects
        assert counts == {n: stored.live_runs for n, stored in objects.by_number.items() if stored.live_runs}
        closed = {number for number, stored in objects.by_number.items() if stored.closed}
        assert set(objects.garbage) == {n for n, stored in objects.by_number.items() if not stored.live_runs}
        assert set(objects.garbage) == closed
        assert {stored.locator for stored in objects.by_number.values()} == set(objects.by_locator)

    @invariant()
    def first_results_are_kept_above_the_floor_alone(self) -> None:
        objects = self.ledger.state.objects
        assert {
            (stored.locator, start): base
            for stored in objects.by_number.values()
            for start, base in zip(stored.starts, stored.bases, strict=True)
        } == self.model.first_results
        assert objects.floor_ms == self.model.floor_ms

    @invariant()
    def groups_offsets_quotas_and_configs_are_as_in_the_model(self) -> None:
        self.model.groups.check(self.ledger.state)

    @invariant()
    def whatever_can_be_dropped_is_being_drained(self) -> None:
        state = self.ledger.state
        assert {n for n, log in state.logs.items() if log.droppable(1)} <= set(state.draining)
        assert all(log.droppable(1) for log in state.logs.values() if log.deleted)
        assert set(state.draining) <= set(state.logs)


TestLedgerAgainstModel = LedgerAgainstModel.TestCase
TestLedgerAgainstModel.settings = settings(
    max_examples=8_000 if FULL else 300, stateful_step_count=40, deadline=None
)
TestLedgerAgainstModel.pytestmark = [pytest.mark.timeout(7200 if FULL else 300)]  # type: ignore[attr-defined]
