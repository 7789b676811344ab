"""Jobs over a ledger whose newest records are inside of journal entries: audited where they are, merged
and exported once they were moved into objects, by the local engine and on Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.load import Found, Load, Place, problems, read_all
from tests.faults.test_inline_far import metric
from tests.support.far_stores import ETCD_S3, FarGateway, FarPlace
from tests.support.spark import JAVA_OPTIONS, why_no_spark
from tests.support.topics import create_topics
from tests.support.versions import ROOT

COMMAND: Final = [sys.executable, "-m", "gateway.cli.main"]
TOPICS: Final = {"t": 3}
RECORDS: Final = 600
WAIT_S: Final = 60.0
COMMAND_S: Final = 240.0
LARGE: Final = 20_000
ENGINES: Final[Mapping[str, Sequence[str]]] = {
    "local": (),
    "spark": (
        *("--engine", "spark", "--master", "local[2,4]"),
        *("--spark-conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
    ),
}


def dragoman(*arguments: str) -> Any:
    """What it prints as JSON."""
    finished = subprocess.run(
        [*COMMAND, *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "1000"},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def produced(gateway: FarGateway, name: str, records: int = RECORDS) -> Load:
    load = Load(gateway.bootstrap, name, "t", TOPICS["t"], max_outstanding=10, max_records=records)
    load.start().complete(WAIT_S)
    assert load.failures == []
    return load


def check(gateway: FarGateway, *loads: Load) -> dict[Place, list[Found]]:
    found = read_all(gateway.bootstrap, TOPICS)
    assert problems(found, [ack for load in loads for ack in load.acks]) == []
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("far", [ETCD_S3], indirect=True)
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.full)])
def test_jobs_over_records_inside_of_entries(far: FarPlace, tmp_path: Path, engine: str) -> None:
    if engine == "spark" and (reason := why_no_spark()):
        pytest.skip(reason)
    on_engine = ENGINES[engine]
    online = [*far.options(), "--set", f"internal.socket={tmp_path / 'internal.sock'}"]
    gateway = FarGateway(far, tmp_path / "gateway", [*online[4:], "--set", "housekeeping.merge_runs=0"])
    try:
        gateway.start()
        create_topics(gateway.bootstrap, TOPICS)
        first = produced(gateway, "first")
        inside = metric(gateway, "dragoman_inline_entries")
        assert inside > 0
        gateway.kill9()
        audit = dragoman("audit", *far.options(), *on_engine)
        assert audit["damages"] == [] and audit["totals"]["records"] == RECORDS

        gateway.start()
        # A job gets its pin when all is in objects. It merges nothing: what was moved is one run a partition.
        dragoman("compact", "segments", *online, *on_engine)
        assert metric(gateway, "dragoman_inline_entries") == 0
        before = check(gateway, first)
        second = produced(gateway, "second")
        assert metric(gateway, "dragoman_inline_entries") > 0
        exported = dragoman("ledger", "export", f"file:{tmp_path}/target", *online)
        assert exported["batches"] > 0
        after = check(gateway, first, second)
        assert {place: records[: len(before[place])] for place, records in after.items()} == before
    finally:
        gateway.terminate()
    audit = dragoman("audit", *far.options(), *on_engine)
    assert audit["damages"] == [] and audit["totals"]["records"] == 2 * RECORDS
