"""Pytest plugin: a test that goes on long after its timeout ends its process, with the stacks of all threads.

pytest-timeout raises in the handler of a signal. An event loop of uvloop logs what a handler raises and goes
on, so a test that hangs in one would take the whole run to its limit, and its name would be in no report.
"""

import faulthandler
import os
from collections.abc import Generator
from typing import Final

import pytest

GRACE_S: Final = float(os.environ.get("DRAGOMAN_TEST_GRACE_S", "60"))
"""After its timeout, for what ends by it."""
_STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # While a test runs, pytest has stderr.
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    timeout_s = _timeout_s(item)
    if timeout_s and not item.config.getoption("usepdb"):
        stderr = item.config.stash[_STDERR]
        faulthandler.dump_traceback_later(timeout_s + GRACE_S, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _timeout_s(item: pytest.Item) -> float:
    """As pytest-timeout has it; 0 for none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and (marker.args or "timeout" in marker.kwargs):
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    return float(item.config.getoption("timeout", None) or item.config.getini("timeout") or 0.0)
