"""What jobs find of transactions: how each ended, where readers of committed records end, and what was
aborted in the runs that they get."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from gateway.internal import find_batches
from gateway.wire.apis import InternalApi
from gateway.wire.messages.internal.diskless_find_batches import (
    DisklessFindBatchesRequest,
    FindBatchesPartition,
    FindBatchesPartitionResponse,
    FindBatchesTopic,
)
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.keys import uuid7
from ledger.objects.uploads import ObjectKind
from ledger.partitions.requests import CommitBatch, CommitFile, FileCommit, ProducerTransaction
from ledger.requests import LedgerResult, Request
from ledger.transactions.requests import EndTransaction, InitTransactionalId, ProducerEpoch
from ledger.types import TopicId
from tests.support.in_memory import InMemoryGateway, in_memory_gateway
from tests.unit.test_internal_apis import ask

ANSWER_S: Final = 5.0


class Story:
    """A topic, and the transactions that its producers have."""

    def __init__(self, gateway: InMemoryGateway, topic_id: bytes) -> None:
        self.gateway = gateway
        self.topic_id = TopicId(topic_id)
        self.producers: dict[str, ProducerEpoch] = {}
        self.objects = 0

    async def send(self, name: str) -> None:
        """Two records."""
        if name not in self.producers:
            made = await self.submit(InitTransactionalId(name, 60_000))
            assert isinstance(made, ProducerEpoch)
            self.producers[name] = made
        producer_id, epoch, *_ = self.producers[name]
        self.objects += 1
        now_ms = self.gateway.running.shard.now_ms()
        key = f"wal/0/{uuid7(now_ms, self.objects.to_bytes(10, 'big'))}"
        batch = CommitBatch(self.topic_id, 0, 0, 100, 2, 0, TRANSACTIONAL_BIT, producer_id, epoch, 0)
        claimed = {0: ProducerTransaction(name, adds=True, is_abortable=True)}
        committed = await self.submit(CommitFile(key, 100, [batch], transactions=claimed))
        assert isinstance(committed, FileCommit)

    async def end(self, name: str, *, commit: bool) -> None:
        producer_id, epoch, *_ = self.producers[name]
        ended = await self.submit(EndTransaction(name, producer_id, epoch, commit, bumps=True))
        assert isinstance(ended, ProducerEpoch)
        self.producers[name] = ended

    async def submit(self, request: Request) -> LedgerResult:
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        return await self.gateway.running.shard.ask(request, deadline)

    async def find(self, offset: int = 0, *, wants_isolation: bool = True) -> FindBatchesPartitionResponse:
        part = FindBatchesPartition(0, offset, 1 << 30)
        request = DisklessFindBatchesRequest(1 << 30, 2_000, [FindBatchesTopic(self.topic_id, [part])])
        request.wants_isolation = wants_isolation
        response = await ask(self.gateway, InternalApi.DISKLESS_FIND_BATCHES, request)
        found: FindBatchesPartitionResponse = response.topics[0].partitions[0]
        return found


@pytest_asyncio.fixture
async def story() -> AsyncIterator[Story]:
    async with in_memory_gateway() as gateway:
        yield Story(gateway, await gateway.create("t", 1))


def aborted(found: FindBatchesPartitionResponse) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in found.aborted_transactions]


async def test_a_job_finds_how_each_transaction_ended(story: Story) -> None:
    for commit in (True, False):
        await story.send("a")
        await story.end("a", commit=commit)
    markers = [run for run in (await story.find()).batches if run.object_kind == ObjectKind.MARKER]
    assert [(run.object_key, run.base_offset, run.is_commit) for run in markers] == [
        ("", 2, True),
        ("", 5, False),
    ]
    assert {run.producer_id for run in markers} == {story.producers["a"].producer_id}
    assert [run.producer_epoch for run in markers] == [1, 2]


async def test_a_job_that_wants_it_finds_what_was_aborted_and_the_last_stable_offset(story: Story) -> None:
    await story.send("a")  # 0, 1
    await story.send("b")  # 2, 3
    await story.end("a", commit=False)  # 4
    await story.send("c")  # 5, 6
    await story.end("b", commit=True)  # 7
    await story.send("a")  # 8, 9
    await story.end("a", commit=False)  # 10
    found = await story.find()
    assert (found.last_stable_offset, found.high_watermark) == (5, 11)
    assert aborted(found) == [(0, 4), (8, 10)]
    assert aborted(await story.find(5)) == [(8, 10)]
    plain = await story.find(wants_isolation=False)
    assert (plain.last_stable_offset, plain.aborted_transactions) == (-1, [])


async def test_where_very_many_were_aborted_there_are_fewer_runs(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_batches, "MAX_ABORTED", 3)
    for _ in range(20):
        await story.send("a")
        await story.end("a", commit=False)
    offset, seen, runs = 0, list[tuple[int, int]](), 0
    while (found := await story.find(offset)).batches:
        assert len(found.aborted_transactions) <= 3
        assert aborted(found)[-1][1] >= found.batches[-1].last_offset
        seen += aborted(found)
        offset, runs = found.batches[-1].last_offset + 1, runs + len(found.batches)
    assert sorted(set(seen)) == [(3 * at, 3 * at + 2) for at in range(20)]
    assert runs == 40
