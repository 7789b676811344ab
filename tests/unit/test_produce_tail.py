"""A bucket of which one PUT in a hundred takes half a second: second attempts keep acknowledgements soon.

On virtual time, through the real S3 adapters.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.s3.client import Limits, S3Client
from adapters.segments.objects import ObjectSegments
from bench.stats import percentile
from gateway.produce.service import ProduceOptions
from gateway.settings import Ledger
from ledger.batch.records import Producer
from ledger.ports import MetadataStore
from tests.support.far_produce import ETCD, Far, FarMetadata
from tests.support.s3_transport import Answer, MemoryTransport
from tests.support.virtual_time import run_virtually

T = TypeVar("T")
DEFAULTS = Ledger()
OPTIONS = ProduceOptions(
    DEFAULTS.draft_bytes,
    DEFAULTS.draft_batches,
    DEFAULTS.drafts_in_flight,
    DEFAULTS.linger_ms,
    upload_bytes=DEFAULTS.upload_bytes,
)
SLOW_S, SLOW_EVERY = 0.5, 100
WARM, MEASURED = 3_000, 2_000
EVERY_S = 0.002
"""Batches, and how often one is sent."""
MAX_RATIO, MAX_MORE_PUTS = 3.0, 0.05


class TailedTransport(MemoryTransport):
    """Of its PUTs, one in SLOW_EVERY takes SLOW_S. A GET takes half as long as a PUT."""

    def __init__(self, put_s: float) -> None:
        super().__init__(put_s)
        self._put_s = put_s
        self._puts = 0

    async def _send(self, operation: str, key: str, effect: Callable[[], T]) -> Any:
        slow = False
        if operation == "put":
            self._puts += 1
            slow = self._puts % SLOW_EVERY == 0
        usual_s = self._put_s if operation == "put" else self._put_s / 2
        self.plan.append(Answer(after_s=SLOW_S if slow else usual_s))
        return await super()._send(operation, key, effect)


class FarBucket(Far):
    def __init__(self, put_s: float, alone: bool, hedge_share: float | None = None) -> None:
        super().__init__(OPTIONS, ETCD)
        self.transport = TailedTransport(put_s)
        limits = Limits() if hedge_share is None else Limits(hedge_share=hedge_share)
        client = S3Client(self.transport, "s3://bucket/", limits)
        self.stores: tuple[MetadataStore, ObjectSegments] = (
            S3Metadata(client) if alone else FarMetadata(*ETCD),
            ObjectSegments(S3Blobs(client)),
        )

    def far_stores(self) -> tuple[MetadataStore, ObjectSegments]:
        return self.stores


def acks_ms(far: FarBucket) -> list[float]:
    """Of the batches after the first ones, by which a percentile is known."""

    async def latency(number: int) -> float:
        began = asyncio.get_running_loop().time()
        await far.send(Producer(number % 50, 0, number // 50)).completed
        return (asyncio.get_running_loop().time() - began) * 1000

    async def run() -> list[float]:
        async with far:
            sent = []
            for number in range(WARM + MEASURED):
                sent.append(asyncio.create_task(latency(number)))
                await asyncio.sleep(EVERY_S)
            found = await asyncio.gather(*sent)
            assert far.shard.state.topics.by_name["t"].partitions[0].high_watermark == WARM + MEASURED
            return found[WARM:]

    return run_virtually(run)


def more_puts(transport: MemoryTransport) -> float:
    """The share of PUTs that were sent a second time."""
    puts = Counter(sent for sent in transport.sent if sent.startswith("put "))
    return sum(puts.values()) / len(puts) - 1


@pytest.mark.parametrize("alone", [False, True], ids=["etcd", "bucket alone"])
@pytest.mark.parametrize("put_s", [0.03, 0.1])
def test_the_slowest_hundredth_waits_three_times_as_long_as_half_of_all(put_s: float, alone: bool) -> None:
    far = FarBucket(put_s, alone)
    acks = acks_ms(far)
    # A fifth more than without slow ones: each holds up the drafts after it until it was sent again.
    journal_s = 2 * put_s if alone else 0.005
    assert percentile(acks, 50) <= 1.2 * (1000 * (put_s + journal_s) + DEFAULTS.linger_ms)
    assert percentile(acks, 99) <= MAX_RATIO * percentile(acks, 50)
    assert 0 < more_puts(far.transport) <= MAX_MORE_PUTS


def test_without_second_attempts_even_half_of_all_wait_longer() -> None:
    """Drafts are handed over in their order."""
    hedged = percentile(acks_ms(FarBucket(0.03, alone=False)), 50)
    assert percentile(acks_ms(FarBucket(0.03, alone=False, hedge_share=0.0)), 50) > 5 * hedged
