"""Gateways that replace each other settle: in virtual time, for every seed."""

import asyncio
import random
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination import opening
from gateway.coordination.damping import Candidate, Damping, JournalEnd
from gateway.coordination.life_signs import EVERY_S, LifeSigns
from gateway.coordination.owner_scope import OwnerScope
from gateway.coordination.ownership_watch import OwnershipWatch
from gateway.coordination.recovery import Recovered, recover
from gateway.coordination.shard import Shard
from ledger.cluster.owners import NO_GATEWAY, Epoch, Owners
from ledger.cluster.requests import Description
from ledger.errors import StoreError, StoreUnavailable
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import PutOutcome, Versioned
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

BEGUN_MS = 1_700_000_000_000
WAIT_S = 30.0
SETTLED_S = 180.0
OBSERVED_S = 600.0


class SlowMetadata(MemoryMetadata):
    """Each call takes a while, and has its effect in the middle of that."""

    def __init__(self, choose: random.Random, slowest_s: float) -> None:
        super().__init__(exclusive=False)
        self._choose = choose
        self._slowest_s = slowest_s

    async def get(self, key: str) -> Versioned | None:
        await self._pass()
        found = await super().get(key)
        await self._pass()
        return found

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await self._pass()
        outcome = await super().put(key, value, expect)
        await self._pass()
        return outcome

    async def _pass(self) -> None:
        await asyncio.sleep(self._choose.uniform(0.0, self._slowest_s))


@dataclass
class Contest:
    """One store, and the gateways that want to own its shard."""

    choose: random.Random
    store: MemoryMetadata
    wait_s: float = WAIT_S
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    taken: list[tuple[float, int]] = field(default_factory=list)
    """When each epoch began, and of which supervisor."""
    waiting: dict[int, str] = field(default_factory=dict)
    """By supervisor, why its gateway is not ready."""
    has_clients: bool = True


class Supervised:
    """A gateway that is started again at once whenever it ends, until it is `stopped`."""

    def __init__(self, contest: Contest, number: int, node_id: int, ahead_ms: int) -> None:
        self.contest = contest
        self.number = number
        self.candidate = Candidate(
            node_id, Description(f"host-{number}", "PLAINTEXT://h:1", right_until_ms=0)
        )
        self.ahead_ms = ahead_ms

    def clock(self) -> int:
        return BEGUN_MS + self.ahead_ms + int(asyncio.get_running_loop().time() * 1000)

    def elapsed(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def run(self) -> None:
        while True:
            with suppress(StoreError):
                await self._live()
            # Python, and the proof of the stores.
            await asyncio.sleep(self.contest.choose.uniform(0.1, 3.0))

    @asynccontextmanager
    async def _pages(self, detail: Callable[[], str]) -> AsyncIterator[None]:
        self.contest.waiting[self.number] = detail()
        try:
            yield
        finally:
            del self.contest.waiting[self.number]

    async def _live(self) -> None:
        contest = self.contest
        damping = Damping(self.candidate, contest.wait_s, contest.choose.random, self.clock, self._pages)
        shard = await open_shard(
            contest.store,
            contest.blobs,
            None,
            self.candidate.gateway,
            self.clock,
            elapsed=self.elapsed,
            described=self.candidate.described,
            damping=damping,
        )
        contest.taken.append((asyncio.get_running_loop().time(), self.number))
        scope = OwnerScope(shard)
        scope.add(LifeSigns(shard, self.candidate))
        await scope.begin()
        watch = asyncio.create_task(OwnershipWatch(shard, lambda: contest.has_clients).run())
        try:
            await shard.lost.wait()
        finally:
            watch.cancel()
            await scope.end()
            await shard.close()


def contested(seed: int, gateways: int = 2, *, wait_s: float = WAIT_S, same_id: bool = False) -> Contest:
    """What became of gateways that all want to own a shard, after OBSERVED_S."""
    choose = random.Random(seed)
    contest = Contest(choose, SlowMetadata(choose, choose.choice([0.0, 0.01, 0.4])), wait_s)
    contest.has_clients = seed % 4 != 3

    async def main() -> None:
        running = []
        for number in range(gateways):
            ahead_ms = choose.choice([0, 0, -30_000, 50_000, 600_000])
            one = Supervised(contest, number, 1 if same_id else number, ahead_ms)
            running.append(asyncio.create_task(one.run()))
            await asyncio.sleep(choose.choice([0.0, 0.5, 5.0, 70.0]))
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(OBSERVED_S)
        contest.taken = [(at - began, number) for at, number in contest.taken]
        for task in running:
            task.cancel()
        for task in running:
            with pytest.raises(asyncio.CancelledError):
                await task

    run_virtually(main)
    return contest


@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_two_gateways_that_are_always_restarted_settle_within_three_minutes(seed: int, same_id: bool) -> None:
    contest = contested(seed, same_id=same_id)
    assert contest.taken[-1][0] < SETTLED_S
    assert len(contest.taken) <= 8


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 160))
def test_two_gateways_of_many_more_seeds_settle_too(seed: int) -> None:
    contest = contested(seed, same_id=seed % 2 == 0)
    assert contest.taken[-1][0] < SETTLED_S


