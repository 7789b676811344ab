"""Kafka's own tools over as many partitions as a large cluster has."""

from collections.abc import Iterator
from hashlib import sha256

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.e2e.conftest import Endpoint
from tests.e2e.kafka_tools import Said, Tool, said
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.gateway import GatewayFactory
from tests.support.tool_runner import ToolRunner

TOPICS = [sha256(bytes([number])).hexdigest() for number in range(100)]
"""With hashes far apart. Where they follow each other (t-1, t-2) so do those of all partitions, and Kafka's
admin client takes many minutes, before it sends anything, to put 100,000 of them into an immutable map."""
WRITTEN = TOPICS[7], 5


@pytest.fixture(
    params=[pytest.param(600, id="short"), pytest.param(1_000, id="full", marks=pytest.mark.full)]
)
def partitions(request: pytest.FixtureRequest) -> int:
    """How many each topic has: more together than a request has elements, where it may not name them all."""
    count: int = request.param
    return count


@pytest.fixture
def large(gateway_factory: GatewayFactory, partitions: int) -> Iterator[Endpoint]:
    """A gateway with all these partitions, and one record."""
    gateway = gateway_factory()
    gateway.start()
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for name in TOPICS:
        admin.create_topics([NewTopic(name, partitions)])[name].result(CLIENT_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce(WRITTEN[0], b"x", partition=WRITTEN[1])
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    yield gateway


def run(tools: ToolRunner, endpoint: Endpoint, tool: Tool, *arguments: str) -> Said:
    done = said(tools, endpoint, tool, arguments)
    assert done.exit_code == 0, done.lines[:10]
    return done


def test_kafka_tools_print_every_partition(tool_runner: ToolRunner, large: Endpoint, partitions: int) -> None:
    every = {f"{name}:{index}" for name in TOPICS for index in range(partitions)}
    offsets = dict(line.rsplit(":", 1) for line in run(tool_runner, large, Tool.GET_OFFSETS).lines)
    assert offsets.keys() == every
    written = "{}:{}".format(*WRITTEN)
    assert offsets.pop(written) == "1" and set(offsets.values()) == {"0"}
    lines = run(tool_runner, large, Tool.TOPICS, "--describe").lines
    heads = [line for line in lines if "PartitionCount:" in line]
    assert len(heads) == len(TOPICS) and all(f"PartitionCount: {partitions}\t" in head for head in heads)
    assert sum("\tPartition: " in line for line in lines) == len(TOPICS) * partitions
