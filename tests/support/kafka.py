"""A real Apache Kafka broker: the oracle that says what a Kafka client must be answered.

The jars come from Maven into `.cache/kafka-<version>/libs`, once. `python -m tests.support.kafka`
fetches them beforehand.
"""

import fcntl
import os
import shutil
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

from tests.support.ports import free_ports
from tests.support.processes import kill_group, stop_group, tail_of
from tests.support.raw import raw_exchange, request
from tests.support.versions import CACHE, tool_version

KAFKA_VERSION = tool_version("kafka")
FETCH_TIMEOUT_S = 600.0
START_TIMEOUT_S = 60.0
API_METADATA = 3
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dragoman.tests</groupId><artifactId>kafka-oracle</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_{scala}</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{log4j}</version>
    </dependency>
  </dependencies>
</project>
"""
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


def why_missing() -> str | None:
    """The reason why Kafka cannot run here, or None."""
    if shutil.which("java") is None:
        return "no java on PATH"
    if shutil.which("mvn") is None and not _stamp().exists():
        return "no mvn on PATH to fetch Kafka with"
    return None


def kafka_libs() -> Path:
    """The directory of jars, fetched when it is not there yet; safe to call from several processes.

    Errors: RuntimeError with Maven's last words.
    """
    home = _stamp().parent
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stamp().exists():
            _fetch(home)
            _stamp().touch()
    return home / "libs"


def kafka_classpath() -> str:
    return f"{kafka_libs()}/*"


def _stamp() -> Path:
    # Its name holds all that the jars depend on, so another log4j fetches anew.
    return CACHE / f"kafka-{KAFKA_VERSION}" / f".stamp-log4j-{tool_version('kafka', 'log4j')}"


def _fetch(home: Path) -> None:
    shutil.rmtree(home / "libs", ignore_errors=True)
    pom = home / "pom.xml"
    versions = {"kafka": KAFKA_VERSION, "scala": tool_version("kafka", "scala")}
    pom.write_text(POM.format(log4j=tool_version("kafka", "log4j"), **versions))
    plugin = f"maven-dependency-plugin:{tool_version('maven', 'dependency_plugin')}"
    goal = f"org.apache.maven.plugins:{plugin}:copy-dependencies"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={home / 'libs'}"]
    done = subprocess.run(
        ["mvn", "-B", "-q", "-f", str(pom), goal, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        words = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"Maven could not fetch Kafka {KAFKA_VERSION}:\n{words}")


class KafkaServer:
    """One broker (KRaft, combined mode) on loopback, with everything it writes below `directory`."""

    host = "127.0.0.1"

    def __init__(self, directory: Path, overrides: Mapping[str, str]) -> None:
        self.directory = directory
        self.overrides = dict(overrides)
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
        """Format and start; answers clients when this returns. Errors: RuntimeError with the log."""
        self.port, controller_port = free_ports(2)
        self._configure(controller_port)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        formatting = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._properties)
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
        level = os.environ.get("DRAGOMAN_KAFKA_LOG", "WARN")
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
            answer = raw_exchange(self.host, self.port, request(API_METADATA, 1, b"\xff\xff\xff\xff"))
        except OSError:
            return False
        return isinstance(answer, bytes) and int.from_bytes(answer[4:8], "big") > 0


@contextmanager
def running_kafka(overrides: Mapping[str, str] = MappingProxyType({})) -> Iterator[KafkaServer]:
    """A broker with broker settings `overrides`, stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="dragoman-kafka-") as directory:
        server = KafkaServer(Path(directory), overrides)
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
    sys.stderr.write(f"Apache Kafka {KAFKA_VERSION}: {kafka_libs()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
