"""The servers that are measured: Apache Kafka as its own start script runs it, Kafka that syncs each batch
before it acknowledges it, and Dragoman.

Each listens twice: in plain text, and with TLS by a certificate of its own.
"""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.certificates import Authority
from tests.support.gateway import Gateway
from tests.support.kafka import SINGLE_NODE, KafkaServer, kafka_classpath
from tests.support.ports import free_ports, with_port

KAFKA, SYNCED_KAFKA, DRAGOMAN = "kafka", "kafka_synced", "dragoman"
ADMIN_TIMEOUT_S = 300.0
LEADER_TIMEOUT_S = 60.0
MAX_AT_ONCE = 5_000
"""Partitions that a request creates: Kafka refuses more than 10,000 records of its metadata log in one."""
# What kafka-server-start.sh and kafka-run-class.sh of the release pass by default.
JVM_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
SYNCED: Mapping[str, str] = MappingProxyType({"log.flush.interval.messages": "1"})
"""Of topics and of `__consumer_offsets`: a batch is synced before it is acknowledged, as with Dragoman."""


class Server(Protocol):
    """What a case needs of a running server."""

    name: str

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def remove(self) -> None:
        """Stop, and delete what it stored."""
        ...


@dataclass(frozen=True, slots=True)
class TlsEndpoint:
    """Where a server speaks TLS, and the file of the CA that signed its certificate."""

    bootstrap: str
    ca: Path

    @property
    def client_config(self) -> dict[str, str]:
        """Of librdkafka."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}


class BenchServer(Server, Protocol):
    """A server that is measured beside others."""

    @property
    def tls(self) -> TlsEndpoint: ...


class BenchKafka(KafkaServer):
    """One broker with the settings of the release but for replication, which one broker cannot have."""

    def __init__(self, directory: Path, name: str = KAFKA, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        directory.mkdir(parents=True)
        super().__init__(directory, settings)
        self.name = name
        self._authority = Authority(directory)
        self._tls_port = 0

    @property
    def tls(self) -> TlsEndpoint:
        return TlsEndpoint(f"{self.host}:{self._tls_port}", self._authority.file)

    def _configure(self, controller_port: int) -> None:
        (self._tls_port,) = free_ports(1)
        issued = self._authority.server()
        key = load_pem_private_key(issued.key.read_bytes(), None)
        # A key in any other form is none to Kafka.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        store = self.directory / "keystore.pem"
        store.write_bytes(pem + issued.certificate.read_bytes())
        clients = f"PLAINTEXT://{self.host}:{self.port},SSL://{self.tls.bootstrap}"
        protocols = f"{SINGLE_NODE['listener.security.protocol.map']},SSL:SSL"
        self.overrides |= {
            "listeners": f"{clients},CONTROLLER://{self.host}:{controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": protocols,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }
        super()._configure(controller_port)

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        scratch = f"-Djava.io.tmpdir={self.directory}"
        command = ["java", *JVM_FLAGS, scratch, logging, "-cp", kafka_classpath(), main, *arguments]
        with (self.directory / "jvm.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class BenchGateway(Gateway):
    """`dragoman serve` with its default settings over files in `directory`."""

    name = DRAGOMAN

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = Authority(directory)
        issued = self._authority.server()
        settings = (f"tls.certificate={issued.certificate}", f"tls.key={issued.key}")
        listen = ["--listen", with_port("SSL://127.0.0.1:0")]
        tls = [*listen, *(word for setting in settings for word in ("--set", setting))]
        super().__init__(directory, [*tls, *options])

    @property
    def tls(self) -> TlsEndpoint:
        return TlsEndpoint(self.ready.listeners[1].address, self._authority.file)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})


def create_topic(server: Server, name: str, partitions: int) -> None:
    """Errors: KafkaException, RuntimeError when partitions do not show up in time."""
    admin = _admin(server)
    topics = [NewTopic(name, num_partitions=min(partitions, MAX_AT_ONCE), replication_factor=1)]
    for future in admin.create_topics(topics, request_timeout=ADMIN_TIMEOUT_S).values():
        future.result(ADMIN_TIMEOUT_S)
    have = min(partitions, MAX_AT_ONCE)
    _await_partitions(admin, name, have)
    while have < partitions:
        have = min(have + MAX_AT_ONCE, partitions)
        grown = admin.create_partitions([NewPartitions(name, have)], request_timeout=ADMIN_TIMEOUT_S)
        for future in grown.values():
            future.result(ADMIN_TIMEOUT_S)
        _await_partitions(admin, name, have)


def _await_partitions(admin: AdminClient, name: str, partitions: int) -> None:
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=30).topics[name].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return
        time.sleep(0.1)
    raise RuntimeError(f"topic {name} did not get {partitions} partitions")


def delete_topic(server: Server, name: str) -> None:
    admin = _admin(server)
    for future in admin.delete_topics([name]).values():
        future.result(ADMIN_TIMEOUT_S)


def stored_records(server: Server, topic: str, partitions: int) -> int:
    """The sum of the high watermarks. Errors: KafkaException."""
    admin = _admin(server)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    requested = {TopicPartition(topic, partition): latest for partition in range(partitions)}
    deadline = time.monotonic() + LEADER_TIMEOUT_S
    while True:
        responses = admin.list_offsets(requested, request_timeout=ADMIN_TIMEOUT_S)
        try:
            return sum(response.result(ADMIN_TIMEOUT_S).offset for response in responses.values())
        except KafkaException as error:
            # A broker lists a partition's leader before that leader has opened it.
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
