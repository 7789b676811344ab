"""Appends drafts of all sizes to a local log until it is killed: run with a directory and a seed. A line of
JSON on standard output says before each what it will be, and one after it that it is durable."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any, Final

from adapters.local_log.files import DIRECT_BYTES
from adapters.local_log.opening import open_local_log
from ledger.ports import Appended
from tests.support.local_logs import NOW_MS, draft, entry

ROLL_BYTES: Final = 32 * 1024 * 1024
MAX_LARGE_BYTES: Final = ROLL_BYTES // 4 - 1_000
KEPT: Final = 5
"""Entries that are not pruned, so that files are used again."""


async def live(directory: Path, seed: int) -> None:
    dice = random.Random(seed)
    log = open_local_log(directory, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
    number = log.end
    while True:
        large = dice.randrange(DIRECT_BYTES, MAX_LARGE_BYTES)
        sizes = dice.choice(
            [(dice.randrange(1, 5_000),), (large,), (large // 2, large // 2), (100, DIRECT_BYTES)]
        )
        batches = draft(number, *sizes)
        placement = log.journal.place(number, batches)
        assert placement is not None
        note(number=number, seed=seed, sizes=sizes, locator=placement.locator, starts=list(placement.starts))
        outcome = await log.journal.append(number, entry(number, life=seed), batches)
        assert outcome == Appended(counts=True)
        note(acked=number)
        number += 1
        if number % KEPT == 0 and number > KEPT:
            await log.journal.raise_start(number - KEPT)
            await log.journal.delete(range(number - KEPT))
            stored = [one.locator for one in await log.wal.objects()]
            await log.wal.delete([locator for locator in stored if not log.journal.holds(locator)])


def note(**said: Any) -> None:
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
