"""Pins of jobs that have died are released after ten minutes of the owner's own clock."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.housekeeping.pins import EXPIRY_MS, PinExpiry
from gateway.internal import pin
from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.messages.internal.pin import PinRequest
from ledger.swaps.requests import Pinned, TakePin
from ledger.swaps.state import Pins
from tests.support.embedded import WAIT_S, Clock, Embedded

JOB, OTHER = b"j" * 16, b"o" * 16


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, Clock()) as opened:
        yield opened


class Watched:
    """A shard with pins, and what expires them on a clock of its own."""

    def __init__(self, host: Embedded) -> None:
        self.host = host
        self.elapsed_ms = 1_000
        self.expiry = PinExpiry(host.shard, lambda: self.elapsed_ms, host.loop_time, WAIT_S)

    async def pin(self, job: bytes) -> None:
        assert isinstance(await self.host.ask(TakePin(job)), Pinned)
        self.expiry.renew(job)

    async def expire_after(self, passed_ms: int) -> int:
        self.elapsed_ms += passed_ms
        return await self.expiry.expire()

    @property
    def pins(self) -> set[bytes]:
        return set(self.host.shard.state.part(Pins))


async def test_a_pin_that_is_renewed_stays_and_another_goes_after_ten_minutes(host: Embedded) -> None:
    watched = Watched(host)
    await watched.pin(JOB)
    await watched.pin(OTHER)
    assert await watched.expire_after(EXPIRY_MS - 1) == 0
    watched.expiry.renew(OTHER)
    assert await watched.expire_after(1) == 1
    assert watched.pins == {OTHER}
    assert await watched.expire_after(EXPIRY_MS) == 1
    assert watched.pins == set()


async def test_the_clock_of_the_host_and_of_the_journal_have_no_effect(host: Embedded) -> None:
    watched = Watched(host)
    await watched.pin(JOB)
    host.clock.now_ms += 100 * EXPIRY_MS
    assert await watched.expire_after(1) == 0


async def test_pins_that_an_earlier_epoch_has_left_have_the_full_time_again(host: Embedded) -> None:
    watched = Watched(host)
    await watched.pin(JOB)
    watched.elapsed_ms += EXPIRY_MS - 1
    await watched.expiry.begin_epoch()
    await watched.expiry.end_epoch()
    assert await watched.expire_after(1) == 0
    assert await watched.expire_after(EXPIRY_MS - 1) == 0
    assert await watched.expire_after(1) == 1


async def test_a_renewal_of_a_pin_that_is_gone_is_forgotten(host: Embedded) -> None:
    watched = Watched(host)
    watched.expiry.renew(JOB)
    assert await watched.expire_after(EXPIRY_MS) == 0
    await watched.pin(JOB)
    assert await watched.expire_after(EXPIRY_MS - 1) == 0


async def test_a_pin_that_is_renewed_while_another_is_released_stays(host: Embedded) -> None:
    watched = Watched(host)
    for job in (JOB, OTHER):
        await watched.pin(job)
    watched.elapsed_ms += EXPIRY_MS
    expiring = asyncio.ensure_future(watched.expiry.expire())
    await asyncio.sleep(0)
    # The request for the first is submitted by now.
    watched.expiry.renew(OTHER)
    assert await expiring == 1
    assert watched.pins == {OTHER}


async def test_no_floor_is_asked_for_that_a_pin_does_not_let_pass(host: Embedded) -> None:
    watched = Watched(host)
    await watched.pin(JOB)
    pinned_ms = host.shard.state.objects.pinned_ms
    host.clock.now_ms += 10 * EXPIRY_MS
    await host.garbage.sweep(host.loop_time)
    assert host.shard.state.objects.floor_ms <= pinned_ms
    entries = host.shard.state.applied
    await host.garbage.sweep(host.loop_time)
    assert host.shard.state.applied == entries


async def test_a_pin_does_not_expire_between_a_request_and_its_result(host: Embedded) -> None:
    """Else the job would be told that it has what is gone."""
    watched = Watched(host)
    await watched.pin(JOB)
    watched.elapsed_ms += EXPIRY_MS
    access = ShardAccess(host.shard, "file:data", watched.expiry)
    context = cast(RequestContext, SimpleNamespace(deadline=lambda _: host.deadline()))
    renewing = asyncio.ensure_future(pin.handle(access, context, PinRequest(JOB, False, 1_000)))
    await asyncio.sleep(0)
    assert await watched.expiry.expire() == 0
    response = await renewing
    assert (response.error_code, watched.pins) == (0, {JOB})
