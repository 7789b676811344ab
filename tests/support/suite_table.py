"""Pytest plugin: a table of suites at the end, no silent skips in CI, long tests on request.

With `CI=true` every skip must be named in `tests/allowed_skips.txt`, one a line as
`nodeid-prefix: reason-prefix`; any other fails the run. Tests marked `full` are deselected, not skipped,
unless `DRAGOMAN_TEST_FULL=1`. With `--suite-counts FILE` the counts go there, for what prints one table
over several runs (`tests/support/run_suites.py`), and no table is printed here.

Under pytest-xdist the workers choose the tests, and its controller hears what became of them.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.quiet import worst_slowness
from tests.support.suite_counts import (
    ALLOWED_SKIPS,
    AllowedSkip,
    Skip,
    SuiteCount,
    Suites,
    allowed_skips,
    failure,
    is_ci,
    refusal_lines,
    refused_skips,
    suite_of,
    table_lines,
    written,
)

FULL_VARIABLE = "DRAGOMAN_TEST_FULL"
TOLD_FROM = 1.5
"""How much slower than a quiet machine this one has to be for a line about it."""
PYTEST = "pytest"
"""In place of a suite, for what is the fault of none."""
_RAISED = re.compile(r"(E +)?[A-Za-z_.]+(Error|Exception|Interrupt|Exit)\b")
LEFT_FOR_FULL = "dragoman_left_for_full"
"""What a worker of pytest-xdist hands to its controller: how many long tests each suite has left out."""


class SuiteTable:
    def __init__(self, allowed: list[AllowedSkip]) -> None:
        self.allowed = allowed
        self.suites: Suites = {}
        self._not_collected: set[str] = set()

    def count(self, nodeid: str) -> SuiteCount:
        return self.suites.setdefault(suite_of(nodeid), SuiteCount())

    @property
    def refused(self) -> list[Skip]:
        return refused_skips(self.suites, self.allowed)

    # Last, so that it counts only long tests that this run would have run otherwise.
    @pytest.hookimpl(trylast=True)
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

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker chooses from all tests, so any one of them says what was left out."""
        output = getattr(node, "workeroutput", {})
        for suite, left in output.get(LEFT_FOR_FULL, {}).items():
            self.suites.setdefault(suite, SuiteCount()).left_for_full = left

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # Each worker collects, and reports what it could not collect.
        if report.passed or report.nodeid in self._not_collected:
            return
        self._not_collected.add(report.nodeid)
        if report.skipped:
            self.count(report.nodeid).skips.append(Skip(report.nodeid, skip_reason(report)))
        else:
            self._failed(report.nodeid, report.longreprtext)

    def pytest_internalerror(self, excrepr: object) -> None:
        """pytest itself has failed, or a worker: the run is over, and pytest lists no failures then."""
        lines = ["", *[line.strip() for line in str(excrepr).splitlines()]]
        # What a worker has raised is inside of what pytest-xdist raises.
        self._failed(PYTEST, next((line for line in reversed(lines) if _RAISED.match(line)), lines[-1]))

    def _failed(self, nodeid: str, why: str) -> None:
        count = self.count(nodeid)
        count.failed += 1
        count.failures.append(failure(nodeid, why))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        count = self.count(report.nodeid)
        count.seconds += report.duration
        if report.skipped:
            count.skips.append(Skip(report.nodeid, skip_reason(report)))
        elif report.failed:
            self._failed(report.nodeid, report.longreprtext)
        elif report.when == "call":
            count.passed += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        worker_output = getattr(session.config, "workeroutput", None)
        if worker_output is not None:
            worker_output[LEFT_FOR_FULL] = {
                suite: count.left_for_full for suite, count in self.suites.items() if count.left_for_full
            }
            return
        if PYTEST in self.suites:
            # pytest-xdist goes on without the worker that has ended so, and without its tests.
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        if is_ci() and self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        counts_path = session.config.getoption("--suite-counts")
        if counts_path is not None:
            Path(counts_path).write_text(written(self.suites))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slower = worst_slowness()
        if slower > TOLD_FROM:
            terminalreporter.write_line(f"memory took up to {slower:.1f} times as long as on a quiet machine")
        if not self.suites or terminalreporter.config.getoption("--suite-counts") is not None:
            return
        terminalreporter.section("suites")
        for line in table_lines(self.suites):
            terminalreporter.write_line(line)
        if is_ci() and self.refused:
            terminalreporter.section("skips that CI does not allow", red=True)
            for line in refusal_lines(self.refused):
                terminalreporter.write_line(line)


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    expected_failure = getattr(report, "wasxfail", None)
    if expected_failure is not None:
        return f"expected failure {expected_failure}".rstrip()
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite-counts", metavar="FILE", help="write the counts of suites, print no table")


def pytest_configure(config: pytest.Config) -> None:
    try:
        allowed = allowed_skips(config.rootpath)
    except ValueError as error:
        raise pytest.UsageError(f"{config.rootpath / ALLOWED_SKIPS}: {error}") from error
    config.pluginmanager.register(SuiteTable(allowed), "dragoman-suite-table")
