"""Invariants 1 and 2 of the local log: a process that writes large frames past the page cache is killed at
any moment, and what it has acknowledged is there."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.local_log.opening import LocalLog, open_local_log
from ledger.types import Position
from tests.faults.large_frames_life import KEPT, ROLL_BYTES
from tests.support.local_logs import NOW_MS, draft, entry
from tests.support.versions import ROOT

MANY_KILLS: Final = 100
KILLS: Final = 150 if os.environ.get("DRAGOMAN_TEST_FULL") else 6
FIRST_LINE_S: Final = 60.0
LONGEST_S: Final = 1.0


@pytest.mark.timeout(3600 if KILLS > MANY_KILLS else 300)
async def test_after_kills_in_the_middle_of_large_frames_all_that_was_acknowledged_is_there(
    tmp_path: Path,
) -> None:
    dice = random.Random(3)
    begun: dict[int, Mapping[str, Any]] = {}
    acked, found_more = -1, 0
    for seed in range(1, KILLS + 1):
        for said in killed_life(tmp_path, seed, dice.uniform(0.0, LONGEST_S)):
            if "acked" in said:
                acked = said["acked"]
            else:
                begun[said["number"]] = said
        # As the next process of this start of the host opens it.
        log = open_local_log(tmp_path, roll_bytes=ROLL_BYTES, clock=lambda: NOW_MS)
        try:
            assert acked + 1 <= log.end <= acked + 2, "at most the one under way is there besides"
            found_more += log.end - acked - 1
            await verify(log, begun)
        finally:
            await log.close()
        acked = log.end - 1
    assert acked > KILLS
    if KILLS > MANY_KILLS:
        assert 0 < found_more < KILLS, "no kill was just before, or just after, the end of a write"


def killed_life(directory: Path, seed: int, after_s: float) -> list[Mapping[str, Any]]:
    """What a process has said that was killed so long after its first line."""
    command = [sys.executable, "-m", "tests.faults.large_frames_life", str(directory), str(seed)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "it has ended"
        time.sleep(after_s)
        process.kill()
        rest = process.stdout.read()
    finally:
        process.kill()
        process.wait(FIRST_LINE_S)
    # The last line may be cut off.
    lines = [first, *rest.splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


async def verify(log: LocalLog, begun: Mapping[int, Mapping[str, Any]]) -> None:
    for number in range(max(log.end - KEPT, 0), log.end):
        said = begun[number]
        assert await log.journal.get(number) == entry(number, life=said["seed"])
        batches = draft(number, *said["sizes"])
        positions = [
            Position(said["locator"], start, len(batch.data))
            for start, batch in zip(said["starts"], batches, strict=True)
        ]
        stored = await log.wal.read(positions)
        assert [
            bytes(one or b"") == bytes(batch.data) for one, batch in zip(stored, batches, strict=True)
        ] == [True] * len(batches), f"batches of entry {number}"
