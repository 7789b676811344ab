"""A server over real sockets: push-back, budgets of memory, and the connections that are closed for them."""

import asyncio
import struct
from contextlib import AsyncExitStack

import pytest

from gateway.limit_settings import MIB
from gateway.network.pool import PATIENCE_SECONDS, STILL_SECONDS
from tests.support.held_requests import METADATA, PRODUCE, SHORT_S, serving, until


async def test_reading_pauses_while_too_many_requests_are_unanswered() -> None:
    async with serving(requests_in_flight=4) as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, *range(1, 101), body=bytes(3000))
        await until(lambda: len(gateway.requests.started) >= 4)
        await asyncio.sleep(SHORT_S)
        # What arrived in the same receive is taken, never the next receive.
        assert len(gateway.requests.started) <= 4 + 64 * 1024 // 3000
        gateway.requests.released.set()
        assert await client.responses(100) == list(range(1, 101))


async def test_all_connections_together_hold_no_more_than_the_budget() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as large, gateway.client() as small:
        gateway.requests.kept = {1, 2, 3}
        large.send(METADATA, 1, body=bytes(MIB))
        await until(lambda: gateway.requests.started == [1])
        small.send(METADATA, 2)
        await until(lambda: 2 in gateway.requests.started)
        small.send(METADATA, 3, body=bytes(MIB // 4))
        await asyncio.sleep(SHORT_S)
        assert MIB <= gateway.held_bytes() < MIB + 1000
        gateway.requests.released.set()
        assert await large.response() == 1
        assert await small.responses(2) == [2, 3]
        await until(lambda: gateway.held_bytes() == 0)


async def test_unfinished_frames_that_hold_too_much_are_closed_the_oldest_first() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as first, gateway.client() as second:
        # An unfinished frame has room for up to twice what has come of it: 1 MiB each. A quarter more than
        # the budget is allowed.
        part = struct.pack(">i", 10 * MIB) + bytes(MIB * 5 // 8)
        first.writer.write(part)
        await until(lambda: gateway.held_bytes() >= MIB)
        await asyncio.sleep(SHORT_S)
        assert gateway.connections() == 2
        second.writer.write(part)
        assert await first.response() is None
        assert gateway.connections() == 1


async def test_a_muted_client_that_keeps_half_a_frame_is_closed_when_memory_is_short() -> None:
    async with serving(buffer_bytes=MIB) as gateway, gateway.client() as muted, gateway.client() as other:
        gateway.requests.kept, gateway.requests.muting = {1}, {1: 60.0}
        part = struct.pack(">i", 10 * MIB) + bytes(MIB * 5 // 8)
        muted.send(METADATA, 1)
        muted.writer.write(part)
        await until(lambda: gateway.held_bytes() >= MIB)
        gateway.requests.released.set()
        assert await muted.response() == 1
        await asyncio.sleep(SHORT_S)
        other.writer.write(part)
        assert await muted.response() is None
        assert gateway.connections() == 1


async def test_room_for_a_frame_that_grows_is_made_before_it_is_taken() -> None:
    async with serving(buffer_bytes=4 * MIB) as gateway:
        most = 0.0
        async with AsyncExitStack() as stack:
            for _ in range(8):
                client = await stack.enter_async_context(gateway.client())
                client.writer.write(struct.pack(">i", 10 * MIB) + bytes(3 * MIB))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                    most = max(most, gateway.held_bytes())
        assert 3 * MIB <= most <= 5 * MIB


async def test_a_client_that_does_not_read_gets_no_further_request_started() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as client:
        gateway.requests.answer_bytes = 8 * MIB
        client.send(METADATA, *range(1, 11))
        await until(lambda: gateway.held_bytes() > MIB)
        await asyncio.sleep(SHORT_S)
        assert len(gateway.requests.started) <= 3
        assert await client.responses(10) == list(range(1, 11))


async def test_what_a_client_does_not_read_is_held_long_before_reading_pauses_for_it() -> None:
    async with serving(send_bytes=64 * MIB, buffer_bytes=64 * MIB) as gateway, gateway.client() as client:
        client.stop_reading()
        gateway.requests.answer_bytes = MIB // 4
        # The system takes some MiB.
        for number in range(1, 81):
            client.send(METADATA, number)
            await asyncio.sleep(0.002)
        await until(lambda: gateway.held_bytes() >= 2 * MIB)
        client.go_on_reading()
        assert await client.responses(80) == list(range(1, 81))
        await until(lambda: gateway.held_bytes() == 0)


async def test_clients_that_read_nothing_are_closed_when_all_that_they_leave_is_too_much() -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(serving(send_bytes=64 * MIB, buffer_bytes=8 * MIB))
        fine = await stack.enter_async_context(gateway.client())
        gateway.requests.answer_bytes = MIB // 4
        most = 0.0
        for _ in range(8):
            client = await stack.enter_async_context(gateway.client())
            client.stop_reading()
            for number in range(60):
                client.send(METADATA, number)
                await asyncio.sleep(0.001)
                most = max(most, gateway.held_bytes())
        await until(lambda: gateway.connections() < 9 and gateway.held_bytes() <= 8 * MIB)
        assert 2 * MIB < most <= 12 * MIB
        gateway.requests.answer_bytes = 0
        fine.send(METADATA, 1)
        assert await fine.response() == 1


async def test_a_response_holds_its_share_until_its_client_has_read_it_or_is_gone() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as reads, gateway.client() as dies:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 32 * MIB
        reads.send(METADATA, 1)
        dies.send(METADATA, 2)
        await until(lambda: gateway.held_bytes() > 2 * MIB)
        await asyncio.sleep(SHORT_S)
        assert gateway.requests.released_shares == []
        assert await reads.response() == 1
        await until(lambda: gateway.requests.released_shares == [1])
        dies.writer.transport.abort()
        await until(lambda: gateway.requests.released_shares == [1, 2])


async def test_a_response_holds_its_share_while_it_is_encoded() -> None:
    async with serving() as gateway, gateway.client() as reads, gateway.client() as dies:
        gateway.requests.holding, gateway.requests.encoding = True, asyncio.Event()
        reads.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        # A request after it, and two looks of the server at its connections.
        reads.send(METADATA, 3)
        dies.send(METADATA, 2)
        await asyncio.sleep(1.2)
        assert gateway.requests.released_shares == []
        dies.writer.transport.abort()
        await until(lambda: gateway.requests.released_shares == [2])
        gateway.requests.encoding.set()
        assert await reads.responses(2) == [1, 3]
        await until(lambda: gateway.requests.released_shares == [2, 1, 3])


async def test_a_small_response_that_is_sent_at_once_releases_its_share_at_once() -> None:
    async with serving() as gateway, gateway.client() as client:
        gateway.requests.holding = True
        client.send(METADATA, 1)
        assert await client.response() == 1
        await until(lambda: gateway.requests.released_shares == [1])


async def test_only_a_client_that_leaves_responses_unread_while_others_starve_is_closed() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as mute, gateway.client() as fine:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 32 * MIB
        mute.send(METADATA, 1)
        fine.send(METADATA, 2)
        assert await fine.response() == 2
        await asyncio.sleep(PATIENCE_SECONDS + 0.5)
        assert gateway.connections() == 2
        gateway.requests.starving = True
        await until(lambda: gateway.connections() == 1)
        assert sorted(gateway.requests.released_shares) == [1, 2]
        gateway.requests.answer_bytes = 0
        fine.send(METADATA, 3)
        assert await fine.response() == 3


@pytest.mark.serial
async def test_while_others_wait_a_client_that_reads_nothing_is_closed_and_a_slow_one_is_not() -> None:
    async with serving(send_bytes=MIB) as gateway, gateway.client() as still, gateway.client() as slow:
        gateway.requests.holding, gateway.requests.answer_bytes = True, 64 * MIB
        still.send(METADATA, 1)
        slow.send(METADATA, 2)
        await until(lambda: sorted(gateway.requests.started) == [1, 2])
        gateway.requests.waiting = True
        ends_at = asyncio.get_running_loop().time() + STILL_SECONDS + 1.5
        while asyncio.get_running_loop().time() < ends_at:
            assert await slow.reader.read(MIB)
            await asyncio.sleep(SHORT_S)
        assert gateway.connections() == 1
        gateway.requests.waiting = False
        assert gateway.requests.released_shares == [1]
