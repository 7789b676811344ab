"""Clients that do not read, and fetches that are parked or in a session."""

import socket
import threading
import time
from typing import Final

import pytest
from confluent_kafka import Producer

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.hostile.arena import SLACK, Arena, Bounds
from tests.hostile.conftest import OpenArena
from tests.hostile.speaking import ask, connect
from tests.hostile.test_answers import create
from tests.support.messages import message, read
from tests.support.raw import Outcome, RawConnection

BATCH_BYTES: Final = 15_000_000
PIPELINED: Final = 60
FETCH_VERSION: Final = 12
MOST: Final = 2**30
LARGEST_SESSION: Final = 10_000
"""Partitions."""


def fetch(
    partitions: list[FetchTopic], wait_ms: int = 500, session_id: int = 0, epoch: int = -1, min_bytes: int = 1
) -> bytes:
    body = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=MOST,
        session_id=session_id,
        session_epoch=epoch,
        topics=partitions,
    )
    return message(ApiKey.FETCH, FETCH_VERSION, body)


def large_batches(arena: Arena) -> None:
    configs = [CreatableTopicConfig("max.message.bytes", "20000000")]
    ask(
        arena,
        ApiKey.CREATE_TOPICS,
        5,
        CreateTopicsRequest([CreatableTopic("large", 1, 1, [], configs)], 30_000),
    )
    options = {"bootstrap.servers": arena.gateway.bootstrap, "message.max.bytes": 20_000_000}
    producer = Producer({**options, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(4):
        producer.produce("large", bytes(BATCH_BYTES), partition=0)
        assert producer.flush(60.0) == 0


class Unread:
    """Connections that request large responses, read none of them, and connect again when they are closed."""

    def __init__(self, arena: Arena, sources: list[str]) -> None:
        part = FetchPartition(partition=0, partition_max_bytes=MOST)
        self._frames = fetch([FetchTopic("large", partitions=[part])]) * PIPELINED
        self._arena = arena
        self._sources = sources
        self._open = [self._connected(source) for source in sources]
        self.closed = 0

    def _connected(self, source: str) -> RawConnection:
        connection = connect(self._arena, source, receive_bytes=4096)
        connection.send(self._frames)
        return connection

    def go_on(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for i, connection in enumerate(self._open):
                if is_closed(connection.sock):
                    connection.sock.close()
                    self.closed += 1
                    self._open[i] = self._connected(self._sources[i])
            time.sleep(0.05)

    def close(self) -> None:
        for connection in self._open:
            connection.sock.close()


def is_closed(sock: socket.socket) -> bool:
    """Without reading what has arrived."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] != 1


@pytest.mark.parametrize("sources", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]], ids=["one address", "two"])
@pytest.mark.parametrize(
    ("connections", "seconds"), [(100, 3.0), pytest.param(200, 60.0, marks=pytest.mark.full)]
)
def test_responses_that_no_client_reads(
    open_arena: OpenArena, connections: int, seconds: float, sources: list[str]
) -> None:
    arena = open_arena()
    arena.rounds = 1
    large_batches(arena)

    def run() -> None:
        unread = Unread(arena, [sources[i % len(sources)] for i in range(connections)])
        unread.go_on(seconds)
        unread.close()

    # What fetches may hold in all (limits.fetch_bytes) is memory that they may have.
    # Three seconds of an attack starve no client for longer: here 2 s hold without slack.
    starved_s = 2.0 if seconds > 10 else 2.0 / SLACK
    bounds = Bounds(end_to_end_s=starved_s, memory_bytes=(256 + 64) << 20)
    name = f"{connections} x {PIPELINED} fetches unread for {seconds:g} s, {len(sources)} addresses"
    arena.withstands(name, run, bounds)


def partitions_of(topic: str, count: int) -> list[FetchTopic]:
    parts = [FetchPartition(partition=i, partition_max_bytes=MOST) for i in range(count)]
    return [FetchTopic(topic, partitions=parts)]


@pytest.mark.parametrize("partitions", [100_000, pytest.param(250_000, marks=pytest.mark.full)])
def test_fetches_that_are_parked(arena: Arena, partitions: int) -> None:
    arena.once("quiet", lambda: create(arena, "quiet"))
    quiet = FetchTopic("quiet", partitions=[FetchPartition(partition=0, partition_max_bytes=MOST)])
    frame = fetch([*partitions_of("no-such-topic", partitions), quiet], wait_ms=60_000)

    def run() -> None:
        parked = [connect(arena) for _ in range(3)]
        for connection in parked:
            threading.Thread(target=connection.send, args=(frame,)).start()
        time.sleep(1.5 + partitions / 100_000)
        parked[0].sock.settimeout(0.1)
        assert parked[0].read_frame() is Outcome.SILENT
        for connection in parked:
            connection.sock.close()

    arena.withstands(
        f"three fetches of {partitions:,} partitions parked", run, Bounds(cpu_s=0.25 + 12e-6 * partitions)
    )


@pytest.mark.parametrize(
    ("topic", "partitions", "has_session"),
    [
        ("real", LARGEST_SESSION, True),
        ("no-such-topic", 1000, True),
        ("no-such-topic", 10_000, False),
        ("no-such-topic", 100_000, False),
        pytest.param("no-such-topic", 400_000, False, marks=pytest.mark.full),
    ],
)
def test_fetches_of_a_large_session(arena: Arena, topic: str, partitions: int, has_session: bool) -> None:
    connection = connect(arena)
    if topic == "real":
        arena.once("real", lambda: create(arena, "real", LARGEST_SESSION))
    connection.send(fetch(partitions_of(topic, partitions), session_id=0, epoch=0, wait_ms=0))
    response = connection.read_frame()
    assert isinstance(response, bytes)
    session_id = read(ApiKey.FETCH, FETCH_VERSION, response).session_id
    # The other fetches get records but no session, as with a Kafka whose cache of sessions is full.
    assert (session_id != 0) == has_session
    epochs = iter(range(1, 1_000_000))

    def run() -> None:
        for _ in range(100):
            connection.send(fetch([], wait_ms=0, session_id=session_id, epoch=next(epochs)))
            response = connection.read_frame()
            assert isinstance(response, bytes)
            assert session_id == 0 or read(ApiKey.FETCH, FETCH_VERSION, response).error_code == 0

    name = f"100 fetches after one of {partitions:,} of {topic}"
    arena.withstands(name, run, Bounds(cpu_s=1.0))
    connection.sock.close()
