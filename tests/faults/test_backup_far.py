"""Backups of ledgers in far stores, made while producers write: the newest records are inside of entries,
and come back with them when the metadata store is lost."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.faults.load import Ack, Load, problems, read_all
from tests.faults.test_inline_far import metric
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FarGateway, FarPlace, far_place
from tests.support.topics import create_topics

COMMAND: Final = [sys.executable, "-m", "gateway.cli.main"]
TOPICS: Final = {"one": 1, "three": 3}
WAIT_S: Final = 60.0
COMMAND_S: Final = 120.0
RECORDS: Final = 150
"""Of each producer, before and after the backup."""


def dragoman(*arguments: str) -> str:
    finished = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def wait_for(loads: Sequence[Load], records: int) -> None:
    """So many acknowledgements more, of each."""
    deadline, goals = time.monotonic() + WAIT_S, [len(load.acks) + records for load in loads]
    while any(len(load.acks) < goal for load, goal in zip(loads, goals, strict=True)):
        assert time.monotonic() < deadline, [load.failures for load in loads]
        time.sleep(0.02)


def acks_of(loads: Sequence[Load]) -> list[Ack]:
    return [ack for load in loads for ack in list(load.acks)]


def loaded(gateway: FarGateway, name: str) -> list[Load]:
    return [
        Load(gateway.bootstrap, f"{name}-{topic}", topic, count, max_outstanding=20, pause_s=0.002).start()
        for topic, count in TOPICS.items()
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("far", [ETCD_S3, pytest.param(BUCKET_ALONE, marks=pytest.mark.full)], indirect=True)
def test_a_backup_under_load_has_what_is_inside_of_entries(
    far: FarPlace, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    gateway = FarGateway(far, tmp_path / "first", ["--set", "housekeeping.merge_runs=0"])
    backup = str(tmp_path / "backup")
    gateway.start()
    try:
        create_topics(gateway.bootstrap, TOPICS)
        loads = loaded(gateway, "before")
        wait_for(loads, RECORDS)
        entries = metric(gateway, "dragoman_inline_entries")
        acked = acks_of(loads)
        dragoman("ledger", "backup", "--to", backup, *far.options())
        wait_for(loads, RECORDS)
        for load in loads:
            load.finish()
        assert entries > 0 and metric(gateway, "dragoman_inline_entries") >= entries
    finally:
        gateway.kill9()
    # The metadata store is lost: the ledger goes on in another place, with the same records.
    place = FarPlace(far.row, far_place(request, far.row).metadata, far.data)
    restored = json.loads(dragoman("ledger", "restore", "--from", backup, "--json", *place.options()))
    assert not restored["missing"]
    assert json.loads(dragoman("doctor", "--all", "--json", *place.options()))["findings"] == []
    again = FarGateway(place, tmp_path / "second", ["--set", "housekeeping.merge_runs=0"])
    again.start()
    try:
        found = read_all(again.bootstrap, TOPICS)
        ends = {at: len(records) for at, records in found.items()}
        known = [ack for ack in acks_of(loads) if ack.offset < ends[ack.place]]
        assert problems(found, known) == []
        assert {*map(id, acked)} <= {*map(id, known)}, "what was acknowledged before the backup"
        more = loaded(again, "after")
        wait_for(more, 20)
        for load in more:
            load.finish()
        assert problems(read_all(again.bootstrap, TOPICS), known + acks_of(more)) == []
    finally:
        assert again.terminate() == 0
    dragoman("audit", *place.options())
