"""`make test`: all tests in two parts, then one table of suites.

The first part runs in two processes at a time; the second, of tests that judge wall time, in one. Arguments
go to pytest. Where they choose tests (a path, `-k` and the like) pytest runs once, in one process, with only
these arguments.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.suite_counts import (
    Suites,
    allowed_skips,
    failure_lines,
    is_ci,
    merged,
    read_counts,
    refusal_lines,
    refused_skips,
    table_lines,
)
from tests.support.suite_table import FULL_VARIABLE

WORKERS = 2
SLOWEST = 40
"""Phases of tests that are printed with their seconds: what to look at when a run takes too long."""
UNIT_SUITE = "tests/unit"
CHOOSING = (
    *("-k", "-m", "-h", "--help", "--version", "--markers", "--fixtures", "--co", "--pdb", "--trace"),
    *("--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise"),
    *("--deselect", "--ignore", "--pyargs", "--renew-transcripts"),
)
"""Options of pytest that choose tests, or that make it a run of another kind."""


@dataclass(frozen=True, slots=True)
class Part:
    title: str
    first: tuple[str, ...]
    """Options that those of the caller may change."""
    last: tuple[str, ...] = ()


PARTS = (
    Part(
        f"all that may share the machine, in {WORKERS} processes",
        first=("-m", "not serial", "-n", str(WORKERS), "--durations", str(SLOWEST)),
    ),
    Part("what judges time, in one process", first=("-m", "serial"), last=("-n", "0")),
)


def is_path(argument: str) -> bool:
    return not argument.startswith("-") and Path(argument.partition("::")[0]).exists()


def is_choice(argument: str) -> bool:
    return any(
        argument.startswith(option) if len(option) == 2 else argument.partition("=")[0] == option
        for option in CHOOSING
    )


def estimate() -> str:
    if os.environ.get(FULL_VARIABLE) == "1":
        return "hours, for the long runs are among them"
    return "about an hour on 2 cores"


Pytest: TypeAlias = Callable[[Sequence[str]], int]


def environment_of_tests() -> dict[str, str]:
    """Compiled modules are kept, whatever the caller prefers: tests start a thousand gateways and commands of
    a new checkout, and each would compile it, which takes as long as all else that it does until it serves.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(arguments: Sequence[str]) -> int:
    """pytest's exit code."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env=environment_of_tests())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # Ctrl-C went to pytest too, which stops what its tests have started.
            continue


def run_parts(parts: Sequence[Part], options: Sequence[str], run: Pytest = run) -> int:
    """0, or the exit code of the first part that failed.

    Errors: ValueError when `tests/allowed_skips.txt` cannot be read.
    """
    begun = time.monotonic()
    codes: list[int] = []
    counts: list[Suites] = []
    with tempfile.TemporaryDirectory(prefix="dragoman-suites-") as directory:
        for number, part in enumerate(parts, 1):
            say(f"Part {number} of {len(parts)}: {part.title}")
            counts_path = Path(directory, f"{number}.json")
            codes.append(run([*part.first, *options, *part.last, f"--suite-counts={counts_path}"]))
            if counts_path.exists():
                counts.append(read_counts(counts_path.read_text()))
            # After failed tests the second part still runs; after any other failure it does not.
            if codes[-1] not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                break
    for line in summary(merged(counts)):
        say(line)
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    say(f"{minutes} min {seconds} s")
    return next((code for code in codes if code != 0), 0)


def summary(suites: Suites) -> list[str]:
    if not suites:
        return []
    lines = ["", *table_lines(suites)]
    failed = list(failure_lines(suites))
    if failed:
        lines += ["", "Failed:", *failed]
    refused = refused_skips(suites, allowed_skips(Path.cwd())) if is_ci() else []
    if refused:
        lines += ["", "Skips that CI does not allow:", *refusal_lines(refused)]
    return lines


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str], run: Pytest = run) -> int:
    """`--unit` before all else leaves out the other suites, and what judges time."""
    unit = list(arguments[:1]) == ["--unit"]
    options = list(arguments[1:] if unit else arguments)
    paths = [UNIT_SUITE] if unit else []
    parts = PARTS[:1] if unit else PARTS
    if any(is_path(option) for option in options):
        return run(options)
    if any(is_choice(option) for option in options):
        return run([*paths, *options])
    if unit:
        say("Unit tests: about a minute. Those that judge time run in `make test` alone.")
    else:
        say(f"Tests: {estimate()}, in {len(parts)} parts.")
    return run_parts(parts, [*paths, *options], run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
