"""Members of a group in processes of their own (see `members/`), and what is held against their word."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.client_go import built
from tests.e2e.client_kafkajs import SOURCES as JS
from tests.e2e.client_kafkajs import node_environment, why_no_node
from tests.support.client_java import java_command, why_no_java_client
from tests.support.go_tools import why_no_go
from tests.support.processes import kill_group, tail_of

WAIT_S: Final = 60.0
STEP_S: Final = 0.05
PYTHON: Final = {"confluent": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio"}
GO: Final = ("sarama", "kafka-go", "franz-go")
LIBRARIES: Final = (*PYTHON, "java", *GO, "kafkajs")

Holder = tuple[str, int]
"""Process and member."""


@dataclass(frozen=True, slots=True)
class Event:
    at: int
    holder: Holder
    kind: str
    partitions: tuple[int, ...] = ()
    records: tuple[tuple[int, int], ...] = ()
    reason: str = ""


def why_no_members(library: str) -> str | None:
    if library in GO:
        return why_no_go()
    match library:
        case "java":
            return why_no_java_client()
        case "kafkajs":
            return why_no_node()
    return None


@dataclass(slots=True)
class Members:
    """One process of members. Its events are read by a thread, until it ends."""

    name: str
    process: subprocess.Popen[bytes]
    log_path: Path
    events: list[Event] = field(default_factory=list)
    _reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """Let the members leave; their last events are there when this returns."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)

    def kill(self) -> None:
        kill_group(self.process)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            returned = json.loads(line)
            self.events.append(
                Event(
                    returned["at"],
                    (self.name, returned["member"]),
                    returned["event"],
                    tuple(returned.get("partitions", ())),
                    tuple((partition, offset) for partition, offset in returned.get("records", ())),
                    returned.get("reason", ""),
                )
            )


@dataclass(slots=True)
class Crowd:
    """All processes of one group."""

    directory: Path
    bootstrap: str
    group: str
    topic: str
    processes: list[Members] = field(default_factory=list)

    def start(self, library: str, members: int, strategy: str = "eager", instances: str = "") -> Members:
        name = f"{library}-{len(self.processes)}"
        log_path = self.directory / f"{name}.log"
        arguments = [self.bootstrap, self.group, self.topic, str(members), strategy, instances]
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*_command(library, self.directory), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=node_environment() if library == "kafkajs" else None,
                start_new_session=True,
            )
        started = Members(name, process, log_path)
        self.processes.append(started)
        return started

    def events(self) -> list[Event]:
        return sorted((e for one in self.processes for e in tuple(one.events)), key=lambda event: event.at)

    def owners(self) -> dict[int, Holder]:
        owners, _ = _replayed(self.events())
        return owners

    def overlaps(self) -> list[str]:
        """Partitions that were given to a member before another had given them up."""
        _, overlaps = _replayed(self.events())
        return overlaps

    def changes(self) -> int:
        """How many times a member got partitions."""
        return sum(bool(event.partitions) for event in self.events())

    def read(self) -> Counter[tuple[int, int]]:
        """How often each record was read, by partition and offset."""
        return Counter(record for event in self.events() for record in event.records)

    def failures(self) -> list[str]:
        return [f"{event.holder}: {event.reason}" for event in self.events() if event.kind == "failed"]

    def refusals(self) -> int:
        """How many commits were refused because the client was no member, or not of this generation."""
        return sum(event.kind == "refused" for event in self.events())

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert not self.failures(), self.failures()
            assert time.monotonic() < deadline, f"not in time: {what}\n{self._logs()}"
            time.sleep(STEP_S)

    def _logs(self) -> str:
        return "\n".join(f"{one.name}:\n{tail_of(one.log_path, 2000)}" for one in self.processes)


@contextmanager
def crowd(directory: Path, bootstrap: str, group: str, topic: str) -> Iterator[Crowd]:
    """No process outlives it."""
    made = Crowd(directory, bootstrap, group, topic)
    try:
        yield made
    finally:
        for one in made.processes:
            one.kill()


def _command(library: str, directory: Path) -> Sequence[str]:
    if library == "java":
        return java_command("java", directory, "GroupMembers")
    if library in GO:
        return [str(built()), "members", library]
    if library == "kafkajs":
        return ["node", str(JS / "members.js")]
    return [sys.executable, "-m", f"tests.e2e.members.{PYTHON[library]}"]


def _replayed(events: Iterable[Event]) -> tuple[dict[int, Holder], list[str]]:
    owners: dict[int, Holder] = {}
    overlaps = []
    for event in events:
        for partition in event.partitions:
            owner = owners.get(partition)
            if event.kind == "assigned":
                if owner is not None and owner != event.holder:
                    overlaps.append(f"{partition} is {owner}'s and given to {event.holder}")
                owners[partition] = event.holder
            elif owner == event.holder:
                del owners[partition]
    return owners, overlaps
