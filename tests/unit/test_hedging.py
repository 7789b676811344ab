"""Second attempts: when one is sent, what it gains, and what it costs. In virtual time."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.hedging import LATE_FACTOR, MIN_SAMPLES, Attempts, Hedges, RecentDurations, Verdict
from adapters.metadata.s3 import S3Metadata
from adapters.s3.client import Limits, S3Client
from ledger.errors import StoreUnavailable
from ledger.ports import Unknown, Won
from tests.support.s3_transport import Answer, MemoryTransport, Trouble
from tests.support.virtual_time import run_virtually

T = TypeVar("T")
USUAL_S = 0.03
SLOW_S = 0.5
OWN_KEY = "wal/0/018bcfe5-6800-7000-8000-000000000000"
SEED = 20_261_122


def warmed(act: Callable[[S3Client, MemoryTransport], Coroutine[Any, Any, T]], share: float = 0.03) -> T:
    """After as many requests as make a percentile and tokens."""

    async def main() -> T:
        transport = MemoryTransport(USUAL_S)
        client = S3Client(transport, "s3://bucket/", Limits(hedge_share=share))
        for number in range(MIN_SAMPLES * 2):
            await client.put(f"warm/{number}", b"x", None)
            await client.get(f"warm/{number}", 0, 1)
        transport.sent.clear()
        return await act(client, transport)

    return run_virtually(main)


async def seconds_of(call: Coroutine[Any, Any, Any]) -> float:
    begun = asyncio.get_running_loop().time()
    await call
    return asyncio.get_running_loop().time() - begun


def test_a_put_that_is_slower_than_the_recent_percentile_is_sent_again_and_the_first_answer_counts() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> float:
        # The first attempt has no effect for a long time, and loses then.
        transport.plan.append(Answer(Trouble.LATE, after_s=SLOW_S))
        took = await seconds_of(S3Blobs(client).put("a", [b"one"]))
        assert transport.sent == ["put a", "put a"]
        assert transport.objects["a"] == b"one"
        return took

    assert warmed(act) == pytest.approx((LATE_FACTOR + 1) * USUAL_S)


def test_a_get_that_is_slow_is_sent_again() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> float:
        transport.objects["a"] = b"one"
        transport.plan.append(Answer(after_s=SLOW_S))
        took = await seconds_of(S3Blobs(client).get("a", 0, 3))
        assert transport.sent == ["get a", "get a"]
        return took

    assert warmed(act) == pytest.approx((LATE_FACTOR + 1) * USUAL_S)


def test_a_second_put_that_meets_the_first_is_done_under_an_own_uuid() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> float:
        # The effect is there at once, its answer is late.
        transport.plan.append(Answer(after_s=SLOW_S))
        return await seconds_of(S3Blobs(client).put(OWN_KEY, [b"one"]))

    assert warmed(act) == pytest.approx((LATE_FACTOR + 1) * USUAL_S)


def test_a_second_put_of_metadata_that_meets_the_first_is_unknown_and_read() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> None:
        transport.plan.append(Answer(after_s=SLOW_S))
        store = S3Metadata(client)
        assert isinstance(await store.put("a", b"mine", None), Unknown)
        found = await store.get("a")
        assert found is not None
        assert found.value == b"mine"

    warmed(act)


def test_the_first_put_is_won_if_it_is_answered_soon_after_the_refusal_of_the_second() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> None:
        transport.plan.append(Answer(after_s=2.5 * USUAL_S))
        assert isinstance(await S3Metadata(client).put("a", b"mine", None), Won)

    warmed(act)


def test_a_failure_of_one_attempt_waits_for_the_other() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> None:
        transport.objects["a"] = b"one"
        transport.plan += [Answer(after_s=0.2), Answer(Trouble.SLOW_DOWN)]
        assert await S3Blobs(client).get("a", 0, 3) == b"one"
        assert transport.sent == ["get a", "get a"]

    warmed(act)


def test_nothing_is_sent_twice_before_there_are_enough_samples() -> None:
    async def main() -> None:
        transport = MemoryTransport(SLOW_S)
        client = S3Client(transport, "s3://bucket/")
        for number in range(MIN_SAMPLES):
            await client.put(f"a/{number}", b"x", None)
        assert len(transport.sent) == MIN_SAMPLES

    run_virtually(main)


def test_a_store_that_becomes_slow_as_a_whole_gets_at_most_3_percent_more_requests() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> None:
        transport.usual_s = SLOW_S
        for number in range(2000):
            await client.put(f"a/{number}", b"x", None)
        # And what was saved while it was fast.
        assert 2000 < len(transport.sent) <= 2000 * 1.03 + 10

    warmed(act)


def test_a_share_of_none_sends_nothing_twice() -> None:
    async def act(client: S3Client, transport: MemoryTransport) -> None:
        transport.plan.append(Answer(after_s=SLOW_S))
        await client.put("a", b"x", None)
        assert transport.sent == ["put a"]

    warmed(act, share=0.0)


def test_a_tail_of_one_percent_no_longer_decides_the_99th_percentile() -> None:
    dice = random.Random(SEED)

    async def act(client: S3Client, transport: MemoryTransport) -> tuple[list[float], int]:
        took = []
        for number in range(3000):
            if dice.random() < 0.01:
                transport.plan.append(Answer(Trouble.LATE, after_s=SLOW_S))
            else:
                transport.plan.append(Answer(after_s=USUAL_S * (0.8 + 0.4 * dice.random())))
            took.append(await seconds_of(S3Blobs(client).put(f"a/{number}", [b"x"])))
            transport.plan.clear()
        return sorted(took), len(transport.sent)

    took, sent = warmed(act)
    assert took[int(len(took) * 0.99)] <= 3 * took[len(took) // 2]
    assert sent <= len(took) * 1.05


def test_a_call_that_is_cancelled_cancels_its_attempts() -> None:
    cancelled: list[int] = []

    async def main() -> None:
        hedges = Hedges(share=1.0)

        async def fast() -> int:
            await asyncio.sleep(USUAL_S)
            return 0

        async def endless() -> int:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
            return 0

        for _ in range(MIN_SAMPLES):
            await hedges.send("put", fast, lambda _: Verdict.FINAL)
        call = asyncio.ensure_future(hedges.send("put", endless, lambda _: Verdict.FINAL))
        await asyncio.sleep(1.0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run_virtually(main)
    assert cancelled == [1, 1]


def test_an_attempt_that_was_given_up_is_counted() -> None:
    async def main() -> Attempts[int]:
        hedges = Hedges(share=1.0)
        delays = iter([USUAL_S] * MIN_SAMPLES + [SLOW_S, USUAL_S])

        async def attempt() -> int:
            delay = next(delays)
            await asyncio.sleep(delay)
            return int(delay == SLOW_S)

        for _ in range(MIN_SAMPLES):
            await hedges.send("put", attempt, lambda _: Verdict.FINAL)
        return await hedges.send("put", attempt, lambda _: Verdict.FINAL)

    assert run_virtually(main) == Attempts([0], unanswered=1)


def test_an_error_of_an_attempt_is_the_error_of_the_call() -> None:
    async def main() -> None:
        async def attempt() -> int:
            raise StoreUnavailable("closed")

        with pytest.raises(StoreUnavailable):
            await Hedges().send("put", attempt, lambda _: Verdict.FINAL)

    run_virtually(main)


def test_the_percentile_follows_what_is_recent() -> None:
    durations = RecentDurations()
    for _ in range(MIN_SAMPLES - 1):
        durations.add(1.0)
    assert durations.percentile_s is None
    durations.add(1.0)
    assert durations.percentile_s == 1.0
    for _ in range(1000):
        durations.add(3.0)
    assert durations.percentile_s == 3.0
