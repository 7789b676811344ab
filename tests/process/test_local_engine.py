"""The local engine as a process: how it ends, and what it says when it cannot begin."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "pipeline.engines.process"]
WAIT_S = 60.0


def start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def ended(request: bytes) -> tuple[int, list[dict[str, object]]]:
    """Exit code and lines of an engine whose stdin stays open until it has ended."""
    with start() as engine:
        assert engine.stdin is not None and engine.stdout is not None
        engine.stdin.write(request + b"\n")
        engine.stdin.flush()
        said = [json.loads(line) for line in engine.stdout]
        return engine.wait(WAIT_S), said


def test_without_a_gateway_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    code, said = ended(json.dumps({"peer": {"path": str(tmp_path / "internal.sock")}}).encode())
    assert code == 1
    assert len(said) == 1 and "does a gateway run with this data directory?" in str(said[0]["error"])


@pytest.mark.parametrize(
    ("request_line", "says"),
    [
        (b"no json", "malformed"),
        (b'{"peer": {"path": "x"}, "topic": "t"}', "unknown field `topic`"),
        (b"{}", "missing required field `peer`"),
        (b'{"peer": {"path": "x"}, "policy": {"due_runs": 0}}', "merges are due at"),
        (b'{"peer": {"path": "x"}, "policy": {"due": 1}}', "due"),
    ],
)
def test_a_request_that_it_does_not_understand_is_one_sentence(request_line: bytes, says: str) -> None:
    code, said = ended(request_line)
    assert code == 1
    assert len(said) == 1 and says in str(said[0]["error"])


def test_it_ends_with_its_stdin_whatever_it_waits_for() -> None:
    # A gateway that listens and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent, start() as engine:
        assert engine.stdin is not None
        peer = {"host": "127.0.0.1", "port": silent.getsockname()[1]}
        engine.stdin.write(json.dumps({"peer": peer}).encode() + b"\n")
        engine.stdin.flush()
        silent.settimeout(WAIT_S)
        connection, _ = silent.accept()
        with connection:
            assert engine.poll() is None
            engine.stdin.close()
            assert engine.wait(WAIT_S) == 1


def test_it_ends_if_it_gets_no_request() -> None:
    with start() as engine:
        assert engine.stdin is not None
        engine.stdin.close()
        assert engine.wait(WAIT_S) == 1
