"""What readers get of a partition with transactions: markers in their places, and with read_committed only
what is decided, with the transactions that were aborted."""

import asyncio
from collections.abc import Iterator

import pytest

from gateway.fetch import planning
from gateway.fetch.sessions import SessionPartition
from gateway.wire.messages.fetch import FetchPartitionResponse
from ledger.batch.control import MarkerType, read_marker
from ledger.batch.header import TRANSACTIONAL_BIT, read_header, walk
from ledger.batch.records import Producer
from ledger.partitions.requests import CommitBatch, CommitFile, Committed, FileCommit, ProducerTransaction
from ledger.partitions.state import PartitionLog
from ledger.records import LEVEL_WITH_TRANSACTIONS
from ledger.topics.state import Topics
from ledger.transactions.requests import EndTransaction, InitTransactionalId, ProducerEpoch
from ledger.types import DraftBatch
from tests.support.reading import (
    NOW_MS,
    ReadingWorld,
    batch_of,
    reading_world,
    records_of,
    with_base,
)

READ_COMMITTED = 1
LATEST, EARLIEST = -1, -2


@pytest.fixture(autouse=True)
def a_level_to_come(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("ledger.cluster.records", "ledger.cluster.decide", "ledger.image"):
        monkeypatch.setattr(f"{module}.NEWEST_LEVEL", LEVEL_WITH_TRANSACTIONS)
    yield


class Writer:
    """A transactional producer of transaction version 1, of a topic with one partition."""

    def __init__(self, world: ReadingWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.present = ProducerEpoch(-1, -1)
        self.sequence = 0

    async def begin(self) -> None:
        begun = await self.world.shard.ask(InitTransactionalId(self.name, 60_000), self.world.soon())
        assert isinstance(begun, ProducerEpoch)
        self.present = begun

    async def send(self, *values: bytes, timestamp: int = NOW_MS) -> bytes:
        """The batch that was stored."""
        world, (producer_id, epoch, *_) = self.world, self.present
        batch = batch_of(
            *values,
            base_timestamp=timestamp,
            producer=Producer(producer_id, epoch, self.sequence),
            flags=TRANSACTIONAL_BIT,
        )
        log = world.log()
        draft = DraftBatch(log.topic_id, 0, batch, len(values), producer_id, epoch, self.sequence)
        placement = await world.segments.write([draft], NOW_MS)
        (start,) = placement.starts
        committed = CommitBatch(
            *(log.topic_id, 0, start, len(batch), len(values), timestamp, TRANSACTIONAL_BIT),
            *(producer_id, epoch, self.sequence),
        )
        claimed = {start: ProducerTransaction(self.name, adds=True, is_abortable=True)}
        request = CommitFile(placement.locator, placement.object_bytes, [committed], transactions=claimed)
        commit = await world.shard.ask(request, world.soon())
        assert isinstance(commit, FileCommit) and isinstance(commit.results[0], Committed), commit
        self.sequence += len(values)
        return batch

    async def end(self, is_commit: bool) -> None:
        producer_id, epoch, *_ = self.present
        request = EndTransaction(self.name, producer_id, epoch, is_commit, bumps=False)
        assert await self.world.shard.ask(request, self.world.soon()) == self.present


async def writers(world: ReadingWorld, *names: str) -> list[Writer]:
    await world.create()
    made = [Writer(world, name) for name in names]
    for writer in made:
        await writer.begin()
    return made


def batches(fetched: FetchPartitionResponse) -> list[bytes]:
    data = memoryview(records_of(fetched))
    return [bytes(data[found.position : found.position + found.size_bytes]) for found in walk(data)]


def aborted(fetched: FetchPartitionResponse) -> list[tuple[int, int]] | None:
    found = fetched.aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


async def test_a_marker_is_read_in_its_place_as_a_batch_of_its_own() -> None:
    async with reading_world() as world:
        (writer,) = await writers(world, "a")
        first = await writer.send(b"one", b"two")
        await writer.end(is_commit=True)
        await world.produce(after := batch_of(b"after"))
        for isolation in (0, READ_COMMITTED):
            fetched = await world.one("t", 0, 0, isolation=isolation)
            sent = batches(fetched)
            assert [sent[0], sent[2]] == [with_base(first, 0), with_base(after, 3)]
            marker = read_marker(memoryview(sent[1]))
            assert read_header(sent[1]).base_offset == 2
            assert (marker.type, marker.producer_id) == (MarkerType.COMMIT, writer.present.producer_id)
            assert (fetched.high_watermark, fetched.last_stable_offset) == (4, 4)
            assert aborted(fetched) == ([] if isolation else None)
        assert batches(await world.one("t", 0, 2)) == sent[1:]
        assert batches(await world.one("t", 0, 3)) == sent[2:]


async def test_read_committed_ends_where_a_transaction_is_open() -> None:
    async with reading_world() as world:
        (writer,) = await writers(world, "a")
        await world.produce(before := batch_of(b"before"))
        first = await writer.send(b"one")
        await world.produce(batch_of(b"after"))
        fetched = await world.one("t", 0, 0, isolation=READ_COMMITTED)
        assert records_of(fetched) == with_base(before, 0)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (3, 1)
        assert len(batches(await world.one("t", 0, 0))) == 3
        for isolation, end in ((0, 3), (READ_COMMITTED, 1)):
            assert (await world.offset(LATEST, isolation=isolation)).offset == end
        assert records_of(await world.one("t", 0, 1, isolation=READ_COMMITTED)) == b""
        await writer.end(is_commit=True)
        fetched = await world.one("t", 0, 1, isolation=READ_COMMITTED)
        assert batches(fetched)[0] == with_base(first, 1)
        assert fetched.last_stable_offset == 4


async def test_a_fetch_that_waits_for_committed_records_is_woken_by_the_end_of_the_transaction() -> None:
    async with reading_world() as world:
        (writer,) = await writers(world, "a")
        await writer.send(b"one")
        waiting = asyncio.ensure_future(world.one("t", 0, 0, isolation=READ_COMMITTED, max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await writer.end(is_commit=True)
        assert len(batches(await asyncio.wait_for(waiting, 10))) == 2


async def test_what_follows_an_open_transaction_is_not_read_for_readers_of_committed_records() -> None:
    async with reading_world(cache_bytes=0) as world:
        (writer,) = await writers(world, "a")
        await world.produce(before := batch_of(b"before"))
        for _ in range(5):
            await writer.send(b"x" * 1000)
        world.segments.reads.clear()
        fetched = await world.one("t", 0, 0, isolation=READ_COMMITTED)
        assert records_of(fetched) == with_base(before, 0)
        assert world.segments.bytes_read == len(before)


async def test_a_reader_that_waits_for_bytes_sleeps_while_a_transaction_grows() -> None:
    """What is not committed is none of the bytes that it waits for: nothing is read for it."""
    async with reading_world(cache_bytes=0) as world:
        (writer,) = await writers(world, "a")
        await world.produce(before := batch_of(b"before"))
        await writer.send(b"x" * 1000)
        waiting = asyncio.ensure_future(
            world.one("t", 0, 0, isolation=READ_COMMITTED, max_wait_ms=30_000, min_bytes=len(before) + 500)
        )
        await asyncio.sleep(0.05)
        world.segments.reads.clear()
        for _ in range(5):
            await writer.send(b"x" * 1000)
            await asyncio.sleep(0.01)
        assert not waiting.done() and not world.segments.reads
        await writer.end(is_commit=True)
        assert len(batches(await asyncio.wait_for(waiting, 10))) == 8


async def test_a_reader_that_waits_for_bytes_is_seldom_planned_while_transactions_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is always an open one, and the last stable offset moves with each end."""
    planned, find = list[int](), planning.find_log

    def counting(partition: SessionPartition, topics: Topics) -> PartitionLog | None:
        planned.append(partition.request.index)
        return find(partition, topics)

    async with reading_world() as world:
        one, other = await writers(world, "a", "b")
        size, rounds = len(await one.send(b"x" * 1000)), 60
        waiting = asyncio.ensure_future(
            world.one("t", 0, 0, isolation=READ_COMMITTED, max_wait_ms=30_000, min_bytes=rounds * size)
        )
        await asyncio.sleep(0.01)
        monkeypatch.setattr(planning, "find_log", counting)
        for _ in range(rounds):
            await other.send(b"x" * 1000)
            await one.end(is_commit=True)
            one, other = other, one
            await asyncio.sleep(0)
        fetched = await asyncio.wait_for(waiting, 10)
        assert len(records_of(fetched)) >= rounds * size
        assert len(planned) < 10


async def test_aborted_transactions_come_with_the_records_that_they_are_among() -> None:
    async with reading_world() as world:
        first, second, third = await writers(world, "a", "b", "c")
        await first.send(b"a0")
        await second.send(b"b1")
        await first.send(b"a2")
        await third.send(b"c3")
        await second.end(is_commit=False)  # 4
        await first.send(b"a5")
        await third.end(is_commit=True)  # 6
        await first.end(is_commit=False)  # 7
        a, b = (writer.present.producer_id for writer in (first, second))
        wanted = {0: [(b, 1), (a, 0)], 4: [(b, 1), (a, 0)], 5: [(a, 0)], 7: [(a, 0)], 8: []}
        for offset, expected in wanted.items():
            fetched = await world.one("t", 0, offset, isolation=READ_COMMITTED)
            assert aborted(fetched) == expected
            assert aborted(await world.one("t", 0, offset)) is None
        only_first = await world.one("t", 0, 0, 1, isolation=READ_COMMITTED)
        assert len(batches(only_first)) == 1
        assert aborted(only_first) == [(a, 0)]


async def test_the_aborted_of_a_plan_stay_when_records_are_deleted_meanwhile() -> None:
    async with reading_world() as world:
        (writer,) = await writers(world, "a")
        await writer.send(b"a0")
        await writer.end(is_commit=False)
        log = world.log()
        planned = log.isolation.aborted
        await world.delete_records(log.topic_id, 0, 2)
        assert not log.isolation.aborted
        assert len(planned) == 1


async def test_a_marker_may_be_what_is_found_by_time_and_costs_no_read() -> None:
    async with reading_world(cache_bytes=0) as world:
        (writer,) = await writers(world, "a")
        await writer.send(b"one", timestamp=NOW_MS - 10_000_000)
        await writer.end(is_commit=True)
        world.segments.reads.clear()
        found = await world.offset(NOW_MS - 5_000_000)
        assert found.offset == 1
        assert len(batches(await world.one("t", 0, 1))) == 1
        assert world.segments.reads == []
