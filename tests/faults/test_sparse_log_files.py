"""A gateway over a local log merges by itself what is live in a file of which nearly all has gone: one record
that is kept for long does not keep 64 MiB."""

import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ledger.keys import is_log
from ledger.objects.uploads import ObjectKind
from pipeline.links import UnixLink
from pipeline.messages import FoundRun, TopicDescription
from pipeline.peer import PeerClient
from tests.faults.load import read_all
from tests.faults.merge_jobs import SOCKET
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics

RECORD_BYTES: Final = 900_000
LARGE_RECORDS: Final = 90
"""More than a file of 64 MiB takes."""
WAIT_S: Final = 60.0
KILLS, FULL_KILLS = 1, 10
TOPICS: Final = {"kept": 1, "gone": 1}


def produce(gateway: Gateway, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "log_level": 0})
    failures: list[str] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(str(error)) if error else None
        )
        assert producer.flush(WAIT_S) == 0
    assert failures == []


def delete_all(gateway: Gateway, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
        future.result(WAIT_S)


def runs_of(gateway: Gateway, topic: str) -> list[FoundRun]:
    with PeerClient(UnixLink(Path(gateway.data_dir) / SOCKET)) as peer:
        (found,) = [each for each in peer.topics() if each.name == topic]
        assert isinstance(found, TopicDescription)
        return list(peer.find_batches(found.topic_id, 0, 0).runs)


def wait_for(gateway: Gateway, event: str, times: int) -> None:
    """Its log has this event so often."""
    deadline = time.monotonic() + WAIT_S
    while gateway.log_path.read_text().count(f'"{event}"') < times:
        assert time.monotonic() < deadline, gateway.log_tail()
        if runs_of(gateway, "kept")[0].kind == ObjectKind.SEGMENT:
            return  # no further job is due
        time.sleep(0.02)


def wait_for_segment(gateway: Gateway, topic: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while runs_of(gateway, topic)[0].kind != ObjectKind.SEGMENT:
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.1)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)])
def test_a_record_that_is_kept_is_moved_out_of_a_sparse_file(
    gateway_factory: GatewayFactory, kills: int
) -> None:
    gateway = gateway_factory()
    gateway.options += ["--metadata", f"file:{gateway.data_dir}"]
    gateway.start()
    create_topics(gateway.bootstrap, TOPICS)
    produce(gateway, "kept", [b"kept"])
    produce(gateway, "gone", [bytes(RECORD_BYTES)] * LARGE_RECORDS)
    delete_all(gateway, "gone")
    produce(gateway, "kept", [b"later"])
    before = runs_of(gateway, "kept")
    assert [is_log(run.object_key) for run in before] == [True, True]
    assert before[0].object_key != before[1].object_key
    # A gateway that was started looks for sparse files at once. It dies at several moments of its first jobs.
    for number in range(kills):
        gateway.kill9()
        gateway.start()
        wait_for(gateway, "merging.started", number + 1)
        time.sleep(number * 0.1)
    gateway.kill9()
    gateway.start()
    wait_for_segment(gateway, "kept")
    _, later = runs_of(gateway, "kept")
    assert later == before[1], "what is in the other file is young, and waits"
    found = read_all(gateway.bootstrap, {"kept": 1})
    assert [record.value for record in found["kept", 0]] == [b"kept", b"later"]
