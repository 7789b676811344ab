"""Applying a durable entry fails half-way: the gateway ends, and nothing of the half is ever written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.failing_apply import MODULE, VARIABLE
from tests.faults.load import Load, problems, read_all
from tests.support.data_files import in_sqlite
from tests.support.gateway import Gateway
from tests.support.topics import create_topics

RECORDS = 400
WAIT_S = 60.0


class FailingGateway(Gateway):
    """Fails as its environment says."""

    def _command(self) -> list[str]:
        words = super()._command()
        return [MODULE if word == "gateway.cli.main" else word for word in words]


def doctor(data_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "doctor", "--all", "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


FAULTS = ["remember_all:30:before", "append:30:after", "register:1:after"]
MORE_FAULTS = ["remember_all:30:after", "append:30:before", "register:30:before"]


@pytest.mark.parametrize(
    "fault", [*FAULTS, *(pytest.param(fault, marks=pytest.mark.full) for fault in MORE_FAULTS)]
)
def test_an_entry_that_was_applied_by_half_gives_no_offset_twice(tmp_path: Path, fault: str) -> None:
    gateway = FailingGateway(tmp_path, ["--set", "limits.drain_ms=500"])
    if fault.startswith("remember_all"):
        # Results are kept of drafts that were stored before their entry.
        gateway.options += in_sqlite(gateway.data_dir)
    gateway.start()
    create_topics(gateway.bootstrap, {"t": 1})
    gateway.terminate()
    gateway.env[VARIABLE] = fault
    gateway.start()
    load = Load(gateway.bootstrap, "p", "t", 1, max_outstanding=5, pause_s=0.005, max_records=RECORDS)
    load.start()
    try:
        assert gateway.wait_for_exit(WAIT_S) == 1
        assert "on purpose" in gateway.log_path.read_text()
        del gateway.env[VARIABLE]
        gateway.start()
        load.complete()
        log = read_all(gateway.bootstrap, {"t": 1})
    finally:
        gateway.stop()
    assert load.failures == [] and len(load.acks) == RECORDS
    assert problems(log, load.acks) == []
    assert sum(map(len, log.values())) == RECORDS
    found = doctor(gateway.data_dir)
    assert found.returncode == 0, found.stdout
