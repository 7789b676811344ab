"""Invariant 5 under transactions: a gateway dies between any two steps of one, and at any other moment, over
every kind of store."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.faults.copying import copiers_at
from tests.faults.transactors import STEPS, Transactor, nothing, problems_of
from tests.support.data_files import in_log, in_sqlite
from tests.support.far_stores import ETCD_S3, FAR_ROWS, FarGateway, far_place
from tests.support.gateway import Gateway
from tests.support.kafka import running_kafka, why_missing
from tests.support.topics import create_topics
from tests.support.transactional_history import TransactionalHistory

TOPIC, PARTITIONS = "transacted", 3
COUNT = 5
COPIERS: Final = 4
READY_S = 60.0
GO_ON_S: Final = 120.0
KILLS, FULL_KILLS, KAFKA_KILLS = 2, 20, 5
LOG, SQLITE = "log", "sqlite"
FULL = pytest.mark.full


@pytest.fixture
def gateway(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """Over one of the stores; not started."""
    made = _gateway(store, request, tmp_path)
    try:
        yield made
    finally:
        made.stop()


def _gateway(store: str, request: pytest.FixtureRequest, directory: Path) -> Gateway:
    data = directory / "data"
    if store == LOG:
        return Gateway(directory, in_log(data), data_dir=data)
    if store == SQLITE:
        return Gateway(directory, in_sqlite(data), data_dir=data)
    options = ["--set", "ledger.takeover_wait_ms=0"]
    return FarGateway(far_place(request, store), directory, options)


def kill_at_each_step(gateway: Gateway, *, commit: bool) -> None:
    history = TransactionalHistory()
    gateway.start(READY_S)
    create_topics(gateway.bootstrap, {TOPIC: PARTITIONS})
    working = Transactor(gateway.bootstrap, history, "copier-0", TOPIC, PARTITIONS)
    working.transact(COUNT)
    for step in STEPS:

        def between(now: str, step: str = step) -> None:
            if now == step:
                gateway.kill9()
                gateway.start(READY_S)

        working.between = between
        working.restart()
        assert working.transact(COUNT, commit=commit) is commit
        working.between = nothing
    assert working.committed == 1 + commit * len(STEPS)
    assert problems_of(history, gateway.bootstrap, TOPIC, PARTITIONS) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("store", "commit"),
    [
        *((store, True) for store in (LOG, ETCD_S3)),
        *(pytest.param(store, True, marks=FULL) for store in (SQLITE, *FAR_ROWS) if store != ETCD_S3),
        *(pytest.param(store, False, marks=FULL) for store in (LOG, SQLITE, *FAR_ROWS)),
    ],
)
def test_a_transaction_goes_on_whichever_two_of_its_steps_a_kill_is_between(
    gateway: Gateway, commit: bool
) -> None:
    kill_at_each_step(gateway, commit=commit)


class Server(Protocol):
    """A gateway, or Apache Kafka."""

    @property
    def bootstrap(self) -> str: ...

    def kill9(self) -> None: ...

    def restart(self) -> None:
        """After it was killed."""
        ...


def kill_at_random(server: Server, store: str, kills: int) -> None:
    """The server is running."""
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    dice = random.Random(seed)
    create_topics(server.bootstrap, {TOPIC: PARTITIONS})
    with copiers_at(server.bootstrap, TOPIC, PARTITIONS, COPIERS, seed) as copiers:
        for _ in range(kills):
            copiers.wait_until_all_commit(GO_ON_S)
            time.sleep(dice.uniform(0, 0.5))
            server.kill9()
            server.restart()
        copiers.wait_until_all_commit(GO_ON_S)
        copiers.stop()
        # What the last life has in memory is no proof.
        server.kill9()
        server.restart()
        print(f"{store}: {kills} kills, seed {seed}: {copiers.summary()}")  # noqa: T201
        assert problems_of(copiers.history, server.bootstrap, TOPIC, PARTITIONS) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", [SQLITE])
def test_each_transaction_is_whole_or_unseen_though_the_gateway_dies_at_any_moment(
    gateway: Gateway, store: str
) -> None:
    gateway.start(READY_S)
    kill_at_random(gateway, store, KILLS)


@FULL
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", [SQLITE, LOG, *FAR_ROWS])
def test_each_transaction_is_whole_or_unseen_over_many_deaths(gateway: Gateway, store: str) -> None:
    gateway.start(READY_S)
    kill_at_random(gateway, store, FULL_KILLS)


@FULL
@pytest.mark.timeout(3600)
def test_so_it_is_at_kafka_whose_clients_hang_as_well() -> None:
    """The checker finds nothing there either; it prints how many clients had to be replaced."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kafka() as server:
        kill_at_random(server, "kafka", KAFKA_KILLS)
