"""A produce service whose drafts are appended with their journal entries, over stores in memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.memory_log import MemoryLog, MemoryLogFiles
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.coordination import opening
from gateway.coordination.free_space import FreeSpace
from gateway.coordination.shard import Shard
from gateway.fetch.cache import RunCache
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches, read_header, walk
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.partitions.state import PartitionLog
from ledger.ports import Appended, AppendOutcome, MetadataStore, PutOutcome
from ledger.records import FIRST_LEVEL
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement, Position
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id

BEGUN_MS = 1_700_000_000_000
WAIT_S = 30.0
POLICY = TopicPolicy(1 << 20)
MOST = 1 << 40


class GatedMetadata(MemoryMetadata):
    """Puts wait while it is closed; the next one fails if `fails`."""

    def __init__(self, *, exclusive: bool = True) -> None:
        super().__init__(exclusive=exclusive)
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.failing: list[Exception] = []
        """What the next puts raise."""
        self.puts = 0

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.puts += 1
        await self.may_go.wait()
        if self.failing:
            raise self.failing.pop(0)
        return await super().put(key, value, expect)


class ChoosyLog(MemoryLog):
    """It takes drafts of up to `most` bytes, and notes what is appended."""

    most = MOST
    places = True
    """Whether it has a place for what it takes."""

    def __init__(self, store: MetadataStore, files: MemoryLogFiles) -> None:
        super().__init__(store, 0, files, lambda: BEGUN_MS)
        self.drafts: list[list[bytes]] = []
        """Of each entry with batches."""
        self.entries = 0
        self.appended_in: list[asyncio.Task[object] | None] = []
        """The task, if any, in which each entry with batches was appended."""

    def takes(self, batches: int, size: int) -> bool:
        return size <= self.most

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        return super().place(number, batches) if self.places else None

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        outcome = await super().append(number, entry, batches)
        if isinstance(outcome, Appended):
            self.entries += 1
            if batches:
                self.drafts.append([bytes(batch.data) for batch in batches])
                self.appended_in.append(asyncio.current_task())
        return outcome


class CountedSegments(MemorySegments):
    """It notes the drafts that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.drafts: list[list[bytes]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.failing: list[StoreUnavailable] = []

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.drafts.append([bytes(batch.data) for batch in batches])
        await self.may_go.wait()
        if self.failing:
            raise self.failing.pop(0)
        return await super().write(batches, created_ms, feature_level)


@dataclass
class PlacingWorld:
    """A gateway over a journal that takes batches; `open` first."""

    options: ProduceOptions = field(default_factory=lambda: ProduceOptions(1 << 20, 100, 3))
    space: FreeSpace = field(default_factory=lambda: FreeSpace(()))
    exclusive: bool = True

    def __post_init__(self) -> None:
        self.metadata = GatedMetadata(exclusive=self.exclusive)
        self.files = MemoryLogFiles()
        self.segments = CountedSegments()
        self.store = WalAndSegments(self.segments, SegmentBlobs(MemoryBlobs()), logs=self.files)
        self.journal = ChoosyLog(self.metadata, self.files)
        self.cache = RunCache(1 << 20)

    async def open(self) -> "PlacingWorld":
        self.shard: Shard = await opening.open_shard(self.journal, None, None, 1, lambda: BEGUN_MS)
        if "t" not in self.shard.state.topics.by_name:
            await self.shard.submit(CreateTopic("t", topic_id(1), 2, {}))
        self.service = ProduceService(
            self.shard, self.store, self.options, lambda: BEGUN_MS, self.cache, self.space
        )
        return self

    async def close(self) -> None:
        self.metadata.may_go.set()
        self.segments.may_go.set()
        await self.service.close(0)
        await self.shard.close()

    async def begin_again(self) -> None:
        """The process is replaced by another one."""
        await self.close()
        self.journal = ChoosyLog(self.metadata, self.files)
        await self.open()

    def log(self, partition: int = 0) -> PartitionLog:
        return self.shard.state.topics.by_name["t"].partitions[partition]

    def send(self, data: bytes, partition: int = 0) -> PendingBatch:
        """One request of one batch."""
        checked = check_batches(memoryview(data), 1 << 20)
        return self.service.add(self.log(partition), checked, AwaitedProduce(), POLICY)

    async def result(self, pending: PendingBatch) -> int | str:
        """Its base offset, or the name of its error."""
        assert isinstance(pending.completion, AwaitedProduce)
        async with asyncio.timeout(WAIT_S):
            await pending.completion.completed
        return pending.error or pending.base_offset

    async def results(self, *sent: PendingBatch) -> list[int | str]:
        return [await self.result(pending) for pending in sent]

    async def stored(self, partition: int = 0) -> list[tuple[int, bytes]]:
        """(base offset, bytes) of every batch, as the store has it."""
        log, found = self.log(partition), list[tuple[int, bytes]]()
        runs = log.find(0, MOST, MOST)
        where = [self.position(run.object_number, run.start, run.size) for run in runs]
        for run, data in zip(runs, await self.store.read(where), strict=True):
            assert data is not None
            offset = run.base
            for walked in walk(memoryview(data)):
                batch = bytes(data[walked.position : walked.position + walked.size_bytes])
                found.append((offset, batch))
                offset += read_header(memoryview(batch)).record_count
            assert offset == run.last + 1
        return found

    def cached(self, partition: int = 0) -> bytes:
        """What the cache has of the first run of a partition."""
        run = self.log(partition).find(0, 1)[0]
        position = self.position(run.object_number, run.start, run.size)
        views, _ = self.cache.get(position.locator, position.start, position.size)
        return b"".join(views)

    def position(self, object_number: int, start: int, size: int) -> Position:
        return Position(self.shard.state.objects.locator(object_number), start, size)


def batch_of(text: str, producer: int = -1, sequence: int = 0, count: int = 1) -> bytes:
    records = [Record(offset_delta=n, value=f"{text}{n}".encode()) for n in range(count)]
    ids = Producer(producer, 0, sequence) if producer >= 0 else NO_PRODUCER
    return bytes(build_batch(records, base_timestamp=BEGUN_MS, producer=ids))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
