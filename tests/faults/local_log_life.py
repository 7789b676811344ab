"""One life of a process with a local log, to be recorded: run with a directory, a file of notes, a number.

It notes what it begins, what was acknowledged and what it has read, each with the time. The number says
which of `LIVES` it is.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from adapters.local_log.opening import LocalLog, open_local_log
from ledger.ports import Appended
from tests.support.local_logs import NOW_MS, draft, entries_of, entry

ROLL_BYTES: Final = 1_100_000
"""A file has some 500 KB of frames: behind them there is always space for an entry of any size."""
SIZES: Final[Sequence[tuple[int, ...]]] = ((), (), (100,), (40_000, 5), (90_000,), (1, 2, 3), (265_000, 7))
KEPT: Final = 12
"""Entries that are not pruned."""
PRUNE_EVERY: Final = 10
SLOW: Final = 300
pwritev = os.pwritev


class Life:
    def __init__(self, directory: Path, notes: Path, number: int) -> None:
        self.number = number
        self._notes = notes.open("a", buffering=1)
        self._dice = random.Random(number)
        self.log: LocalLog = open_local_log(directory, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        self.next = 0

    def note(self, what: str, **more: Any) -> None:
        print(json.dumps({"what": what, "ns": time.monotonic_ns(), **more}), file=self._notes)

    async def read(self) -> None:
        """What a process answers when it has opened the log."""
        found = await entries_of(self.log, await self.log.journal.start())
        self.next = max(found, default=-1) + 1
        self.note("read", end=self.next)

    async def append(self) -> None:
        number, sizes = self.next, self._dice.choice(SIZES)
        batches = draft(number, *sizes)
        at: list[Any] = []
        if batches:
            placement = self.log.journal.place(number, batches)
            assert placement is not None
            at = [[placement.locator, start] for start in placement.starts]
        self.note("begin", number=number, life=self.number, sizes=sizes, at=at)
        outcome = await self.log.journal.append(number, entry(number, life=self.number), batches)
        assert outcome == Appended(counts=True)
        self.note("ack", number=number, life=self.number)
        self.next += 1

    async def prune(self) -> None:
        start = max(self.next - KEPT, 0)
        before = await self.log.journal.start()
        self.note("raising", start=start)
        await self.log.journal.raise_start(start)
        self.note("raised", start=start)
        await self.log.journal.delete([number for number in range(before, start) if number % 25])
        stored = [one.locator for one in await self.log.wal.objects()]
        await self.log.wal.delete([locator for locator in stored if not self.log.journal.holds(locator)])


async def work(life: Life, count: int) -> None:
    await life.read()
    for at in range(count):
        await life.append()
        if at % PRUNE_EVERY == PRUNE_EVERY - 1:
            await life.prune()


async def end_well(life: Life) -> None:
    await work(life, 60)
    await life.log.close()


async def end_at_once(life: Life) -> None:
    await work(life, 45)


async def end_before_a_sync(life: Life) -> None:
    """The last frame can be read and is not durable."""
    await work(life, 5)
    os.pwritev = lambda fd, buffers, at, *_: pwritev(fd, buffers, at)
    number = life.next
    life.note("begin", number=number, life=life.number, sizes=[], at=[])
    await life.log.journal.append(number, entry(number, life=life.number))


async def end_in_the_next_file(life: Life) -> None:
    """A write fails although its bytes are there, and the header that takes them back is not durable."""
    await work(life, 5)
    calls: list[Callable[..., int]] = [_fails, _unsynced]
    os.pwritev = lambda *arguments: calls.pop(0)(*arguments) if calls else os._exit(0)
    number = life.next
    life.note("begin", number=number, life=life.number, sizes=[], at=[])
    appending = asyncio.create_task(life.log.journal.append(number, entry(number, life=life.number)))
    await asyncio.wait([appending])


def _fails(fd: int, buffers: Sequence[Any], at: int, flags: int = 0) -> int:
    pwritev(fd, buffers, at, flags)
    raise OSError(5, "on purpose")


def _unsynced(fd: int, buffers: Sequence[Any], at: int, flags: int = 0) -> int:
    return pwritev(fd, buffers, at)


async def look(life: Life) -> None:
    await life.read()


LIVES = [
    end_well,
    end_at_once,
    end_before_a_sync,
    look,
    end_in_the_next_file,
    look,
    end_at_once,
    end_well,
]


def main() -> None:
    directory, notes, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

    async def live() -> None:
        life = Life(directory, notes, number)
        await LIVES[number](life)
        # A thread that ends in the middle of a write may have written what the recording does not have.
        await life.log.journal.filled()

    asyncio.run(live())
    # As if killed: nothing is closed.
    os._exit(0)


if __name__ == "__main__":
    main()
