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
from tests.support.kafka import CONNECT_JARS, JVM_FLAGS, KAFKA_VERSION
from tests.support.ports import free_ports

WAIT_S: Final = 90.0
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


@pytest.fixture
def connect(endpoint: Endpoint, tmp_path: Path) -> Iterator[Connect]:
    """A worker that is not started yet."""
    reason = CONNECT_JARS.why_missing()
    if reason is not None:
        pytest.skip(reason)
    (rest_port,) = free_ports(1)
    jars = CONNECT_JARS.fetched()
    example = copied_example(
        "kafka-connect",
        tmp_path,
        {
            "127.0.0.1:9092": endpoint.bootstrap,
            "127.0.0.1:8083": f"127.0.0.1:{rest_port}",
            f"libs/connect-file-{KAFKA_VERSION}.jar": str(jars / f"connect-file-{KAFKA_VERSION}.jar"),
            "/tmp/connect-example": str(tmp_path),
        },
    )
    # What bin/connect-distributed.sh runs.
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    classpath = CONNECT_JARS.classpath()
    worker = Application(["java", *JVM_FLAGS, "-cp", classpath, main, "worker.properties"], example)
    rest = f"http://127.0.0.1:{rest_port}"
    yield Connect(example, worker, rest, tmp_path / "in.txt", tmp_path / "out.txt")
    worker.kill9()


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
    connect.worker.wait_until(lambda: sink.committed("connect-example-lines") == 2000, WAIT_S)
    endpoint.kill9()
    endpoint.restart()
    connect.add(lines[2000:])
    connect.wait_for(3000)
    assert connect.written() == lines
    # A worker without coordinator for 3 s gives up its connectors until the next rebalance.
    for connector in ("lines-in", "lines-out"):
        connect.worker.wait_until(lambda: connect.states(connector) == ["RUNNING", "RUNNING"], WAIT_S)  # noqa: B023
    assert policies_of(endpoint, INTERNAL_TOPICS) == ["compact"] * 3


def policies_of(endpoint: Endpoint, topics: Sequence[str]) -> list[str]:
    """The cleanup.policy of each topic."""
    admin = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    described = admin.describe_configs(resources)
    return [described[resource].result(30.0)["cleanup.policy"].value for resource in resources]
