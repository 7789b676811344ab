"""Transactions as client libraries make them: the programs of `transactors/`, and what readers must see."""

import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.e2e.client_go import built
from tests.e2e.client_kafkajs import SOURCES as JS
from tests.e2e.client_kafkajs import node_environment, why_no_node
from tests.e2e.conftest import Endpoint
from tests.e2e.transactors.confluent import Confluent
from tests.e2e.transactors.orders import END
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.client_java import java_command, why_no_java_client
from tests.support.client_program import ClientProgram
from tests.support.gateway import running_gateway
from tests.support.go_tools import why_no_go
from tests.support.kafka import running_kafka
from tests.support.topics import create_topics

PYTHON: Final = {"confluent": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio"}
JAVA: Final = ("java", "java-3.9")
GO: Final = ("sarama", "franz-go")
LIBRARIES: Final = (*PYTHON, *JAVA, *GO, "kafkajs")
SOURCE, TARGET = "source", "target"
PARTITIONS: Final = 2
TIMEOUT_MS: Final = 60_000

SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}

numbers = itertools.count()


def running_server(directory: Path) -> AbstractContextManager[Endpoint]:
    """A gateway, or Apache Kafka when DRAGOMAN_TEST_TARGET=kafka."""
    if os.environ.get("DRAGOMAN_TEST_TARGET", "gateway") == "kafka":
        return running_kafka(SETTINGS)
    options = [word for name, value in SETTINGS.items() for word in ("--set", f"groups.{name}={value}")]
    return running_gateway(directory, options)


def server_to_copy_at(tmp_path: Path) -> Iterator[Endpoint]:
    """For a fixture of tests that kill it: a server of their own, with the topics `source` and `target`."""
    with running_server(tmp_path / "server") as started:
        create_topics(started.bootstrap, {SOURCE: PARTITIONS, TARGET: PARTITIONS})
        yield started


def why_no_transactor(library: str) -> str | None:
    """The reason why this library cannot run here, or None."""
    if library in GO:
        return why_no_go()
    if library in JAVA:
        return why_no_java_client(library)
    return why_no_node() if library == "kafkajs" else None


@dataclass(frozen=True, slots=True)
class Transactor:
    """The program of one client library."""

    endpoint: Endpoint
    program: ClientProgram

    def init(self, producer: str, transactional_id: str) -> None:
        """Errors: as all orders, RuntimeError that begins with the library's name of the error."""
        self._order("init", producer=producer, id=transactional_id, timeout_ms=TIMEOUT_MS)

    def begin(self, producer: str) -> None:
        self._order("begin", producer=producer)

    def send(self, producer: str, topic: str, *by_partition: Sequence[str]) -> None:
        """The values of each partition from 0 on."""
        for partition, values in enumerate(by_partition):
            if values:
                self._order("send", producer=producer, topic=topic, partition=partition, values=values)

    def end(self, producer: str, commit: bool) -> None:
        self._order("end", producer=producer, commit=commit)

    def transact(self, producer: str, topic: str, *by_partition: Sequence[str], commit: bool = True) -> None:
        """A whole transaction."""
        self.begin(producer)
        self.send(producer, topic, *by_partition)
        self.end(producer, commit)

    def read(self, topic: str, partitions: int, committed: bool = True) -> list[list[str]]:
        """The values of each partition, up to its first `end`."""
        values: list[list[str]] = self._order(
            "read", topic=topic, partitions=partitions, committed=committed
        )["values"]
        return values

    def start_copying(
        self, source: str, target: str, partitions: int, batch: int, abort_every: int, pause_ms: int = 0
    ) -> None:
        """With the group and the transactional id `copier-<source>`. The program takes no order meanwhile."""
        name = f"copier-{source}"
        self.program.say(
            order="copy",
            bootstrap=self.endpoint.bootstrap,
            id=name,
            group=name,
            source=source,
            target=target,
            partitions=partitions,
            batch=batch,
            abort_every=abort_every,
            pause_ms=pause_ms,
        )

    def is_copying(self) -> bool:
        """False when it has ended or failed."""
        return not self.program.has_said()

    def end_copying(self) -> None:
        """When the end of each partition was committed."""
        self.program.response()

    def _order(self, order: str, **fields: Any) -> dict[str, Any]:
        return self.program.order(order=order, bootstrap=self.endpoint.bootstrap, **fields)


@contextmanager
def running_transactor(library: str, endpoint: Endpoint, directory: Path) -> Iterator[Transactor]:
    """Its process is killed at the end."""
    home = directory / f"{library}-{next(numbers)}"
    home.mkdir()
    environment = node_environment() if library == "kafkajs" else None
    program = ClientProgram(_command(library, home), home, environment)
    try:
        yield Transactor(endpoint, program)
    finally:
        program.stop()


def fill(endpoint: Endpoint, topic: str, *by_partition: Sequence[str]) -> None:
    """Without transactions."""
    producer = Producer({"bootstrap.servers": endpoint.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for partition, values in enumerate(by_partition):
        for value in values:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def read_until_end(endpoint: Endpoint, topic: str, partitions: int, committed: bool) -> list[list[str]]:
    """As `Transactor.read`, in this process."""
    return Confluent().read(endpoint.bootstrap, topic, partitions, committed)


def committed_records(endpoint: Endpoint, topic: str, partitions: int) -> list[Message]:
    """What a reader of what is committed gets up to the last stable offset, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": endpoint.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
    )
    reading = set(range(partitions))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in reading])
    found: list[Message] = []
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while reading:
        assert time.monotonic() < deadline, f"{topic}: no end of {sorted(reading)}"
        for message in consumer.consume(500, 0.2):
            if (error := message.error()) is None:
                found.append(message)
            elif error.name() == "_PARTITION_EOF":
                reading.discard(message.partition() or 0)
    consumer.close()
    return found


def committed_values(endpoint: Endpoint, topic: str, partitions: int) -> list[str]:
    return [(message.value() or b"").decode() for message in committed_records(endpoint, topic, partitions)]


def numbered(count: int, partitions: int) -> list[list[str]]:
    """Values of each partition, `count` in all, and `end` after them."""
    return [[*map(str, range(first, count, partitions)), END] for first in range(partitions)]


def _command(library: str, directory: Path) -> Sequence[str]:
    if library in JAVA:
        return java_command(library, directory, "Transactor")
    if library in GO:
        return [str(built()), "transactor", library]
    if library == "kafkajs":
        return ["node", str(JS / "transactor.js")]
    return [sys.executable, "-m", f"tests.e2e.transactors.{PYTHON[library]}"]
