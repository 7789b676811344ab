"""`dragoman compact segments --engine spark` against a real gateway: with Spark of this machine, below
spark-submit, interrupted, and where something is missing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.process.test_compact import COMMAND, START_S
from tests.support.data_files import files_with_records, wal_frames
from tests.support.gateway import Gateway
from tests.support.ports import free_ports
from tests.support.processes import descendants
from tests.support.small_runs import OLD_ENOUGH_S, produce_runs
from tests.support.spark import JAVA_OPTIONS, why_no_spark
from tests.support.versions import ROOT
from tests.support.wal_frames import Frame, read_frame

WAIT_S: Final = 240.0
ENDED_S: Final = 30.0
ON_SPARK: Final = (
    *("--engine", "spark", "--master", "local[2,4]"),
    *("--spark-conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
)
SUBMIT: Final = (
    str(Path(sys.executable).parent / "spark-submit"),
    *("--master", "local[2,4]", "--driver-java-options", JAVA_OPTIONS),
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
)
PROGRESS: Final = re.compile(r"\d+ of about \d+ runs? merged into \d+ segments?, ")
SUMMARY: Final = re.compile(
    r"^Merged 699 runs of \d+ bytes into 1 run of 1 segment in [\d.]+ s: "
    r"\d+ bytes read, 0 bytes shuffled and \d+ bytes written by \d+ reads? and 2 writes, \$0\.0000\. "
    r"The driver had at most [\d.]+ MB\.$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    gateway = Gateway(tmp_path_factory.mktemp("filled"), ["--set", "housekeeping.merge_runs=0"])
    try:
        gateway.start(START_S)
        for topic in ("orders", "payments", "kept"):
            produce_runs(gateway, topic, 700)
        time.sleep(OLD_ENOUGH_S)
        yield gateway
    finally:
        gateway.stop()


def run(
    gateway: Gateway, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--data-dir", str(gateway.data_dir), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )


def only_sentence(stderr: str) -> str:
    """What a command says that fails. A slow one has printed progress before."""
    (line,) = [line for line in stderr.splitlines() if not PROGRESS.match(line)]
    assert line.startswith("dragoman: ")
    return line


@contextmanager
def started(gateway: Gateway, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--data-dir", str(gateway.data_dir), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # As in a terminal, even if these tests run in the background of a script: in a group of its own.
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_alive(pid: int) -> bool:
    """And not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + ENDED_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def wait_for(process: subprocess.Popen[str], part_of_command: str) -> int:
    """The process below this one that has this in its command line, as soon as it is there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        for each in descendants(process.pid):
            if part_of_command in each.command:
                return each.pid
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.timeout(600)
def test_runs_are_merged_on_spark(filled: Gateway) -> None:
    merged = run(filled, "--topics", "orders", *ON_SPARK)
    assert merged.returncode == 0, merged.stderr
    head, row = merged.stdout.splitlines()[:2]
    assert head.split() == ["TOPIC", "PARTITIONS", "RUNS", "TO", "MERGE", "BYTES", "SEGMENTS"]
    assert row.split()[0] == "orders" and row.split()[3] == "699"
    assert SUMMARY.search(merged.stdout), merged.stdout
    # What Spark writes for itself is not the operator's.
    assert "WARN" not in merged.stderr + merged.stdout
    again = run(filled, "--topics", "orders", *ON_SPARK)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "There is nothing to merge.\n")


@pytest.mark.timeout(600)
def test_the_command_runs_below_spark_submit_on_its_spark(filled: Gateway, tmp_path: Path) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "spark-script"],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S,
        cwd=ROOT,
    ).stdout.strip()
    command = ["compact", "segments", "--data-dir", str(filled.data_dir), "--topics", "payments", "--json"]
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    home = Path(pyspark.origin).parent

    def submitted(python: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SUBMIT, script, *command],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYTHONPATH": str(ROOT)},
        )

    merged = submitted(sys.executable)
    assert merged.returncode == 0, merged.stderr
    summary = json.loads(merged.stdout)["summary"]
    assert (summary["runs"], summary["segments"], summary["damages"]) == (699, 1, [])
    assert summary["read_bytes"] <= 1.05 * summary["run_bytes"] + 8 * 1024
    # Of spark-submit's Java, which is the driver's here.
    assert summary["java_max_rss_bytes"] > 50_000_000
    without = submitted(getattr(sys, "_base_executable", sys.executable))
    assert without.returncode == 2
    # spark-submit joins stdout and stderr of what it runs.
    assert re.search(r"^dragoman: .* has no module \w+: name a Python", without.stdout, re.MULTILINE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "end",
    [
        "interrupt the command",
        "kill the driver",
        pytest.param("kill the command", marks=pytest.mark.full),
        pytest.param("kill Java", marks=pytest.mark.full),
    ],
)
def test_whatever_ends_a_job_on_spark_leaves_no_process_behind(filled: Gateway, end: str) -> None:
    with started(filled, "--topics", "kept", *ON_SPARK) as process:
        java = wait_for(process, "org.apache.spark.deploy.SparkSubmit")
        driver = wait_for(process, "-m pipeline.engines.process")
        family = [each.pid for each in descendants(process.pid)]
        pid, number = {
            "interrupt the command": (process.pid, signal.SIGINT),
            "kill the command": (process.pid, signal.SIGKILL),
            "kill the driver": (driver, signal.SIGKILL),
            "kill Java": (java, signal.SIGKILL),
        }[end]
        # Ctrl-C goes to all processes of a terminal.
        (os.killpg if number == signal.SIGINT else os.kill)(pid, number)
        _, stderr = process.communicate(timeout=WAIT_S)
        wait_for_end(family)
    assert "Traceback" not in stderr
    if end == "interrupt the command":
        assert process.returncode == 130 and "KeyboardInterrupt" not in stderr
    elif end != "kill the command":
        assert process.returncode == 1 and only_sentence(stderr)
    # It was ended, and did not go on to its own end.
    (planned,) = json.loads(run(filled, "--topics", "kept", "--dry-run", "--json").stdout)["planned"]
    assert planned["merged_runs"] == 699


@pytest.mark.timeout(300)
def test_what_is_missing_is_one_sentence(filled: Gateway, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    (port,) = free_ports(1)
    spark = ["--engine", "spark"]
    for arguments, environment, code, says in (
        (spark, {"PYTHONPATH": str(tmp_path)}, 2, "needs pyspark: pip install 'dragoman[spark]'"),
        (spark, {"JAVA_HOME": str(tmp_path)}, 2, "needs Java, and there is none in JAVA_HOME"),
        ([*spark, "--spark-conf", "x=1"], {}, 2, "write a property of Spark as spark.NAME=VALUE"),
        (["--master", "local[2]"], {}, 2, "--master is for --engine spark"),
        (["--engine", "flink"], {}, 2, "--engine flink: this build has local, spark"),
        ([*spark, "--data-dir", str(tmp_path)], {}, 2, f"there is no ledger in {tmp_path}"),
        (
            [*spark, "--topics", "kept", "--master", f"spark://127.0.0.1:{port}"],
            {},
            1,
            f"there is no Spark master at spark://127.0.0.1:{port} (127.0.0.1:{port}: Connection refused)",
        ),
    ):
        ended = run(filled, *arguments, environment=environment)
        assert ended.returncode == code, ended.stderr
        assert says in only_sentence(ended.stderr)


def python_of_executors(kind: str, directory: Path) -> Path:
    """One that will not do."""
    executable = directory / "python"
    match kind:
        case "without Dragoman":
            base = getattr(sys, "_base_executable", sys.executable)
            script = f'PYTHONPATH="$(echo "$PYTHONPATH" | sed s@{ROOT}:@@)" exec {base} "$@"'
        case "of another version":
            # As pyspark compares them: by sys.version_info.
            (directory / "sitecustomize.py").write_text(
                "import collections, sys\n"
                "Version = collections.namedtuple('Version', 'major minor micro releaselevel serial')\n"
                "sys.version_info = Version(3, 8, 0, 'final', 0)\n"
            )
            script = f'PYTHONPATH={directory}:$PYTHONPATH exec {sys.executable} "$@"'
        case _:
            return directory / "absent"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("without Dragoman", "the executors do not have Dragoman: install it there"),
        pytest.param(
            *("of another version", "the executors run another Python than this one"), marks=pytest.mark.full
        ),
        pytest.param("absent", "the executors have no Python", marks=pytest.mark.full),
    ],
)
def test_a_python_of_the_executors_that_will_not_do_is_named(
    filled: Gateway, tmp_path: Path, kind: str, says: str
) -> None:
    python = {"PYSPARK_PYTHON": str(python_of_executors(kind, tmp_path))}
    ended = run(filled, "--topics", "kept", *ON_SPARK, environment=python)
    assert ended.returncode == 1, ended.stderr
    assert says in only_sentence(ended.stderr)


@pytest.mark.timeout(300)
def test_a_damaged_run_stays_as_it_is_and_the_others_are_merged(filled: Gateway) -> None:
    """The last of these tests: it changes what the others merge."""
    (path,) = files_with_records(filled.data_dir)
    stored = bytearray(path.read_bytes())
    # Of the topic that was written last.
    at, size = list(wal_frames(path))[-300]
    frame = read_frame(memoryview(bytes(stored[at : at + size])))
    assert isinstance(frame, Frame)
    stored[at + frame.batches[0].start + 65] ^= 0xFF
    path.write_bytes(stored)
    merged = run(filled, "--topics", "kept", *ON_SPARK)
    assert merged.returncode == 3, merged.stderr
    assert "is damaged" in merged.stderr and "dragoman audit" in merged.stderr
    assert "Merged 698 runs" in merged.stdout
