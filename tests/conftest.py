"""Plugins of all suites; fixtures are next to what they start, in `tests/support/`."""

import pytest

pytest_plugins = [
    "pytester",
    "tests.support.workers",
    "tests.support.unset_logs",
    "tests.support.hung_tests",
    "tests.support.suite_table",
    "tests.support.kafka",
    "tests.support.etcd",
    "tests.support.gateway",
    "tests.support.weed",
    "tests.support.s3_servers",
    "tests.support.far_stores",
    "tests.support.tool_runner",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-transcripts", action="store_true", help="write transcripts as things are now")


@pytest.fixture
def renew_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--renew-transcripts"))
