"""Gateways one after the other over far stores in memory, whose drafts travel inside of journal entries."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from adapters.journals.inline import InlineFrames
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.inline_and_objects import InlineAndObjects
from adapters.segments.objects import ObjectSegments
from gateway.coordination import opening
from gateway.coordination.inline_limits import InlineLimits
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.inline_moves import InlineMover
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches
from ledger.batch.records import Record, build_batch
from ledger.keys import is_inline
from ledger.partitions.requests import DeleteRecords, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, MetadataStore
from ledger.requests import LedgerResult, Request
from ledger.topics.requests import CreateTopic
from ledger.types import Position
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id

BEGUN_MS: Final = 1_700_000_000_000
WAIT_S: Final = 30.0
MAX_DRAFT_BYTES: Final = 16 * 1024
GRACE_MS: Final = 1_000
POLICY: Final = TopicPolicy(1 << 20)


@dataclass
class InlineHost:
    """One gateway. `open` first."""

    metadata: MetadataStore
    blobs: Blobs
    partitions: int = 3
    now_ms: int = BEGUN_MS
    rate: int = 1 << 30
    quota_share: float = 0.0
    alarms: list[str] = field(default_factory=list)

    async def open(self) -> "InlineHost":
        self.journal = MetadataJournal(self.metadata, 0)
        self.segments = InlineAndObjects(ObjectSegments(self.blobs), self.journal.frames)
        self.shard: Shard = await opening.open_shard(self.journal, self.blobs, None, 1, lambda: self.now_ms)
        if not self.shard.state.topics.by_name:
            await self.ask(CreateTopic("t", topic_id(1), self.partitions, {}))
        self.mover = InlineMover(
            self.shard,
            self.segments,
            WAIT_S,
            quota_share=lambda: self.quota_share,
            alarm=self.alarms.append,
        )
        self.journal.rule = self.limits = InlineLimits(
            MAX_DRAFT_BYTES,
            self.rate,
            asyncio.get_running_loop().time,
            held_bytes=lambda: self.mover.held_bytes,
            quota_share=lambda: self.quota_share,
        )
        clock = self.shard.replica.clock
        rule = SnapshotRule(1)
        self.checkpointer = Checkpointer(self.shard, None, self.blobs, rule, clock, prepare=self.mover.move)
        self.garbage = GarbageCollector(self.shard, self.segments, GRACE_MS, clock, WAIT_S)
        options = ProduceOptions(1 << 20, 100, 3)
        self.service = ProduceService(self.shard, self.segments, options, lambda: self.now_ms)
        return self

    async def close(self) -> None:
        await self.service.close(0)
        await self.shard.close()
        await self.journal.frames.close()

    async def ask(self, request: Request) -> LedgerResult:
        return await self.shard.ask(request, asyncio.get_running_loop().time() + WAIT_S)

    def log(self, partition: int = 0) -> PartitionLog:
        return self.shard.state.topics.by_name["t"].partitions[partition]

    def begin(self, value: bytes, partition: int = 0) -> PendingBatch:
        batch = build_batch([Record(value=value)], base_timestamp=BEGUN_MS)
        checked = check_batches(memoryview(batch), 1 << 20)
        return self.service.add(self.log(partition), checked, AwaitedProduce(), POLICY)

    async def send(self, value: bytes, partition: int = 0) -> int | str:
        """Its offset, or the name of its error."""
        pending = self.begin(value, partition)
        assert isinstance(pending.completion, AwaitedProduce)
        async with asyncio.timeout(WAIT_S):
            await pending.completion.completed
        return pending.error or pending.base_offset

    async def delete_before(self, offset: int, partition: int = 0) -> None:
        await self.ask(DeleteRecords(topic_id(1), partition, offset))
        await self.ask(DrainRuns(1_000))

    async def checkpoint(self) -> None:
        """A snapshot that is due, and the prune after it."""
        await self.checkpointer.snapshot_if_due(is_wanted=True)

    @property
    def inline_entries(self) -> list[str]:
        return [stored.locator for stored in self.shard.state.objects.inline.values()]


async def stored_values(
    shard: Shard, metadata: MetadataStore, blobs: Blobs, partition: int = 0
) -> list[bytes]:
    """The bytes of all live runs of a partition in order, as a process reads them that has nothing in
    memory."""
    frames = InlineFrames(metadata, 0)
    segments = InlineAndObjects(ObjectSegments(blobs), frames)
    log = shard.state.topics.by_name["t"].partitions[partition]
    runs = list(log.runs_from(log.log_start))
    locators = [shard.state.objects.locator(run.object_number) for run in runs]
    positions = [Position(locator, run.start, run.size) for locator, run in zip(locators, runs, strict=True)]
    found = await segments.read(positions)
    missing = [position for position, data in zip(positions, found, strict=True) if data is None]
    assert not missing, f"live runs cannot be read: {missing}"
    await frames.close()
    return [bytes(data) for data in found if data is not None]


async def wal_objects(blobs: Blobs) -> int:
    return len(await blobs.list("wal/"))


def far_metadata() -> MemoryMetadata:
    """Promises as little as S3 does."""
    return MemoryMetadata(exclusive=False, unique_versions=False)


def all_inline(host: InlineHost) -> bool:
    return all(is_inline(stored.locator) for stored in host.shard.state.objects.by_number.values())
