"""The applications of docs/examples: their own files, run by a test against a gateway."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.processes import kill_group, stop_group, tail_of
from tests.support.versions import ROOT

EXAMPLES = ROOT / "docs" / "examples"
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})


def copied_example(name: str, directory: Path, replacing: Mapping[str, str]) -> Path:
    """The files of one example below `directory`, with addresses and paths of this test in their place.

    Errors: AssertionError when no file says what is to be replaced: then the example has changed.
    """
    copy = directory / name
    shutil.copytree(EXAMPLES / name, copy)
    unseen = set(replacing)
    for path in copy.iterdir():
        text = path.read_text()
        for old, new in replacing.items():
            if old in text:
                unseen.discard(old)
                text = text.replace(old, new)
        path.write_text(text)
    assert not unseen, f"no file of {name} says {sorted(unseen)}"
    return copy


class GroupOffsets:
    """How far a group has read topics of one partition."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._group_id = group_id

    def committed(self, topic: str) -> int | None:
        """None when nothing is committed, or Kafka has only just made the topic of its groups."""
        requested = ConsumerGroupTopicPartitions(self._group_id, [TopicPartition(topic, 0)])
        (response,) = self._admin.list_consumer_group_offsets([requested]).values()
        try:
            (found,) = response.result(CLIENT_TIMEOUT_S).topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                return None
            raise
        return int(found.offset) if found.offset >= 0 else None


class Application:
    """One process of an example at a time, with its log; it can be stopped, killed and started again."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] = NOTHING_MORE,
    ) -> None:
        self._command = list(command)
        self._directory = directory
        self._environment = dict(environment)
        self._log_path = directory / "application.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """As Ctrl-C or a service manager does; SIGKILL when that takes too long."""
        if self._process is not None:
            stop_group(self._process, timeout_s=30.0)
            self._process = None

    def kill9(self) -> None:
        if self._process is not None:
            kill_group(self._process)
            self._process = None

    def finish(self, timeout_s: float) -> None:
        """Wait for an application that ends by itself. Errors: AssertionError with its log."""
        assert self._process is not None
        exit_code = self._process.wait(timeout_s)
        self._process = None
        assert exit_code == 0, self.log_tail()

    def wait_until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Errors: AssertionError with the log, when that takes too long or the application ends."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self._process is not None and self._process.poll() is None, self.log_tail()
            assert time.monotonic() < deadline, self.log_tail()
            time.sleep(0.1)

    def log_tail(self) -> str:
        return tail_of(self._log_path)
