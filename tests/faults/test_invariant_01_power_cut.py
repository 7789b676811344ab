"""Invariants 1 and 10: the power fails at any sync point of a run, and no acknowledged record is lost.

A real gateway works under the recorder; then the tree of each cut is rebuilt and recovered. The syncs of
the recorded run are slow now for one file, now for another, so that a response that waits for but one of
them is too early.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ledger.errors import StoreError
from tests.faults.load import Ack, Load, problems, read_all
from tests.faults.powercut import Event, Survival, cut_time_ns, sample, sync_points, trees_at, write_tree
from tests.faults.recording import Recording
from tests.faults.recovered import read_recovered
from tests.support.data_files import in_log, in_sqlite
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.local_logs import forget_boot
from tests.support.topics import create_topics, delete_topics

TOPICS = {"one": 1, "many": 8}
LOADS = ("one", "many", "many")
RECORDS = 700
BRIEF_TOPICS = 4
SYNC_DELAY_MS = 6
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
CUTS = 20
"""Of each survival, in a run that is not full."""
LOG_RECORDS = 200
LOG_CUTS = 15
"""The log itself is cut at more (`test_local_log_power_cut.py`)."""
WHOLE_PROCESS_THIRDS = (1, 2, 3) if FULL else (2,)
"""At the end of which a gateway is started on what is left."""


@dataclass(slots=True)
class TopicLife:
    """When a topic was known to be there, and known to be gone (time.monotonic_ns)."""

    created_ns: int
    delete_asked_ns: int = 1 << 63
    deleted_ns: int = 1 << 63


@dataclass(slots=True)
class Run:
    """What clients were acknowledged during a recorded run."""

    acks: list[Ack] = field(default_factory=list)
    topics: dict[str, TopicLife] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def create(self, gateway: Gateway, topics: dict[str, int]) -> None:
        create_topics(gateway.bootstrap, topics)
        self.topics |= {name: TopicLife(time.monotonic_ns()) for name in topics}

    def delete(self, gateway: Gateway, name: str) -> None:
        self.topics[name].delete_asked_ns = time.monotonic_ns()
        delete_topics(gateway.bootstrap, [name])
        self.topics[name].deleted_ns = time.monotonic_ns()

    def produce(self, loads: Iterable[Load]) -> None:
        for load in loads:
            load.complete()
            assert load.failures == []
            self.acks += load.acks

    def acks_before(self, time_ns: int) -> list[Ack]:
        """Those that must have survived: of topics whose deletion was not requested."""
        return [
            ack
            for ack in self.acks
            if ack.at_ns < time_ns and self.topics[ack.place[0]].delete_asked_ns > time_ns
        ]

    def topic_problems(self, names: Iterable[str], time_ns: int) -> list[str]:
        found = set(names)
        lost = [
            name
            for name, life in self.topics.items()
            if life.created_ns < time_ns < life.delete_asked_ns and name not in found
        ]
        back = [name for name, life in self.topics.items() if life.deleted_ns < time_ns and name in found]
        return [f"topic {name} is lost" for name in lost] + [f"topic {name} is back" for name in back]


def recorded_run(gateway: Gateway, recording: Recording, records: int = RECORDS) -> Run:
    """Two lives of a gateway: producers all along, topics that come and go, a stop in good order."""
    run = Run()
    for life in range(2):
        gateway.start()
        if life == 0:
            run.create(gateway, TOPICS)
        run.produce(start_loads(gateway, life, records))
        for number in range(BRIEF_TOPICS):
            name = f"brief-{life}-{number}"
            run.create(gateway, {name: 2})
            run.produce([Load(gateway.bootstrap, name, name, 2, max_records=20).start()])
            if number % 2:
                run.delete(gateway, name)
        assert gateway.terminate() == 0
    run.events = recording.events()
    return run


def start_loads(gateway: Gateway, life: int, records: int) -> list[Load]:
    return [
        Load(
            gateway.bootstrap,
            f"p{life}-{number}",
            topic,
            TOPICS[topic],
            max_outstanding=12,
            max_records=records,
        ).start()
        for number, topic in enumerate(LOADS)
    ]


def cuts_of(run: Run, survival: Survival, count: int = CUTS) -> list[int]:
    """Before and after sync points. What only syncs make durable is the same after one as before the
    next, where more has been acknowledged: so when nothing else survives, before is enough."""
    points = sync_points(run.events)
    if survival is not Survival.NOTHING:
        points = sorted({*points, *(point + 1 for point in points)})
    return [*(points if FULL else sample(points, count)), len(run.events)]


def problems_at_cuts(run: Run, cuts: Iterable[int], survival: Survival, directory: Path) -> list[str]:
    """What an own recovery of each rebuilt tree finds missing, doubled or moved."""
    found: list[str] = []
    for cut, tree in trees_at(run.events, cuts, survival):
        root = directory / f"cut-{cut}"
        write_tree(tree, root)
        forget_boot(root / "data")
        time_ns = cut_time_ns(run.events, cut)
        try:
            names, log = asyncio.run(read_recovered(root / "data"))
        except StoreError as error:
            found.append(f"cut {cut}: {error}")
            continue
        finally:
            shutil.rmtree(root)
        wrong = run.topic_problems(names, time_ns) + problems(log, run.acks_before(time_ns))
        found += [f"cut {cut}: {problem}" for problem in wrong]
    return found


@pytest.fixture
def recorded_gateway(recording: Recording, gateway_factory: GatewayFactory) -> Gateway:
    return gateway_for(recording, gateway_factory)


def gateway_for(recording: Recording, factory: GatewayFactory, ignore_sync: str = "") -> Gateway:
    environment = recording.environment(ignore_sync, 0 if ignore_sync else SYNC_DELAY_MS)
    return factory(env=environment, data_dir=recording.root / "data")


@pytest.mark.timeout(7200 if FULL else 300)
def test_a_power_cut_at_any_sync_point_of_journal_and_wal_loses_no_acked_record(
    recorded_gateway: Gateway, recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    recorded_gateway.options += in_sqlite(recorded_gateway.data_dir)
    run = recorded_run(recorded_gateway, recording)
    checked = {survival: cuts_of(run, survival) for survival in Survival}
    counts = ", ".join(f"{survival.value} {len(cuts)}" for survival, cuts in checked.items())
    points = len(sync_points(run.events))
    print(f"{len(run.acks)} acked records, {points} sync points; cuts: {counts}")  # noqa: T201
    assert points > 100
    for survival, cuts in checked.items():
        assert problems_at_cuts(run, cuts, survival, scratch / survival.value)[:20] == [], survival
    check_whole_processes(run, gateway_factory, scratch)


def check_whole_processes(run: Run, factory: GatewayFactory, directory: Path) -> None:
    """At a few cuts a gateway is started on what is left: clients read it all, and produce more."""
    points = sync_points(run.events)
    cuts = [points[len(points) * third // 3 - 1] for third in WHOLE_PROCESS_THIRDS]
    for cut, tree in trees_at(run.events, cuts, Survival.NOTHING):
        root = directory / f"process-{cut}"
        write_tree(tree, root)
        forget_boot(root / "data")
        gateway = factory(data_dir=root / "data")
        gateway.start()
        load = Load(gateway.bootstrap, "later", "many", TOPICS["many"], max_records=200).start()
        load.complete()
        alive = {ack.place[0] for ack in run.acks_before(cut_time_ns(run.events, cut))} & TOPICS.keys()
        log = read_all(gateway.bootstrap, {name: TOPICS[name] for name in alive})
        acks = [ack for ack in run.acks_before(cut_time_ns(run.events, cut)) if ack.place in log]
        assert acks and load.failures == []
        assert problems(log, acks + load.acks)[:20] == []
        gateway.kill9()


@pytest.mark.timeout(7200 if FULL else 300)
def test_nor_does_it_where_records_are_in_the_local_log(
    recorded_gateway: Gateway, recording: Recording, scratch: Path
) -> None:
    gateway = recorded_gateway
    gateway.options += in_log(gateway.data_dir)
    run = recorded_run(gateway, recording, records=LOG_RECORDS)
    assert any(path.stat().st_size for path in (gateway.data_dir / "log/0").glob("*.log"))
    assert not list(gateway.data_dir.glob("wal/0/*.wal")), "some records are in no log"
    for survival in Survival:
        cuts = cuts_of(run, survival, LOG_CUTS)
        found = problems_at_cuts(run, cuts, survival, scratch / survival.value)
        assert found[:20] == [], survival


@pytest.mark.full
def test_without_the_syncs_of_the_local_log_acked_records_would_be_lost(
    recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    gateway = gateway_for(recording, gateway_factory, ".log")
    gateway.options += in_log(gateway.data_dir)
    run = recorded_run(gateway, recording, records=100)
    found = problems_at_cuts(run, cuts_of(run, Survival.NOTHING, 4), Survival.NOTHING, scratch / "cuts")
    assert found


@pytest.mark.parametrize(
    "ignore_sync",
    [
        *(pytest.param(most, marks=pytest.mark.full) for most in ("1", "files")),
        *("directories", ".wal", "metadata.db-wal"),
    ],
)
def test_without_its_syncs_the_gateway_would_lose_acked_records(
    ignore_sync: str, recording: Recording, gateway_factory: GatewayFactory, scratch: Path
) -> None:
    gateway = gateway_for(recording, gateway_factory, ignore_sync)
    gateway.options += in_sqlite(gateway.data_dir)
    run = recorded_run(gateway, recording, records=100)
    cuts = cuts_of(run, Survival.NOTHING, count=8)
    found = problems_at_cuts(run, cuts, Survival.NOTHING, scratch / "cuts")
    if ignore_sync == "files":  # then not even the data directory's format is readable
        assert len(found) >= len(cuts) - 1
    else:
        assert any("is missing" in problem or "no bytes are at" in problem for problem in found)
