"""Commits are handed over in the order of their drafts, without waiting for the result of each: what becomes
of the second draft when the first is stale, fails or is given up (docs/decisions/0022)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.objects.requests import RaiseFloor
from ledger.partitions.requests import ExpireProducers, ReserveProducerIds
from ledger.ports import PutOutcome, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

BEGUN_MS = 1_700_000_000_000
WAIT_S = 60.0
NEW, NONE = 7, -1
"""Producers: one that the ledger does not know, and none."""
FAILED, OUT_OF_ORDER, UNCERTAIN = "KAFKA_STORAGE_ERROR", "OUT_OF_ORDER_SEQUENCE_NUMBER", "REQUEST_TIMED_OUT"


class GatedSegments(MemorySegments):
    """Each write waits for its own event; the numbered ones fail."""

    capabilities = replace(MemorySegments.capabilities, overlapping=True)

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Event] = []
        self.failing: dict[int, StoreError] = {}

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        number = len(self.gates)
        self.gates.append(asyncio.Event())
        await self.gates[number].wait()
        if number in self.failing:
            raise self.failing[number]
        return await super().write(batches, created_ms, feature_level)


class GatedMetadata(MemoryMetadata):
    """Puts wait while it is closed; the next one fails if `fails`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.fails = False
        self.puts = 0

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.puts += 1
        await self.may_go.wait()
        if self.fails:
            self.fails = False
            raise StoreUnavailable("the journal said no")
        return await super().put(key, value, expect)


class World:
    """A gateway over a far store, in which every batch is a draft of its own."""

    def __init__(self) -> None:
        self.now_ms = BEGUN_MS
        self.metadata = GatedMetadata()
        self.segments = GatedSegments()
        self.shard: Shard
        self.service: ProduceService
        self.sequences: dict[tuple[int, int], int] = {}

    async def open(self, segments: SegmentStore | None = None) -> None:
        self.shard = await open_shard(self.metadata, None, None, 1, lambda: self.now_ms)
        await self.shard.submit(CreateTopic("t", topic_id(1), 2, {}))
        self.service = ProduceService(
            self.shard, segments or self.segments, ProduceOptions(1 << 20, 1, 8), lambda: self.now_ms
        )

    async def send(self, producer: int, partition: int = 0, sequence: int | None = None) -> PendingBatch:
        """The next batch of a producer. Its draft is being written when this returns."""
        key = (producer, partition)
        if sequence is None:
            sequence = self.sequences.get(key, 0)
            self.sequences[key] = sequence + 1
        ids = Producer(producer, 0, sequence) if producer >= 0 else NO_PRODUCER
        data = build_batch([Record(value=b"x")], base_timestamp=BEGUN_MS, producer=ids)
        log = self.shard.state.topics.by_name["t"].partitions[partition]
        checked = check_batches(memoryview(data), 1 << 20)
        pending = self.service.add(log, checked, AwaitedProduce(), TopicPolicy(1 << 20))
        await turns()
        return pending

    async def write(self, *numbers: int) -> None:
        """Let these drafts be written, one after the other."""
        for number in numbers:
            self.segments.gates[number].set()
            await turns()

    async def raise_floor(self) -> None:
        """All objects that exist by now are too old to be committed."""
        self.now_ms += 1
        await self.shard.submit(RaiseFloor(self.now_ms))

    def hold_journal(self) -> None:
        """An entry is under way from now on."""
        self.metadata.may_go.clear()
        self.shard.submit(ReserveProducerIds(1))

    def high_watermark(self, partition: int = 0) -> int:
        return self.shard.state.topics.by_name["t"].partitions[partition].high_watermark


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.open()
    yield world
    world.metadata.may_go.set()
    await world.service.close(0)
    await world.shard.close()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def results(*batches: PendingBatch) -> list[int | str]:
    """The base offset of each batch, or the name of its error."""
    async with asyncio.timeout(WAIT_S):
        for batch in batches:
            assert isinstance(batch.completion, AwaitedProduce)
            await batch.completion.completed
    return [batch.error or batch.base_offset for batch in batches]


async def send_again(world: World, producer: int, *sequences: int) -> list[int | str]:
    """Batches that were refused, as their client sends them again."""
    written = len(world.segments.gates)
    batches = [await world.send(producer, sequence=sequence) for sequence in sequences]
    await world.write(*range(written, written + len(batches)))
    return await results(*batches)


