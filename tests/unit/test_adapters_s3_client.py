"""Requests to a bucket in virtual time: what is sent again, what an outcome means, that every call ends."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import MAX_VALUE_BYTES, S3Metadata
from adapters.retries import BUDGET, MAX_TRIES
from adapters.s3.client import Limits, S3Client
from adapters.s3.transport import PAGE
from ledger.errors import AlreadyExists, OutcomeUnknown, StoreUnavailable
from ledger.ports import Lost, Unknown, Won
from tests.support.s3_transport import Answer, MemoryTransport, Trouble
from tests.support.virtual_time import run_virtually

T = TypeVar("T")
OWN_KEY = f"wal/0/{uuid.UUID('018bcfe5-6800-7000-8000-000000000000')}"
MIB = 1024 * 1024
UNHEDGED = Limits(hedge_share=0.0)
AFTER_EFFECT = [Trouble.LOST, Trouble.ERROR_AFTER]
BEFORE_EFFECT = [Trouble.CUT, Trouble.SLOW_DOWN, Trouble.CONFLICT]


def run(
    act: Callable[[S3Client], Coroutine[Any, Any, T]], transport: MemoryTransport, limits: Limits = UNHEDGED
) -> T:
    return run_virtually(lambda: act(S3Client(transport, "s3://bucket/", limits, dice=lambda: 0.5)))


def planned(*troubles: Trouble) -> MemoryTransport:
    transport = MemoryTransport()
    transport.plan.extend(Answer(trouble) for trouble in troubles)
    return transport


@pytest.mark.parametrize("trouble", BEFORE_EFFECT)
def test_a_put_that_failed_before_its_effect_is_sent_again_and_done(trouble: Trouble) -> None:
    transport = planned(trouble, trouble)
    run(lambda client: S3Blobs(client).put("a", [b"one"]), transport)
    assert transport.objects == {"a": b"one"}
    assert transport.sent == ["put a"] * 3


@pytest.mark.parametrize("trouble", AFTER_EFFECT)
def test_the_repeat_of_a_put_under_an_own_uuid_that_meets_itself_is_done(trouble: Trouble) -> None:
    transport = planned(trouble)
    run(lambda client: S3Blobs(client).put(OWN_KEY, [b"one"]), transport)
    assert transport.sent == [f"put {OWN_KEY}"] * 2


@pytest.mark.parametrize("trouble", AFTER_EFFECT)
def test_the_repeat_of_any_other_put_is_done_if_the_bytes_are_its_own(trouble: Trouble) -> None:
    transport = planned(trouble)
    run(lambda client: S3Blobs(client).put("a", [b"one"]), transport)
    assert transport.sent == ["put a", "put a", "get a"]


def test_the_repeat_of_a_put_that_meets_other_bytes_is_refused() -> None:
    transport = planned(Trouble.CUT)
    transport.objects["a"] = b"other"
    with pytest.raises(AlreadyExists):
        run(lambda client: S3Blobs(client).put("a", [b"one"]), transport)
    assert transport.objects["a"] == b"other"


def test_a_first_refusal_of_a_create_is_certain_also_under_a_uuid() -> None:
    transport = planned()
    transport.objects[OWN_KEY] = b"other"
    with pytest.raises(AlreadyExists):
        run(lambda client: S3Blobs(client).put(OWN_KEY, [b"one"]), transport)
    assert len(transport.sent) == 1


def test_metadata_of_which_a_first_attempt_may_have_been_written_is_unknown() -> None:
    transport = planned(Trouble.LOST)

    async def act(client: S3Client) -> None:
        store = S3Metadata(client)
        assert isinstance(await store.put("a", b"mine", None), Unknown)
        found = await store.get("a")
        assert found is not None
        assert found.value == b"mine"
        # A version that another call has replaced.
        transport.plan.append(Answer(Trouble.LOST))
        assert isinstance(await store.put("a", b"newer", found.version), Unknown)
        assert await store.put("a", b"third", found.version) == Lost()

    run(act, transport)


def test_metadata_that_is_refused_at_once_is_lost() -> None:
    transport = planned()
    transport.objects["a"] = b"other"
    assert run(lambda client: S3Metadata(client).put("a", b"mine", None), transport) == Lost()


@pytest.mark.parametrize("trouble", BEFORE_EFFECT)
def test_metadata_that_was_not_written_at_first_is_won(trouble: Trouble) -> None:
    outcome = run(lambda client: S3Metadata(client).put("a", b"mine", None), planned(trouble))
    assert isinstance(outcome, Won)


def test_a_conflict_that_lasts_is_an_unknown_outcome() -> None:
    transport = planned(*[Trouble.CONFLICT] * MAX_TRIES)
    outcome = run(lambda client: S3Metadata(client).put("a", b"mine", None), transport)
    assert isinstance(outcome, Unknown)
    assert "409" in outcome.reason


def test_a_store_that_always_fails_leaves_a_put_unknown_and_a_read_without_effect() -> None:
    transport = planned(*[Trouble.SLOW_DOWN] * 2 * MAX_TRIES)

    async def act(client: S3Client) -> None:
        with pytest.raises(OutcomeUnknown, match=r"s3://bucket/.*503"):
            await S3Blobs(client).put("a", [b"one"])
        with pytest.raises(StoreUnavailable, match=r"s3://bucket/.*503"):
            await S3Blobs(client).get("a")

    run(act, transport)
    assert transport.sent == ["put a"] * MAX_TRIES + ["get a"] * MAX_TRIES


def test_what_the_store_refuses_for_good_is_not_sent_again_and_names_the_right() -> None:
    transport = planned(Trouble.DENIED)
    with pytest.raises(StoreUnavailable, match="s3:PutObject"):
        run(lambda client: S3Blobs(client).put("a", [b"one"]), transport)
    assert transport.sent == ["put a"]


def test_a_refusal_for_good_after_an_attempt_of_unknown_outcome_is_unknown() -> None:
    transport = planned(Trouble.LOST, Trouble.DENIED)
    with pytest.raises(OutcomeUnknown):
        run(lambda client: S3Blobs(client).put("a", [b"one"]), transport)


def test_retries_end_when_their_budget_is_spent() -> None:
    transport = planned(*[Trouble.SLOW_DOWN] * 1000)

    async def act(client: S3Client) -> None:
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await client.get("a")

    run(act, transport)
    assert len(transport.sent) == 100 + int(BUDGET)


def test_a_call_that_is_never_answered_ends_at_its_deadline() -> None:
    transport = MemoryTransport(usual_s=1e6)

    async def act(client: S3Client) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        with pytest.raises(OutcomeUnknown, match="within 30 s"):
            await S3Blobs(client).put("a", [b"one"])
        put_s = loop.time()
        with pytest.raises(StoreUnavailable, match="within 30 s"):
            await S3Blobs(client).get("a")
        return put_s, loop.time() - put_s

    took = run(act, transport)
    assert took == pytest.approx((30.0, 30.0), abs=0.01)


def test_an_attempt_without_an_answer_is_given_up_before_the_call_is() -> None:
    transport = MemoryTransport()
    transport.plan.append(Answer(after_s=1e6))

    async def act(client: S3Client) -> float:
        await S3Blobs(client).put(OWN_KEY, [b"one"])
        return asyncio.get_running_loop().time()

    assert 8.0 <= run(act, transport) < 9.0


def test_a_whole_object_has_the_time_that_its_length_takes() -> None:
    transport = MemoryTransport()
    transport.objects["a"] = bytes(8 * MIB)
    transport.bytes_a_s = 0.125 * MIB

    async def act(client: S3Client) -> tuple[bytes, float]:
        found = await S3Blobs(client).get("a")
        return found, asyncio.get_running_loop().time()

    # No attempt and no call would get so much time for an object without bytes.
    found, took_s = run(act, transport, Limits(attempt_s=61.0, deadline_s=62.0))
    assert found == transport.objects["a"]
    assert took_s == pytest.approx(64.0)
    assert transport.sent == ["get a"]


def test_a_whole_object_that_comes_too_slowly_is_given_up() -> None:
    transport = MemoryTransport()
    transport.objects["a"] = bytes(8 * MIB)
    transport.bytes_a_s = 0.1 * MIB

    async def act(client: S3Client) -> float:
        with pytest.raises(StoreUnavailable, match="within 34 s"):
            await S3Blobs(client).get("a")
        return asyncio.get_running_loop().time()

    assert run(act, transport) == pytest.approx(34.0)


def test_a_whole_object_is_not_compared_with_small_ones() -> None:
    transport = MemoryTransport(usual_s=0.001)
    transport.objects = {"small": b"s", "large": bytes(MIB)}
    transport.bytes_a_s = MIB

    async def act(client: S3Client) -> None:
        for _ in range(200):
            await client.get("small", 0, 1)
        transport.sent.clear()
        await client.get("large")

    run(act, transport, Limits(hedge_share=1.0))
    assert transport.sent == ["get large"]


def test_metadata_that_is_too_long_to_be_our_own_is_named_and_not_read() -> None:
    transport = MemoryTransport()
    transport.objects = {"journal/0/a": bytes(MAX_VALUE_BYTES), "journal/0/b": bytes(MAX_VALUE_BYTES + 1)}
    transport.bytes_a_s = MIB

    async def act(client: S3Client) -> float:
        store = S3Metadata(client)
        assert await store.get("journal/0/a") is not None
        read_s = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable, match=r"get journal/0/b failed, .*another program put it there"):
            await store.get("journal/0/b")
        return asyncio.get_running_loop().time() - read_s

    assert run(act, transport, Limits(attempt_s=60.0, hedge_share=0.0)) == 0.0
    assert transport.sent == ["get journal/0/a", "get journal/0/b"]


def test_a_delete_that_is_refused_after_its_first_page_is_of_unknown_outcome() -> None:
    transport = planned(Trouble.NONE, Trouble.DENIED)
    keys = [f"{number:04}" for number in range(PAGE + 1)]
    transport.objects = dict.fromkeys(keys, b"v")
    with pytest.raises(OutcomeUnknown, match=r"s3:DeleteObject for \* \(1000 others are deleted\)"):
        run(lambda client: S3Blobs(client).delete(keys), transport)
    assert list(transport.objects) == keys[PAGE:]
    transport.plan.append(Answer(Trouble.DENIED))
    with pytest.raises(StoreUnavailable):
        run(lambda client: S3Blobs(client).delete(keys), transport)


def test_a_put_that_arrives_after_its_repeat_changes_nothing() -> None:
    transport = MemoryTransport()
    transport.plan.append(Answer(Trouble.LATE, after_s=20.0))

    async def act(client: S3Client) -> None:
        store = S3Metadata(client)
        first = await store.put("a", b"mine", None)
        assert isinstance(first, Won)
        assert isinstance(await store.put("a", b"newer", first.version), Won)
        await asyncio.sleep(60.0)
        found = await store.get("a")
        assert found is not None
        assert found.value == b"newer"

    run(act, transport)


def test_more_requests_than_may_wait_are_refused_at_once() -> None:
    transport = MemoryTransport(usual_s=1.0)
    limits = Limits(hedge_share=0.0, at_once=2, max_waiting=5)

    async def act(client: S3Client) -> list[Any]:
        blobs = S3Blobs(client)
        puts = (blobs.put(f"a{number}", [b"x"]) for number in range(8))
        return await asyncio.gather(*puts, return_exceptions=True)

    results = run(act, transport, limits)
    assert results[:5] == [None] * 5
    assert all(isinstance(result, StoreUnavailable) for result in results[5:])
    assert len(transport.objects) == 5


def test_a_put_does_not_wait_for_reads_that_hang() -> None:
    transport = MemoryTransport()
    limits = Limits(hedge_share=0.0, at_once=2, reads_at_once=2)

    async def act(client: S3Client) -> float:
        blobs = S3Blobs(client)
        await blobs.put("a", [b"x"])
        transport.plan += [Answer(after_s=7.0)] * 3
        reads = [asyncio.create_task(blobs.get("a")) for _ in range(3)]
        await asyncio.sleep(0)
        transport.plan.clear()
        await blobs.put("b", [b"x"])
        took_s = asyncio.get_running_loop().time()
        assert await asyncio.gather(*reads) == [b"x"] * 3
        return took_s

    assert run(act, transport, limits) < 1.0


def test_a_closed_store_refuses_and_the_last_one_closes_the_client() -> None:
    closed: list[str] = []

    async def main() -> None:
        client = S3Client(MemoryTransport(), "s3://bucket/", on_close=lambda: closed.append("yes"))
        blobs, metadata = S3Blobs(client), S3Metadata(client)
        await blobs.close()
        await blobs.close()
        assert closed == []
        with pytest.raises(StoreUnavailable):
            await blobs.put("a", [b"x"])
        await metadata.close()

    run_virtually(main)
    assert closed == ["yes"]


def test_the_last_store_that_is_closed_waits_for_the_calls_under_way() -> None:
    closed: list[str] = []

    async def main() -> None:
        transport = MemoryTransport(usual_s=1.0)
        client = S3Client(transport, "s3://bucket/", on_close=lambda: closed.append("yes"))
        blobs = S3Blobs(client)
        put = asyncio.ensure_future(blobs.put("a", [b"x"]))
        await asyncio.sleep(0.5)
        close = asyncio.ensure_future(blobs.close())
        await asyncio.sleep(0.25)
        assert closed == []
        await asyncio.gather(put, close)
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)

    run_virtually(main)
    assert closed == ["yes"]


def test_a_scan_whose_values_are_deleted_meanwhile_goes_on_behind_them() -> None:
    transport = MemoryTransport()
    keys = [f"journal/0/{number:020d}" for number in range(4)]

    async def act(client: S3Client) -> list[str]:
        store = S3Metadata(client)
        for key in keys:
            await store.put(key, key.encode(), None)
        # The listing is answered late; the values that it names first are gone by then.
        transport.plan.append(Answer(after_s=1.0))
        scan = asyncio.ensure_future(store.scan("journal/0/", limit=2))
        await asyncio.sleep(0.5)
        for key in keys[:2]:
            del transport.objects[key]
        return [key for key, _ in await scan]

    assert run(act, transport) == keys[2:]


def test_a_scan_of_which_one_value_is_deleted_meanwhile_is_as_long_as_it_was_asked_to_be() -> None:
    transport = MemoryTransport()
    keys = [f"journal/0/{number:020d}" for number in range(70)]

    async def act(client: S3Client) -> tuple[list[str], list[str]]:
        store = S3Metadata(client)
        for key in keys:
            await store.put(key, key.encode(), None)
        transport.plan.append(Answer(after_s=1.0))
        scan = asyncio.ensure_future(store.scan("journal/0/", limit=64))
        await asyncio.sleep(0.5)
        del transport.objects[keys[3]]
        found = [key for key, _ in await scan]
        transport.sent.clear()
        await store.scan("journal/0/", found[-1])
        # The end of a listing is seen without another one.
        return found, [request for request in transport.sent if request.startswith("list")]

    found, listings = run(act, transport)
    assert found == keys[:3] + keys[4:65]
    assert listings == ["list journal/0/"]
