"""A produce service over stores that fail at random, and its clients.

Everything happens on virtual time, decided by one seed. A *life* is a gateway from recovery to its end:
closed, or replaced by the next, which takes the shard over. Every attempt to send a batch has bytes of its
own, so that of each it can be said whether it was stored.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.memory_log import MemoryLog, MemoryLogFiles
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.coordination import opening, owner
from gateway.coordination.shard import Shard
from gateway.produce.accumulator import PendingBatch
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from ledger.batch.header import check_batches, read_header, walk
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import ErrorName, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.objects.requests import RaiseFloor
from ledger.objects.uploads import Uploader
from ledger.partitions.producers import UNBOUNDED, ProducerBounds
from ledger.partitions.state import PartitionLog
from ledger.ports import Capabilities, PutOutcome, Unknown
from ledger.records import FIRST_LEVEL
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement, Position
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id

BEGUN_MS = 1_700_000_000_000
PARTITIONS = 2
WINDOW = 5
MOST = 1 << 40
POLICY = TopicPolicy(1 << 20)
MAX_WAITING = 20_000
UNCERTAIN = ErrorName.REQUEST_TIMED_OUT


@dataclass(eq=False)
class Attempt:
    """One batch on one of its ways to the service."""

    data: bytes
    partition: int
    life: int
    position: int
    """Attempts of a life and partition in the order of `add`."""
    pending: PendingBatch
    given_up_at: float | None = None
    """Its request was answered before it had a result."""


class Chance:
    """What the stores do next. `calm` ends all faults."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.calm = False

    def happens(self, probability: float) -> bool:
        return not self.calm and self.choose.random() < probability

    async def wait(self, most_ms: float) -> None:
        await asyncio.sleep(self.choose.uniform(0.1, most_ms) / 1000)


class Segments(MemorySegments):
    def __init__(self, chance: Chance, overlapping: bool) -> None:
        super().__init__(random=chance.choose.randbytes)
        self.capabilities = Capabilities(deletes=True, atomic=True, durable_ack=True, overlapping=overlapping)
        self._chance = chance
        self.begun: list[tuple[float, list[bytes]]] = []
        """When each write began, or when each draft was placed, and what it writes."""

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.begun.append((asyncio.get_running_loop().time(), [bytes(batch.data) for batch in batches]))
        # The key has the time at which the write began, so a floor may pass it.
        await self._chance.wait(2)
        if self._chance.happens(0.08):
            raise StoreUnavailable("on purpose, before")
        placement = await super().write(batches, created_ms, feature_level)
        await self._chance.wait(40)
        if self._chance.happens(0.08):
            raise self._chance.choose.choice([StoreUnavailable, OutcomeUnknown])("on purpose, after")
        return placement


class Log(MemoryLog):
    """It takes most drafts, and has no place for some of those."""

    def __init__(self, metadata: "Metadata", world: "World") -> None:
        choose = world.choose
        roll_bytes = choose.choice([1, 10_000, 1 << 26])
        super().__init__(
            metadata, 0, world.files, world.now_ms, roll_bytes=roll_bytes, random=choose.randbytes
        )
        self._world = world
        self._max_batches = choose.choice([0, 1, 2, MOST, MOST])

    def takes(self, batches: int, size: int) -> bool:
        return batches <= self._max_batches

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        if self._world.chance.happens(0.05):
            return None
        placed = [bytes(batch.data) for batch in batches]
        self._world.segments.begun.append((asyncio.get_running_loop().time(), placed))
        self._world.placed += 1
        return super().place(number, batches)


