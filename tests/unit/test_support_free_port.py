"""`make run` takes the usual port when it is free, and says so when it must take another."""

import socket
import subprocess
import sys

from tests.support.ports import free_ports
from tests.support.versions import ROOT


def asked_for(port: int) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "tools/free_port.py"), str(port), "for clients"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
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
