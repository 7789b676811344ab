"""The first moments of the `dragoman` command: Ctrl-C while it imports its modules."""

import signal
import subprocess
import sys

import pytest

import gateway.cli.main
from gateway.cli.script import main

INTERRUPTED_AT = """
import importlib.abc, os, signal, sys

class CtrlC(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "gateway.cli.client_commands":
            print("importing", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["dragoman", "--help"]
from gateway.cli.script import main
main()
"""


def _interrupted(before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + INTERRUPTED_AT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ctrl_c_while_modules_are_imported_ends_it_without_a_traceback() -> None:
    ended = _interrupted()
    assert ended.returncode == -signal.SIGINT
    assert ended.stdout == "importing\n"
    assert ended.stderr == ""


def test_a_process_that_ignores_ctrl_c_goes_on() -> None:
    ended = _interrupted("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    assert ended.returncode == 0
    assert "dragoman serve" in ended.stdout


def test_the_command_itself_hears_of_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    monkeypatch.setattr(gateway.cli.main, "main", lambda: heard.append(signal.getsignal(signal.SIGINT)))
    main()
    assert heard == [signal.default_int_handler]
