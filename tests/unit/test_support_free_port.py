"""`make run` takes the usual port when it is free, and says so when it must take another."""

import socket
import subprocess
import sys

import pytest

from tests.support.ports import free_ports
from tests.support.versions import ROOT


def run(text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/free_port.py"), text, "for clients"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def asked_for(port: int) -> tuple[int, str]:
    done = run(str(port))
    assert done.returncode == 0
    return int(done.stdout), done.stderr


def test_a_free_port_is_taken_without_a_word() -> None:
    (port,) = free_ports(1)
    assert asked_for(port) == (port, "")


def test_a_taken_port_is_replaced_and_both_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = taken.getsockname()[1]
        port, note = asked_for(wanted)
    assert port != wanted
    assert str(wanted) in note and str(port) in note


@pytest.mark.parametrize("text", ["abc", "", "-1", "65536", "9.5"])
def test_what_is_no_port_is_one_sentence(text: str) -> None:
    done = run(text)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"Port {text!r} for clients: expected a number from 0 to 65535.\n"
