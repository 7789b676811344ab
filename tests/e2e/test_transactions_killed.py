"""Copiers of every client library and the server are killed: each record is copied once."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import Endpoint
from tests.e2e.transactional import (
    LIBRARIES,
    PARTITIONS,
    SOURCE,
    TARGET,
    Transactor,
    committed_values,
    fill,
    numbered,
    read_until_end,
    running_transactor,
    server_to_copy_at,
    why_no_transactor,
)

BATCH, ABORT_EVERY = 10, 5
# So that most kills find a transaction that has records, but not yet the offsets of its group.
PAUSE_MS: Final = 50
WAIT_S: Final = 120.0
STEP_S: Final = 0.1
# librdkafka's send_offsets_to_transaction may wait for ever when the connection to the coordinator breaks
# (confluentinc/librdkafka#5456), at Kafka too. An orchestrator would find that out by a probe.
HANGS: Final = ("confluent",)
SILENT_S: Final = 20.0


server = pytest.fixture(server_to_copy_at)


@dataclass(slots=True)
class Supervised:
    """A copier that is started again when it has ended or given up, as an orchestrator would."""

    library: str
    server: Endpoint
    directory: Path
    failures: list[str] = field(default_factory=list)
    _running: ExitStack = field(default_factory=ExitStack)
    _transactor: Transactor | None = None

    def start(self) -> None:
        self._transactor = self._running.enter_context(
            running_transactor(self.library, self.server, self.directory)
        )
        self._transactor.start_copying(SOURCE, TARGET, PARTITIONS, BATCH, ABORT_EVERY, PAUSE_MS)

    def kill9(self) -> None:
        self._running.close()

    def attend(self) -> None:
        if self._transactor is None or self._transactor.is_copying():
            return
        try:
            self._transactor.end_copying()
        except RuntimeError as error:
            self.failures.append(str(error)[:1000])
        self.kill9()
        self.start()


@pytest.fixture
def copier(server: Endpoint, tmp_path: Path, library: str) -> Iterator[Supervised]:
    reason = why_no_transactor(library)
    if reason is not None:
        pytest.skip(reason)
    made = Supervised(library, server, tmp_path)
    yield made
    made.kill9()


def wait_for(copier: Supervised, count: int) -> None:
    """Until so many records are committed."""
    copied, heard = 0, time.monotonic()
    while (now_copied := len(committed_values(copier.server, TARGET, PARTITIONS))) < count:
        copier.attend()
        if now_copied > copied:
            copied, heard = now_copied, time.monotonic()
        silent_s = time.monotonic() - heard
        if silent_s > SILENT_S and copier.library in HANGS:
            copier.kill9()
            copier.start()
            heard = time.monotonic()
        assert silent_s < WAIT_S, f"{copied} of {count} records, then none: {copier.failures}"
        time.sleep(STEP_S)


def copy_while_all_are_killed(copier: Supervised, portions: Sequence[Sequence[Sequence[str]]]) -> None:
    done = 0
    copier.start()
    for number, portion in enumerate(portions):
        fill(copier.server, SOURCE, *portion)
        wait_for(copier, done + 1)
        done += sum(map(len, portion))
        if number % 2 == 0:
            copier.kill9()
            copier.start()
        else:
            copier.server.kill9()
            copier.server.restart()
    wait_for(copier, done)


def portions_of(source: Sequence[Sequence[str]], count: int) -> list[list[Sequence[str]]]:
    """Each with the next records of every partition."""
    return [
        [values[len(values) * n // count : len(values) * (n + 1) // count] for values in source]
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("library", "count", "rounds"),
    [
        pytest.param("franz-go", 300, 2, id="short-franz-go"),
        *(
            pytest.param(library, 4000, 10, marks=pytest.mark.full, id=f"long-{library}")
            for library in LIBRARIES
        ),
    ],
)
def test_each_record_is_copied_once_though_the_copier_and_the_server_are_killed(
    copier: Supervised, server: Endpoint, count: int, rounds: int
) -> None:
    source = numbered(count, PARTITIONS)
    copy_while_all_are_killed(copier, portions_of(source, rounds))
    copier.kill9()
    assert read_until_end(server, TARGET, PARTITIONS, committed=True) == source
    assert len(committed_values(server, TARGET, PARTITIONS)) == count + PARTITIONS
