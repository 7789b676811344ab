"""The embedded stores, a shard and its services in one process, over a directory; and a client of them."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from adapters.blobs.files import FileBlobs
from adapters.images.sqlite import SqliteImage
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.wal import WalSegments
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from gateway.housekeeping.garbage import GarbageCollector
from gateway.produce.producer_ids import ProducerIds
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import CheckedBatch, read_header, walk
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.partitions.requests import ProducerTransaction
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, ImageStore, MetadataStore, SegmentStore
from ledger.requests import LedgerResult, Request
from ledger.types import Position
from tests.support.completions import AwaitedProduce
from tests.support.faulty import Faults, FaultyBlobs, FaultyMetadata, FaultySegments
from tests.support.shards import open_shard

WAIT_S = 20.0
GRACE_MS = 60_000
BEGUN_MS = 1_700_000_000_000
POLICY = TopicPolicy(1 << 20)
MOST = 1 << 40


@dataclass
class Clock:
    now_ms: int = BEGUN_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as a consumer finds it: the offset of its first record, and its bytes."""

    base: int
    data: bytes


class Embedded:
    """One life of a process over a data directory. Made by `start`, ended by `stop`."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        faults: Faults | None = None,
        roll_age_ms: int = MOST,
        *,
        exclusive: bool = True,
    ) -> None:
        """`exclusive`: False: the metadata store is not, so each append must be proved to count."""
        self.root = root
        self.clock = clock
        self.faults = faults or Faults()
        self.roll_age_ms = roll_age_ms
        self.exclusive = exclusive
        self.metadata: MetadataStore
        self.segments: SegmentStore
        self.blobs: Blobs
        self.image: ImageStore
        self.shard: Shard
        self.produce_service: ProduceService
        self.checkpointer: Checkpointer
        self.garbage: GarbageCollector
        self.producer_ids: ProducerIds

    async def start(self) -> "Embedded":
        sqlite = SqliteMetadata(self.root / "metadata")
        self.metadata = FaultyMetadata(sqlite, self.faults, exclusive=self.exclusive)
        self.segments = FaultySegments(
            WalSegments(self.root / "data", roll_age_ms=self.roll_age_ms), self.faults
        )
        self.blobs = FaultyBlobs(FileBlobs(self.root / "blobs"), self.faults)
        self.image = SqliteImage(self.root / "image")
        try:
            self.shard = await open_shard(self.metadata, self.blobs, self.image, 1, self.clock)
        except BaseException:
            await self._close_stores()
            raise
        self.produce_service = ProduceService(
            self.shard, self.segments, ProduceOptions(1 << 20, 100, 3), self.clock
        )
        rule = SnapshotRule(1)
        self.checkpointer = Checkpointer(self.shard, self.image, self.blobs, rule, self.clock)
        self.garbage = GarbageCollector(self.shard, self.segments, GRACE_MS, self.clock, WAIT_S)
        self.producer_ids = ProducerIds(self.shard)
        return self

    async def __aenter__(self) -> "Embedded":
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """In the order of the gateway, but without a last image: as if it had been killed."""
        await self.produce_service.close(0)
        await self.shard.close()
        await self._close_stores()

    async def _close_stores(self) -> None:
        await self.image.close()
        await self.segments.close()
        await self.blobs.close()
        await self.metadata.close()

    def deadline(self) -> float:
        return asyncio.get_running_loop().time() + WAIT_S

    def loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def ask(self, request: Request) -> LedgerResult:
        return await self.shard.ask(request, self.deadline())

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.shard.state.topics.by_name[topic].partitions[partition]

    async def send(
        self, topic: str, partition: int, *batches: bytes, transaction: ProducerTransaction | None = None
    ) -> list[int | str]:
        """The base offset of each batch, or the name of its error."""
        completion = AwaitedProduce()
        completion.transaction = transaction
        completion.remaining += 1
        log = self.log(topic, partition)
        pending = [self.produce_service.add(log, checked(batch), completion, POLICY) for batch in batches]
        completion.count_down()
        async with asyncio.timeout(WAIT_S):
            await completion.completed
        return [batch.error or batch.base_offset for batch in pending]

    async def read(self, topic: str, partition: int = 0) -> list[Stored]:
        """Everything from the log start offset on, batch by batch. AssertionError if bytes are not there."""
        log = self.log(topic, partition)
        found: list[Stored] = []
        runs = log.find(log.log_start, MOST, MOST)
        where = [Position(self.shard.state.objects.locator(r.object_number), r.start, r.size) for r in runs]
        offset = log.log_start
        for run, data in zip(runs, await self.segments.read(where), strict=True):
            assert data is not None, f"the bytes of {run} are gone"
            assert run.base == offset, f"{run} does not continue at offset {offset}"
            for walked in walk(memoryview(data)):
                batch = bytes(data[walked.position : walked.position + walked.size_bytes])
                found.append(Stored(offset, batch))
                offset += read_header(memoryview(batch)).record_count
            assert offset == run.last + 1
        assert offset == log.high_watermark
        return found

    async def sweep(self) -> None:
        await self.garbage.drain(self.loop_time)
        await self.garbage.sweep(self.loop_time)

    async def objects(self) -> set[str]:
        return {stored.locator for stored in await self.segments.objects()}


def checked(batch: bytes) -> CheckedBatch:
    return CheckedBatch(read_header(memoryview(batch)), memoryview(batch))


@dataclass
class Client:
    """Makes batches that are all different, with the sequences of an idempotent producer."""

    producer_id: int = -1
    made: int = 0
    next_sequence: dict[tuple[str, int], int] = field(default_factory=dict)

    def batch(self, topic: str, partition: int, records: int = 2) -> bytes:
        """The next batch of this producer for a partition. Its sequence is taken with it."""
        producer = NO_PRODUCER
        if self.producer_id >= 0:
            sequence = self.next_sequence.get((topic, partition), 0)
            self.next_sequence[topic, partition] = sequence + records
            producer = Producer(self.producer_id, 0, sequence)
        self.made += 1
        value = f"{self.producer_id}/{topic}/{partition}/{self.made}".encode()
        return build_batch(
            [Record(offset_delta=n, value=value) for n in range(records)],
            base_timestamp=BEGUN_MS,
            producer=producer,
        )
