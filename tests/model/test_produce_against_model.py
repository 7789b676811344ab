"""Any interleaving of drafts and commits that win, fail, are unknown or stale: invariants 1, 2 and 3.

One seed is one history on virtual time (`tests/model/produce.py`). In the end what is stored is compared with
what every client was sent as a response.
"""

import asyncio
import os
from collections import defaultdict
from functools import partial

import pytest
from structlog.testing import capture_logs

from ledger.batch.header import read_header
from tests.model.produce import MAX_WAITING, PARTITIONS, UNCERTAIN, IdempotentClient, World, plain_client
from tests.support.virtual_time import run_virtually

SEEDS = 3_000 if os.environ.get("DRAGOMAN_TEST_FULL") else 80
CLIENTS = 4
DISTURBED_S = 2.0


async def history(seed: int, is_placing: bool) -> tuple[World, list[list[tuple[int, bytes]]]]:
    """The world in the end, and what is stored in each partition."""
    world = World(seed, is_placing=is_placing)
    await world.begin_life()
    is_over = False

    async def go_on() -> None:
        while not is_over:
            if world.choose.random() < 0.7:
                await IdempotentClient(world).run()
            else:
                await plain_client(world)

    clients = [asyncio.create_task(go_on()) for _ in range(CLIENTS)]
    disturbing = asyncio.create_task(world.disturb())
    await asyncio.sleep(DISTURBED_S)
    is_over = world.chance.calm = True
    async with asyncio.timeout(300):
        await disturbing
        await world.calm_down()
        await asyncio.gather(*clients)
    await world.end_life(world.life)
    await world.begin_life()
    found = [await world.stored(partition) for partition in range(PARTITIONS)]
    await world.end_life(world.life)
    return world, found


def check_acknowledged(world: World, found: list[list[tuple[int, bytes]]]) -> None:
    """Every acknowledged batch is there, at the offset that its client was sent: itself, or the attempt of it
    that was stored first."""
    for attempt, base in world.acks:
        stored = dict(found[attempt.partition])[base]
        header, own = read_header(memoryview(stored)), read_header(memoryview(attempt.data))
        if own.producer_id < 0:
            assert stored == attempt.data
        assert (header.producer_id, header.base_sequence, header.record_count) == (
            own.producer_id,
            own.base_sequence,
            own.record_count,
        )


def check_failed(world: World, found: list[list[tuple[int, bytes]]]) -> None:
    """No attempt is stored twice, and none whose response was a certain failure."""
    stored = [data for batches in found for _, data in batches]
    assert len(set(stored)) == len(stored)
    sent = {attempt.data: attempt for attempt in world.attempts}
    for data in stored:
        error = sent[data].pending.error
        assert error is None or error == UNCERTAIN, (error, sent[data].pending.message)
    for attempt in world.attempts:
        assert attempt.pending.error != "UNKNOWN_SERVER_ERROR"


def check_sequences(world: World, found: list[list[tuple[int, bytes]]]) -> None:
    """Of each producer the stored sequences have no gap, and nothing comes twice."""
    clients = {client.producer_id: client for client in world.finished}
    index_of: dict[int, int] = defaultdict(int)
    for batches in found:
        for _, data in batches:
            header = read_header(memoryview(data))
            if header.producer_id < 0:
                continue
            client = clients[header.producer_id]
            assert header.base_sequence == client.sequence(index_of[header.producer_id])
            index_of[header.producer_id] += 1
    for producer_id, client in clients.items():
        if client.is_done:
            assert index_of[producer_id] == len(client.counts)


def check_order(world: World, found: list[list[tuple[int, bytes]]]) -> None:
    """Batches without sequences are in the order in which one gateway accepted them."""
    sent = {attempt.data: attempt for attempt in world.attempts}
    for batches in found:
        newest: dict[int, int] = defaultdict(int)
        for _, data in batches:
            attempt = sent[data]
            if read_header(memoryview(data)).producer_id < 0:
                assert attempt.position > newest[attempt.life]
                newest[attempt.life] = attempt.position


def check_attempts(world: World) -> None:
    """No write begins with a batch whose request has been answered."""
    sent = {attempt.data: attempt for attempt in world.attempts}
    for began_at, batches in world.segments.begun:
        for data in batches:
            given_up_at = sent[data].given_up_at
            assert given_up_at is None or given_up_at >= began_at


@pytest.mark.parametrize("is_placing", [False, True], ids=["stored", "placed"])
@pytest.mark.parametrize("part", range(10))
def test_at_every_interleaving_the_stored_batches_are_those_that_were_acknowledged_in_order(
    part: int, is_placing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The histories change it.
    monkeypatch.setattr("gateway.coordination.owner.MAX_WAITING", MAX_WAITING)
    acks = placed = 0
    for seed in range(part, SEEDS, 10):
        with capture_logs():
            try:
                world, found = run_virtually(partial(history, seed, is_placing))
            except TimeoutError as error:
                raise AssertionError(f"seed {seed}: a client never gets its batches stored") from error
        try:
            check_acknowledged(world, found)
            check_failed(world, found)
            check_sequences(world, found)
            check_order(world, found)
            check_attempts(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        acks += len(world.acks)
        placed += world.placed
    assert acks > 20 * SEEDS / 10
    assert bool(placed) is is_placing
