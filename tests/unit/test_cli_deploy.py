"""The files in deploy/: the Dockerfile's steps in a clean directory without Docker, and the unit."""

import configparser
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.versions import ROOT

DEPLOY = ROOT / "deploy"
INSTALL_S = 240.0
WAIT_S = 30.0


def steps(word: str) -> list[str]:
    """What follows a Dockerfile's instruction, in order."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(" ", 1)[1] for line in text.splitlines() if line.startswith(f"{word} ")]


def copy_sources(to: Path) -> None:
    for step in steps("COPY"):
        if step.startswith("--from"):
            continue
        *sources, target = step.split()
        for name in sources:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, to / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, to / target)


def test_the_steps_of_the_dockerfile_give_a_gateway_that_serves(tmp_path: Path) -> None:
    clean = tmp_path / "src"
    clean.mkdir()
    copy_sources(clean)
    installed = tmp_path / "opt"
    for step in steps("RUN")[:2]:
        command = shlex.split(step.replace("/opt/dragoman", str(installed)))
        command[0] = sys.executable if command[0] == "python" else command[0]
        finished = subprocess.run(command, cwd=clean, capture_output=True, text=True, timeout=INSTALL_S)
        if finished.returncode and "No matching distribution" in finished.stderr:
            pytest.skip("needs a package index")
        assert finished.returncode == 0, finished.stderr
    (entry,) = steps("ENTRYPOINT")
    (command_line,) = steps("CMD")
    (environment,) = steps("ENV")
    name, _, value = environment.partition("=")
    data = tmp_path / value.lstrip("/")
    argv = [part.replace("/opt/dragoman", str(installed)) for part in json.loads(entry)]
    ready = tmp_path / "ready.json"
    argv += [*json.loads(command_line), "--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*argv, "--ready-file", str(ready)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], name: str(data)},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.exists()
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert (data / "metadata.db").exists()


def test_the_image_runs_as_a_user_without_rights() -> None:
    (user,) = steps("USER")
    assert int(user) >= 1000
    assert all(image.split()[0].endswith("-slim") for image in steps("FROM"))


def test_the_unit_runs_serve_in_its_state_directory_and_ends_it_by_sigterm() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "dragoman.service")
    service = unit["Service"]
    command = shlex.split(service["ExecStart"])
    assert command[1] == "serve" and command[-1] == f"/var/lib/{service['StateDirectory']}"
    shown = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "serve", "--help"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=ROOT,
    ).stdout
    for flag in (part for part in command if part.startswith("--")):
        assert flag in shown
    assert service["KillSignal"] == "SIGTERM" and service["DynamicUser"] == "yes"
