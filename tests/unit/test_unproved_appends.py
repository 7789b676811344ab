"""The read of `start` after an append runs next to the next append: every order of calls, with failures.

Three requests are submitted, and the calls of the store end, in all orders; one call fails, or two. After
each step no result may have been returned that an unproved entry could still make wrong.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from adapters.journals.metadata import encode_start, entry_prefix, start_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination import owner
from gateway.coordination.journal import append, verify_counts
from gateway.coordination.shard import Shard
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.journal import NONCE_BYTES, decode_entry, encode_entry
from ledger.overlay import Overlay
from ledger.partitions.records import ProducerIdsReserved
from ledger.partitions.requests import Reserved, ReserveProducerIds
from ledger.ports import Journal, Lost, PutOutcome, Unknown, Versioned
from ledger.requests import LedgerResult
from ledger.types import DraftBatch
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

COUNTS: Final = (1, 10, 100)
"""Of the requests, so that the next id shows which of them it comes after."""
PUTS: Final = ("won", "answer lost", "lost", "refused")
READS: Final = ("read", "unreadable", "passed")
FAILURES: Final = 2 if os.environ.get("DRAGOMAN_TEST_FULL") else 1
PASSED: Final = 1_000
OTHERS: Final = encode_entry(9, 0, bytes(NONCE_BYTES), [])
CLOCK_MS: Final = 1_000


class Choices:
    """One path through a tree of choices, and the next one."""

    def __init__(self, path: Sequence[int]) -> None:
        self._path = path
        self.made: list[tuple[int, int]] = []

    def among(self, count: int) -> int:
        at = len(self.made)
        chosen = self._path[at] if at < len(self._path) else 0
        self.made.append((chosen, count))
        return chosen

    def next_path(self) -> Sequence[int] | None:
        made = self.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made = made[:-1]
        return [chosen for chosen, _ in made[:-1]] + [made[-1][0] + 1] if made else None


@dataclass(eq=False)
class Call:
    """A call of the store that has not ended."""

    key: str
    ways: Sequence[str]
    begun: int
    end: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ChosenMetadata(MemoryMetadata):
    """Puts of entries and reads of `start` end when and how the test says, once it is `ready`."""

    def __init__(self) -> None:
        super().__init__(exclusive=False, unique_versions=False)
        self.ready = False
        self.calls: list[Call] = []
        self.steps = 0
        self.durable: dict[int, int] = {}
        """The step at which the put of an own entry ended."""
        self.proofs: list[tuple[int, int]] = []
        """When a read of `start` was begun, and its result."""

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        if not self.ready or not key.startswith(entry_prefix(0)):
            return await super().put(key, value, expect)
        try:
            way = await self._ended(key, PUTS)
        except asyncio.CancelledError:
            # The request is under way all the same.
            await super().put(key, value, expect)
            raise
        if way == "refused":
            raise StoreUnavailable("refused")
        if way == "lost":
            await super().put(key, OTHERS, None)
            return Lost()
        outcome = await super().put(key, value, expect)
        self.durable[int(key.rpartition("/")[2])] = self.steps
        return Unknown("answer lost") if way == "answer lost" else outcome

    async def get(self, key: str) -> Versioned | None:
        if not self.ready or key != start_key(0):
            return await super().get(key)
        begun = self.steps
        way = await self._ended(key, READS)
        if way == "unreadable":
            raise StoreUnavailable("unreadable")
        if way == "passed":
            start = await super().get(key)
            raised = encode_start(PASSED, bytes(NONCE_BYTES))
            await super().put(key, raised, start.version if start else None)
        found = await super().get(key)
        self.proofs.append((begun, PASSED if found else 0))
        return found

    async def _ended(self, key: str, ways: Sequence[str]) -> str:
        call = Call(key, ways, self.steps)
        self.calls.append(call)
        try:
            return await call.end
        finally:
            self.calls.remove(call)

    async def own_entries(self) -> dict[int, int]:
        """The next producer id that each entry has made durable, by its number."""
        found = {}
        for key, value in await super().scan(entry_prefix(0)):
            if value.value != OTHERS:
                records = decode_entry(value.value, key).records
                ids = [record.next_id for record in records if isinstance(record, ProducerIdsReserved)]
                if ids:
                    found[int(key.rpartition("/")[2])] = ids[-1]
        return found

    def is_proved(self, number: int) -> bool:
        """Whether `start` was read after the put of this entry, and is not above it."""
        at = self.durable.get(number)
        return at is not None and any(begun >= at and start <= number for begun, start in self.proofs)


class Run:
    """One history."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.store = ChosenMetadata()
        self.futures: list[asyncio.Future[LedgerResult]] = []
        self.failures = 0
        self.overlapped = False

    async def live(self) -> None:
        shard = await open_shard(self.store, None, None, 1, lambda: CLOCK_MS)
        self.store.ready = True
        while True:
            await self._quiet()
            await self._check(shard)
            steps = list(self._steps(shard))
            if not steps:
                break
            self.store.steps += 1
            steps[self.choices.among(len(steps))]()
        await self._check_end(shard)
        await shard.close()

    async def _quiet(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        if not self.store.calls and not all(future.done() for future in self.futures):
            # What cannot be read is read again after a while.
            await asyncio.sleep(2.0)

    def _steps(self, shard: Shard) -> Iterator[Callable[[], None]]:
        for call in self.store.calls:
            for way in call.ways if self.failures < FAILURES else call.ways[:1]:
                yield partial(self._end, call, way)
        if len(self.futures) < len(COUNTS):
            yield lambda: self.futures.append(shard.submit(ReserveProducerIds(COUNTS[len(self.futures)])))

    def _end(self, call: Call, way: str) -> None:
        self.failures += way != call.ways[0]
        call.end.set_result(way)

    async def _check(self, shard: Shard) -> None:
        store = self.store
        puts = [call for call in store.calls if call.ways is PUTS]
        assert len(puts) <= 1 and len(store.calls) <= 2, store.calls
        self.overlapped = self.overlapped or (bool(puts) and len(store.calls) == 2)
        applied = range(1, shard.state.applied)
        assert all(store.is_proved(number) for number in applied), "an entry was applied before its proof"
        entries = await store.own_entries()
        for count, future in zip(COUNTS, self.futures, strict=False):
            holders = [number for number, next_id in entries.items() if has(next_id, count)]
            if not future.done():
                continue
            error = future.exception()
            if error is None:
                assert holders
                assert all(store.is_proved(number) for number in range(1, min(holders) + 1))
            elif not isinstance(error, OutcomeUnknown):
                assert isinstance(error, StoreUnavailable) and not holders, error

    async def _check_end(self, shard: Shard) -> None:
        assert all(future.done() for future in self.futures)
        given = [future.result() for future in self.futures if future.exception() is None]
        ranges = [range(one.first, one.first + one.count) for one in given if isinstance(one, Reserved)]
        ids = [number for one in ranges for number in one]
        assert len(ids) == len(set(ids)), "an id was given twice"
        if not shard.lost.is_set():
            assert shard.state.applied == 1 + len(await self.store.own_entries())


def has(next_id: int, count: int) -> bool:
    return next_id // count % 10 == 1


def explore() -> tuple[int, int]:
    """How many histories there are, and in how many an append ran next to a proof. AssertionError if one of
    them breaks a promise."""
    path: Sequence[int] | None = ()
    lived = overlapped = 0
    while path is not None:
        choices = Choices(path)
        run = Run(choices)
        run_virtually(run.live)
        lived, overlapped = lived + 1, overlapped + run.overlapped
        path = choices.next_path()
    return lived, overlapped


def test_no_result_leaves_before_its_entry_is_proved_in_any_order() -> None:
    lived, overlapped = explore()
    assert lived > overlapped > 400


def test_a_result_before_the_read_of_start_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unread(journal: Journal, number: int, may_wait: Callable[[], bool]) -> None:
        return None

    monkeypatch.setattr(owner, "verify_counts", unread)
    with pytest.raises(AssertionError, match="before its proof"):
        explore()


def test_a_read_of_start_before_the_append_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_before(journal: Journal, number: int, entry: bytes, batches: Sequence[DraftBatch]) -> bool:
        if number:
            await verify_counts(journal, number, lambda: True)
        await append(journal, number, entry, batches)
        return True

    monkeypatch.setattr(owner, "append", read_before)
    with pytest.raises(AssertionError, match="before its proof"):
        explore()


def test_an_entry_decided_without_the_one_before_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "Overlay", lambda state, before=None: Overlay(state))
    with pytest.raises(AssertionError, match="given twice"):
        explore()


def test_an_entry_that_is_left_alone_once_the_next_is_lost_would_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may count, so its results are those of the store."""

    async def left(self: owner.Owner) -> None:
        return None

    monkeypatch.setattr(owner.Owner, "_end_proof", left)
    with pytest.raises(AssertionError):
        explore()
