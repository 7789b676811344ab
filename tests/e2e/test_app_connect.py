"""docs/examples/kafka-connect: lines of a file go through the gateway into another file."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application, GroupOffsets, copied_example
from tests.e2e.transactional import committed_records, committed_values, running_server
from tests.support.kafka import CONNECT_JARS, JVM_FLAGS, KAFKA_VERSION
from tests.support.ports import free_ports
from tests.support.topics import create_topics

WAIT_S: Final = 90.0
LINES: Final = "connect-example-lines"
INTERNAL_TOPICS: Final = ("connect-example-configs", "connect-example-offsets", "connect-example-status")


@dataclass(frozen=True, slots=True)
class Connect:
    """A worker over a copy of the example, with the files that its connectors read and write."""

    example: Path
    worker: Application
    rest: str
    source: Path
    sink: Path

    def responds(self) -> bool:
        """Whether the worker has joined its group and read its topics: it does not respond before."""
        try:
            with urllib.request.urlopen(f"{self.rest}/connectors", timeout=5.0) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def configure(self, connector: str) -> None:
        """As the curl of the README."""
        body = (self.example / f"{connector}.json").read_bytes()
        url = f"{self.rest}/connectors/{connector}/config"
        headers = {"Content-Type": "application/json"}
        order = urllib.request.Request(url, body, headers, method="PUT")
        with urllib.request.urlopen(order, timeout=30.0) as response:
            assert response.status == 201

    def states(self, connector: str) -> list[str]:
        """Of the connector and of its tasks."""
        try:
            with urllib.request.urlopen(
                f"{self.rest}/connectors/{connector}/status", timeout=5.0
            ) as response:
                status = json.load(response)
        except urllib.error.HTTPError:
            return []
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def add(self, lines: Sequence[str]) -> None:
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def written(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def wait_for(self, count: int) -> None:
        self.worker.wait_until(lambda: len(self.written()) >= count, WAIT_S)


def worker_at(endpoint: Endpoint, directory: Path) -> Connect:
    """Not started yet."""
    reason = CONNECT_JARS.why_missing()
    if reason is not None:
        pytest.skip(reason)
    (rest_port,) = free_ports(1)
    jars = CONNECT_JARS.fetched()
    example = copied_example(
        "kafka-connect",
        directory,
        {
            "127.0.0.1:9092": endpoint.bootstrap,
            "127.0.0.1:8083": f"127.0.0.1:{rest_port}",
            f"libs/connect-file-{KAFKA_VERSION}.jar": str(jars / f"connect-file-{KAFKA_VERSION}.jar"),
            "/tmp/connect-example": str(directory),
            "offset.flush.interval.ms=5000": "offset.flush.interval.ms=1000",
        },
    )
    # What bin/connect-distributed.sh runs.
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    classpath = CONNECT_JARS.classpath()
    worker = Application(["java", *JVM_FLAGS, "-cp", classpath, main, "worker.properties"], example)
    rest = f"http://127.0.0.1:{rest_port}"
    return Connect(example, worker, rest, directory / "in.txt", directory / "out.txt")


@pytest.fixture
def connect(endpoint: Endpoint, tmp_path: Path) -> Iterator[Connect]:
    made = worker_at(endpoint, tmp_path)
    yield made
    made.worker.kill9()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Endpoint]:
    """Without the connectors of another test."""
    with running_server(tmp_path / "server") as started:
        yield started


@pytest.fixture
def connect_alone(server: Endpoint, tmp_path: Path) -> Iterator[Connect]:
    made = worker_at(server, tmp_path)
    yield made
    made.worker.kill9()


def test_a_worker_takes_each_line_through_the_gateway_once_and_continues_after_restarts(
    connect: Connect, endpoint: Endpoint
) -> None:
    lines = [f"line {number}" for number in range(3000)]
    connect.add(lines[:1000])
    connect.worker.start()
    connect.worker.wait_until(connect.responds, WAIT_S)
    connect.configure("lines-in")
    connect.configure("lines-out")
    connect.wait_for(1000)
    assert connect.written() == lines[:1000]

    connect.worker.stop()
    connect.add(lines[1000:2000])
    connect.worker.start()
    connect.wait_for(2000)
    assert connect.written() == lines[:2000]

    # What is not committed yet may come twice after a crash, at Apache Kafka too.
    sink = GroupOffsets(endpoint.bootstrap, "connect-lines-out")
    # The markers of the source's transactions have offsets too.
    last = committed_records(endpoint, LINES, 1)[-1].offset() or 0
    connect.worker.wait_until(lambda: sink.committed(LINES) == last + 1, WAIT_S)
    endpoint.kill9()
    endpoint.restart()
    connect.add(lines[2000:])
    connect.wait_for(3000)
    assert connect.written() == lines
    # A worker without coordinator for 3 s gives up its connectors until the next rebalance.
    for connector in ("lines-in", "lines-out"):
        connect.worker.wait_until(lambda: connect.states(connector) == ["RUNNING", "RUNNING"], WAIT_S)  # noqa: B023
    assert policies_of(endpoint, INTERNAL_TOPICS) == ["compact"] * 3


@pytest.mark.full
def test_each_line_is_in_the_topic_once_though_the_worker_and_the_server_are_killed(
    connect_alone: Connect, server: Endpoint
) -> None:
    connect, rounds, a_round = connect_alone, 6, 10_000
    lines = [f"line {number}" for number in range(rounds * a_round)]
    create_topics(server.bootstrap, {LINES: 1})
    connect.worker.start()
    connect.worker.wait_until(connect.responds, WAIT_S)
    connect.configure("lines-in")
    for number in range(rounds):
        connect.add(lines[number * a_round : (number + 1) * a_round])
        connect.worker.wait_until(lambda: len(in_topic(server)) > number * a_round, WAIT_S)  # noqa: B023
        if number % 2 == 0:
            connect.worker.kill9()
            connect.worker.start()
        else:
            server.kill9()
            server.restart()
    connect.worker.wait_until(lambda: len(in_topic(server)) >= len(lines), WAIT_S)
    connect.worker.stop()
    assert in_topic(server) == lines


def in_topic(server: Endpoint) -> list[str]:
    return committed_values(server, LINES, 1)


def policies_of(endpoint: Endpoint, topics: Sequence[str]) -> list[str]:
    """The cleanup.policy of each topic."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    described = admin.describe_configs(resources)
    return [described[resource].result(30.0)["cleanup.policy"].value for resource in resources]
