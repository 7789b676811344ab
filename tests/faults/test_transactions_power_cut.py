"""Invariant 5 under transactions: the power fails at any sync point of commits, aborts and offsets.

Each transaction whose end was acknowledged is there whole, nothing of an aborted one is seen, each offset of
the input has one record of output, and nothing stays open once its producer starts again.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.faults.powercut import Event, Survival, cut_time_ns, sample, sync_points, trees_at, write_tree
from tests.faults.recording import Recording
from tests.faults.recovered_transactions import problems_of_directory
from tests.faults.timed_history import TimedHistory
from tests.faults.transactors import Transactor, problems_of
from tests.support.data_files import in_log, in_sqlite
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.local_logs import forget_boot
from tests.support.topics import create_topics

TOPIC, PARTITIONS = "transacted", 3
NAMES: Final = ("copier-0", "copier-1", "copier-2")
TRANSACTIONS, COUNT, ABORT_EVERY = 8, 4, 3
LIVES: Final = 2
SYNC_DELAY_MS: Final = 6
CUTS: Final = 14
"""Of each survival, in a run that is not full."""
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
ENGINES = pytest.mark.parametrize(
    "journal", [pytest.param(in_sqlite, marks=pytest.mark.full), in_log], ids=["sqlite", "log"]
)
Journal = Callable[[Path], list[str]]


class Left(Exception):
    """The instance is gone in the middle of its transaction."""


def leave(step: str) -> None:
    if step == "written":
        raise Left


def live(transactor: Transactor, transactions: int) -> None:
    """A life of an instance, which leaves its last transaction open."""
    transactor.restart()
    for number in range(1, transactions + 1):
        transactor.transact(COUNT, commit=number % ABORT_EVERY != 0)
    transactor.between = leave
    try:
        transactor.transact(COUNT)
    except Left:
        return
    raise AssertionError("it has not left")


def live_together(bootstrap: str, history: TimedHistory, transactions: int) -> None:
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            live(Transactor(bootstrap, history, name, TOPIC, PARTITIONS), transactions)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(name,), name=name) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def recorded_run(
    gateway: Gateway, recording: Recording, transactions: int = TRANSACTIONS
) -> tuple[TimedHistory, list[Event]]:
    history = TimedHistory()
    for life in range(LIVES):
        gateway.start()
        if life == 0:
            create_topics(gateway.bootstrap, {TOPIC: PARTITIONS})
        live_together(gateway.bootstrap, history, transactions)
        assert gateway.terminate() == 0
    return history, recording.events()


def cuts_of(
    history: TimedHistory, events: Sequence[Event], survival: Survival, count: int = CUTS
) -> list[int]:
    """Since the first transaction has begun."""
    points = [at for at in sync_points(events) if history.before(cut_time_ns(events, at)).attempts]
    if survival is not Survival.NOTHING:
        points = sorted({*points, *(point + 1 for point in points)})
    return [*(points if FULL else sample(points, count)), len(events)]


def problems_at_cuts(
    history: TimedHistory, events: Sequence[Event], cuts: Iterable[int], survival: Survival, directory: Path
) -> list[str]:
    wrong: list[str] = []
    for cut, tree in trees_at(events, cuts, survival):
        root = directory / f"cut-{cut}"
        write_tree(tree, root)
        forget_boot(root / "data")
        known = history.before(cut_time_ns(events, cut))
        found = asyncio.run(problems_of_directory(root / "data", known, TOPIC, NAMES))
        wrong += [f"cut {cut}: {problem}" for problem in found]
        shutil.rmtree(root)
    return wrong


def gateway_for(recording: Recording, factory: GatewayFactory, journal: Journal, ignore: str = "") -> Gateway:
    environment = recording.environment(ignore, 0 if ignore else SYNC_DELAY_MS)
    gateway = factory(env=environment, data_dir=recording.root / "data")
    gateway.options += journal(gateway.data_dir)
    return gateway


def check_a_whole_process(
    history: TimedHistory, events: Sequence[Event], factory: GatewayFactory, directory: Path
) -> None:
    """On what is left in the middle of the run all instances go on, and readers find each transaction."""
    points = [at for at in sync_points(events) if history.before(cut_time_ns(events, at)).attempts]
    for cut, tree in trees_at(events, [points[len(points) // 2]], Survival.NOTHING):
        root = directory / "process"
        write_tree(tree, root)
        forget_boot(root / "data")
        gateway = factory(data_dir=root / "data")
        gateway.start()
        known = history.before(cut_time_ns(events, cut))
        for name in NAMES:
            transactor = Transactor(gateway.bootstrap, known, name, TOPIC, PARTITIONS)
            assert transactor.transact(COUNT)
        assert problems_of(known, gateway.bootstrap, TOPIC, PARTITIONS) == []
        gateway.kill9()


@pytest.mark.timeout(7200 if FULL else 300)
@ENGINES
def test_a_power_cut_at_any_sync_point_leaves_each_transaction_whole_or_unseen(
    journal: Journal, recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    gateway = gateway_for(recording, gateway_factory, journal)
    history, events = recorded_run(gateway, recording)
    checked = 0
    for survival in Survival:
        cuts = cuts_of(history, events, survival)
        found = problems_at_cuts(history, events, cuts, survival, scratch / survival.value)
        assert found[:20] == [], survival
        checked += len(cuts)
    ended = [attempt for attempt in history.attempts if attempt.outcome.value in ("committed", "aborted")]
    points = len(sync_points(events))
    print(f"{len(ended)} transactions ended, {points} sync points, {checked} cuts")  # noqa: T201
    assert len(ended) == LIVES * len(NAMES) * TRANSACTIONS
    check_a_whole_process(history, events, gateway_factory, scratch)


@pytest.mark.full
@pytest.mark.parametrize(("journal", "ignored"), [(in_sqlite, "metadata.db-wal"), (in_log, ".log")])
def test_without_its_syncs_ended_transactions_would_be_lost(
    journal: Journal, ignored: str, recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    gateway = gateway_for(recording, gateway_factory, journal, ignored)
    history, events = recorded_run(gateway, recording, 2)
    cuts = cuts_of(history, events, Survival.NOTHING, 4)
    assert problems_at_cuts(history, events, cuts, Survival.NOTHING, scratch / "cuts")
