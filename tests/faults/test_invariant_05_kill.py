"""Invariant 5 under transactions: a gateway dies between any two steps of one."""

from pathlib import Path

import pytest

from tests.faults.transactors import STEPS, Transactor, nothing, problems_of
from tests.support.gateway import Gateway
from tests.support.topics import create_topics
from tests.support.transactional_history import TransactionalHistory

TOPIC, PARTITIONS = "transacted", 3
COUNT = 5
READY_S = 60.0


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """Over a local log; not started."""
    data = tmp_path / "data"
    return Gateway(tmp_path, ["--metadata", f"file:{data}"], data_dir=data)


def transactor(bootstrap: str, history: TransactionalHistory, number: int = 0) -> Transactor:
    return Transactor(bootstrap, history, f"copier-{number}", TOPIC, PARTITIONS)


def kill_at_each_step(gateway: Gateway, *, commit: bool) -> None:
    history = TransactionalHistory()
    gateway.start(READY_S)
    create_topics(gateway.bootstrap, {TOPIC: PARTITIONS})
    working = transactor(gateway.bootstrap, history)
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
@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_transaction_goes_on_whichever_two_of_its_steps_a_kill_is_between(
    gateway: Gateway, commit: bool
) -> None:
    try:
        kill_at_each_step(gateway, commit=commit)
    finally:
        gateway.stop()
