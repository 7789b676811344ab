"""`make run` on a terminal: its variables reach the gateway, and Ctrl-C is no error of make."""

import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.terminal import CTRL_C, Terminal
from tests.support.versions import ROOT

INSTALLED = (".venv/.stamp-run", "pyproject.toml", "requirements/run.txt")
"""What make takes as up to date: a test installs nothing."""


def make_run(data: Path, ports: Sequence[int], *more: str) -> Terminal:
    settled = [word for target in INSTALLED for word in ("-o", target)]
    variables = [f"PORT={ports[0]}", f"ADMIN_PORT={ports[1]}", f"DATA={data}", *more]
    return Terminal(["make", "-C", str(ROOT), *settled, "run", *variables], columns=200)


def test_port_data_and_arguments_are_variables_and_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    ports, ready = free_ports(2), tmp_path / "ready.json"
    with make_run(tmp_path / "data", ports, f"SERVE_ARGS=--ready-file {ready}") as terminal:
        terminal.wait_for("metrics")
        assert f"PLAINTEXT://127.0.0.1:{ports[0]}" in terminal.seen
        assert f"http://127.0.0.1:{ports[1]}/metrics" in terminal.seen
        assert (tmp_path / "data" / "log").exists() and ready.exists()
        terminal.write(CTRL_C)
        # As of any command that Ctrl-C has ended, but only after the gateway, and without a complaint.
        assert terminal.exit_code() == -signal.SIGINT
    assert "gateway.stopped" in terminal.seen and "***" not in terminal.seen


def test_make_help_and_the_readme_name_every_variable_of_make_run() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], check=True, capture_output=True, text=True)
    (shown,) = [line for line in listed.stdout.splitlines() if line.startswith("  make run ")]
    (written,) = [line for line in (ROOT / "README.md").read_text().splitlines() if "(choose with" in line]
    for variable in ("PORT=", "ADMIN_PORT=", "DATA=", "SERVE_ARGS="):
        # Not as the end of a longer name.
        assert re.search(rf"\b{variable}", shown) and re.search(rf"\b{variable}", written), variable


def test_where_the_port_is_taken_the_demo_that_finds_the_other_one_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        with make_run(tmp_path / "data", [wanted, *free_ports(1)]) as terminal:
            terminal.wait_for("metrics")
            (found,) = set(re.findall(r"PLAINTEXT://127.0.0.1:(\d+)", terminal.seen))
            assert f"Port {wanted} is taken" in terminal.seen
            assert f"(make demo BOOTSTRAP=127.0.0.1:{found})" in terminal.seen
            terminal.write(CTRL_C)
            assert terminal.exit_code() == -signal.SIGINT


def demo_of(*variables: str) -> str:
    """The command that it would run."""
    settled = [word for target in INSTALLED for word in ("-o", target)]
    command = ["make", "-C", str(ROOT), "-n", *settled, "demo", *variables]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_demo_finds_the_gateway_at_the_port_that_make_run_has() -> None:
    assert "--bootstrap 127.0.0.1:9092" in demo_of("PORT=9092")
    assert "--bootstrap 127.0.0.1:9192" in demo_of("PORT=9192")
    assert "--bootstrap 127.0.0.1:7" in demo_of("PORT=9192", "BOOTSTRAP=127.0.0.1:7")


def test_a_second_one_on_the_same_directory_says_how_to_name_another(tmp_path: Path) -> None:
    with make_run(tmp_path / "data", free_ports(2)) as first:
        first.wait_for("metrics")
        with make_run(tmp_path / "data", free_ports(2)) as second:
            assert second.exit_code() != 0
            assert "make run DATA=other" in second.seen
        first.write(CTRL_C)
        assert first.exit_code() == -signal.SIGINT