async def test_commits_of_drafts_that_are_written_while_an_entry_is_under_way_share_the_next(
    world: World,
) -> None:
    sent = [await world.send(producer) for producer in (NEW, NONE, NEW, NEW)]
    world.hold_journal()
    await turns()
    puts = world.metadata.puts
    await world.write(0, 1, 2, 3)
    world.metadata.may_go.set()
    assert await results(*sent) == [0, 1, 2, 3]
    assert world.metadata.puts == puts + 1


async def test_a_draft_that_is_written_first_waits_for_those_before_it_and_no_longer(world: World) -> None:
    sent = [await world.send(NEW) for _ in range(3)]
    await world.write(2, 1)
    assert world.high_watermark() == 0
    world.hold_journal()
    await turns()
    await world.write(0)
    world.metadata.may_go.set()
    assert await results(*sent) == [0, 1, 2]


async def test_a_draft_that_could_not_be_written_lets_no_other_overtake_those_before_it(world: World) -> None:
    sent = [await world.send(NONE) for _ in range(3)]
    world.segments.failing = {1: StoreUnavailable("the store said no")}
    await world.write(1, 2, 0)
    assert await results(*sent) == [0, FAILED, 1]


@pytest.mark.parametrize(("producer", "second"), [(NEW, OUT_OF_ORDER), (NONE, 0)])
@pytest.mark.parametrize(
    ("error", "first"), [(StoreUnavailable("no"), FAILED), (OutcomeUnknown("perhaps"), UNCERTAIN)]
)
async def test_behind_a_draft_that_could_not_be_written(
    world: World, producer: int, second: int | str, error: StoreError, first: str
) -> None:
    sent = [await world.send(producer) for _ in range(2)]
    world.segments.failing = {0: error}
    await world.write(1, 0)
    assert await results(*sent) == [first, second]
    assert await send_again(world, producer, 0, 1) == ([0, 1] if producer == NEW else [1, 2])


@pytest.mark.parametrize(("producer", "second"), [(NEW, OUT_OF_ORDER), (NONE, 0)])
async def test_behind_a_draft_whose_entry_failed_when_both_were_handed_over(
    world: World, producer: int, second: int | str
) -> None:
    sent = [await world.send(producer) for _ in range(2)]
    world.metadata.may_go.clear()
    world.metadata.fails = True
    await world.write(0)  # its entry is under way
    await world.write(1)
    world.metadata.may_go.set()
    assert await results(*sent) == [FAILED, second]
    assert await send_again(world, producer, 0, 1) == ([0, 1] if producer == NEW else [1, 2])


