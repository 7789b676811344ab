"""Kafka's own TransactionalMessageCopier is killed, and so is the server: each message is copied once.

As Kafka's system tests do it: VerifiableProducer writes the messages, one copier for each partition copies
them in transactions of which some are aborted at random, and VerifiableConsumer reads what is committed.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application
from tests.e2e.kafka_tools import Tool, said
from tests.e2e.transactional import PARTITIONS, SOURCE, TARGET, committed_values, server_to_copy_at
from tests.support.client_java import jvm_options, why_no_java_client
from tests.support.kafka import KAFKA_TOOLS_JARS, kafka_tools_classpath
from tests.support.tool_runner import ToolRunner

COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
WAIT_S: Final = 120.0


server = pytest.fixture(server_to_copy_at)


class Copier:
    """Of one partition. It ends when it has copied all that was there when it was started."""

    def __init__(self, server: Endpoint, directory: Path, partition: int, transaction_size: int) -> None:
        self._path = directory / f"copier-{partition}"
        self._path.mkdir()
        self._application = Application(
            [
                *("java", *jvm_options(self._path, "log4j2-tools.xml")),
                *("-cp", kafka_tools_classpath(), COPIER, "--broker-list", server.bootstrap),
                *("--input-topic", SOURCE, "--input-partition", str(partition), "--output-topic", TARGET),
                *("--transactional-id", f"copier-{partition}", "--consumer-group", f"copiers-{partition}"),
                *("--transaction-size", str(transaction_size), "--enable-random-aborts"),
                *("--use-group-metadata",),
            ],
            self._path,
        )

    def start(self) -> None:
        self._application.start()

    def kill9(self) -> None:
        self._application.kill9()

    def wait_until_it_copies(self) -> None:
        """Some more than before."""
        before = self._reports()
        self._application.wait_until(lambda: self._reports() > before, WAIT_S)

    def finish(self) -> None:
        self._application.finish(WAIT_S)

    def _reports(self) -> int:
        """How often it has said how far it is."""
        log = self._path / "application.log"
        return log.read_text().count('"remaining":') if log.exists() else 0


@pytest.fixture
def copiers(server: Endpoint, tmp_path: Path, transaction_size: int) -> Iterator[list[Copier]]:
    reason = KAFKA_TOOLS_JARS.why_missing() or why_no_java_client()
    if reason is not None:
        pytest.skip(reason)
    made = [Copier(server, tmp_path, partition, transaction_size) for partition in range(PARTITIONS)]
    yield made
    for copier in made:
        copier.kill9()


def produce(tools: ToolRunner, server: Endpoint, count: int) -> None:
    """Numbers from 0 on."""
    arguments = ["--topic", SOURCE, "--max-messages", str(count)]
    done = said(tools, server, Tool.VERIFIABLE_PRODUCER, arguments)
    assert json.loads(done.lines[-1])["acked"] == count, done.lines[-3:]


def consume(tools: ToolRunner, server: Endpoint, count: int, config: Path) -> list[str]:
    """The first values that are committed."""
    config.write_text("isolation.level=read_committed\n")
    arguments = [
        *("--topic", TARGET, "--group-id", "verified", "--reset-policy", "earliest", "--verbose"),
        *("--max-messages", str(count), "--command-config", str(config)),
    ]
    done = said(tools, server, Tool.VERIFIABLE_CONSUMER, arguments)
    events = [json.loads(line) for line in done.lines]
    return [event["value"] for event in events if event["name"] == "record_data"]


def copy_while_all_are_killed(server: Endpoint, copiers: list[Copier], rounds: int) -> None:
    for copier in copiers:
        copier.start()
    for number in range(rounds):
        victim = copiers[number % len(copiers)]
        victim.wait_until_it_copies()
        victim.kill9()
        victim.start()
        server.kill9()
        server.restart()
    for copier in copiers:
        copier.finish()


@pytest.mark.parametrize(
    ("count", "transaction_size", "rounds"),
    [
        pytest.param(3000, 50, 1, id="short"),
        pytest.param(100_000, 100, 12, id="long", marks=pytest.mark.full),
    ],
)
def test_each_message_is_copied_once_though_copiers_and_the_server_are_killed(
    tool_runner: ToolRunner, server: Endpoint, copiers: list[Copier], tmp_path: Path, count: int, rounds: int
) -> None:
    produce(tool_runner, server, count)
    copy_while_all_are_killed(server, copiers, rounds)
    once = Counter(str(number) for number in range(count))
    assert Counter(consume(tool_runner, server, count, tmp_path / "consumer.properties")) == once
    assert Counter(committed_values(server, TARGET, PARTITIONS)) == once
