"""When a job may start a gateway of its own over stores that others can write to."""

import asyncio
from collections.abc import Awaitable, Callable
from os import urandom

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.absence import Absence
from gateway.coordination.damping import SILENT_S, Candidate
from gateway.coordination.life_signs import LifeSigns
from gateway.coordination.mark import newest_mark
from gateway.coordination.marking import Marking
from gateway.coordination.opening import open_shard as open_by_journal
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.recovery import recover
from gateway.coordination.shard import Shard
from gateway.settings import ConfigError
from ledger.cluster.requests import Description
from ledger.errors import StoreLocked
from ledger.partitions.requests import ReserveProducerIds
from ledger.state import LedgerState
from tests.support.virtual_time import run_virtually

NOW_MS = 1_700_000_000_000
GATEWAY = Description("host-1", "PLAINTEXT://host-1:9092", right_until_ms=0)
OF_JOB = Description("host-2", "", right_until_ms=0)


class Place:
    """A metadata store and blobs, with the gateways that came and went."""

    def __init__(self, *, exclusive: bool = False) -> None:
        self.store = MemoryMetadata(exclusive=exclusive)
        self.blobs = MemoryBlobs()
        self.notes: list[str] = []

    @property
    def journal(self) -> MetadataJournal:
        return MetadataJournal(self.store, 0)

    async def begin(
        self,
        described: Description,
        *,
        yields: bool = False,
        verify: Callable[[LedgerState], Awaitable[None]] | None = None,
    ) -> "Begun":
        shard = await open_by_journal(
            self.journal, self.blobs, None, 1, clock, verify=verify, described=described, yields=yields
        )
        scope = OwnerScope(shard)
        scope.add(Marking(shard, self.blobs, clock, urandom))
        scope.add(LifeSigns(shard, Candidate(1, described)))
        await scope.begin()
        return Begun(shard, scope)

    async def verify(self) -> None:
        recovered = await recover(self.journal, None, self.blobs)
        await Absence(self.notes.append).verify(self.journal, self.blobs, recovered.state)


class Begun:
    def __init__(self, shard: Shard, scope: OwnerScope) -> None:
        self.shard = shard
        self._scope = scope

    async def write(self) -> None:
        await self.shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 10.0)

    async def end(self) -> None:
        await self._scope.end()
        await self.shard.close()

    async def die(self) -> None:
        """Without another word: an owner that is broken puts no mark."""
        await self.shard.close()
        await self._scope.end()


def clock() -> int:
    return NOW_MS + int(asyncio.get_running_loop().time() * 1000)


@pytest.mark.parametrize("writes", [0, 3])
def test_an_owner_that_ended_in_order_is_absent(writes: int) -> None:
    async def scenario() -> None:
        place = Place()
        owner = await place.begin(GATEWAY)
        for _ in range(writes):
            await owner.write()
        await owner.end()
        await place.verify()
        assert place.notes == []

    run_virtually(scenario)


@pytest.mark.parametrize("exclusive", [False, True])
def test_where_no_gateway_has_ever_been_a_job_begins_no_ledger(exclusive: bool) -> None:
    """As where the place of the metadata is mistyped."""

    async def scenario() -> None:
        place = Place(exclusive=exclusive)
        with pytest.raises(ConfigError, match="there is no ledger in the metadata store"):
            await place.verify()

    run_virtually(scenario)


def test_an_owner_that_ended_in_order_before_another_began_says_nothing_of_that() -> None:
    async def scenario() -> None:
        place = Place()
        await (await place.begin(GATEWAY)).end()
        later = await place.begin(GATEWAY)
        with pytest.raises(StoreLocked, match="nothing shows that it has ended"):
            await place.verify()
        await later.end()
        await place.verify()

    run_virtually(scenario)


@pytest.mark.parametrize("dies", [False, True])
def test_an_idle_owner_and_one_that_was_killed_look_the_same(dies: bool) -> None:
    async def scenario() -> None:
        place = Place()
        owner = await place.begin(GATEWAY)
        await owner.write()
        # Its mark of what it wrote is no word of its end.
        await asyncio.sleep(120.0)
        _, mark = await newest_mark(place.blobs, 0, owner.shard.state)
        assert mark is not None and mark.entry == owner.shard.state.applied - 1
        if dies:
            await owner.die()
        with pytest.raises(StoreLocked) as refused:
            await place.verify()
        assert str(refused.value).startswith("gateway 1 (host-1, PLAINTEXT://host-1:9092) owns this ledger")
        await owner.end()

    run_virtually(scenario)


def test_a_job_that_was_killed_is_known_by_its_silence() -> None:
    async def scenario() -> None:
        place = Place()
        job = await place.begin(OF_JOB)
        await asyncio.sleep(100.0)
        with pytest.raises(StoreLocked, match="another job runs on this ledger"):
            await place.verify()
        assert len(place.notes) == 1 and "host-2" in place.notes[0]
        await job.die()
        began = asyncio.get_running_loop().time()
        await place.verify()
        assert asyncio.get_running_loop().time() - began >= SILENT_S

    run_virtually(scenario)


def test_where_one_process_alone_can_write_nothing_is_asked() -> None:
    async def scenario() -> None:
        place = Place(exclusive=True)
        owner = await place.begin(GATEWAY)
        await owner.write()
        await place.verify()
        await owner.end()
        # Nor is a mark put for it.
        _, mark = await newest_mark(place.blobs, 0, owner.shard.state)
        assert mark is not None and not mark.has_ended

    run_virtually(scenario)


def test_a_job_yields_to_a_gateway_that_begins_at_the_same_moment() -> None:
    async def scenario() -> None:
        place = Place()
        await (await place.begin(GATEWAY)).end()
        begun: list[Begun] = []

        async def begin_a_gateway(_: LedgerState) -> None:
            # Between the look at the journal and the first entry.
            begun.append(await place.begin(GATEWAY))

        with pytest.raises(StoreLocked, match="a gateway has begun to write this ledger meanwhile"):
            await place.begin(OF_JOB, yields=True, verify=begin_a_gateway)
        (gateway,) = begun
        assert gateway.shard.broken is None
        await gateway.write()
        await gateway.end()

    run_virtually(scenario)
