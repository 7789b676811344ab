"""Transactions as transcripts: Apache Kafka and a gateway do what they say.

`pytest --renew-transcripts` writes what Kafka does; then read the diff.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.differential.conftest import (
    GATEWAY_OPTIONS,
    Comparison,
    coordinates_groups,
    coordinates_transactions,
    gives_producer_ids,
)
from tests.differential.conversation import Endpoint
from tests.differential.steps import wait_until
from tests.differential.stories import expected_here
from tests.differential.transaction_play import Play
from tests.support.gateway import Gateway, running_gateway
from tests.support.kafka import KafkaServer, running_kafka, why_missing
from tests.support.transcript import read_transcript, write_transcript

TRANSCRIPTS: Final = sorted((Path(__file__).parent / "transactions").glob("*.txt"))
HERE: Final = Path(__file__).parent / "transactions" / "here"
LONG: Final = {"epoch_overflow"}
"""Each of 32,766 epochs is an entry of a journal."""
ALONE: Final = {*LONG, "restart", "restart_below", "retention", "timeout"}
"""They need a Kafka that is killed, or that looks for timeouts and old records more often."""
CHECKED_MS: Final = "200"
RETENTION_INTERVAL: Final = "log.retention.check.interval.ms"
INTERVAL: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
SESSION: Final = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""A broker that was killed is let in again when its former session has expired."""
NUMBERS: Final = itertools.count()


def stories(are: Callable[[str], bool]) -> list[Any]:
    """The transcripts of some names."""
    return [pytest.param(path, id=path.stem) for path in TRANSCRIPTS if are(path.stem)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    """It is restarted, so it is of this module alone."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    retention = {RETENTION_INTERVAL: CHECKED_MS, "log.initial.task.delay.ms": CHECKED_MS}
    with running_kafka({INTERVAL: CHECKED_MS, **retention, **SESSION}) as server:
        wait_until(lambda: is_ready(server))
        yield server


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    intervals = f"transactions.{INTERVAL}={CHECKED_MS}", f"broker.{RETENTION_INTERVAL}={CHECKED_MS}"
    options = (*GATEWAY_OPTIONS, *(part for setting in intervals for part in ("--set", setting)))
    with running_gateway(tmp_path_factory.mktemp("transactions"), options) as gateway:
        yield gateway


def is_ready(server: Endpoint) -> bool:
    """Kafka loads both coordinators after its start, and requests producer ids of its controller."""
    return coordinates_transactions(server) and coordinates_groups(server) and gives_producer_ids(server)


def played(path: Path, server: KafkaServer | Gateway, *, settles_later: bool = False) -> str:
    prefix = f"s{time.time_ns() % 10**8}-{next(NUMBERS)}"
    blocks = read_transcript(path.read_text())
    return write_transcript(Play(server, prefix, is_ready, settles_later=settles_later).run(blocks))


def check_kafka(path: Path, kafka: KafkaServer, *, renew: bool) -> None:
    outcome = played(path, kafka, settles_later=True)
    if renew:
        path.write_text(outcome)
    assert outcome == path.read_text(), "if Kafka is as it should be: pytest --renew-transcripts"


@pytest.mark.parametrize("path", stories(lambda name: name not in ALONE))
def test_kafka_does_what_the_transcript_says(
    path: Path, kafka_oracle: KafkaServer, comparison: Comparison, renew_transcripts: bool
) -> None:
    check_kafka(path, kafka_oracle, renew=renew_transcripts)


@pytest.mark.full
@pytest.mark.parametrize("path", stories(lambda name: name in ALONE))
def test_a_kafka_that_is_killed_does_what_the_transcript_says(
    path: Path, kafka: KafkaServer, renew_transcripts: bool
) -> None:
    check_kafka(path, kafka, renew=renew_transcripts)


@pytest.mark.parametrize("path", stories(lambda name: name not in LONG))
def test_the_gateway_does_what_the_transcript_says(path: Path, gateway: Gateway) -> None:
    assert played(path, gateway) == expected_here(path)


@pytest.mark.full
@pytest.mark.parametrize("path", stories(lambda name: name in LONG))
def test_the_gateway_does_what_the_long_transcript_says(path: Path, gateway: Gateway) -> None:
    assert played(path, gateway) == expected_here(path)


def test_each_difference_belongs_to_a_transcript() -> None:
    assert {path.name for path in HERE.glob("*.txt")} <= {path.name for path in TRANSCRIPTS}


def test_each_required_story_has_a_transcript() -> None:
    wanted = {"commit_and_abort", "end_repeated", "epoch_overflow", "restart", "timeout", "zombie"}
    wanted |= {"trimmed", "retention", "deleted", "created_again", "grown", "waiting"}
    assert wanted <= {path.stem for path in TRANSCRIPTS}
