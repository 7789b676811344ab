"""Pytest plugin: a table of suites at the end, no silent skips in CI, long tests on request.

A suite is a directory below `tests/`. With `CI=true` every skip must be named in
`tests/allowed_skips.txt`, one a line as `nodeid-prefix: reason-prefix`; any other fails the run.
Tests marked `full` are deselected, not skipped, unless `DRAGOMAN_TEST_FULL=1`.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ALLOWED_SKIPS = Path("tests", "allowed_skips.txt")
FULL_VARIABLE = "DRAGOMAN_TEST_FULL"


@dataclass(frozen=True, slots=True)
class Skip:
    nodeid: str
    reason: str


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    nodeid_prefix: str
    reason_prefix: str

    def covers(self, skip: Skip) -> bool:
        return skip.nodeid.startswith(self.nodeid_prefix) and skip.reason.startswith(self.reason_prefix)


@dataclass(slots=True)
class SuiteCount:
    """Counts of one suite. An expected failure proves nothing either, so it counts as a skip."""

    passed: int = 0
    failed: int = 0
    left_for_full: int = 0
    seconds: float = 0.0
    skips: list[Skip] = field(default_factory=list)

    @property
    def run(self) -> int:
        return self.passed + self.failed


def suite_of(nodeid: str) -> str:
    """`tests/unit/test_a.py::test_b` -> `unit`; a file right below `tests/` -> `tests`."""
    parts = nodeid.split("::", 1)[0].split("/")
    inside = parts[1:] if parts[0] == "tests" else parts
    return inside[0] if len(inside) > 1 else parts[0]


def read_allowed_skips(text: str) -> list[AllowedSkip]:
    """Errors: ValueError for a line that names no reason, which would allow too much."""
    allowed = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        nodeid_prefix, separator, reason_prefix = line.partition(": ")
        if not separator or not nodeid_prefix.strip() or not reason_prefix.strip():
            raise ValueError(f"not of the form `nodeid-prefix: reason-prefix`: {line!r}")
        allowed.append(AllowedSkip(nodeid_prefix.strip(), reason_prefix.strip()))
    return allowed


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


class SuiteTable:
    def __init__(self, allowed: list[AllowedSkip]) -> None:
        self.allowed = allowed
        self.suites: dict[str, SuiteCount] = {}

    def count(self, nodeid: str) -> SuiteCount:
        return self.suites.setdefault(suite_of(nodeid), SuiteCount())

    @property
    def skips(self) -> list[Skip]:
        return [skip for count in self.suites.values() for skip in count.skips]

    @property
    def refused(self) -> list[Skip]:
        return [skip for skip in self.skips if not any(line.covers(skip) for line in self.allowed)]

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if os.environ.get(FULL_VARIABLE) == "1":
            return
        left = [item for item in items if item.get_closest_marker("full")]
        if not left:
            return
        for item in left:
            self.count(item.nodeid).left_for_full += 1
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.count(report.nodeid).skips.append(Skip(report.nodeid, skip_reason(report)))
        elif report.failed:
            self.count(report.nodeid).failed += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        count = self.count(report.nodeid)
        count.seconds += report.duration
        if report.skipped:
            count.skips.append(Skip(report.nodeid, skip_reason(report)))
        elif report.failed:
            count.failed += 1
        elif report.when == "call":
            count.passed += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if is_ci() and self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.suites:
            return
        terminalreporter.section("suites")
        for line in table_lines(self.suites):
            terminalreporter.write_line(line)
        if is_ci() and self.refused:
            terminalreporter.section("skips that CI does not allow", red=True)
            for skip in self.refused:
                terminalreporter.write_line(f"{skip.nodeid}: {skip.reason}")
            terminalreporter.write_line(f"Make them run, or name them in {ALLOWED_SKIPS}.")


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    expected_failure = getattr(report, "wasxfail", None)
    if expected_failure is not None:
        return f"expected failure {expected_failure}".rstrip()
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


def table_lines(suites: dict[str, SuiteCount]) -> Iterator[str]:
    names = sorted(suites)
    numbers = [
        (count.run, count.passed, count.failed, len(count.skips), round(count.seconds))
        for count in (suites[name] for name in names)
    ]
    width = max(len(name) for name in ["suite", *names])
    yield line_of(width, "suite", ("run", "passed", "failed", "skipped", "seconds"), "reason")
    for name, row, reason in zip(names, numbers, reasons(suites), strict=True):
        yield line_of(width, name, row, reason)
    yield line_of(width, "all", tuple(sum(column) for column in zip(*numbers, strict=True)), "")


def line_of(width: int, name: str, cells: Sequence[object], reason: str) -> str:
    columns = " ".join(f"{cell!s:>8}" for cell in cells)
    return f"{name:<{width}} {columns}  {reason}".rstrip()


def reasons(suites: dict[str, SuiteCount]) -> Iterator[str]:
    for _, count in sorted(suites.items()):
        counted = Counter(skip.reason for skip in count.skips)
        parts = [f"{number} x {reason}" for reason, number in counted.most_common()]
        if count.left_for_full:
            parts.append(f"{count.left_for_full} more in make test-full")
        yield "; ".join(parts)


def pytest_configure(config: pytest.Config) -> None:
    path = config.rootpath / ALLOWED_SKIPS
    try:
        allowed = read_allowed_skips(path.read_text()) if path.exists() else []
    except ValueError as error:
        raise pytest.UsageError(f"{path}: {error}") from error
    config.pluginmanager.register(SuiteTable(allowed), "dragoman-suite-table")
