"""The time that a call of a store waits for its turn is no time of the store, and one hung call is named."""

import asyncio

import pytest
from structlog.testing import capture_logs

from adapters.blobs.s3 import S3Blobs
from adapters.s3.client import Limits, S3Client
from adapters.segments.blob_ranges import BlobRanges
from adapters.turns import turn, waited_for
from gateway.telemetry import stores
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import STALLED_SECONDS, StoreWatch
from ledger.types import Position
from tests.support.journalled import locator
from tests.support.s3_transport import Answer, MemoryTransport
from tests.support.virtual_time import run_virtually

GET_S = 3.0
SETTINGS = {"segments": "storage.data = s3://bucket/prefix"}


class LoopTime:
    """In place of `time` in the module that measures."""

    @staticmethod
    def perf_counter() -> float:
        return asyncio.get_running_loop().time()

    monotonic = perf_counter


@pytest.fixture(autouse=True)
def _virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "time", LoopTime)


def sampled(metrics: Metrics, name: str) -> float:
    labels = {"store": "segments", "op": "read"}
    return metrics.registry.get_sample_value(f"dragoman_store_{name}", labels) or 0.0


async def read_in_turn(watch: StoreWatch, places: asyncio.Semaphore, seconds: float) -> None:
    with watch.timed("segments", "read").begin():
        async with turn(places):
            await asyncio.sleep(seconds)


def test_the_wait_for_a_turn_is_counted_apart_and_is_not_slow() -> None:
    metrics = Metrics()

    async def main() -> None:
        watch, places = StoreWatch(metrics), asyncio.Semaphore(1)
        timed = watch.timed("segments", "read")

        async def read() -> None:
            with timed.begin():
                async with turn(places):
                    await asyncio.sleep(GET_S)

        await asyncio.gather(*[read() for _ in range(4)])

    with capture_logs() as logs:
        run_virtually(main)
    assert not logs
    assert sampled(metrics, "seconds_sum") == 4 * GET_S
    assert sampled(metrics, "queue_seconds_count") == 3
    assert sampled(metrics, "queue_seconds_sum") == (1 + 2 + 3) * GET_S


def test_a_call_that_takes_long_by_itself_is_slow() -> None:
    async def main() -> None:
        await read_in_turn(StoreWatch(Metrics()), asyncio.Semaphore(1), STALLED_SECONDS)

    with capture_logs() as logs:
        run_virtually(main)
    assert [(line["event"], line["seconds"]) for line in logs] == [("store.slow", STALLED_SECONDS)]


def test_a_call_waits_only_while_none_of_its_requests_has_a_turn() -> None:
    metrics = Metrics()

    async def main() -> None:
        watch, places = StoreWatch(metrics), asyncio.Semaphore(1)

        async def request() -> None:
            async with waited_for(asyncio.Semaphore(1)), turn(places):
                await asyncio.sleep(GET_S)

        with watch.timed("segments", "read").begin():
            await asyncio.gather(request(), request())

    run_virtually(main)
    assert (sampled(metrics, "seconds_sum"), sampled(metrics, "queue_seconds_count")) == (2 * GET_S, 0)


def test_a_request_that_is_given_up_in_the_queue_waits_no_more() -> None:
    async def main() -> None:
        watch, places = StoreWatch(Metrics()), asyncio.Semaphore(0)
        timed = watch.timed("segments", "read")
        with timed.begin():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(GET_S), turn(places):
                    raise AssertionError("there is no place")
            await asyncio.sleep(1.0)
            assert timed.longest_s() == 1.0

    run_virtually(main)


def test_reads_of_a_bucket_report_both_of_their_queues() -> None:
    metrics = Metrics()

    async def main() -> None:
        watch, transport = StoreWatch(metrics), MemoryTransport()
        locators = locator(1, 1_000), locator(2, 1_000)
        transport.objects |= dict.fromkeys(locators, b"x" * 10)
        transport.plan += [Answer(after_s=GET_S)] * 2
        blobs = S3Blobs(S3Client(transport, "s3://bucket/", Limits(reads_at_once=1)))
        ranges, timed = BlobRanges(blobs, lambda _: True), watch.timed("segments", "read")

        async def read(locator: str) -> None:
            with timed.begin():
                assert await ranges.read([Position(locator, 0, 10)]) == [b"x" * 10]

        await asyncio.gather(*map(read, locators))

    run_virtually(main)
    assert (sampled(metrics, "seconds_sum"), sampled(metrics, "queue_seconds_sum")) == (2 * GET_S, GET_S)


def test_one_hung_read_among_healthy_ones_is_a_warning_and_no_failure() -> None:
    async def main() -> None:
        watch, places = StoreWatch(Metrics(), SETTINGS), asyncio.Semaphore(2)
        timed = watch.timed("segments", "read")

        async def read(seconds: float) -> None:
            with timed.begin():
                async with turn(places):
                    await asyncio.sleep(seconds)

        hung = asyncio.create_task(read(60.0))
        for _ in range(7):
            await read(1.0)
        (warning,) = watch.health.warnings()
        assert warning["reason"] == "store_call_hangs"
        begin = "segments.read (storage.data = s3://bucket/prefix): a call has had no response for 7 s"
        assert warning["detail"].startswith(begin)
        assert watch.health.failing() == {}
        await asyncio.sleep(STALLED_SECONDS)
        assert list(watch.health.failing()) == ["segments.read"]
        assert watch.health.warnings() == []
        await hung
        assert watch.health.failing() == {}

    run_virtually(main)


def test_reads_that_wait_behind_a_hung_one_hang_not() -> None:
    async def main() -> None:
        watch, places = StoreWatch(Metrics(), SETTINGS), asyncio.Semaphore(1)
        timed = watch.timed("segments", "read")

        async def read(seconds: float) -> None:
            with timed.begin():
                async with turn(places):
                    await asyncio.sleep(seconds)

        reads = [asyncio.create_task(read(1.0)) for _ in range(20)]
        await asyncio.sleep(10.5)
        assert watch.health.warnings() == []
        assert timed.longest_s() == 0.5
        await asyncio.gather(*reads)

    run_virtually(main)
