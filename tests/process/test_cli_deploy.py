"""The files in deploy/: the Dockerfile's steps in a clean directory without Docker, and the unit."""

import configparser
import json
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.data_files import journal_files
from tests.support.ports import free_ports
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


def page(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=WAIT_S) as response:
        return bytes(response.read())


def test_the_steps_of_the_dockerfile_give_a_gateway_that_serves(tmp_path: Path) -> None:
    clean = tmp_path / "src"
    clean.mkdir()
    copy_sources(clean)
    installed = tmp_path / "opt"
    for step in steps("RUN")[:3]:
        command = shlex.split(step.replace("/opt/dragoman", str(installed)))
        command[0] = sys.executable if command[0] == "python" else command[0]
        finished = subprocess.run(command, cwd=clean, capture_output=True, text=True, timeout=INSTALL_S)
        if finished.returncode and "No matching distribution" in finished.stderr:
            pytest.skip("needs a package index")
        assert finished.returncode == 0, finished.stderr
    (entry,) = steps("ENTRYPOINT")
    (command_line,) = steps("CMD")
    port, admin_port = free_ports(2)
    data = tmp_path / "data"
    environment = {
        name: value.replace("/opt/dragoman", str(installed)).replace("/data", str(data))
        for name, _, value in (text.partition("=") for text in shlex.split(steps("ENV")[0]))
    }
    # As in the image, but for the ports, which are free ones here.
    for name, was, now in (("LISTENERS_LISTEN", 9092, port), ("ADMIN_LISTEN", 9644, admin_port)):
        assert environment[f"DRAGOMAN_{name}"].endswith(f"0.0.0.0:{was}")
        environment[f"DRAGOMAN_{name}"] = environment[f"DRAGOMAN_{name}"].replace(str(was), str(now))
    argv = [part.replace("/opt/dragoman", str(installed)) for part in json.loads(entry)]
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*argv, *json.loads(command_line), "--ready-file", str(ready)],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    (health,) = steps("HEALTHCHECK")
    check = json.loads(health.partition("CMD ")[2].replace("/opt/dragoman", str(installed)))
    try:
        deadline = time.monotonic() + WAIT_S
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.exists()
        assert subprocess.run(check, env=environment, timeout=WAIT_S).returncode == 0
        # The console came with the package. It is closed, as the address is not on loopback and has no token.
        assert b"console.js" in page(admin_port, "")
        assert json.loads(page(admin_port, "api/session"))["isClosed"] is True
        # With no arguments clients on the machine get an address that they can reach.
        assert environment["DRAGOMAN_LISTENERS_ADVERTISE"] == "localhost:9092"
        assert steps("EXPOSE") == ["9092 9644"]
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
    sick = subprocess.run(check, env=environment, timeout=WAIT_S, capture_output=True)
    assert sick.returncode == 1
    assert journal_files(data)


def test_the_image_runs_as_a_user_without_rights() -> None:
    (user,) = steps("USER")
    assert int(user) >= 1000
    assert all(image.split()[0].endswith("-slim") for image in steps("FROM"))


def unit_of_systemd() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "dragoman.service")
    return unit


def test_the_unit_runs_serve_in_its_state_directory_and_ends_it_by_sigterm() -> None:
    service = unit_of_systemd()["Service"]
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


def test_the_unit_is_ready_when_the_gateway_says_so_and_reloads_by_its_signal() -> None:
    service = unit_of_systemd()["Service"]
    assert service["Type"] == "notify" and service["NotifyAccess"] == "main"
    assert service["ExecReload"].split() == ["/bin/kill", "-HUP", "$MAINPID"]
    assert service["UMask"] == "0077"


def test_the_unit_lets_a_merge_job_lower_its_priority_and_bound_its_memory() -> None:
    filters = [
        line.partition("=")[2]
        for line in (DEPLOY / "dragoman.service").read_text().splitlines()
        if line.startswith("SystemCallFilter=")
    ]
    # A later line adds to what an earlier one left.
    assert filters.index("setpriority setrlimit prlimit64") > filters.index("~@privileged @resources")


def test_systemd_finds_nothing_wrong_with_the_unit_and_little_exposed(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    program = tmp_path / "dragoman"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "dragoman.service"
    text = (DEPLOY / "dragoman.service").read_text()
    unit.write_text(text.replace("/opt/dragoman/bin/dragoman", str(program)))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=WAIT_S
    )
    assert verified.returncode == 0 and "dragoman.service" not in verified.stderr, verified.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert judged.returncode == 0, judged.stdout[-2000:] + judged.stderr
