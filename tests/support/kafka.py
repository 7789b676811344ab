"""A real Apache Kafka broker: the oracle for the responses that a Kafka client must get.

Its jars, those of its command-line tools and those of an older Java client come from Maven
(tests/support/maven.py), once. `python -m tests.support.kafka` fetches them beforehand.
"""

import os
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support.maven import JarSet
from tests.support.ports import free_ports
from tests.support.processes import kill_group, stop_group, tail_of
from tests.support.raw import raw_exchange, request
from tests.support.versions import tool_version

KAFKA_VERSION = tool_version("kafka")
LOG4J = tool_version("kafka", "log4j")
ROCKSDB = tool_version("kafka", "rocksdb")
# The name of a stamp holds all that the jars depend on, so another log4j fetches again.
KAFKA_JARS = JarSet(
    f"kafka-{KAFKA_VERSION}",
    f"log4j-{LOG4J}",
    (
        f"org.apache.kafka:kafka_{tool_version('kafka', 'scala')}:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    ),
)
# What kafka-tools needs is among the jars of the broker, apart from Kafka Connect, which no tool here is.
KAFKA_TOOLS_JARS = JarSet(
    f"kafka-tools-{KAFKA_VERSION}", "alone", (f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",), alone=True
)
# The worker of Kafka Connect with its file connectors, for an example.
CONNECT_JARS = JarSet(
    f"kafka-connect-{KAFKA_VERSION}",
    f"log4j-{LOG4J}",
    (
        f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
        f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    ),
)
# Kafka Streams; the rest of what it needs is among the jars of the broker.
STREAMS_JARS = JarSet(
    f"kafka-streams-{KAFKA_VERSION}",
    f"rocksdb-{ROCKSDB}",
    (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", f"org.rocksdb:rocksdbjni:{ROCKSDB}"),
    alone=True,
)
# MirrorMaker 2, for the migration guide.
MIRROR_JARS = JarSet(
    f"kafka-mirror-{KAFKA_VERSION}",
    f"log4j-{LOG4J}",
    (
        f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    ),
)
CLIENTS_VERSION = tool_version("kafka_clients")
JACKSON = tool_version("kafka_clients", "jackson")
# The Java client of the release line before, which applications still use; Jackson is for our own program.
OLDER_CLIENT_JARS = JarSet(
    f"kafka-clients-{CLIENTS_VERSION}",
    f"log4j-{LOG4J}-jackson-{JACKSON}",
    (
        f"org.apache.kafka:kafka-clients:{CLIENTS_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
        f"com.fasterxml.jackson.core:jackson-databind:{JACKSON}",
    ),
)
START_TIMEOUT_S = 60.0
API_METADATA = 3
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

LOG_CONFIG = """<Configuration status="OFF">
  <Appenders>
    <File name="file" fileName="{log}"><PatternLayout pattern="%d %p %c %m%n"/></File>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""
SINGLE_NODE: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
)

NO_FEATURES: Mapping[str, int] = MappingProxyType({})


def why_missing() -> str | None:
    """The reason why Kafka cannot run here, or None."""
    return KAFKA_JARS.why_missing()


def kafka_classpath() -> str:
    """Errors: RuntimeError with Maven's last words."""
    return KAFKA_JARS.classpath()


def kafka_tools_classpath() -> str:
    """With the classes of kafka-topics, kafka-configs and the like. Errors: as `kafka_classpath`."""
    return f"{KAFKA_TOOLS_JARS.classpath()}:{kafka_classpath()}"


class KafkaServer:
    """One broker (KRaft, combined mode) on loopback, with everything it writes below `directory`."""

    host = "127.0.0.1"

    def __init__(
        self, directory: Path, overrides: Mapping[str, str], features: Mapping[str, int] = NO_FEATURES
    ) -> None:
        self.directory = directory
        self.overrides = dict(overrides)
        self.features = dict(features)
        self.log_path = directory / "kafka.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Kafka does not run")
        return self._process.pid

    def log_tail(self) -> str:
        return tail_of(self.log_path) + tail_of(self.directory / "jvm.log")

    def start(self) -> None:
        """Format and start; serves clients when this returns. Errors: RuntimeError with the log."""
        self.port, controller_port = free_ports(2)
        self._configure(controller_port)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # One word: an id may begin with a dash.
        cluster_id = f"--cluster-id={cluster}"
        features = [f"--feature={name}={level}" for name, level in self.features.items()]
        arguments = ["format", cluster_id, "-c", self._properties, *features]
        formatting = self._java("kafka.tools.StorageTool", *arguments)
        if formatting.wait(START_TIMEOUT_S) != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{self.log_tail()}")
        self._launch()

    def stop(self) -> None:
        if self._process is not None:
            stop_group(self._process)
            self._process = None

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data."""
        self.stop()
        self._launch()

    def kill9(self) -> None:
        if self._process is not None:
            kill_group(self._process)
            self._process = None

    @property
    def _properties(self) -> str:
        return str(self.directory / "server.properties")

    def _configure(self, controller_port: int) -> None:
        clients = f"PLAINTEXT://{self.host}:{self.port}"
        settings = {
            **SINGLE_NODE,
            "listeners": f"{clients},CONTROLLER://{self.host}:{controller_port}",
            "advertised.listeners": clients,
            "controller.quorum.voters": f"1@{self.host}:{controller_port}",
            "log.dirs": str(self.directory / "data"),
            **self.overrides,
        }
        Path(self._properties).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        level = os.environ.get("DRAGOMAN_TEST_KAFKA_LOG", "WARN")
        (self.directory / "log4j2.xml").write_text(LOG_CONFIG.format(log=self.log_path, level=level))

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        log_config = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        scratch = f"-Djava.io.tmpdir={self.directory}"
        command = ["java", *JVM_FLAGS, scratch, log_config, "-cp", kafka_classpath(), main, *arguments]
        with (self.directory / "jvm.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _launch(self) -> None:
        self._process = self._java("kafka.Kafka", self._properties)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self.log_tail()
                self.kill9()
                raise RuntimeError(f"Kafka did not come up:\n{tail}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        """True once Metadata v1 (of all topics) lists a broker: it has registered and is unfenced."""
        try:
            response = raw_exchange(self.host, self.port, request(API_METADATA, 1, b"\xff\xff\xff\xff"))
        except OSError:
            return False
        return isinstance(response, bytes) and int.from_bytes(response[4:8], "big") > 0


@contextmanager
def running_kafka(
    overrides: Mapping[str, str] = MappingProxyType({}), features: Mapping[str, int] = NO_FEATURES
) -> Iterator[KafkaServer]:
    """A broker with broker settings `overrides`, stopped and removed at the end. `features`: their levels,
    where they are not those of a new cluster."""
    with tempfile.TemporaryDirectory(prefix="dragoman-kafka-") as directory:
        server = KafkaServer(Path(directory), overrides, features)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def kafka_oracle() -> Iterator[KafkaServer]:
    """One Kafka with default settings for the whole run; tests use topics of their own."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kafka() as server:
        yield server


def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit("usage: python -m tests.support.kafka")
    reason = why_missing()
    if reason is not None:
        sys.stderr.write(f"Tests against Apache Kafka will be skipped: {reason}\n")
        return
    sys.stderr.write(f"Apache Kafka {KAFKA_VERSION}: {KAFKA_JARS.fetched()}\n")
    sys.stderr.write(f"Its tools: {KAFKA_TOOLS_JARS.fetched()}\n")
    sys.stderr.write(f"Its Connect: {CONNECT_JARS.fetched()}\n")
    sys.stderr.write(f"Its Streams: {STREAMS_JARS.fetched()}\n")
    sys.stderr.write(f"Its MirrorMaker: {MIRROR_JARS.fetched()}\n")
    sys.stderr.write(f"Its Java client {CLIENTS_VERSION}: {OLDER_CLIENT_JARS.fetched()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
