"""The endpoint under test, and the three clients."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from tests.e2e.client import ClientUnderTest, Codec
from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.client_java import started_jvm, why_no_java_client
from tests.e2e.client_kafka_python import KafkaPythonClient
from tests.e2e.program import ClientProgram, ProgramClient
from tests.support.gateway import running_gateway
from tests.support.kafka import running_kafka

CLIENT_NAMES = ("confluent", "kafka-python", "java")
ClientsByName = Callable[[str], ClientUnderTest]


class Endpoint(Protocol):
    """A gateway, or Apache Kafka when DRAGOMAN_E2E_TARGET=kafka: the tests hold for both."""

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
    match os.environ.get("DRAGOMAN_E2E_TARGET", "gateway"):
        case "gateway":
            running = running_gateway(tmp_path_factory.mktemp("gateway"))
        case "kafka":
            running = running_kafka()
        case other:
            raise pytest.UsageError(f"DRAGOMAN_E2E_TARGET is gateway or kafka, not {other}")
    with running as server:
        yield server


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    reason = why_no_java_client()
    if reason is not None:
        pytest.skip(reason)
    started = started_jvm(tmp_path_factory.mktemp("java"))
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def client_named(endpoint: Endpoint, request: pytest.FixtureRequest) -> ClientsByName:
    """Makes a client by its name; skips the test where that client cannot run."""

    def make(name: str) -> ClientUnderTest:
        match name:
            case "confluent":
                return ConfluentClient(endpoint.bootstrap)
            case "kafka-python":
                return KafkaPythonClient(endpoint.bootstrap)
            case "java":
                return ProgramClient(name, endpoint.bootstrap, request.getfixturevalue("jvm"))
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
    """All clients that can run here. Where Java is missing its own tests are skipped, and say so."""
    names = [name for name in CLIENT_NAMES if name != "java" or why_no_java_client() is None]
    return [client_named(name) for name in names]


numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"e2e-{next(numbers)}"
