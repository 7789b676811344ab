"""Apache Flink's exactly-once sink: the job and the server are killed, and each record is written once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application
from tests.e2e.transactional import PARTITIONS, SOURCE, TARGET, committed_values, fill, server_to_copy_at
from tests.support.flink import flink_command, why_no_flink

WAIT_S: Final = 180.0


server = pytest.fixture(server_to_copy_at)


@dataclass(slots=True)
class Job:
    """One JVM at a time, which continues from the newest checkpoint of the one before."""

    server: Endpoint
    directory: Path
    naming: str
    _running: list[Application] = field(default_factory=list)

    @property
    def application(self) -> Application:
        return self._running[-1]

    def start(self) -> None:
        checkpoints = self.directory / "checkpoints"
        retained = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
        command = flink_command("FlinkCopy", self.directory)
        arguments = [self.server.bootstrap, self.naming, checkpoints.as_uri()]
        arguments += [path.parent.as_uri() for path in retained[-1:]]
        self._running.append(Application([*command, *arguments], self.directory))
        self.application.start()

    def kill9(self) -> None:
        if self._running:
            self.application.kill9()

    def wait_until_copied(self, count: int) -> None:
        self.application.wait_until(
            lambda: len(committed_values(self.server, TARGET, PARTITIONS)) >= count, WAIT_S
        )


@pytest.fixture
def job(server: Endpoint, tmp_path: Path, naming: str) -> Iterator[Job]:
    reason = why_no_flink()
    if reason is not None:
        pytest.skip(reason)
    made = Job(server, tmp_path, naming)
    yield made
    made.kill9()


def write(server: Endpoint, numbers: Sequence[int]) -> None:
    fill(server, SOURCE, *([str(n) for n in numbers if n % PARTITIONS == part] for part in range(PARTITIONS)))


# How Flink finds the transactions that an attempt before has left open: it asks for a list of them, or takes
# over one possible id after the other.
@pytest.mark.full
@pytest.mark.parametrize("naming", ["POOLING", "INCREMENTING"])
def test_each_record_is_written_once_though_the_job_and_the_server_are_killed(
    job: Job, server: Endpoint
) -> None:
    rounds, records = 6, 2000
    job.start()
    for number in range(rounds):
        write(server, range(number * records, (number + 1) * records))
        job.wait_until_copied(number * records + 1)
        if number % 2 == 0:
            job.kill9()
            job.start()
        else:
            server.kill9()
            server.restart()
    job.wait_until_copied(rounds * records)
    job.kill9()
    once = Counter(str(number) for number in range(rounds * records))
    assert Counter(committed_values(server, TARGET, PARTITIONS)) == once
