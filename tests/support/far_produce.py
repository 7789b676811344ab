"""Produce over far stores in this process, whose calls take constant virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.ports import MetadataStore, PutOutcome, SegmentStore, Versioned
from ledger.records import FIRST_LEVEL
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id
from tests.support.shards import open_shard

BEGUN_MS = 1_700_000_000_000
MAX_BATCH_BYTES = 4 << 20
POLICY = TopicPolicy(MAX_BATCH_BYTES)
ETCD, S3 = (3, 1), (30, 15)
"""Milliseconds of a put and of a get of the journal's store; an append is one of each."""


class FarSegments(MemorySegments):
    def __init__(self, put_ms: int, overlapping: bool = True) -> None:
        super().__init__()
        self.capabilities = replace(MemorySegments.capabilities, overlapping=overlapping)
        self.put_ms = put_ms
        self.begun_ms: list[int] = []
        self.under_way: list[int] = []
        """Bytes of the drafts that are being written, after each that was begun."""
        self._sizes: list[int] = []

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.begun_ms.append(now_ms())
        self._sizes.append(sum(len(batch.data) for batch in batches))
        self.under_way.append(sum(self._sizes))
        await asyncio.sleep(self.put_ms / 1000)
        self._sizes.pop(0)
        return await super().write(batches, created_ms, feature_level)


class FarMetadata(MemoryMetadata):
    def __init__(self, put_ms: int, get_ms: int) -> None:
        super().__init__(exclusive=False)
        self.delays_s = put_ms / 1000, get_ms / 1000
        self.puts = 0

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.puts += 1
        await asyncio.sleep(self.delays_s[0])
        return await super().put(key, value, expect)

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(self.delays_s[1])
        return await super().get(key)


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


class Far:
    """A gateway over a far store."""

    def __init__(
        self,
        options: ProduceOptions,
        journal_ms: tuple[int, int] = ETCD,
        put_ms: int = 30,
        overlapping: bool = True,
        partitions: int = 1,
    ) -> None:
        self.options = options
        self.partitions = partitions
        self.metadata = FarMetadata(*journal_ms)
        self.segments = FarSegments(put_ms, overlapping)
        self.shard: Shard
        self.service: ProduceService

    def far_stores(self) -> tuple[MetadataStore, SegmentStore]:
        return self.metadata, self.segments

    async def __aenter__(self) -> "Far":
        metadata, segments = self.far_stores()
        self.shard = await open_shard(metadata, None, None, 1, lambda: BEGUN_MS + now_ms())
        await self.shard.submit(CreateTopic("t", topic_id(1), self.partitions, {}))
        self.service = ProduceService(self.shard, segments, self.options, lambda: BEGUN_MS + now_ms())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close(10)
        await self.shard.close()

    def send(self, producer: Producer = NO_PRODUCER, size: int = 100, partition: int = 0) -> AwaitedProduce:
        """One batch of one record of this size."""
        data = build_batch([Record(value=b"x" * size)], base_timestamp=BEGUN_MS, producer=producer)
        log = self.shard.state.topics.by_name["t"].partitions[partition]
        completion = AwaitedProduce()
        self.service.add(log, check_batches(memoryview(data), MAX_BATCH_BYTES), completion, POLICY)
        return completion
