"""Over a far store drafts begin a linger apart, and commits share entries: latencies on virtual time."""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from gateway.coordination.shard import Shard
from gateway.produce.service import ProduceOptions, ProduceService
from gateway.produce.validation import TopicPolicy
from gateway.settings import Ledger
from ledger.batch.header import check_batches
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import PutOutcome, Versioned
from ledger.records import FIRST_LEVEL
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement
from tests.support.completions import AwaitedProduce
from tests.support.journalled import topic_id
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

BEGUN_MS = 1_700_000_000_000
PUT_MS = 30
ETCD, S3 = (3, 1), (30, 15)
"""Milliseconds of a put and of a get of the journal's store; an append is one of each."""
EVERY_MS, MEASURED = 1, 1_500
OTHERS_MS = 7
"""How often another request makes a journal entry."""
DEFAULTS = Ledger()


class FarSegments(MemorySegments):
    def __init__(self, overlapping: bool = True) -> None:
        super().__init__()
        self.capabilities = replace(MemorySegments.capabilities, overlapping=overlapping)
        self.begun_ms: list[int] = []

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        self.begun_ms.append(now_ms())
        await asyncio.sleep(PUT_MS / 1000)
        return await super().write(batches, created_ms, feature_level)


class FarMetadata(MemoryMetadata):
    def __init__(self, put_ms: int, get_ms: int) -> None:
        super().__init__(exclusive=False)
        self.delays_s = put_ms / 1000, get_ms / 1000

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await asyncio.sleep(self.delays_s[0])
        return await super().put(key, value, expect)

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(self.delays_s[1])
        return await super().get(key)


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def options_with(linger_ms: int, drafts_in_flight: int = 8) -> ProduceOptions:
    return ProduceOptions(1 << 20, 1000, drafts_in_flight, linger_ms)


class Far:
    """A gateway over a far store."""

    def __init__(
        self, options: ProduceOptions, journal_ms: tuple[int, int] = ETCD, overlapping: bool = True
    ) -> None:
        self.options = options
        self.metadata = FarMetadata(*journal_ms)
        self.segments = FarSegments(overlapping)
        self.shard: Shard
        self.service: ProduceService

    async def __aenter__(self) -> "Far":
        self.shard = await open_shard(self.metadata, None, None, 1, lambda: BEGUN_MS + now_ms())
        await self.shard.submit(CreateTopic("t", topic_id(1), 1, {}))
        self.service = ProduceService(self.shard, self.segments, self.options, lambda: BEGUN_MS + now_ms())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close(10)
        await self.shard.close()

    def send(self, producer: Producer = NO_PRODUCER) -> AwaitedProduce:
        data = build_batch([Record(value=b"x" * 100)], base_timestamp=BEGUN_MS, producer=producer)
        log = self.shard.state.topics.by_name["t"].partitions[0]
        completion = AwaitedProduce()
        self.service.add(log, check_batches(memoryview(data), 1 << 20), completion, TopicPolicy(1 << 20))
        return completion


def p50_of(options: ProduceOptions, journal_ms: tuple[int, int]) -> float:
    """Milliseconds to an acknowledgement, with a batch each millisecond, while others use the journal too."""

    async def latency(far: Far, number: int) -> float:
        began = asyncio.get_running_loop().time()
        await far.send(Producer(number % 50, 0, number // 50)).completed
        return asyncio.get_running_loop().time() - began

    async def measure() -> float:
        async with Far(options, journal_ms) as far:
            sent = []
            for number in range(MEASURED):
                sent.append(asyncio.create_task(latency(far, number)))
                if number % OTHERS_MS == 0:
                    far.shard.submit(ReserveProducerIds(1))
                await asyncio.sleep(EVERY_MS / 1000)
            latencies = await asyncio.gather(*sent)
            assert far.shard.state.topics.by_name["t"].partitions[0].high_watermark == MEASURED
            return statistics.median(latencies) * 1000

    return run_virtually(measure)


DEFAULT_OPTIONS = ProduceOptions(
    DEFAULTS.draft_bytes, DEFAULTS.draft_batches, DEFAULTS.drafts_in_flight, DEFAULTS.linger_ms
)


@pytest.mark.parametrize("options", [options_with(5), DEFAULT_OPTIONS], ids=["5 ms", "default"])
def test_half_of_all_acknowledgements_come_within_a_put_the_linger_and_5_ms(options: ProduceOptions) -> None:
    assert p50_of(options, ETCD) <= PUT_MS + options.linger_ms + 5


def test_over_a_slow_journal_an_acknowledgement_waits_for_two_of_its_entries_at_most() -> None:
    options = options_with(10)
    assert p50_of(options, S3) <= PUT_MS + options.linger_ms + 2 * sum(S3)


@pytest.mark.parametrize(
    ("options", "begun_ms"),
    [
        (options_with(5), [0, 5, 10, 15, 20, 25, 30, 35]),
        (options_with(0), [0, 30, 60, 90]),  # as the last one is written
        (options_with(5, drafts_in_flight=2), [0, 5, 30, 35, 60, 65]),
    ],
)
def test_drafts_begin_a_linger_apart(options: ProduceOptions, begun_ms: list[int]) -> None:
    async def run() -> list[int]:
        async with Far(options) as far:
            began = now_ms()
            for _ in range(100):
                far.send()
                await asyncio.sleep(EVERY_MS / 1000)
            return [begun - began for begun in far.segments.begun_ms]

    assert run_virtually(run)[: len(begun_ms)] == begun_ms


def test_a_batch_alone_does_not_linger() -> None:
    async def run() -> list[int]:
        async with Far(options_with(1000)) as far:
            began = now_ms()
            for _ in range(3):
                await far.send().completed
            return [begun - began for begun in far.segments.begun_ms]

    assert run_virtually(run) == [0, 34, 68]


def test_a_full_draft_does_not_linger() -> None:
    async def run() -> list[int]:
        async with Far(ProduceOptions(1 << 20, 3, 8, linger_ms=1000)) as far:
            began = now_ms()
            for _ in range(7):
                far.send()
                await asyncio.sleep(EVERY_MS / 1000)
            return [begun - began for begun in far.segments.begun_ms]

    assert run_virtually(run) == [0, 3, 6]


def test_over_one_disk_nothing_lingers() -> None:
    async def run() -> list[int]:
        async with Far(options_with(5), overlapping=False) as far:
            began = now_ms()
            for _ in range(100):
                far.send()
                await asyncio.sleep(EVERY_MS / 1000)
            return [begun - began for begun in far.segments.begun_ms]

    assert run_virtually(run) == [0, 34, 68]


def test_what_lingers_is_stored_when_the_service_closes() -> None:
    async def run() -> int:
        async with Far(options_with(1000)) as far:
            for _ in range(2):
                sent = far.send()
                await asyncio.sleep(EVERY_MS / 1000)
            await far.service.close(10)
            assert sent.completed.done()
            return far.shard.state.topics.by_name["t"].partitions[0].high_watermark

    assert run_virtually(run) == 2
