"""Prometheus and promtool: those on PATH, or of Debian's package.

`python -m tests.support.prometheus` fetches them beforehand.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.debian import PackageMissing, UnpackedProgram, unpacked_program
from tests.support.ports import free_ports
from tests.support.processes import stop_group, tail_of
from tests.support.versions import ROOT

PACKAGE: Final = "prometheus"
CALL_TIMEOUT_S: Final = 60.0
START_TIMEOUT_S: Final = 60.0
HOST: Final = "127.0.0.1"
ROW: Final = re.compile(r"^\| (`[a-z_`, ]+`) \| ([a-z, ]*)\|", re.MULTILINE)


@lru_cache
def found_program(name: str) -> UnpackedProgram | PackageMissing:
    on_path = shutil.which(name)
    if on_path is not None:
        return UnpackedProgram(Path(on_path), os.environ)
    try:
        return unpacked_program(PACKAGE, name)
    except PackageMissing as error:
        return error


def prometheus_program(name: str) -> UnpackedProgram:
    """`prometheus` or `promtool`; the test is skipped where there is none."""
    found = found_program(name)
    if isinstance(found, PackageMissing):
        pytest.skip(f"no {name}: {found}")
    return found


def promtool(arguments: Sequence[str], text: str = "", directory: Path | None = None) -> str:
    """What it prints. AssertionError with that if it complains."""
    program = prometheus_program("promtool")
    done = subprocess.run(
        [program.path, *arguments],
        input=text,
        cwd=directory,
        env=dict(program.environment),
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_metrics(page: str) -> None:
    """AssertionError if the page is not clean: names, types, help texts, duplicates."""
    assert promtool(["check", "metrics"], page) == ""


def documented_metrics() -> dict[str, set[str]]:
    """The labels of each metric in the tables of docs/metrics.md."""
    found: dict[str, set[str]] = {}
    for names, labels in ROW.findall((ROOT / "docs/metrics.md").read_text()):
        for name in re.findall(r"`([a-z_]+)`", names):
            found[name] = {label.strip() for label in labels.split(",") if label.strip()}
    return found


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port}/-/ready", timeout=CALL_TIMEOUT_S):
                return True
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Labels (`metric`) and value of each series that the expression has now. Errors:
        urllib.error.HTTPError for one that is wrong."""
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(
            f"http://{HOST}:{self._port}/api/v1/query?{words}", timeout=CALL_TIMEOUT_S
        ) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found


@contextmanager
def running_prometheus(directory: Path, config: str) -> Iterator[Prometheus]:
    """Over a configuration file, with its data in `directory`; ready when the body begins."""
    program = prometheus_program("prometheus")
    (port,) = free_ports(1)
    (directory / "prometheus.yml").write_text(config)
    log = directory / "prometheus.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                program.path,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'prometheus-data'}",
                f"--web.listen-address={HOST}:{port}",
            ],
            cwd=directory,
            env=dict(program.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        server, deadline = Prometheus(port), time.monotonic() + START_TIMEOUT_S
        while not server.is_ready():
            assert process.poll() is None and time.monotonic() < deadline, tail_of(log)
            time.sleep(0.05)
        yield server
    finally:
        stop_group(process)


def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit("usage: python -m tests.support.prometheus")
    found = found_program("promtool")
    if isinstance(found, PackageMissing):
        sys.stderr.write(f"Tests with Prometheus will be skipped: {found}\n")
    else:
        sys.stderr.write(f"promtool: {found.path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
