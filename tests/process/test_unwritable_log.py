"""A log that cannot be written: its disk is full, or its reader is gone."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.cli.exits import Exit
from tests.support.gateway import Gateway

FULL = Path("/dev/full")
WAIT_S = 30.0
Unwritable: TypeAlias = Callable[[Gateway], AbstractContextManager[None]]


class Unread(Gateway):
    def log_tail(self, max_bytes: int = 8192) -> str:
        """There is no end of what can be read of /dev/full."""
        return ""


@contextmanager
def full_disk(gateway: Gateway) -> Iterator[None]:
    gateway.log_path = FULL
    gateway.start()
    yield


@contextmanager
def reader_gone(gateway: Gateway) -> Iterator[None]:
    gateway.log_path = gateway.directory / "log.fifo"
    gateway.directory.mkdir(parents=True)
    os.mkfifo(gateway.log_path)
    reader = os.open(gateway.log_path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        gateway.start()
        assert os.read(reader, 100)
    finally:
        os.close(reader)
    yield


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Python's stderr is one thing or the other, and fails in other ways."""
    return {"PYTHONUNBUFFERED": request.param}


@pytest.mark.parametrize("unwritable", [full_disk, reader_gone])
def test_a_gateway_goes_on_without_its_log(
    tmp_path: Path, unwritable: Unwritable, environment: dict[str, str]
) -> None:
    gateway = Unread(tmp_path / "gateway", env=environment)
    try:
        with unwritable(gateway):
            # Each of these is worth a line.
            with socket.create_connection((gateway.host, gateway.port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert stranger.recv(1) == b""
            os.kill(gateway.pid, signal.SIGHUP)
            assert values_after_producing(gateway, [b"a", b"b"]) == [b"a", b"b"]
            assert gateway.terminate() == Exit.OK
    finally:
        gateway.stop()


def test_a_start_that_is_refused_has_its_exit_code_without_a_log(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    first = Gateway(tmp_path / "first")
    second = Unread(tmp_path / "second", env=environment, data_dir=first.data_dir)
    second.log_path = FULL
    try:
        first.start()
        second.launch()
        assert second.wait_for_exit() == Exit.IN_USE
    finally:
        first.stop()
        second.stop()


def test_a_wrong_setting_has_its_exit_code_where_nothing_can_say_so(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "gateway.cli.main", "serve", "--set", "no.such=1"]
    with FULL.open("wb") as full:
        finished = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=full, timeout=WAIT_S
        )
    assert (finished.returncode, finished.stdout) == (Exit.USAGE, b"")


def values_after_producing(gateway: Gateway, values: list[bytes]) -> list[bytes | None]:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0 and failures == [None] * len(values)
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g"})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < len(values) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
        return found
    finally:
        consumer.close()
