"""A gateway without connections over a bucket: what it asks of it, counted on virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.open import open_journal
from adapters.s3.client import Limits, S3Client
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.assembly import RunningGateway, running_gateway
from gateway.config import load_settings
from gateway.housekeeping import housekeeper
from gateway.world import StoreOpener
from ledger.batch.header import check_batches
from ledger.batch.records import Record, build_batch
from ledger.keys import RANDOM_BYTES, uuid7
from ledger.topics.requests import CreateTopic
from tests.sim.history import lived
from tests.sim.host import BEGUN_MS, SimulatedHost, now_ms
from tests.sim.links import MemoryLinks
from tests.support.completions import AwaitedProduce
from tests.support.far_produce import POLICY
from tests.support.journalled import topic_id
from tests.support.s3_transport import MemoryTransport

MINUTE_S, HOUR_S = 60.0, 3600.0
MAX_REQUESTS_A_MINUTE = 2
SETTINGS = {
    "listeners.listen": "PLAINTEXT://127.0.0.1:9092",
    "admin.listen": "",
    "storage.metadata": "s3://bucket/idle",
    "storage.data": "s3://bucket/idle",
}


@pytest.fixture(autouse=True)
def _few_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The housekeeper looks every half second what is due, which takes long in a virtual day."""
    monkeypatch.setattr(housekeeper, "TICK_S", 15.0)


class Bucket(MemoryTransport):
    """Counts requests a minute."""

    def __init__(self) -> None:
        super().__init__(usual_s=0.03)
        self.minutes: Counter[int] = Counter()

    async def _send(self, operation: str, key: str, effect: Callable[[], Any]) -> Any:
        self.minutes[int(asyncio.get_running_loop().time() / MINUTE_S)] += 1
        return await super()._send(operation, key, effect)

    def entries(self) -> int:
        return sum(1 for key in self.objects if key.startswith("journal/"))

    def drafts(self) -> list[str]:
        return [key for key in self.objects if key.startswith("wal/")]


@asynccontextmanager
async def idle_gateway(bucket: Bucket, inline_bytes: int = -1) -> AsyncIterator[RunningGateway]:
    """`inline_bytes`: as the setting has it."""
    client = S3Client(bucket, "s3://bucket/", Limits(hedge_share=0.0), dice=lambda: 0.5)
    opener = StoreOpener(
        metadata=lambda url, **_: S3Metadata(client),
        segments=lambda url, **_: WalAndSegments(
            ObjectSegments(S3Blobs(client)), SegmentBlobs(S3Blobs(client))
        ),
        blobs=lambda url, **_: S3Blobs(client),
        image=lambda url: pytest.fail("no image is configured"),
        journal=open_journal,
    )
    world = SimulatedHost(1).world(opener, MemoryLinks(Random(1)))
    settings = load_settings({**SETTINGS, "storage.inline_bytes": str(inline_bytes)}, {})
    async with running_gateway(settings, world) as running:
        yield running


async def send(running: RunningGateway) -> None:
    """One batch."""
    data = build_batch([Record(value=b"x")], base_timestamp=BEGUN_MS + now_ms())
    log = running.shard.state.topics.by_name["t"].partitions[0]
    completion = AwaitedProduce()
    running.services.produce.add(log, check_batches(memoryview(data), 1 << 20), completion, POLICY)
    await completion.completed


async def create_topic(running: RunningGateway) -> None:
    await running.shard.ask(CreateTopic("t", topic_id(1), 1, {}), asyncio.get_running_loop().time() + 10)


async def minutes(bucket: Bucket, count: int) -> list[int]:
    """Requests in each of these minutes, from the next one on."""
    loop = asyncio.get_running_loop()
    first = int(loop.time() / MINUTE_S) + 1
    await asyncio.sleep((first + count) * MINUTE_S - loop.time())
    return [bucket.minutes[minute] for minute in range(first, first + count)]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    lived(main)


def test_an_idle_gateway_sends_two_requests_a_minute_at_most_and_writes_no_entry() -> None:
    async def main() -> None:
        bucket = Bucket()
        async with idle_gateway(bucket) as running:
            await create_topic(running)
            entries = bucket.entries()
            found = await minutes(bucket, 3 * 60)
            assert sum(found) <= MAX_REQUESTS_A_MINUTE * len(found)
            assert bucket.entries() == entries

    run(main)


@pytest.mark.parametrize(("inline_bytes", "moves", "objects"), [(0, 0, 3), (-1, 1, 1)])
def test_the_floor_rises_once_over_what_was_written_before_the_gateway_was_idle(
    inline_bytes: int, moves: int, objects: int
) -> None:
    """What is inside of entries is moved into one object before, with one entry."""

    async def main() -> None:
        bucket = Bucket()
        async with idle_gateway(bucket, inline_bytes) as running:
            await create_topic(running)
            for _ in range(3):
                await send(running)
            entries = bucket.entries()
            found = await minutes(bucket, 5 * 60)
            assert sum(found) <= MAX_REQUESTS_A_MINUTE * len(found)
            assert bucket.entries() == entries + moves + 1
            assert running.shard.state.objects.floor_ms > BEGUN_MS
            assert not running.shard.state.objects.uploaders
            assert len(bucket.drafts()) == objects

    run(main)


def test_an_object_that_no_entry_names_is_deleted_by_an_idle_gateway() -> None:
    """Also one that came while it was idle, as from a gateway that died."""

    async def main() -> None:
        bucket = Bucket()
        async with idle_gateway(bucket) as running:
            await create_topic(running)
            await send(running)
            await asyncio.sleep(3 * HOUR_S)
            named = bucket.drafts()
            assert len(named) == 1
            orphan = f"wal/0/{uuid7(BEGUN_MS + now_ms(), b'a' * RANDOM_BYTES)}.wal"
            bucket.objects[orphan] = b"orphan"
            await asyncio.sleep(HOUR_S - 2 * MINUTE_S)
            assert orphan in bucket.objects
            found = await minutes(bucket, 60)
            assert sum(found) <= MAX_REQUESTS_A_MINUTE * len(found)
            assert bucket.drafts() == named

    run(main)


def test_what_arrived_below_the_floor_goes_within_a_day() -> None:
    async def main() -> None:
        bucket = Bucket()
        async with idle_gateway(bucket) as running:
            await create_topic(running)
            late = f"wal/0/{uuid7(BEGUN_MS + now_ms(), b'a' * RANDOM_BYTES)}.wal"
            await send(running)
            await asyncio.sleep(2 * HOUR_S)
            bucket.objects[late] = b"late"
            await asyncio.sleep(24 * HOUR_S)
            assert late not in bucket.objects

    run(main)


def test_a_busy_store_is_not_listed_whole_at_each_sweep() -> None:
    async def main() -> None:
        bucket = Bucket()
        async with idle_gateway(bucket) as running:
            await create_topic(running)
            await send(running)
            for number in range(4_000):
                # Kept by a restore, as if an entry named them: they are only there to be listed.
                bucket.objects[f"wal/0/{uuid7(BEGUN_MS + number, b'b' * RANDOM_BYTES)}.wal"] = b"kept"
            running.shard.state.objects.keep(BEGUN_MS, BEGUN_MS + 4_000)
            await asyncio.sleep(2 * HOUR_S)
            lists = Counter(sent.partition(" ")[0] for sent in bucket.sent)["list"]
            for _ in range(12):
                await send(running)
                await asyncio.sleep(10 * MINUTE_S)
            assert Counter(sent.partition(" ")[0] for sent in bucket.sent)["list"] - lists <= 12 * 2 * 6

    run(main)
