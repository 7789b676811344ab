"""Kafka Streams with `exactly_once_v2`: it and the gateway are killed, and each word is counted once."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.e2e.conftest import Endpoint
from tests.e2e.example import Application
from tests.e2e.transactional import committed_records, running_server
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.client_java import program_command, why_no_java_client
from tests.support.kafka import STREAMS_JARS, kafka_classpath
from tests.support.topics import create_topics

LINES, COUNTS = "lines", "counts"
PARTITIONS: Final = 2
WORDS: Final = ("once", "upon", "a", "time", "there", "was", "log")
WORDS_A_LINE: Final = 4
WAIT_S: Final = 120.0

Counts = Mapping[str, Sequence[int]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Endpoint]:
    """Its own: it is killed."""
    with running_server(tmp_path / "server") as started:
        create_topics(started.bootstrap, {LINES: PARTITIONS, COUNTS: PARTITIONS})
        yield started


@pytest.fixture
def word_count(server: Endpoint, tmp_path: Path) -> Iterator[Application]:
    """Not started yet; its state outlives it."""
    reason = STREAMS_JARS.why_missing() or why_no_java_client()
    if reason is not None:
        pytest.skip(reason)
    classpath = f"{STREAMS_JARS.classpath()}:{kafka_classpath()}"
    command = program_command(classpath, tmp_path, "WordCount", "log4j2.xml")
    application = Application([*command, server.bootstrap, str(tmp_path / "state")], tmp_path)
    yield application
    application.kill9()


def write(server: Endpoint, lines: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number, line in enumerate(lines):
        producer.produce(LINES, line, partition=number % PARTITIONS)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def expected(lines: Sequence[str]) -> Counts:
    totals: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        for word in line.split():
            totals[word].append(len(totals[word]) + 1)
    return totals


def counted(server: Endpoint) -> Counts:
    """What is committed by now: the counts of each word in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in committed_records(server, COUNTS, PARTITIONS):
        word, count = message.key(), message.value()
        assert word is not None and count is not None
        found[word.decode()].append(int(count))
    return found


def lines_of(count: int, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=WORDS_A_LINE)) for _ in range(count)]


def number_of(counts: Counts) -> int:
    return sum(map(len, counts.values()))


def count_while_all_are_killed(
    server: Endpoint, word_count: Application, rounds: int, lines_a_round: int
) -> None:
    """In each round the application or the server is killed in the middle of its work."""
    lines: list[str] = []
    word_count.start()
    for number in range(rounds):
        before = len(lines) * WORDS_A_LINE
        lines += lines_of(lines_a_round, number)
        write(server, lines[-lines_a_round:])
        # Some of this round is committed, but not all of it.
        word_count.wait_until(lambda: number_of(counted(server)) > before, WAIT_S)  # noqa: B023
        if number % 2 == 0:
            word_count.kill9()
            word_count.start()
        else:
            server.kill9()
            server.restart()
    word_count.wait_until(lambda: number_of(counted(server)) >= number_of(expected(lines)), WAIT_S)
    word_count.stop()
    assert counted(server) == expected(lines)


def test_each_word_is_counted_once_though_the_application_and_the_server_are_killed(
    server: Endpoint, word_count: Application
) -> None:
    count_while_all_are_killed(server, word_count, rounds=2, lines_a_round=500)


@pytest.mark.full
def test_each_word_is_counted_once_over_many_kills(server: Endpoint, word_count: Application) -> None:
    count_while_all_are_killed(server, word_count, rounds=16, lines_a_round=2000)