@pytest.mark.parametrize("seed", range(4))
def test_three_settle_too(seed: int) -> None:
    assert contested(seed, 3).taken[-1][0] < SETTLED_S


@pytest.mark.parametrize("seed", range(4))
def test_two_that_wait_for_less_than_an_owner_needs_to_show_life_settle_too(seed: int) -> None:
    assert contested(seed, wait_s=5.0).taken[-1][0] < SETTLED_S


def test_without_damping_they_replace_each_other_for_ever() -> None:
    contest = contested(0, wait_s=0.0)
    assert contest.taken[-1][0] > OBSERVED_S - 10 and len(contest.taken) > 100


# One start


class Clock:
    def __call__(self) -> int:
        return BEGUN_MS + int(asyncio.get_running_loop().time() * 1000)


class Starts:
    """Gateways that start over one store, each without a supervisor."""

    def __init__(self, *, exclusive: bool = False) -> None:
        self.store = MemoryMetadata(exclusive=exclusive)
        self.blobs = MemoryBlobs()
        self.reasons: list[str] = []

    @asynccontextmanager
    async def _pages(self, detail: Callable[[], str]) -> AsyncIterator[None]:
        self.reasons.append(detail())
        yield

    async def start(self, number: int) -> Shard:
        """The shard of a gateway once it owns it."""
        candidate = Candidate(number, Description(f"host-{number}", f"PLAINTEXT://h{number}:1"))
        return await open_shard(
            self.store,
            self.blobs,
            None,
            number,
            Clock(),
            described=candidate.described,
            damping=Damping(candidate, WAIT_S, lambda: 0.5, Clock(), self._pages),
        )


def took(main: Callable[[Starts], Coroutine[Any, Any, None]], starts: Starts | None = None) -> float:
    """Virtual seconds."""

    async def timed() -> float:
        await main(starts or Starts())
        return asyncio.get_running_loop().time()

    return run_virtually(timed)


@pytest.mark.parametrize("numbers", [[1], [1, 2], [1, 2, 1], [1, 1, 1, 1, 1], [1, 1, 1, 2, 2]])
def test_one_takeover_by_another_within_a_minute_is_no_reason_to_wait(numbers: list[int]) -> None:
    async def main(starts: Starts) -> None:
        for number in numbers:
            await starts.start(number)
        assert not starts.reasons

    assert took(main) < 1.0


def test_the_epoch_of_a_restore_or_a_move_is_of_no_other_gateway() -> None:
    candidate = Candidate(1, Description("host-1", "PLAINTEXT://h1:1"))
    moved = Epoch(3, NO_GATEWAY, 2_000)
    other = Epoch(2, 1, 1_000, "host-0", "PLAINTEXT://h0:1")
    assert candidate.others([other, moved], 0) == [other]


def test_where_one_process_alone_can_write_nothing_is_damped() -> None:
    async def main(starts: Starts) -> None:
        for number in range(6):
            await starts.start(number)

    assert took(main, Starts(exclusive=True)) < 1.0


def test_takeovers_that_are_long_ago_do_not_count() -> None:
    async def main(starts: Starts) -> None:
        for number in range(6):
            await starts.start(number)
            await asyncio.sleep(31.0)
        assert not starts.reasons

    assert took(main) < 200.0


