"""A server over real sockets: the end of connections and of the server."""

import asyncio

import pytest

from gateway.addresses import Address, Binding
from gateway.network.acceptor import ListenFailed
from gateway.network.server import Server
from gateway.settings import Limits
from gateway.telemetry.metrics import Metrics
from tests.support.held_requests import (
    HEARTBEAT,
    JOIN_GROUP,
    LONG_S,
    METADATA,
    PRODUCE,
    SHORT_S,
    HeldRequests,
    serving,
    until,
)


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async with serving(idle_ms=1000) as gateway, gateway.client() as idle, gateway.client() as waiting:
        gateway.requests.kept = {1}
        waiting.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        assert await idle.response() is None
        await asyncio.sleep(SHORT_S)
        gateway.requests.released.set()
        assert await waiting.response() == 1


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with serving(connections=1) as gateway, gateway.client() as first:
        first.send(METADATA, 1)
        assert await first.response() == 1
        async with gateway.client() as second:
            assert await second.response() is None
        first.send(METADATA, 2)
        assert await first.response() == 2


async def test_a_lost_connection_ends_its_requests_but_not_what_it_has_produced() -> None:
    async with serving() as gateway:
        gateway.requests.kept = {1, 2}
        async with gateway.client() as producer, gateway.client() as searcher:
            producer.send(PRODUCE, 1)
            searcher.send(METADATA, 2)
            await until(lambda: sorted(gateway.requests.started) == [1, 2])
        await until(lambda: gateway.connections() == 0)
        await until(lambda: gateway.requests.cancelled == [2])
        assert gateway.held_bytes() > 0
        gateway.requests.released.set()
        await until(lambda: gateway.held_bytes() == 0)
        assert gateway.requests.cancelled == [2]


async def test_a_lost_connection_ends_its_inline_request() -> None:
    async with serving() as gateway:
        gateway.requests.kept = {1}
        async with gateway.client() as client:
            client.send(HEARTBEAT, 1, 2)
            await until(lambda: gateway.requests.started == [1])
        await until(lambda: gateway.requests.cancelled == [1])
        await until(lambda: gateway.held_bytes() == 0 and gateway.connections() == 0)
        assert gateway.requests.started == [1]


async def test_a_stop_answers_requests_under_way_and_accepts_no_new_ones() -> None:
    async with serving() as gateway, gateway.client() as client, gateway.client() as idle:
        gateway.requests.kept = {1}
        client.send(METADATA, 1)
        await until(lambda: gateway.requests.started == [1])
        closing_server = asyncio.create_task(gateway.server.close())
        assert await idle.response() is None
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", gateway.server.bound[0].port)
        client.send(METADATA, 2)
        gateway.requests.released.set()
        assert await client.responses(2) == [1, None]
        await closing_server
        assert gateway.requests.started == [1]


async def test_a_stop_cuts_off_what_outlasts_the_drain() -> None:
    async with serving(drain_ms=50) as gateway, gateway.client() as client:
        gateway.requests.kept = {1}
        client.send(PRODUCE, 1)
        await until(lambda: gateway.requests.started == [1])
        await gateway.server.close()
        assert gateway.requests.cancelled == [1]
        assert await client.response() is None


async def test_a_stop_does_not_wait_for_ever_for_what_a_lost_connection_has_left() -> None:
    async with serving(drain_ms=50) as gateway:
        gateway.requests.kept = {1}
        async with gateway.client() as client:
            client.send(PRODUCE, 1)
            await until(lambda: gateway.requests.started == [1])
        await until(lambda: gateway.connections() == 0)
        async with asyncio.timeout(LONG_S):
            await gateway.server.close()
        assert gateway.requests.cancelled == [1]


async def test_a_port_in_use_is_refused_with_the_flag_to_change() -> None:
    async with serving() as gateway:
        taken = Address("127.0.0.1", gateway.server.bound[0].port)
        second = Server(Limits(), HeldRequests(), Metrics())
        with pytest.raises(ListenFailed, match="--listen") as refusal:
            await second.listen([Binding("PLAINTEXT", taken, taken)])
        assert refusal.value.in_use


async def test_a_host_that_is_not_here_is_refused() -> None:
    absent = Address("192.0.2.1", 0)
    server = Server(Limits(), HeldRequests(), Metrics())
    with pytest.raises(ListenFailed, match="--listen") as refusal:
        await server.listen([Binding("PLAINTEXT", absent, absent)])
    assert not refusal.value.in_use


async def test_a_request_that_does_not_end_loses_its_connection_unless_it_waits_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.network.server.REQUEST_GRACE_SECONDS", 0.0)
    async with serving(request_timeout_ms=1000, idle_ms=1000) as gateway, gateway.client() as stuck:
        async with gateway.client() as may_park:
            gateway.requests.kept = {1, 2}
            may_park.send(JOIN_GROUP, 1)
            stuck.send(METADATA, 2)
            assert await stuck.response() is None
            await asyncio.sleep(0.6)
            gateway.requests.released.set()
            assert await may_park.response() == 1
