"""Prometheus and promtool: those on PATH, or of Debian's package.

`python -m tests.support.prometheus` fetches them beforehand.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.debian import PackageMissing, UnpackedProgram, unpacked_program

PACKAGE: Final = "prometheus"
CALL_TIMEOUT_S: Final = 60.0


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
