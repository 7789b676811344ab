"""Runs Kafka's command-line tools in JVMs that stay: a call takes a tenth of what a new JVM takes.

`java/ToolCalls.java` runs each call as a process of its own would: with its own classes of the tool, its own
standard streams, and an exit that ends the call.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from tests.support.client_java import program_command, why_no_java_client
from tests.support.client_program import ClientProgram
from tests.support.kafka import KAFKA_JARS, KAFKA_TOOLS_JARS, kafka_tools_classpath

MAIN = "ToolCalls"


@dataclass(slots=True)
class ToolRunner:
    """Each JVM runs one call at a time; a further one is started while all are in use."""

    directory: Path
    _started: list[ClientProgram] = field(default_factory=list)
    _idle: SimpleQueue[ClientProgram] = field(default_factory=SimpleQueue)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def call(self, main: str, arguments: Sequence[str], stdin: str) -> dict[str, Any]:
        """`exit_code`, `stdout` and `stderr`. Errors: RuntimeError; the JVM is not used again then."""
        program = self._idle_or_new()
        result = program.order(tool=main, arguments=list(arguments), stdin=stdin)
        self._idle.put(program)
        return result

    def stop(self) -> None:
        for program in self._started:
            program.stop()

    def _idle_or_new(self) -> ClientProgram:
        with suppress(Empty):
            return self._idle.get_nowait()
        directory = self.directory / str(next(self._numbers))
        directory.mkdir()
        program = ClientProgram(command(directory), directory)
        self._started.append(program)
        return program


def command(directory: Path) -> list[str]:
    """Its arguments are the jars whose classes each call loads again; kafka-configs is among the broker's."""
    jars = [*KAFKA_TOOLS_JARS.fetched().glob("*.jar"), *KAFKA_JARS.fetched().glob("kafka_2*.jar")]
    java, *rest = program_command(kafka_tools_classpath(), directory, MAIN, "log4j2-tools.xml")
    return [java, "--add-opens=java.base/java.lang=ALL-UNNAMED", *rest, *map(str, jars)]


@pytest.fixture(scope="session")
def tool_runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolRunner]:
    reason = KAFKA_TOOLS_JARS.why_missing() or why_no_java_client()
    if reason is not None:
        pytest.skip(reason)
    runner = ToolRunner(tmp_path_factory.mktemp("kafka-tools"))
    try:
        yield runner
    finally:
        runner.stop()
