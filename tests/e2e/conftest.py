"""The endpoint under test, and the clients."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.client_aiokafka import AiokafkaClient
from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.client_go import GO_CLIENTS, started_go_clients
from tests.e2e.client_kafka_python import KafkaPythonClient
from tests.e2e.client_kafkajs import KafkajsClient, started_node, why_no_node
from tests.e2e.client_kcat import KcatClient, kcat
from tests.support.client import Ability, ClientUnderTest, Codec
from tests.support.client_java import started_jvm, why_no_java_client
from tests.support.client_program import ClientProgram, ProgramClient
from tests.support.gateway import running_gateway
from tests.support.go_tools import why_no_go
from tests.support.kafka import running_kafka
from tests.support.workers import CLIENT_NAMES

ClientsByName = Callable[[str], ClientUnderTest]


class Endpoint(Protocol):
    """A gateway, or Apache Kafka when DRAGOMAN_TEST_TARGET=kafka: the tests hold for both."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def bootstrap(self) -> str: ...

    def restart(self) -> None:
        """Stop cleanly (unless it was killed) and start again on the same port."""
        ...

    def kill9(self) -> None: ...


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    running: AbstractContextManager[Endpoint]
    match os.environ.get("DRAGOMAN_TEST_TARGET", "gateway"):
        case "gateway":
            running = running_gateway(tmp_path_factory.mktemp("gateway"))
        case "kafka":
            running = running_kafka()
        case other:
            raise pytest.UsageError(f"DRAGOMAN_TEST_TARGET is gateway or kafka, not {other}")
    with running as server:
        yield server


class Programs:
    """The programs of clients that are not Python libraries; each is started when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: dict[str, ClientProgram] = {}

    def started(self, name: str) -> ClientProgram:
        if name not in self._started:
            directory = self._directory / name
            directory.mkdir()
            self._started[name] = self._start(name, directory)
        return self._started[name]

    def stop(self) -> None:
        for program in self._started.values():
            program.stop()

    def _start(self, name: str, directory: Path) -> ClientProgram:
        if name == "kafkajs":
            return started_node(directory)
        if name in GO_CLIENTS:
            return started_go_clients(directory)
        return started_jvm(name, directory)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    running = Programs(tmp_path_factory.mktemp("programs"))
    try:
        yield running
    finally:
        running.stop()


def why_no_client(name: str) -> str | None:
    """The reason why this client cannot run here, or None."""
    match name:
        case "java" | "java-3.9":
            return why_no_java_client(name)
        case "kafkajs":
            return why_no_node()
        case "kcat":
            found = kcat()
            return found if isinstance(found, str) else None
        case _ if name in GO_CLIENTS:
            return why_no_go()
    return None


@pytest.fixture
def client_named(endpoint: Endpoint, programs: Programs) -> ClientsByName:
    """Makes a client by its name; skips the test where that client cannot run."""

    def make(name: str) -> ClientUnderTest:
        reason = why_no_client(name)
        if reason is not None:
            pytest.skip(reason)
        match name:
            case "confluent":
                return ConfluentClient(endpoint.bootstrap)
            case "kafka-python":
                return KafkaPythonClient(endpoint.bootstrap)
            case "aiokafka":
                return AiokafkaClient(endpoint.bootstrap)
            case "java" | "java-3.9":
                return ProgramClient(name, endpoint.bootstrap, programs.started(name))
            case "kafkajs":
                return KafkajsClient(name, endpoint.bootstrap, programs.started(name))
            case "kcat":
                program = kcat()
                assert not isinstance(program, str)
                return KcatClient(endpoint.bootstrap, program)
            case _ if name in GO_CLIENTS:
                return GO_CLIENTS[name](name, endpoint.bootstrap, programs.started(name))
        raise ValueError(name)

    return make


@pytest.fixture(params=CLIENT_NAMES)
def client(request: pytest.FixtureRequest, client_named: ClientsByName) -> ClientUnderTest:
    return client_named(request.param)


@pytest.fixture(params=list(Codec))
def codec(request: pytest.FixtureRequest) -> Codec:
    return Codec(request.param)


@pytest.fixture(params=[False, True], ids=["plain", "idempotent"])
def idempotent(request: pytest.FixtureRequest, client: ClientUnderTest) -> bool:
    """Whether `client` is to produce idempotently; skips the test where it cannot."""
    if request.param and not client.can_be_idempotent:
        pytest.skip(f"{client.name} has no idempotent producer")
    return bool(request.param)


@pytest.fixture
def readers(client_named: ClientsByName) -> list[ClientUnderTest]:
    """All clients that can run here and read. Where one is missing its own tests are skipped, and say so."""
    clients = [client_named(name) for name in CLIENT_NAMES if why_no_client(name) is None]
    return [client for client in clients if Ability.CONSUME not in client.cannot]


@pytest.fixture
def stand_in(endpoint: Endpoint) -> ClientUnderTest:
    """Does what the client under test cannot do, so that the rest of the test runs for it too."""
    return ConfluentClient(endpoint.bootstrap)


@pytest.fixture
def creator(client: ClientUnderTest, stand_in: ClientUnderTest) -> ClientUnderTest:
    """Creates topics: the client under test, if it can."""
    return stand_in if Ability.CREATE_TOPICS in client.cannot else client


numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"e2e-{next(numbers)}"