def test_the_fourth_gateway_within_a_minute_waits_once_and_names_the_owner() -> None:
    async def main(starts: Starts) -> None:
        for number in (1, 2, 3):
            shard = await starts.start(number)
        (reason,) = starts.reasons
        assert "gateway 2 (host-2, PLAINTEXT://h2:1) owns the shard since its epoch 2" in reason
        assert "this gateway waits until 45 s have passed. Run one" in reason
        assert shard.state.part(Owners).epochs[-1].gateway == 3

    assert 45.0 <= took(main) < 46.0


def test_what_was_read_before_a_wait_is_given_back_before_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier: list[weakref.ref[Recovered]] = []
    kept = 0

    async def noted(*stores: Any) -> Recovered:
        nonlocal kept
        kept += sum(one() is not None for one in earlier)
        recovered = await recover(*stores)
        earlier.append(weakref.ref(recovered))
        return recovered

    async def main(starts: Starts) -> None:
        for number in (1, 2):
            await starts.start(number)
        monkeypatch.setattr(opening, "recover", noted)
        await starts.start(3)

    took(main)
    assert len(earlier) == 2 and not kept


async def standby(starts: Starts) -> tuple[asyncio.Task[Shard], Shard]:
    """A gateway that was replaced twice and comes back, and the owner."""
    for number in (2, 1, 2):
        owner = await starts.start(number)
    waiting = asyncio.create_task(starts.start(1))
    await asyncio.sleep(20.0)
    assert "this gateway waits until it has written nothing for 45 s. Run one" in starts.reasons[-1]
    return waiting, owner


def test_a_gateway_that_comes_back_waits_for_as_long_as_the_owner_writes() -> None:
    async def main(starts: Starts) -> None:
        waiting, owner = await standby(starts)
        for _ in range(40):
            await owner.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
            await asyncio.sleep(25.0)
        assert not waiting.done()
        # Then it is dead.
        shard = await waiting
        assert shard.state.applied == 3 + 40 + 1

    assert 1_020.0 + 15.0 <= took(main) <= 1_020.0 + 46.0


def test_an_owner_without_work_shows_life_if_it_was_contested() -> None:
    async def main(starts: Starts) -> None:
        waiting, owner = await standby(starts)
        signs = LifeSigns(owner, Candidate(2, Description("host-2", "PLAINTEXT://h2:1")))
        await signs.begin_epoch()
        await asyncio.sleep(600.0)
        assert not waiting.done() and owner.state.applied == 3 + 600.0 // EVERY_S - 1
        await signs.end_epoch()
        await waiting

    assert took(main) < 680.0


def test_an_owner_that_nobody_contests_writes_nothing_for_show() -> None:
    async def main(starts: Starts) -> None:
        owner = await starts.start(1)
        signs = LifeSigns(owner, Candidate(1, Description("host-1", "PLAINTEXT://h1:1")))
        await signs.begin_epoch()
        await asyncio.sleep(600.0)
        assert owner.state.applied == 1

    took(main)


def test_a_store_that_cannot_be_read_is_no_silence_of_the_owner() -> None:
    async def main(starts: Starts) -> None:
        waiting, _ = await standby(starts)
        get = starts.store.get

        async def fail(key: str) -> Versioned | None:
            raise StoreUnavailable("out of reach")

        starts.store.get = fail  # type: ignore[method-assign]
        await asyncio.sleep(300.0)
        assert not waiting.done()
        starts.store.get = get  # type: ignore[method-assign]
        await waiting

    assert 320.0 + 40.0 <= took(main) <= 320.0 + 51.0


@pytest.mark.parametrize("start", [0, 3])
def test_the_end_of_a_journal_is_found_by_few_reads(start: int) -> None:
    async def main(starts: Starts) -> None:
        shard = await starts.start(1)
        journal = MetadataJournal(starts.store, 0)
        end = JournalEnd(journal, shard.state.applied)
        moved = [await end.has_moved()]
        for count in (1, 2, 3, 4, 300):
            for _ in range(count):
                await shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
            moved += [await end.has_moved(), await end.has_moved()]
            assert end.number == shard.state.applied
            if start:
                await journal.raise_start(shard.state.applied)
        assert moved == [False] + [True, False] * 5

    took(main)
