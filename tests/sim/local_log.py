"""The local log of a history: without threads, with writes that fail as one life's fate has it."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

import pytest

from adapters import disk
from adapters.local_log import files
from adapters.log_directory import LogDirectory
from adapters.threads import Overdue
from ledger.errors import StoreUnavailable
from ledger.ports import Appended, AppendOutcome, Journal, SegmentStore
from ledger.types import Buffer, DraftBatch, Placement
from ledger.wrapped_journal import WrappedJournal

P = ParamSpec("P")
T = TypeVar("T")

LOG_ROLL_BYTES = (550_000, 700_000, 4 * 1024 * 1024)
"""An entry of full size has to fit; with the smallest a file takes some twenty drafts."""
WRITES_TAKE_S = (0.0001, 0.002)
"""As the log reads its clock: so quick that the event loop's thread makes some, or too slow for that."""


class DrawnRates(Protocol):
    """Of `tests.sim.stores.Rates`, what is drawn here."""

    @property
    def before(self) -> float: ...

    @property
    def after(self) -> float: ...

    @property
    def late(self) -> float: ...


class DrawnFate(Protocol):
    """Of `tests.sim.stores.Fate`, what decides here."""

    is_dead: bool

    @property
    def rates(self) -> DrawnRates: ...

    @property
    def choose(self) -> Any: ...

    def happens(self, probability: float) -> bool: ...

    def count_change(self) -> None: ...

    async def wait(self) -> None: ...


class InlineThreads:
    """As `StoreThreads`, without threads: the next event makes the call."""

    def __init__(self, store: str, threads: int, *_: object) -> None:
        self._store = store
        self._is_closed = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._is_closed:
            raise StoreUnavailable(f"{self._store} is closed")
        await asyncio.sleep(0)
        return call(*args, **kwargs)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(call, *args, **kwargs)

    def run_now(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    @property
    def is_idle(self) -> bool:
        """Never: what depends on how long a write takes differs from life to life."""
        return False

    def shut(self) -> None:
        self._is_closed = True

    async def close(self, last: Callable[[], None]) -> None:
        if not self._is_closed:
            self._is_closed = True
            last()


class LogThreads(InlineThreads):
    """Calls take a while, one after the other. Some are overdue, and have their effect later; in some a write
    fails: before its bytes, after a part of them, or after all. Once a process is dead, nothing happens."""

    def __init__(self, fate: DrawnFate, store: str, threads: int, *more: object) -> None:
        super().__init__(store, threads, *more)
        self._fate = fate
        self._order = asyncio.Lock()
        self._late: set[asyncio.Task[Any]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._late

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        fate = self._fate
        fate.count_change()
        made: asyncio.Task[T] = asyncio.create_task(self._make(call, *args, **kwargs))
        self._late.add(made)
        made.add_done_callback(self._forget)
        if fate.happens(fate.rates.late):
            await fate.wait()
            if not made.done():
                raise Overdue("drawn, overdue")
        return await asyncio.shield(made)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._fate.wait()
        if self._fate.happens(self._fate.rates.before):
            raise StoreUnavailable("drawn, at a read")
        return await super().run(call, *args, **kwargs)

    async def close(self, last: Callable[[], None]) -> None:
        if self._late:
            await asyncio.wait(self._late)
        await super().close(last)

    async def _make(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._order:
            await self._fate.wait()
            if self._is_closed:
                raise StoreUnavailable(f"{self._store} is closed")
            with failing_writes(self._fate):
                return call(*args, **kwargs)

    def _forget(self, made: asyncio.Task[Any]) -> None:
        self._late.discard(made)
        if not made.cancelled():
            made.exception()


@contextmanager
def failing_writes(fate: DrawnFate) -> Iterator[None]:
    """As long as nothing else runs: the disk is full, or fails before a write, within it, or after it."""
    true_write, true_allocate = disk.write_synced, disk.allocate

    def write_synced(fd: int, parts: Sequence[Buffer], position: int) -> None:
        if fate.happens(fate.rates.before):
            raise OSError(errno.EIO, "drawn, before the write")
        if fate.happens(fate.rates.after):
            whole = b"".join(bytes(part) for part in parts)
            torn = whole[: fate.choose.choice([fate.choose.randint(0, len(whole)), len(whole)])]
            true_write(fd, [torn], position)
            raise OSError(errno.EIO, "drawn, at the write")
        true_write(fd, parts, position)

    def allocate(fd: int, start: int, end: int) -> None:
        if fate.happens(fate.rates.before):
            raise OSError(errno.ENOSPC, "drawn, the disk is full")
        true_allocate(fd, start, end)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "write_synced", write_synced)
        patched.setattr(files, "allocate", allocate)
        yield


class NotedJournal(WrappedJournal):
    """What it has made durable is noted, and where its batches are."""

    def __init__(self, journal: Journal, written: list[tuple[str, bytes]]) -> None:
        super().__init__(journal)
        self._written = written
        self._locator = ""
        """Of what was placed last."""

    def place(self, number: int, batches: Sequence[DraftBatch]) -> Placement | None:
        placed = super().place(number, batches)
        self._locator = placed.locator if placed is not None else ""
        return placed

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        kept = b"".join(bytes(batch.data) for batch in batches)
        outcome = await super().append(number, entry, batches)
        if outcome == Appended(counts=True):
            self._written.append((f"journal/{number}", entry))
            if batches:
                self._written.append((self._locator, kept))
        return outcome


class LivedLog:
    """A JournalInLog."""

    def __init__(self, opened: LogDirectory, written: list[tuple[str, bytes]]) -> None:
        self.journal: Journal = NotedJournal(opened.journal, written)
        self.files = opened.files
        self._opened = opened

    @property
    def ahead_bytes(self) -> int:
        return self._opened.ahead_bytes

    def with_older_batches(self, segments: SegmentStore) -> SegmentStore:
        return self._opened.with_older_batches(segments)

    async def close(self) -> None:
        await self._opened.close()
