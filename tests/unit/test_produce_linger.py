"""Over a far store drafts begin a linger apart, and commits share entries: latencies on virtual time."""

import asyncio
import math
import statistics

import pytest

from gateway.produce.service import ProduceOptions
from gateway.settings import Ledger
from ledger.batch.records import Producer
from ledger.partitions.requests import ReserveProducerIds
from tests.support.far_produce import ETCD, S3, Far, now_ms
from tests.support.virtual_time import run_virtually

PUT_MS = 30
EVERY_MS, MEASURED = 1, 1_500
OTHERS_MS = 7
"""How often another request makes a journal entry."""
DEFAULTS = Ledger()


def options_with(linger_ms: int, drafts_in_flight: int = 8) -> ProduceOptions:
    return ProduceOptions(1 << 20, 1000, drafts_in_flight, linger_ms)


def p50_of(options: ProduceOptions, journal_ms: tuple[int, int], put_ms: int = PUT_MS) -> float:
    """Milliseconds to an acknowledgement, with a batch each millisecond, while others use the journal too."""

    async def latency(far: Far, number: int) -> float:
        began = asyncio.get_running_loop().time()
        await far.send(Producer(number % 50, 0, number // 50)).completed
        return asyncio.get_running_loop().time() - began

    async def measure() -> float:
        async with Far(options, journal_ms, put_ms) as far:
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
    DEFAULTS.draft_bytes,
    DEFAULTS.draft_batches,
    DEFAULTS.drafts_in_flight,
    DEFAULTS.linger_ms,
    upload_bytes=DEFAULTS.upload_bytes,
)


def test_the_linger_is_5_ms() -> None:
    assert DEFAULTS.linger_ms == 5


@pytest.mark.parametrize("put_ms", [30, 100])
def test_half_of_all_acknowledgements_come_within_a_put_the_linger_and_5_ms(put_ms: int) -> None:
    assert p50_of(DEFAULT_OPTIONS, ETCD, put_ms) <= put_ms + DEFAULTS.linger_ms + 5


@pytest.mark.parametrize("put_ms", [30, 100])
def test_with_the_bucket_alone_they_come_within_a_put_the_linger_and_two_of_the_journal(put_ms: int) -> None:
    """A get of S3 takes half as long as a put."""
    journal_ms = put_ms, put_ms // 2
    assert p50_of(DEFAULT_OPTIONS, journal_ms, put_ms) <= put_ms + DEFAULTS.linger_ms + 2 * put_ms


def requests_in_2_s(partitions: int, producers: int) -> tuple[int, int]:
    """Drafts and journal entries, with a batch each millisecond."""

    async def run() -> tuple[int, int]:
        async with Far(DEFAULT_OPTIONS, S3, partitions=partitions) as far:
            entries = far.metadata.puts
            for number in range(2_000):
                sequence = number // math.lcm(producers, partitions)
                producer = Producer(number % producers, 0, sequence)
                far.send(producer, partition=number % partitions)
                await asyncio.sleep(0.001)
            return len(far.segments.begun_ms), far.metadata.puts - entries

    return run_virtually(run)


def test_the_journal_has_an_entry_in_each_put_and_a_draft_in_each_linger() -> None:
    """Not one in each put and read."""
    drafts, entries = requests_in_2_s(1, 1)
    assert 2_000 // S3[0] - 2 <= entries <= 2_000 // S3[0]
    assert 2_000 // DEFAULTS.linger_ms - 2 <= drafts <= 2_000 // DEFAULTS.linger_ms


@pytest.mark.parametrize(("partitions", "producers"), [(100, 1), (1, 500), (100, 1000)])
def test_more_partitions_and_producers_need_no_more_requests(partitions: int, producers: int) -> None:
    assert requests_in_2_s(partitions, producers) == requests_in_2_s(1, 1)


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
