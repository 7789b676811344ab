"""Pytest plugin: which tests share a worker of pytest-xdist, and which run in no worker at all.

Tests that share something that is dear to start (a Kafka, the program of a client library, a module's
gateway) are one group, and a group is run by one worker. Tests marked `serial` judge wall time:
`tests/support/run_suites.py` runs them afterwards, in one process. What breaks only its own (a gateway, a
small file system) is not among them.
"""

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support.ports import worker_number
from tests.support.suite_counts import suite_of

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

SERIAL_SUITES = frozenset({"hostile"})
WHOLE_SUITES = frozenset({"differential"})
"""All tests of these share one Kafka."""
KAFKA_TOOLS = "tests/e2e/test_kafka_tools"
"""All tests of files that begin so share a Kafka and the JVMs of its tools."""
CLIENT_NAMES = (
    "confluent",
    "kafka-python",
    "aiokafka",
    "java",
    "java-3.9",
    "kafkajs",
    "kcat",
    "sarama",
    "kafka-go",
    "franz-go",
)
"""The client libraries of the end-to-end tests, as ids of tests name them."""
_CLIENT = re.compile(r"[\[-](" + "|".join(sorted(CLIENT_NAMES, key=len, reverse=True)) + r")[\]-]")


def group_of(nodeid: str) -> str:
    """The suite, the client, or the file."""
    suite = suite_of(nodeid)
    if suite in WHOLE_SUITES:
        return suite
    if nodeid.startswith(KAFKA_TOOLS):
        return KAFKA_TOOLS
    client = _CLIENT.search(nodeid) if suite == "e2e" else None
    return f"{suite}-{client[1]}" if client else nodeid.partition("::")[0]


# First, so that `-m` sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if suite_of(item.nodeid) in SERIAL_SUITES:
            item.add_marker(pytest.mark.serial)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling":
    """Groups as of `--dist=loadgroup`, which pytest 9.2 makes blind to its marks; in the order of files."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_configure() -> None:
    if worker_number():
        # How long an example takes says little while another worker runs.
        settings.register_profile("parallel", deadline=None)
        settings.load_profile("parallel")
