"""Small drafts inside of entries of real far stores: a trickle needs no object, and what is written so is
there after the host is gone, and after a job has merged it."""

import os
import time
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.faults.load import Load, problems, read_all
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FarGateway, FarPlace
from tests.support.topics import create_topics

START_S: Final = 60.0
WAIT_S: Final = 60.0
TRICKLE: Final = {f"trickle-{number}": 1 for number in range(100)}
TRICKLE_S: Final = 10 if os.environ.get("DRAGOMAN_TEST_FULL") == "1" else 4
FULL_TRICKLE_S: Final = 900
MERGED_S: Final = 120.0
LARGE: Final = 20_000
PUTS: Final = 'dragoman_store_seconds_count{op="write",store="segments"}'
INLINE: Final = ("--set", "storage.inline_bytes=-1")
NO_MERGES: Final = ("--set", "housekeeping.merge_runs=0")


def metric(gateway: FarGateway, name: str) -> float:
    assert gateway.admin is not None
    with urllib.request.urlopen(f"http://{gateway.admin.address}/metrics", timeout=WAIT_S) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


def produce_trickle(gateway: FarGateway, seconds: int) -> None:
    """One record a second into each topic."""
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "log_level": 0, "acks": "all"})
    for second in range(seconds):
        began = time.monotonic()
        for topic in TRICKLE:
            producer.produce(
                topic,
                f"{topic} {second}".encode(),
                on_delivery=lambda error, _: failures.append(str(error)) if error is not None else None,
            )
            producer.poll(0)
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))
    assert producer.flush(WAIT_S) == 0 and failures == []


def check_trickle(gateway: FarGateway, seconds: int) -> None:
    found = read_all(gateway.bootstrap, TRICKLE)
    expected = {(topic, 0): [f"{topic} {second}".encode() for second in range(seconds)] for topic in TRICKLE}
    assert {place: [record.value for record in records] for place, records in found.items()} == expected


def puts_of(far: FarPlace, directory: Path, seconds: int) -> float:
    """Puts of data objects that a trickle of so many seconds needs."""
    gateway = FarGateway(far, directory, [*INLINE, *NO_MERGES])
    try:
        gateway.start(START_S)
        create_topics(gateway.bootstrap, TRICKLE)
        before = metric(gateway, PUTS)
        produce_trickle(gateway, seconds)
        puts = metric(gateway, PUTS) - before
        assert metric(gateway, "dragoman_inline_bytes_total") > 0
        check_trickle(gateway, seconds)
        # The host is gone, and with it all that was in memory.
        gateway.kill9()
        gateway.start(START_S)
        check_trickle(gateway, seconds)
        return puts
    finally:
        gateway.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("far", [ETCD_S3, BUCKET_ALONE], indirect=True)
def test_a_trickle_into_a_hundred_topics_puts_no_object(far: FarPlace, tmp_path: Path) -> None:
    assert puts_of(far, tmp_path / "gateway", TRICKLE_S) == 0


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("far", [ETCD_S3, BUCKET_ALONE], indirect=True)
def test_a_trickle_puts_at_most_one_object_a_minute(far: FarPlace, tmp_path: Path) -> None:
    assert 0 < puts_of(far, tmp_path / "gateway", FULL_TRICKLE_S) <= FULL_TRICKLE_S / 60


@pytest.mark.timeout(300)
@pytest.mark.parametrize("far", [ETCD_S3], indirect=True)
def test_what_was_inside_of_entries_is_merged_and_reads_the_same(far: FarPlace, tmp_path: Path) -> None:
    gateway = FarGateway(far, tmp_path / "gateway", [*INLINE, *NO_MERGES])
    topics = {"t": 4}
    try:
        gateway.start(START_S)
        create_topics(gateway.bootstrap, topics)
        load = Load(gateway.bootstrap, "p0", "t", 4, pause_s=0.002, max_records=1_000).start()
        load.complete(WAIT_S)
        before = read_all(gateway.bootstrap, topics)
        assert load.failures == [] and problems(before, load.acks) == []
        assert metric(gateway, "dragoman_inline_entries") > 0
        time.sleep(11.0)  # younger runs are left alone
        gateway.kill9()
        gateway.options[-1] = "housekeeping.merge_runs=1"
        gateway.start(START_S)
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
        for _ in range(3):
            # Too large for an entry: a merge is due once there are some runs in objects.
            producer.produce("t", bytes(LARGE), partition=0)
            assert producer.flush(WAIT_S) == 0
        deadline = time.monotonic() + MERGED_S
        while '"merging.ended"' not in gateway.log_path.read_text():
            assert time.monotonic() < deadline, gateway.log_tail()
            time.sleep(0.5)
        # The job has its pin once all was moved.
        assert metric(gateway, "dragoman_inline_entries") == 0
        assert metric(gateway, "dragoman_merged_runs_total") >= 4
        after = read_all(gateway.bootstrap, topics)
        assert {place: records[: len(before[place])] for place, records in after.items()} == before
    finally:
        gateway.stop()
