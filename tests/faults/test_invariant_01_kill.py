"""Invariants 1, 2, 3 and 6 under kill -9: a gateway is killed again and again under real producers."""

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.faults.load import Found, Load, Place, found_in, new_consumer, problems, read_all
from tests.support.data_files import in_log, in_sqlite
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics

KILLS = 20
LOG_KILLS = 6
FULL_KILLS, ROUND_KILLS = 500, 50
TOPICS = {"one": 1, "five": 5, "many": 32}
PRODUCERS = ("one", "five", "five", "many", "many")
SETTLE_S = 60.0
LONG_LIVES = 0.15
OPTIONS = ["--set", "ledger.snapshot_bytes=1048576"]


@dataclass(slots=True)
class Watcher:
    """Reads along from offset 0 in a thread of its own, through every death of the gateway."""

    bootstrap: str
    seen: dict[tuple[Place, int], Found] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        consumer = new_consumer(self.bootstrap)
        consumer.assign(
            [TopicPartition(name, at, 0) for name, count in TOPICS.items() for at in range(count)]
        )
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.1):
                with suppress(KafkaException):  # the gateway is dead at the moment
                    self.note(*found_in(message))
        consumer.close()

    def note(self, place: Place, found: Found) -> None:
        before = self.seen.setdefault((place, found.offset), found)
        if before != found:
            self.changed.append(f"{place} offset {found.offset}: {before} became {found}")

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def watching(bootstrap: str) -> Iterator[Watcher]:
    watcher = Watcher(bootstrap)
    thread = threading.Thread(target=watcher.run, name="watcher", daemon=True)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop()
        thread.join(20)


def kill_in_flight(gateway: Gateway, loads: list[Load], dice: random.Random) -> int:
    """Kill at a random moment; returns how many records were unanswered right before."""
    before = [len(load.acks) for load in loads]
    deadline = time.monotonic() + SETTLE_S
    # Progress first, or a restart that never works again would pass unseen.
    while any(len(load.acks) == count for load, count in zip(loads, before, strict=True)):
        assert time.monotonic() < deadline, f"no acknowledgements after a restart:\n{gateway.log_tail()}"
        time.sleep(0.01)
    # The image is written, and a snapshot taken, after some seconds: now and then they must be hit too.
    time.sleep(dice.uniform(0.0, 0.8) + (dice.uniform(5.0, 6.0) if dice.random() < LONG_LIVES else 0.0))
    while not (unanswered := sum(load.outstanding for load in loads)):
        assert time.monotonic() < deadline
    gateway.kill9()
    return unanswered


def tear_tail(data_dir: Path, dice: random.Random) -> None:
    """What a crash of the machine may do to the end of a file that was not synced."""
    written = list(data_dir.rglob("*.wal"))
    if not written:
        return  # a local log: its files are as long from the beginning
    newest = max(written, key=lambda path: path.name)
    with newest.open("ab") as file:
        file.write(dice.randbytes(dice.randint(1, 5000)))


def kill_again_and_again(gateway: Gateway, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    loads = [
        Load(gateway.bootstrap, f"p{n}", topic, TOPICS[topic]).start() for n, topic in enumerate(PRODUCERS)
    ]
    in_flight = []
    with watching(gateway.bootstrap) as watcher:
        for number in range(kills):
            in_flight.append(kill_in_flight(gateway, loads, dice))
            if number % 4 == 3:
                tear_tail(gateway.data_dir, dice)
            gateway.start()
        for load in loads:
            load.stop_sending()
        for load in loads:
            load.finish()
    log = read_all(gateway.bootstrap, TOPICS)
    acks = [ack for load in loads for ack in load.acks]
    print(  # noqa: T201
        f"{kills} kills, seed {seed}: {len(acks)} records acked, {len(watcher.seen)} read along, "
        f"unanswered at the kills {min(in_flight)} to {max(in_flight)}"
    )
    assert min(in_flight) > 0 and len(in_flight) == kills
    assert [failure for load in loads for failure in load.failures] == []
    assert problems(log, acks)[:20] == []
    # Every producer went on until all was acked: nothing may be there that was never acked.
    assert sum(map(len, log.values())) == len(acks) == sum(load.sent for load in loads)
    assert watcher.changed == []
    final = {(place, found.offset): found for place, records in log.items() for found in records}
    assert len(watcher.seen) > 0
    assert [key for key, found in watcher.seen.items() if final.get(key) != found] == []


@pytest.mark.timeout(240)
def test_invariants_1_2_3_and_6_hold_through_20_kills_in_flight(
    gateway_factory: GatewayFactory,
) -> None:
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    gateway = gateway_factory(OPTIONS)
    gateway.options += in_sqlite(gateway.data_dir)
    kill_again_and_again(gateway, KILLS, seed)


def check_log(gateway: Gateway) -> None:
    """Nothing has gone another way."""
    assert list(gateway.data_dir.rglob("*.log")) and not list(gateway.data_dir.rglob("*.wal"))


@pytest.mark.timeout(240)
def test_so_they_do_where_records_are_in_the_local_log(gateway_factory: GatewayFactory) -> None:
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    gateway = gateway_factory(OPTIONS)
    gateway.options += in_log(gateway.data_dir)
    kill_again_and_again(gateway, LOG_KILLS, seed)
    check_log(gateway)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("is_log", [False, True], ids=["wal", "log"])
def test_invariants_1_2_3_and_6_hold_through_500_kills_in_flight(
    gateway_factory: GatewayFactory, is_log: bool
) -> None:
    """In rounds, each with a directory of its own, so that all records of a round can be compared."""
    for number in range(FULL_KILLS // ROUND_KILLS):
        gateway = gateway_factory(OPTIONS)
        gateway.options += (in_log if is_log else in_sqlite)(gateway.data_dir)
        kill_again_and_again(gateway, ROUND_KILLS, time.time_ns() % 1_000_000)
        gateway.stop()
        shutil.rmtree(gateway.data_dir)
        print(f"{(number + 1) * ROUND_KILLS} kills so far")  # noqa: T201
