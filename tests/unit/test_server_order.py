"""A server over real sockets: the order of requests and responses, muting, and failures."""

import asyncio
import struct

import pytest

from gateway.network.pipeline import MAX_AT_ONCE
from gateway.wire.apis import ApiKey
from gateway.wire.errors import Malformed
from tests.support.held_requests import (
    FRAME_BYTES,
    HEARTBEAT,
    JOIN_GROUP,
    LONG_S,
    METADATA,
    PRODUCE,
    SHORT_S,
    serving,
    until,
)
from tests.support.raw import request


async def test_responses_are_sent_in_the_order_of_the_requests() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2, 3])
        gateway.requests.released.set()
        assert await client.responses(3) == [1, 2, 3]


async def test_thousands_of_requests_that_are_answered_at_once_are_answered_in_order() -> None:
    async with serving(requests_in_flight=10_000) as gateway, gateway.client() as client:
        gateway.requests.at_once = range(2, 6_000)
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.send(PRODUCE, *range(2, 6_000))
        client.send(METADATA, 6_000)
        await until(lambda: gateway.held_bytes() > 100_000)
        gateway.requests.released.set()
        assert await client.responses(6_000) == list(range(1, 6_001))


async def test_an_inline_request_starts_when_all_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept, gateway.requests.at_once = {1, 3}, {2, 4, 5}
        client.send(PRODUCE, 1)
        client.send(HEARTBEAT, 2, 3, 4)
        client.send(PRODUCE, 5)
        await until(lambda: gateway.requests.started == [1])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1]
        gateway.requests.kept = {3}
        gateway.requests.released.set()
        assert await client.responses(5) == [1, 2, 3, 4, 5]
        assert gateway.requests.started == [1, 2, 3, 4, 5]


async def test_an_inline_request_that_waits_holds_back_those_after_it() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept, gateway.requests.at_once = {2}, {1, 3, 4}
        client.send(HEARTBEAT, 1, 2, 3)
        client.send(PRODUCE, 4)
        assert await client.response() == 1
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(3) == [2, 3, 4]


async def test_many_inline_requests_of_one_connection_do_not_hold_back_other_connections() -> None:
    async with serving(requests_in_flight=10_000) as gateway, gateway.client() as client:
        last = 4 * MAX_AT_ONCE
        gateway.requests.at_once = range(2, last + 1)
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.send(HEARTBEAT, *range(2, last + 1))
        await until(lambda: gateway.held_bytes() >= last * FRAME_BYTES)
        gateway.requests.released.set()
        assert await client.responses(last) == list(range(1, last + 1))
        assert gateway.requests.max_in_iteration == MAX_AT_ONCE
        assert gateway.held_bytes() == 0


async def test_a_request_that_fails_at_once_closes_after_those_before_it() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.at_once, gateway.requests.failing = {3}, {3: ZeroDivisionError()}
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3, 4)
        await until(lambda: gateway.requests.started == [3, 1, 2])
        gateway.requests.released.set()
        assert await client.responses(3) == [1, 2, None]


async def test_a_request_that_is_not_pipelined_starts_when_all_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2)
        client.send(METADATA, 3, 4)
        client.send(PRODUCE, 5)
        await until(lambda: gateway.requests.started == [1, 2])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(5) == [1, 2, 3, 4, 5]
        assert gateway.requests.started == [1, 2, 3, 4, 5]


async def test_a_request_may_take_its_time_from_when_those_before_it_are_answered() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(JOIN_GROUP, 1)
        client.send(METADATA, 2)
        await until(lambda: gateway.requests.started == [1])
        await asyncio.sleep(SHORT_S)
        released_at = asyncio.get_running_loop().time()
        gateway.requests.released.set()
        assert await client.responses(2) == [1, 2]
        assert gateway.requests.taken_at[2] >= released_at