@pytest.mark.parametrize(("producer", "second"), [(NEW, OUT_OF_ORDER), (NONE, 0)])
async def test_behind_a_draft_that_the_shard_does_not_accept(
    world: World, producer: int, second: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [await world.send(producer) for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr("gateway.coordination.owner.MAX_WAITING", 0)
        await world.write(0)
    await world.write(1)
    assert await results(*sent) == [FAILED, second]
    assert await send_again(world, producer, 0, 1) == ([0, 1] if producer == NEW else [1, 2])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("producer", [NEW, NONE])
async def test_behind_a_draft_whose_object_is_too_old_when_both_were_handed_over(
    world: World, producer: int, is_known: bool
) -> None:
    written = 0
    if is_known:
        before = await world.send(producer)
        await world.write(0)
        assert await results(before) == [0]
        written = 1
    sent = [await world.send(producer)]
    world.hold_journal()
    await turns()
    world.now_ms += 1
    sent.append(await world.send(producer))
    world.shard.submit(RaiseFloor(world.now_ms))
    await world.write(written, written + 1)
    world.metadata.may_go.set()
    assert await results(*sent) == [FAILED, OUT_OF_ORDER if producer == NEW else written]
    assert len(world.segments.gates) == written + 2  # the first is not written again
    following = written if producer == NEW else written + 1
    assert await send_again(world, producer, written, written + 1) == [following, following + 1]


@pytest.mark.parametrize("producer", [NEW, NONE])
async def test_a_draft_that_is_too_old_is_written_again_if_a_later_one_has_other_partitions(
    world: World, producer: int
) -> None:
    sent = [await world.send(producer)]
    world.hold_journal()
    await turns()
    world.now_ms += 1
    sent.append(await world.send(producer, partition=1))
    world.shard.submit(RaiseFloor(world.now_ms))
    await world.write(0, 1)
    world.metadata.may_go.set()
    await turns()
    await world.write(2)
    assert await results(*sent) == [0, 0]


@pytest.mark.parametrize(("producer", "second"), [(NEW, OUT_OF_ORDER), (NONE, 0)])
async def test_a_draft_that_is_overtaken_while_it_is_written_again_is_not_committed(
    world: World, producer: int, second: int | str
) -> None:
    sent = [await world.send(producer)]
    await world.raise_floor()
    await world.write(0)
    sent.append(await world.send(producer))
    assert len(world.segments.gates) == 3
    await world.write(2, 1)
    assert await results(*sent) == [FAILED, second]
    assert world.high_watermark() == (0 if producer == NEW else 1)
    assert await send_again(world, producer, 0, 1) == ([0, 1] if producer == NEW else [1, 2])


@pytest.mark.parametrize(("producer", "second"), [(NEW, OUT_OF_ORDER), (NONE, 0)])
async def test_behind_a_draft_that_is_given_up_and_then_too_old(
    world: World, producer: int, second: int | str
) -> None:
    sent = [await world.send(producer)]
    await world.raise_floor()
    sent.append(await world.send(producer))
    sent[0].completion.is_done = True
    await world.write(0, 1)
    assert await results(sent[1]) == [second]
    assert (sent[0].base_offset, len(world.segments.gates)) == (-1, 2)
    assert await send_again(world, producer, 0, 1) == ([0, 1] if producer == NEW else [1, 2])


@pytest.mark.parametrize(("producer", "third"), [(NEW, OUT_OF_ORDER), (NONE, 1)])
async def test_behind_a_draft_that_failed_and_one_of_other_producers_that_did_not(
    world: World, producer: int, third: int | str
) -> None:
    sent = [await world.send(number) for number in (producer, 9, producer)]
    world.metadata.may_go.clear()
    world.metadata.fails = True
    await world.write(0)
    await world.write(1, 2)
    world.metadata.may_go.set()
    assert await results(*sent) == [FAILED, 0, third]


async def test_a_producer_that_is_forgotten_while_its_drafts_are_under_way_does_not_begin_behind_a_failed_one(
    world: World,
) -> None:
    first = await world.send(NEW)
    await world.write(0)
    assert await results(first) == [0]
    sent = [await world.send(NEW) for _ in range(2)]
    world.metadata.may_go.clear()
    world.metadata.fails = True
    await world.write(1)
    world.shard.submit(ExpireProducers(world.now_ms + 1, 10, partitions=[0, 1]))
    await world.write(2)
    world.metadata.may_go.set()
    assert await results(*sent) == [FAILED, OUT_OF_ORDER]
    assert await send_again(world, NEW, 1, 2) == [1, 2]


async def test_a_batch_that_is_sent_again_while_its_first_attempt_is_under_way_gets_its_first_result(
    world: World,
) -> None:
    sent = [await world.send(NEW, sequence=0) for _ in range(2)]
    await world.write(0, 1)
    assert await results(*sent) == [0, 0]
    assert world.high_watermark() == 1


async def test_a_batch_that_is_sent_again_takes_the_place_of_its_first_attempt_if_that_fails(
    world: World,
) -> None:
    sent = [await world.send(NEW, sequence=0) for _ in range(2)]
    world.metadata.may_go.clear()
    world.metadata.fails = True
    await world.write(0, 1)
    world.metadata.may_go.set()
    assert await results(*sent) == [FAILED, 0]


@pytest.mark.parametrize("producer", [NEW, NONE])
async def test_closing_leaves_the_outcome_of_all_that_were_handed_over_unknown(
    world: World, producer: int
) -> None:
    sent = [await world.send(producer) for _ in range(3)]
    world.metadata.may_go.clear()
    await world.write(0, 1)
    await world.service.close(0)
    world.metadata.may_go.set()
    assert await results(*sent) == [UNCERTAIN] * 3
    await turns(50)
    # The first was in the entry under way, the second was withdrawn.
    assert world.high_watermark() == 1


async def test_over_one_disk_a_draft_is_handed_over_when_the_one_before_has_its_result(world: World) -> None:
    world.segments.capabilities = replace(GatedSegments.capabilities, overlapping=False)
    await world.service.close(0)
    await world.open()
    sent = [await world.send(NONE) for _ in range(2)]
    await world.raise_floor()
    await world.write(0, 1)
    assert [batch.error for batch in sent] == [None, None]
    await world.write(2)  # the first again, before the second
    await world.write(3)
    assert await results(*sent) == [0, 1]
