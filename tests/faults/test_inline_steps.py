"""Batches inside of journal entries: whichever call of a store fails or is the last of a process while they
are moved, and while the journal is pruned, every record stays readable, and the rest is moved next."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from _pytest.mark.structures import ParameterSet

from adapters.blobs.memory import MemoryBlobs
from gateway.coordination.journal import OwnershipLost
from ledger.batch.header import walk
from ledger.errors import StoreError
from ledger.ports import BlobInfo, Blobs
from ledger.types import Buffer
from tests.support.faulty import EVERY_FAULT, Call, Fault, Faults, FaultyBlobs, FaultyMetadata
from tests.support.held_stores import Death, Deaths
from tests.support.inline_world import InlineHost, far_metadata, stored_values

MAX_CALLS = 60
PARTITIONS = 2
DEATH_S = 0.3
SHORT = (Fault.ERROR_AFTER, Fault.LATE)


class Switched:
    """Blobs behind which others can be put."""

    durable_ack = True

    def __init__(self, blobs: Blobs) -> None:
        self.present = blobs

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self.present.put(key, parts)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self.present.get(key, start, size)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self.present.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self.present.delete(keys)

    async def close(self) -> None:
        return None


class World:
    def __init__(self) -> None:
        self.metadata, self.blobs = far_metadata(), MemoryBlobs()
        self.sent = 0

    async def host(self) -> InlineHost:
        host = InlineHost(self.metadata, Switched(self.blobs), PARTITIONS)
        return await host.open()

    async def fill(self, host: InlineHost, rounds: int) -> None:
        for _ in range(rounds):
            value = b"%08d" % self.sent
            sent = [host.send(value, partition) for partition in range(PARTITIONS)]
            assert await asyncio.gather(*sent) == [self.sent] * PARTITIONS
            self.sent += 1

    async def begun(self) -> InlineHost:
        """One with two snapshots, a journal that was pruned, and batches inside of entries."""
        host = await self.host()
        for _ in range(3):
            await self.fill(host, 3)
            await host.checkpoint()
        await self.fill(host, 3)
        return host

    async def check(self, host: InlineHost) -> None:
        for partition in range(PARTITIONS):
            data = b"".join(await stored_values(host.shard, self.metadata, self.blobs, partition))
            view = memoryview(data)
            batches = [view[each.position : each.position + each.size_bytes] for each in walk(view)]
            values = [bytes(batch).rstrip(b"\0")[-8:] for batch in batches]
            assert values == [b"%08d" % number for number in range(self.sent)]

    async def check_anew(self) -> None:
        """As a machine with nothing in memory finds it."""
        host = await self.host()
        await self.check(host)
        await host.close()

    async def attempt(self, host: InlineHost, faults: Faults) -> BaseException | None:
        """A move, a snapshot and a prune with these faults. Returns how it ended."""
        assert isinstance(host.blobs, Switched)
        host.journal.store = FaultyMetadata(self.metadata, faults)
        host.blobs.present = FaultyBlobs(self.blobs, faults)
        try:
            await host.checkpoint()
        except (StoreError, OwnershipLost, Death) as error:
            return error
        finally:
            host.journal.store, host.blobs.present = self.metadata, self.blobs
        return None


def faults_of(faults: Sequence[Fault]) -> list[ParameterSet]:
    """All of them; two always run."""
    return [
        pytest.param(fault, id=fault.name, marks=[] if fault in SHORT else [pytest.mark.full])
        for fault in faults
    ]


def methods(calls: Sequence[Call]) -> set[str]:
    return {f"{call.store}.{call.method}" for call in calls}


@pytest.mark.parametrize("fault", faults_of([Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.LATE]))
async def test_a_gateway_dies_at_any_step_and_every_record_is_there(fault: Fault) -> None:
    died_at: list[Call] = []
    for fail_at in range(1, MAX_CALLS):
        world = World()
        host = await world.begun()
        deaths = Deaths(fail_at, fault)
        # A death in a task of the owner leaves without a result what waits for it.
        with suppress(TimeoutError):
            async with asyncio.timeout(DEATH_S):
                await world.attempt(host, deaths)
        died_at += deaths.failed
        await world.check_anew()
        await deaths.arrive()
        await world.check_anew()
        after = await world.host()
        await world.fill(after, 2)
        for _ in range(2):
            await after.checkpoint()
        await world.check(after)
        assert not after.inline_entries
        await after.close()
        await host.close()
        await world.check_anew()
        if not deaths.failed:
            break
    else:
        raise AssertionError("no checkpoint came to its end")
    assert methods(died_at) >= {"blobs.put", "metadata.put", "metadata.delete", "blobs.delete"}


@pytest.mark.parametrize("fault", faults_of(EVERY_FAULT))
async def test_any_step_fails_and_the_next_checkpoint_moves_the_rest(fault: Fault) -> None:
    failed: list[Call] = []
    for fail_at in range(1, MAX_CALLS):
        world = World()
        host = await world.begun()
        faults = Faults(fail_at, fault)
        await world.attempt(host, faults)
        failed += faults.failed
        if host.shard.owner.broken is not None:
            await host.close()
            host = await world.host()
        await world.check(host)
        await world.fill(host, 2)
        await host.checkpoint()
        await faults.arrive()
        await world.check(host)
        assert not host.inline_entries
        await host.close()
        await world.check_anew()
        if not faults.failed:
            break
    else:
        raise AssertionError("no checkpoint came to its end")
    assert methods(failed) >= {"blobs.put", "blobs.get", "metadata.put", "metadata.get", "metadata.delete"}
