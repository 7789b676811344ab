"""Two commands that set up the same environment run one after the other."""

import subprocess
import sys
from pathlib import Path

from tests.support.versions import ROOT

LOCKED = [sys.executable, str(ROOT / "tools/locked.py")]
WAIT_S = 60.0


def script(text: str, *arguments: Path) -> list[str]:
    return [*LOCKED, "sh", "-ec", text, "sh", *map(str, arguments)]


def test_the_second_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    began, may_end, log = tmp_path / "began", tmp_path / "may-end", tmp_path / "log"
    first = script(
        'touch "$1"; until [ -e "$2" ]; do sleep 0.05; done; echo first >> "$3"', began, may_end, log
    )
    with subprocess.Popen(first) as running:
        while not began.exists():
            assert running.poll() is None
        second = script('echo second >> "$1"', log)
        with subprocess.Popen(second, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert "another make" in waiting.stderr.readline()
            assert not log.exists()
            may_end.touch()
            assert (running.wait(WAIT_S), waiting.wait(WAIT_S)) == (0, 0)
    assert log.read_text().split() == ["first", "second"]


def test_the_exit_code_is_that_of_the_command() -> None:
    assert subprocess.run([*LOCKED, "sh", "-c", "exit 3"], check=False, timeout=WAIT_S).returncode == 3