class Metadata(MemoryMetadata):
    """Several gateways may write."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(exclusive=False)
        self._chance = chance
        self._late: set[asyncio.Task[None]] = set()

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self._chance.wait(12)
        if self._chance.happens(0.12):
            raise StoreUnavailable("on purpose, before")
        if self._chance.happens(0.06):
            self._late.add(asyncio.create_task(self._arrive(key, value, expect)))
            return Unknown("on purpose, late")
        if self._chance.happens(0.04):
            return Unknown("on purpose, never sent")
        outcome = await super().put(key, value, expect)
        await self._chance.wait(6)
        return Unknown("on purpose, response lost") if self._chance.happens(0.06) else outcome

    async def _arrive(self, key: str, value: bytes, expect: str | None) -> None:
        await self._chance.wait(30)
        await super().put(key, value, expect)


@dataclass
class Life:
    number: int
    shard: Shard
    service: ProduceService
    added: dict[int, int] = field(default_factory=dict)

    def log(self, partition: int) -> PartitionLog:
        return self.shard.state.topics.by_name["t"].partitions[partition]


class World:
    def __init__(self, seed: int, *, is_placing: bool = False) -> None:
        """`is_placing`: most drafts are appended with their entries."""
        self.choose = random.Random(seed)
        self.chance = Chance(self.choose)
        self.metadata = Metadata(self.chance)
        self.files = MemoryLogFiles()
        self.segments = Segments(self.chance, overlapping=self.choose.random() < 0.8)
        self.store = WalAndSegments(self.segments, SegmentBlobs(MemoryBlobs()), logs=self.files)
        self.is_placing = is_placing
        self.placed = 0
        """Drafts that had a place."""
        self.lives: list[Life] = []
        self.attempts: list[Attempt] = []
        self.acks: list[tuple[Attempt, int]] = []
        self.next_producer = 0
        self.finished: list[IdempotentClient] = []

    def now_ms(self) -> int:
        return BEGUN_MS + int(asyncio.get_running_loop().time() * 1000)

    @property
    def life(self) -> Life:
        return self.lives[-1]

    async def begin_life(self) -> None:
        set_max_waiting(MAX_WAITING)
        while True:
            try:
                shard = await opening.open_shard(self.journal(), None, None, len(self.lives), self.now_ms)
            except StoreError:
                continue
            break
        while "t" not in shard.state.topics.by_name:
            try:
                await shard.submit(CreateTopic("t", topic_id(1), PARTITIONS, {}))
            except StoreError:
                if shard.broken:
                    await self.begin_life()
                    return
        choose = self.choose
        options = ProduceOptions(
            1 << 20,
            choose.randint(1, 3),
            choose.randint(1, 5),
            choose.choice([0, 1, 5, 10]),
            Uploader(1, len(self.lives).to_bytes(16, "big")),
        )
        service = ProduceService(shard, self.store, options, self.now_ms)
        self.lives.append(Life(len(self.lives), shard, service))

    def journal(self) -> MetadataJournal:
        return Log(self.metadata, self) if self.is_placing else MetadataJournal(self.metadata, 0)

    async def end_life(self, life: Life) -> None:
        await life.service.close(self.choose.choice([0, 0.01, 0.2]))
        await life.shard.close()

    def send(self, life: Life, partition: int, data: bytes) -> Attempt:
        completion = AwaitedProduce()
        position = life.added[partition] = life.added.get(partition, 0) + 1
        pending = life.service.add(
            life.log(partition), check_batches(memoryview(data), 1 << 20), completion, POLICY
        )
        attempt = Attempt(data, partition, life.number, position, pending)
        self.attempts.append(attempt)
        return attempt

    async def result(self, attempt: Attempt) -> ErrorName | None:
        """None once it is acknowledged; else an error, also if its request is answered without a result."""
        completion, pending = attempt.pending.completion, attempt.pending
        assert isinstance(completion, AwaitedProduce)
        patience_s = 60.0 if self.chance.calm else self.choose.choice([0.02, 0.1, 0.5])
        try:
            async with asyncio.timeout(patience_s):
                await completion.completed
        except TimeoutError:
            completion.is_done = True
            attempt.given_up_at = asyncio.get_running_loop().time()
            return UNCERTAIN
        completion.is_done = True
        if pending.error is None:
            self.acks.append((attempt, pending.base_offset))
        return pending.error

    # What goes wrong but for the stores

    async def disturb(self) -> None:
        """Floors rise over drafts under way, bounds come and go, gateways end."""
        choose = self.choose
        while not self.chance.calm:
            await self.chance.wait(30)
            life, kind = self.life, choose.random()
            if life.shard.broken or kind < 0.04:
                await self.replace(life)
            elif kind < 0.5:
                life.shard.submit(RaiseFloor(self.now_ms() - choose.randint(0, 20))).add_done_callback(_seen)
            elif kind < 0.7:
                bounds = choose.choice([UNBOUNDED, UNBOUNDED, ProducerBounds(len(self.acks), MOST)])
                life.shard.state.producer_bounds = bounds
            else:
                set_max_waiting(choose.choice([0, MAX_WAITING, MAX_WAITING]))

    async def replace(self, life: Life) -> None:
        """The next life takes over, before or after the end of this one."""
        if self.choose.random() < 0.5:
            await self.end_life(life)
            await self.begin_life()
        else:
            await self.begin_life()
            await self.chance.wait(100)
            await self.end_life(life)

    async def calm_down(self) -> None:
        if self.life.shard.broken:
            await self.replace(self.life)
        set_max_waiting(MAX_WAITING)
        self.life.shard.state.producer_bounds = UNBOUNDED

    async def stored(self, partition: int) -> list[tuple[int, bytes]]:
        """(base offset, bytes) of every batch, from the state that a new gateway recovers."""
        state = self.life.shard.state
        log, offset, found = self.life.log(partition), 0, list[tuple[int, bytes]]()
        runs = log.find(0, MOST, MOST)
        where = [Position(state.objects.locator(run.object_number), run.start, run.size) for run in runs]
        for run, data in zip(runs, await self.store.read(where), strict=True):
            assert data is not None and run.base == offset
            for walked in walk(memoryview(data)):
                batch = bytes(data[walked.position : walked.position + walked.size_bytes])
                found.append((offset, batch))
                offset += read_header(memoryview(batch)).record_count
            assert offset == run.last + 1
        assert offset == log.high_watermark
        return found


def set_max_waiting(count: int) -> None:
    """How many requests may wait for the journal, of all lives."""
    owner.MAX_WAITING = count


def _seen(future: asyncio.Future[object]) -> None:
    if not future.cancelled():
        future.exception()


class IdempotentClient:
    """A new producer with a few batches for one partition, up to five in flight. A hasty one sends a failed
    batch again while later ones are in flight; the other waits for these, as the Java client does."""

    def __init__(self, world: World) -> None:
        choose = world.choose
        self.world = world
        world.next_producer += 1
        self.producer_id = world.next_producer
        self.partition = choose.randrange(PARTITIONS)
        self.first_sequence = choose.choice([0, 0, 0, 40, (1 << 31) - 3])
        self.counts = [choose.randint(1, 3) for _ in range(choose.randint(1, 8))]
        self.is_hasty = choose.random() < 0.5
        self.attempts_left = choose.choice([3, 1 << 30, 1 << 30, 1 << 30])
        """One that ends before its last batch is acknowledged."""
        self.acked: set[int] = set()
        self.made = 0

    def sequence(self, index: int) -> int:
        return self.first_sequence + sum(self.counts[:index]) & 0x7FFFFFFF

    @property
    def is_done(self) -> bool:
        return len(self.acked) == len(self.counts)

    async def run(self) -> None:
        while not self.is_done and self.attempts_left > 0:
            await self._send_from_the_lowest()
            await self.world.chance.wait(5)
        self.world.finished.append(self)

    async def _send_from_the_lowest(self) -> None:
        """Until one fails, and all in flight have a result."""
        world = self.world
        life, in_flight = world.life, dict[asyncio.Task[ErrorName | None], int]()
        unsent = [index for index in range(len(self.counts)) if index not in self.acked]
        failed = False
        while (unsent and not failed) or in_flight:
            while unsent and not failed and self._is_in_window(unsent[0]) and self.attempts_left > 0:
                index = unsent.pop(0)
                in_flight[asyncio.create_task(world.result(self._send(life, index)))] = index
                if world.choose.random() < 0.5:
                    await world.chance.wait(4)
            if not in_flight:
                return
            done, _ = await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = in_flight.pop(task)
                if task.result() is None:
                    self.acked.add(index)
                elif self.is_hasty and life is world.life:
                    await world.chance.wait(2)
                    unsent.append(index)
                    unsent.sort()
                else:
                    failed = True

    def _is_in_window(self, index: int) -> bool:
        lowest = min(index for index in range(len(self.counts)) if index not in self.acked)
        return index < lowest + WINDOW

    def _send(self, life: Life, index: int) -> Attempt:
        self.made += 1
        self.attempts_left -= 1
        value = f"{self.producer_id}/{index}/{self.made}".encode()
        data = build_batch(
            [Record(offset_delta=n, value=value) for n in range(self.counts[index])],
            base_timestamp=BEGUN_MS,
            producer=Producer(self.producer_id, 0, self.sequence(index)),
        )
        return self.world.send(life, self.partition, bytes(data))


async def plain_client(world: World) -> None:
    """Sends each batch once, without sequences, several at a time."""
    partition, tasks = world.choose.randrange(PARTITIONS), list[asyncio.Task[ErrorName | None]]()
    for number in range(world.choose.randint(1, 6)):
        world.next_producer += 1
        value = f"plain/{world.next_producer}/{number}".encode()
        data = build_batch([Record(value=value)], base_timestamp=BEGUN_MS, producer=NO_PRODUCER)
        tasks.append(asyncio.create_task(world.result(world.send(world.life, partition, bytes(data)))))
        await world.chance.wait(6)
    await asyncio.gather(*tasks)
