"""A gateway that was replaced learns it within a second, and says by whom."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from adapters.journals.metadata import entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.journal import OwnershipLost
from gateway.coordination.ownership_watch import OwnershipWatch
from gateway.coordination.shard import Shard
from ledger.cluster.requests import Description
from ledger.errors import StoreUnavailable
from ledger.partitions.requests import ReserveProducerIds
from tests.support.held_stores import HeldMetadata
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

NOW_MS = 1_000_000
OTHER = Description("host-b", "PLAINTEXT://b.example:9092", right_until_ms=NOW_MS)


class Gateway:
    def __init__(self, shard: Shard, store: HeldMetadata) -> None:
        self.shard = shard
        self.store = store
        self.clients = 1
        watch = OwnershipWatch(shard, lambda: self.clients > 0)
        self.watching = asyncio.create_task(watch.run())

    @property
    def looks(self) -> int:
        """Reads of the next entry."""
        key = entry_key(0, self.shard.state.applied)
        return self.store.read_keys.count(key)


async def opened(store: MemoryMetadata) -> Gateway:
    held = HeldMetadata(store)
    shard = await open_shard(held, None, None, 1, lambda: NOW_MS)
    held.read_keys.clear()
    return Gateway(shard, held)


async def replaced(store: MemoryMetadata, described: Description | None = OTHER) -> Shard:
    return await open_shard(store, None, None, 2, lambda: NOW_MS, described=described)


def lived(main: Coroutine[Any, Any, None]) -> None:
    run_virtually(lambda: main)


@pytest.mark.parametrize(("exclusive", "clients", "looks"), [(False, 1, 60), (False, 0, 0), (True, 1, 0)])
def test_the_next_entry_is_read_once_a_second_while_a_client_is_connected(
    exclusive: bool, clients: int, looks: int
) -> None:
    async def main() -> None:
        gateway = await opened(MemoryMetadata(exclusive=exclusive))
        gateway.clients = clients
        await asyncio.sleep(60.5)
        assert gateway.looks == looks

    lived(main())


def test_what_is_appended_is_a_look() -> None:
    async def main() -> None:
        gateway = await opened(MemoryMetadata(exclusive=False))
        for _ in range(60):
            await gateway.shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
            await asyncio.sleep(0.9)
        numbers = range(gateway.shard.state.applied + 1)
        assert not {entry_key(0, number) for number in numbers} & set(gateway.store.read_keys)

    lived(main())


def test_a_first_client_is_noticed_within_a_second() -> None:
    async def main() -> None:
        store = MemoryMetadata(exclusive=False)
        gateway = await opened(store)
        gateway.clients = 0
        await replaced(store)
        await asyncio.sleep(100.3)
        assert gateway.shard.broken is None
        gateway.clients = 1
        await asyncio.sleep(1.01)
        assert gateway.shard.lost.is_set()

    lived(main())


def test_a_replaced_gateway_learns_it_within_a_second_and_names_the_other() -> None:
    async def main() -> None:
        store = MemoryMetadata(exclusive=False)
        gateway = await opened(store)
        await asyncio.sleep(7.3)
        await replaced(store)
        async with asyncio.timeout(1.01):
            await gateway.shard.lost.wait()
        assert isinstance(gateway.shard.broken, OwnershipLost)
        named = "gateway 2 (host-b, PLAINTEXT://b.example:9092), as of epoch 2 from entry 1 on,"
        assert gateway.shard.owner.successor == named
        assert named in gateway.shard.why_not

    lived(main())


def test_a_store_that_is_out_of_reach_is_looked_at_again_and_again() -> None:
    async def main() -> None:
        store = MemoryMetadata(exclusive=False)
        gateway = await opened(store)
        failing = Failing(gateway.store, gateway.shard)
        await asyncio.sleep(30)
        assert 20 <= failing.failed <= 31 and gateway.shard.broken is None
        failing.is_over = True
        await replaced(store)
        async with asyncio.timeout(1.01):
            await gateway.shard.lost.wait()

    lived(main())


class Failing:
    """Reads fail until `is_over`."""

    def __init__(self, store: HeldMetadata, shard: Shard) -> None:
        self.failed, self.is_over = 0, False
        get = store.get

        async def fail(key: str) -> Any:
            if self.is_over:
                return await get(key)
            self.failed += 1
            raise StoreUnavailable("out of reach")

        store.get = fail  # type: ignore[method-assign]


@pytest.mark.parametrize(("described", "name"), [(None, "gateway 2"), (OTHER, "gateway 2 (host-b, ")])
def test_what_is_in_flight_fails_retriably_before_the_other_is_named(
    described: Description | None, name: str
) -> None:
    async def main() -> None:
        store = MemoryMetadata(exclusive=False)
        gateway = await opened(store)
        await replaced(store, described)
        gateway.store.scans.shut()
        pending = gateway.shard.submit(ReserveProducerIds(1))
        with pytest.raises(StoreUnavailable, match="was written by another gateway"):
            await pending
        await gateway.store.scans.until_held()
        assert not gateway.shard.lost.is_set()
        assert isinstance(gateway.shard.submit(ReserveProducerIds(1)).exception(), StoreUnavailable)
        gateway.store.scans.open()
        await gateway.shard.lost.wait()
        assert gateway.shard.owner.successor.startswith(name)

    lived(main())


def test_a_journal_that_cannot_be_read_names_nobody_and_delays_the_end_by_seconds_alone() -> None:
    async def main() -> None:
        store = MemoryMetadata(exclusive=False)
        gateway = await opened(store)
        await replaced(store)
        gateway.store.scans.shut()
        async with asyncio.timeout(6.1):
            await gateway.shard.lost.wait()
        assert not gateway.shard.owner.successor and isinstance(gateway.shard.broken, OwnershipLost)

    lived(main())
