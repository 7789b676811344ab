"""Client libraries in other languages: a program that runs for the whole session and executes orders.

Orders and their results are JSON lines; records travel in files (see record_file.py).
"""

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.client import (
    CLIENT_TIMEOUT_S,
    ClientUnderTest,
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
from tests.support.processes import kill_group, tail_of
from tests.support.record_file import read_received, write_records


class ClientProgram:
    """The running program, with its log and its files of records below `directory`; one order at a time."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._name = Path(command[0]).name
        self._log_path = directory / f"{self._name}.log"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._unread = b""

    def order(self, **fields: Any) -> dict[str, Any]:
        """Errors: TopicExists; RuntimeError with what the program said."""
        self.say(**fields)
        return self.response()

    def say(self, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        self._process.stdin.flush()

    def response(self) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(self._read_line())
        if "error" not in response:
            return response
        if response["kind"] == "TopicExists":
            raise TopicExists(response["error"])
        raise RuntimeError(f"{response['kind']}: {response['error']}\n{tail_of(self._log_path)}")

    def stop(self) -> None:
        kill_group(self._process)

    def has_said(self) -> bool:
        """Whether `response` returns or raises at once."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return b"\n" in self._unread or bool(selector.select(0.0))

    def _read_line(self) -> bytes:
        """Errors: RuntimeError when the program says nothing for twice the time it gives itself."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + 2 * CLIENT_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise RuntimeError(f"no result from {self._name}:\n{tail_of(self._log_path)}")
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    raise RuntimeError(f"{self._name} has ended:\n{tail_of(self._log_path)}")
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


class ProgramClient(ClientUnderTest):
    """One library of a program. Every order names it."""

    def __init__(self, name: str, bootstrap: str, program: ClientProgram) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self._program = program

    def create_topic(self, topic: str, partitions: int) -> None:
        self._order("create", topic=topic, partition_count=partitions)

    def partition_count(self, topic: str) -> int:
        return int(self._order("describe", topic=topic)["partition_count"])

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        with self._file() as path:
            write_records(path, records)
            response = self._order(
                "produce", topic=topic, codec=codec.value, idempotent=idempotent, file=str(path)
            )
        return [int(offset) for offset in response["offsets"]]

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
        return self._program.order(
            order=order,
            client=self.name,
            bootstrap=self.bootstrap,
            timeout_ms=int(CLIENT_TIMEOUT_S * 1000),
            **fields,
        )

    @contextmanager
    def _file(self) -> Iterator[Path]:
        handle, name = tempfile.mkstemp(dir=self._program.directory)
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