@pytest.mark.parametrize("before", [PRODUCE, METADATA])
async def test_what_was_sent_before_closing_is_accepted_though_it_had_to_wait(before: ApiKey) -> None:
    async with serving() as gateway:
        async with gateway.client() as client:
            # From then on even Produce requests are taken one by one.
            gateway.requests.muting = {1: 0.01}
            gateway.requests.kept = {2}
            client.send(PRODUCE, 1)
            assert await client.response() == 1
            client.send(before, 2)
            client.send(PRODUCE, 3)
            client.send(METADATA, 4)
            client.send(PRODUCE, 5)
            await until(lambda: gateway.requests.started == [1, 2])
            await asyncio.sleep(SHORT_S)
        await until(lambda: gateway.requests.started == [1, 2, 3, 5])
        gateway.requests.released.set()
        await until(lambda: gateway.connections() == gateway.held_bytes() == 0)
        assert gateway.requests.started == [1, 2, 3, 5]


@pytest.mark.serial
async def test_a_muted_connection_is_answered_at_once_and_served_no_more_for_a_while() -> None:
    async with serving() as gateway, gateway.client() as muted, gateway.client() as other:
        gateway.requests.muting = {1: 0.5}
        began = asyncio.get_running_loop().time()
        muted.send(PRODUCE, 1)
        assert await muted.response() == 1
        muted.send(METADATA, 2, 3)
        other.send(METADATA, 4)
        assert await other.response() == 4
        assert asyncio.get_running_loop().time() - began < 0.4
        assert gateway.requests.started == [1, 4]
        assert await muted.responses(2) == [2, 3]
        assert asyncio.get_running_loop().time() - began >= 0.49


async def test_what_is_here_already_waits_for_the_end_of_the_mute() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.3}
        client.send(METADATA, 1, 2)
        assert await client.response() == 1
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1]
        assert await client.response() == 2


@pytest.mark.serial
async def test_the_longer_of_two_mutes_holds() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.5, 2: 0.1}
        began = asyncio.get_running_loop().time()
        client.send(PRODUCE, 1, 2)
        assert await client.responses(2) == [1, 2]
        client.send(PRODUCE, 3)
        assert await client.response() == 3
        assert asyncio.get_running_loop().time() - began >= 0.49


async def test_after_a_mute_produce_requests_are_taken_one_by_one() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 0.05}
        gateway.requests.kept = {2}
        client.send(PRODUCE, 1)
        assert await client.response() == 1
        client.send(PRODUCE, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2])
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.started == [1, 2]
        gateway.requests.released.set()
        assert await client.responses(2) == [2, 3]


async def test_a_mute_lasts_for_half_the_idle_time_at_most() -> None:
    async with serving(idle_ms=1000) as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 60.0}
        client.send(METADATA, 1, 2)
        assert await client.responses(2) == [1, 2]


async def test_a_draining_server_completes_what_a_muted_connection_has_sent() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.muting = {1: 60.0}
        client.send(METADATA, 1, 2)
        assert await client.response() == 1
        closing_server = asyncio.create_task(gateway.server.close())
        assert await client.responses(2) == [2, None]
        await asyncio.wait_for(closing_server, LONG_S)


async def test_connections_do_not_wait_for_each_other() -> None:
    async with serving() as gateway, gateway.client() as slow, gateway.client() as quick:
        gateway.requests.kept = {1}
        slow.send(METADATA, 1)
        quick.send(METADATA, 2)
        assert await quick.response() == 2


@pytest.mark.parametrize(
    "refused",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        request(999, 0),
        request(METADATA, 99),
        struct.pack(">ihhih", 10, METADATA, 0, 2, 100),
    ],
    ids=["negative size", "no size", "huge size", "unknown API", "unknown version", "cut-off client id"],
)
async def test_a_request_that_breaks_the_rules_closes_its_connection_after_earlier_responses(
    refused: bytes,
) -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as other:
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        client.writer.write(refused)
        client.send(METADATA, 2)
        await until(lambda: gateway.requests.started == [1])
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        assert gateway.requests.started == [1]
        other.send(METADATA, 3)
        assert await other.response() == 3


@pytest.mark.parametrize("failure", [Malformed("half a string"), RuntimeError("a bug")])
async def test_a_request_that_fails_closes_its_connection_and_no_other(failure: Exception) -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as other:
        gateway.requests.failing = {2: failure}
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1, 2, 3)
        await until(lambda: gateway.requests.started == [1, 2, 3])
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        other.send(METADATA, 4)
        assert await other.response() == 4
