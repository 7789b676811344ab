"""Apache Kafka's own Java client: one JVM runs java/RecordsClient.java for the whole session.

Orders go in and answers come out as JSON lines; records travel in files (see record_file.py).
"""

import hashlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.client import (
    CLIENT_TIMEOUT_S,
    Codec,
    Earliest,
    FromOffset,
    FromTimestamp,
    Latest,
    Received,
    Record,
    Start,
    TopicExists,
)
from tests.e2e.record_file import read_received, write_records
from tests.support.kafka import kafka_classpath, why_missing
from tests.support.processes import kill_group, tail_of
from tests.support.versions import CACHE

SOURCES = Path(__file__).parent / "java"
MAIN = "RecordsClient"


def why_no_java_client() -> str | None:
    if shutil.which("javac") is None:
        return "no javac on PATH"
    return why_missing()


def compiled() -> Path:
    """The directory of classes, compiled anew when the source has changed."""
    source = SOURCES / f"{MAIN}.java"
    digest = hashlib.sha256(source.read_bytes() + kafka_classpath().encode()).hexdigest()[:16]
    target = CACHE / f"e2e-java-{digest}"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            command = ["javac", "-Xlint:all", "-cp", kafka_classpath(), "-d", f"{fresh}/classes", str(source)]
            subprocess.run(command, check=True, timeout=120)
            # Another run may have been faster; its classes are the same.
            if not target.exists():
                os.rename(f"{fresh}/classes", target)
    return target


class Jvm:
    """The running program; one order at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log_path = directory / "java-client.log"
        command = [
            "java",
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            # A killed JVM leaves the native codecs behind that it unpacked there.
            f"-Djava.io.tmpdir={directory}",
            f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.xml'}",
            "-cp",
            f"{compiled()}:{kafka_classpath()}",
            MAIN,
        ]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._unread = b""

    def order(self, **fields: Any) -> dict[str, Any]:
        """Errors: TopicExists; RuntimeError with what Java said."""
        self.say(**fields)
        return self.answer()

    def say(self, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._read_line())
        if "error" not in answer:
            return answer
        if answer["kind"] == "TopicExistsException":
            raise TopicExists(answer["error"])
        raise RuntimeError(f"{answer['kind']}: {answer['error']}\n{tail_of(self._log_path)}")

    def stop(self) -> None:
        kill_group(self._process)

    def _read_line(self) -> bytes:
        """Errors: RuntimeError when Java says nothing for twice the time it gives itself."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + 2 * CLIENT_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise RuntimeError(f"no answer from Java:\n{tail_of(self._log_path)}")
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    raise RuntimeError(f"Java has ended:\n{tail_of(self._log_path)}")
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


class JavaClient:
    name = "java"

    def __init__(self, bootstrap: str, jvm: Jvm) -> None:
        self.bootstrap = bootstrap
        self._jvm = jvm

    def create_topic(self, topic: str, partitions: int) -> None:
        self._order("create", topic=topic, partitions=partitions)

    def partition_count(self, topic: str) -> int:
        return int(self._order("describe", topic=topic)["partitions"])

    def can_send(self, record: Record) -> bool:
        return True

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        with self._file() as path:
            write_records(path, records)
            answer = self._order(
                "produce", topic=topic, codec=codec.value, idempotent=idempotent, file=str(path)
            )
        return [int(offset) for offset in answer["offsets"]]

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None = None,
    ) -> list[Received]:
        with self._file() as path:
            where = {"from": from_word(start), "at": from_number(start)}
            self._order(
                "position", topic=topic, partitions=list(partitions), count=count, file=str(path), **where
            )
            try:
                if on_positioned is not None:
                    on_positioned()
            finally:
                self._order("read")
            return list(read_received(path))

    def end_offset(self, topic: str, partition: int) -> int:
        return int(self._order("end", topic=topic, partition=partition)["offset"])

    def _order(self, order: str, **fields: Any) -> dict[str, Any]:
        return self._jvm.order(
            order=order, bootstrap=self.bootstrap, timeout_ms=int(CLIENT_TIMEOUT_S * 1000), **fields
        )

    @contextmanager
    def _file(self) -> Iterator[Path]:
        handle, name = tempfile.mkstemp(dir=self._jvm.directory)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            os.unlink(name)


def from_word(start: Start) -> str:
    match start:
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case FromOffset():
            return "offset"
        case FromTimestamp():
            return "timestamp"


def from_number(start: Start) -> int:
    match start:
        case FromOffset(number) | FromTimestamp(number):
            return number
    return -1
