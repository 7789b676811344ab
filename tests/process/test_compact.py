"""`dragoman compact segments` as an operator sees it: plan, summary, and one sentence each for what is
wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.data_files import files_with_records, wal_frames
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.small_runs import OLD_ENOUGH_S, produce_runs
from tests.support.versions import ROOT
from tests.support.wal_frames import Frame, read_frame

COMMAND = [sys.executable, "-m", "gateway.cli.main", "compact", "segments"]
WAIT_S = 90.0
START_S = 60.0
NO_OWN_JOBS = ("--set", "housekeeping.merge_runs=0")


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a gateway that was killed, with runs that are old enough to be merged."""
    gateway = Gateway(tmp_path_factory.mktemp("filled"), NO_OWN_JOBS)
    gateway.start(START_S)
    for topic in ("orders", "payments"):
        produce_runs(gateway, topic, 700)
    gateway.kill9()
    time.sleep(OLD_ENOUGH_S)
    return gateway.data_dir


@pytest.fixture
def filled(directory: Path, gateway_factory: GatewayFactory) -> Gateway:
    """On a copy of it."""
    gateway = gateway_factory(NO_OWN_JOBS)
    shutil.copytree(directory, gateway.data_dir, ignore=shutil.ignore_patterns("internal.sock*"))
    gateway.start(START_S)
    return gateway


@pytest.mark.timeout(240)
def test_the_plan_is_a_table_and_the_summary_one_sentence(filled: Gateway, tmp_path: Path) -> None:
    data_dir = ["--data-dir", str(filled.data_dir)]
    planned = run(*data_dir, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    head, *rows = [line.split() for line in planned.stdout.splitlines()]
    assert head == ["TOPIC", "PARTITIONS", "RUNS", "TO", "MERGE", "BYTES", "SEGMENTS"]
    assert [(row[0], row[1], row[3], row[-1]) for row in rows] == [
        ("orders", "1", "699", "1"),
        ("payments", "1", "699", "1"),
    ]
    # From another directory, and one topic.
    merged = run(*data_dir, "--topics", "orders", cwd=tmp_path)
    assert merged.returncode == 0, merged.stderr
    assert re.search(r"Merged 699 runs of \d+ bytes into 1 run of 1 segment in [\d.]+ s: ", merged.stdout)
    assert re.search(r"by \d+ reads? and 2 writes, \$0\.0000\.", merged.stdout)
    again = run(*data_dir, "--json")
    assert again.returncode == 0, again.stderr
    done = json.loads(again.stdout)
    assert [(topic["topic"], topic["merged_runs"]) for topic in done["planned"]] == [
        ("orders", 0),
        ("payments", 699),
    ]
    summary = done["summary"]
    assert (summary["runs"], summary["segments"], summary["damages"]) == (699, 1, [])
    assert summary["read_bytes"] <= 1.05 * summary["run_bytes"] + 8 * 1024
    for flags in ((), ("--dry-run",)):
        nothing = run(*data_dir, *flags)
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert nothing.stderr == "There is nothing to merge.\n"
    # Nor is a running gateway needed for that.
    filled.terminate()
    alone = run(*data_dir)
    assert (alone.returncode, alone.stdout) == (0, "")
    assert alone.stderr == "There is nothing to merge.\n"


@pytest.mark.timeout(240)
def test_what_is_wrong_is_one_sentence(filled: Gateway, tmp_path: Path) -> None:
    data_dir = ["--data-dir", str(filled.data_dir)]
    unknown = run(*data_dir, "--topics", "orders,absent")
    assert unknown.returncode == 1
    assert unknown.stderr == "dragoman: there is no topic absent; dragoman topics list shows all\n"
    engine = run(*data_dir, "--engine", "flink")
    assert engine.returncode == 2
    assert engine.stderr.startswith("dragoman: --engine flink: this build has local, spark")
    elsewhere = run("--data-dir", str(tmp_path))
    assert elsewhere.returncode == 2
    assert elsewhere.stderr.count("\n") == 1 and "there is no ledger in" in elsewhere.stderr
    (path,) = files_with_records(filled.data_dir)
    stored = bytearray(path.read_bytes())
    at, size = list(wal_frames(path))[300]
    frame = read_frame(memoryview(bytes(stored[at : at + size])))
    assert isinstance(frame, Frame)
    stored[at + frame.batches[0].start + 65] ^= 0xFF
    path.write_bytes(stored)
    merged = run(*data_dir)
    assert merged.returncode == 3, merged.stderr
    assert "is damaged" in merged.stderr and "dragoman audit" in merged.stderr
    assert "1 run left as they are." in merged.stderr or "1 run left as it is." in merged.stderr
    assert "Merged 1397 runs" in merged.stdout


@pytest.mark.timeout(240)
def test_a_command_that_is_interrupted_leaves_no_process_behind(filled: Gateway) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--data-dir", str(filled.data_dir), "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first["summary"]["runs"] == 2 * 699
    process.send_signal(2)
    _, stderr = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0 and "Traceback" not in stderr
