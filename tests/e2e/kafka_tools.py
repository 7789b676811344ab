"""Kafka's own command-line tools, and what they print without the unsteady."""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from enum import Enum
from typing import Final

from tests.e2e.conftest import Endpoint
from tests.support.tool_runner import ToolRunner

APPLIED_S: Final = 30.0
STACK_LINE: Final = re.compile(r"\s+at |\s*$")
STEADY: Final = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: <id>"),
    # A dynamic default of a new Kafka cluster (KIP-966); here it is one of the software.
    (re.compile(r"Configs: min\.insync\.replicas=1,?"), "Configs: "),
    (re.compile(r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, "), ""),
)
REASON: Final = re.compile(r"(Exception|Error while executing \w+ command) ?: .*")

Filter = Callable[[str], str | None]
"""What is compared of a line; None for a line that is not."""


class Tool(Enum):
    """The main class of each script in Kafka's bin directory."""

    ACLS = "org.apache.kafka.tools.AclCommand"
    API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    CONFIGS = "kafka.admin.ConfigCommand"
    CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
    CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
    DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
    FEATURES = "org.apache.kafka.tools.FeatureCommand"
    GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
    LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
    PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
    TOPICS = "org.apache.kafka.tools.TopicCommand"
    TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
    VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
    VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


@dataclass(frozen=True, slots=True)
class Said:
    """What a person sees: exit code, and the lines of stdout and stderr without stack traces."""

    exit_code: int
    lines: Sequence[str]


def as_it_is(line: str) -> str | None:
    return line


def without_reason(line: str) -> str | None:
    """Keeps the kind of a refusal; each endpoint words its reason differently."""
    return REASON.sub(r"\1: <reason>", line)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Runs the same command against Apache Kafka and the endpoint under test, at the same time."""

    tools: ToolRunner
    kafka: Endpoint
    endpoint: Endpoint

    def await_kafka(self, tool: Tool, *arguments: str, until: Callable[[Said], bool]) -> None:
        """Until Kafka says that: its broker learns a moment later what its controller has changed."""
        deadline = time.monotonic() + APPLIED_S
        while not until(found := said(self.tools, self.kafka, tool, arguments)):
            assert time.monotonic() < deadline, found

    def run(
        self, tool: Tool, *arguments: str, stdin: str = "", compared: Filter = as_it_is, ordered: bool = True
    ) -> Said:
        """What both said. Errors: AssertionError where they differ."""
        with ThreadPoolExecutor(2) as pool:
            running = [
                pool.submit(said, self.tools, target, tool, arguments, stdin, compared)
                for target in (self.kafka, self.endpoint)
            ]
            kafka, ours = (future.result() for future in running)
        if not ordered:
            kafka, ours = (Said(one.exit_code, sorted(one.lines)) for one in (kafka, ours))
        assert ours == kafka, "\n".join(
            unified_diff(kafka.lines, ours.lines, "kafka", "ours", lineterm="", n=0)
        )
        return ours


def said(
    tools: ToolRunner,
    endpoint: Endpoint,
    tool: Tool,
    arguments: Sequence[str],
    stdin: str = "",
    compared: Filter = as_it_is,
) -> Said:
    """Errors: as `ToolRunner.call`."""
    done = tools.call(tool.value, ["--bootstrap-server", endpoint.bootstrap, *arguments], stdin)
    lines = []
    for line in (done["stdout"] + done["stderr"]).splitlines():
        if STACK_LINE.match(line):
            continue
        kept = compared(steady(line.replace(endpoint.bootstrap, "<endpoint>")))
        if kept is not None:
            lines.append(kept)
    return Said(done["exit_code"], lines)


def steady(line: str) -> str:
    for pattern, replacement in STEADY:
        line = pattern.sub(replacement, line)
    return line
