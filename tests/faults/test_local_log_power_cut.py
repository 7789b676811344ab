"""Invariants 1 and 2 of the local log: the power fails at any moment of several lives, and what was
acknowledged is there, at the place that was named. What was read of the log once stays so."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adapters.local_log.opening import LocalLog
from ledger.types import Position
from tests.faults.local_log_life import LIVES, ROLL_BYTES
from tests.faults.powercut import Event, Survival, cut_time_ns, sample, sync_points, trees_at, write_tree
from tests.faults.recording import Recording, ShimUnavailable, new_recording, shim
from tests.support.local_logs import draft, entries_of, entry, opened_log

CUTS = 30
FULL = bool(os.environ.get("DRAGOMAN_TEST_FULL"))
SURVIVALS = [Survival.NOTHING, Survival.TORN, Survival.RANDOM]


@dataclass
class Notes:
    """What the lives have noted before a moment."""

    all: Sequence[dict[str, Any]]
    begun: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """By number and life."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The life of each entry."""
    end: int = 0
    """Of what was read or acknowledged last."""
    raised: int = 0
    raising: int = 0

    def before(self, ns: int) -> "Notes":
        found = Notes(self.all)
        for note in self.all:
            if note["ns"] >= ns:
                break
            match note["what"]:
                case "begin":
                    found.begun[note["number"], note["life"]] = note
                case "ack":
                    found.acknowledged[note["number"]] = note["life"]
                    found.end = note["number"] + 1
                case "read":
                    found.end = note["end"]
                    # What was not there when the log was read never comes back.
                    found.begun = {key: one for key, one in found.begun.items() if key[0] < found.end}
                case "raising":
                    found.raising = max(found.raising, note["start"])
                case "raised":
                    found.raised = max(found.raised, note["start"])
        return found


@dataclass(frozen=True)
class Recorded:
    events: list[Event]
    notes: Notes


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("local-log")
    try:
        shim()
    except ShimUnavailable as error:
        pytest.skip(str(error))
    recording: Recording = new_recording(directory)
    notes = directory / "notes"
    for life in range(len(LIVES)):
        command = [sys.executable, "-m", "tests.faults.local_log_life", str(recording.root), str(notes)]
        recording.run([*command, str(life)])
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    return Recorded(recording.events(), Notes(lines))


def test_the_lives_have_done_all_that_a_log_does(recorded: Recorded) -> None:
    names = [event.first.decode(errors="replace") for event in recorded.events if event.kind.name == "RENAME"]
    to = [event.second.decode(errors="replace") for event in recorded.events if event.kind.name == "RENAME"]
    assert any(name.endswith(".spare") for name in names), "no file was used again"
    assert any(name.endswith(".spare") for name in to)
    assert "pruned" in to
    assert len(recorded.notes.before(1 << 63).acknowledged) > 150
    reads = [note["end"] for note in recorded.notes.all if note["what"] == "read"]
    assert len(reads) == len(LIVES)


@pytest.mark.timeout(7200 if FULL else 300)
@pytest.mark.parametrize("survival", SURVIVALS, ids=lambda survival: survival.value)
def test_after_a_power_cut_all_that_was_acknowledged_is_there(recorded: Recorded, survival: Survival) -> None:
    points = [point for at in sync_points(recorded.events) for point in (at, at + 1)]
    cuts = points if FULL else sample(points, CUTS, seed=SURVIVALS.index(survival))
    assert len(cuts) > CUTS / 2
    for cut, tree in trees_at(recorded.events, cuts, survival):
        notes = recorded.notes.before(cut_time_ns(recorded.events, cut))
        with tempfile.TemporaryDirectory() as directory:
            write_tree(tree, Path(directory))
            try:
                asyncio.run(verify(Path(directory), notes, reads_first=cut % 2 == 0))
            except Exception as error:
                raise AssertionError(f"cut at event {cut}, survival {survival.value}: {error!r}") from error


async def verify(directory: Path, notes: Notes, *, reads_first: bool) -> None:
    """Without `reads_first` the log goes on before anything of it was looked at."""
    async with opened_log(directory, roll_bytes=ROLL_BYTES) as log:
        number = log.end
        if reads_first:
            await verify_log(log, notes, number)
        await log.journal.append(number, entry(number, life=99))
    async with opened_log(directory, roll_bytes=ROLL_BYTES) as log:
        await verify_log(log, notes, number)
        assert await log.journal.get(number) == entry(number, life=99)


async def verify_log(log: LocalLog, notes: Notes, end: int) -> None:
    """Of the entries before `end`."""
    start = await log.journal.start()
    assert notes.raised <= start <= notes.raising
    found = {number: data for number, data in (await entries_of(log, start)).items() if number < end}
    # At most the one that was under way is there besides.
    assert max(found, default=-1) + 1 >= notes.end
    assert notes.end <= end <= notes.end + 1
    for number, data in found.items():
        lives = [life for at, life in notes.begun if at == number and entry(at, life=life) == data]
        assert lives, f"entry {number} was never appended"
        if number in notes.acknowledged and number < notes.end:
            assert lives == [notes.acknowledged[number]]
        note = notes.begun[number, lives[0]]
        batches = draft(number, *note["sizes"])
        where = [
            Position(name, start_at, len(batch.data))
            for (name, start_at), batch in zip(note["at"], batches, strict=True)
        ]
        data_read = await log.wal.read(where)
        assert [bytes(one or b"") for one in data_read] == [bytes(batch.data) for batch in batches]
