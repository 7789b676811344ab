"""Invariants 4, 5 and 7: records of short transactions are merged across the ends of these, and readers of
either isolation level get byte for byte what they got before."""

import os
import random
import time
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ledger.objects.uploads import ObjectKind
from pipeline.links import UnixLink
from pipeline.peer import PeerClient
from tests.faults.merge_jobs import EAGER, SOCKET, merge, merging
from tests.faults.test_merging import ENGINES, NO_OWN_JOBS, START_S, check_audit, engine, restart
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics
from tests.support.transactional_log import both, client_of, differing, write_transactions

__all__ = ["engine"]

TOPIC: Final = "orders"
TRANSACTIONS: Final = 60
KILLS = 4 if os.environ.get("DRAGOMAN_TEST_FULL") == "1" else 2
FULL_KILLS = 30
READ_S: Final = 60.0


def runs_of(gateway: Gateway) -> list[ObjectKind]:
    """The kind of each run of the topic."""
    with PeerClient(UnixLink(gateway.data_dir / SOCKET), 60.0) as peer:
        (topic_id,) = [topic.topic_id for topic in peer.topics() if topic.name == TOPIC]
        found, offset = list[ObjectKind](), 0
        while page := peer.find_batches(topic_id, 0, offset).runs:
            found += [run.kind for run in page]
            offset = page[-1].last + 1
    return found


def consumed(gateway: Gateway, isolation: str) -> list[tuple[int, bytes]]:
    """What librdkafka returns of the topic: offset and value."""
    configs = {
        "bootstrap.servers": gateway.bootstrap,
        "group.id": f"reader {isolation}",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(configs)
    found, deadline = list[tuple[int, bytes]](), time.monotonic() + READ_S
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, offset, value = message.error(), message.offset(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - its public name
                return found
            assert offset is not None and isinstance(value, bytes)
            found.append((offset, value))
        raise AssertionError(f"no end after {len(found)} records")
    finally:
        consumer.close()


def started(gateway: Gateway) -> Gateway:
    gateway.start(START_S)
    create_topics(gateway.bootstrap, {TOPIC: 1})
    return gateway


@pytest.mark.timeout(600)
def test_readers_of_either_level_get_the_same_bytes_after_a_merge_across_ends_of_transactions(
    gateway_factory: GatewayFactory, engine: str
) -> None:
    gateway = started(gateway_factory(NO_OWN_JOBS))
    write_transactions(gateway, TOPIC, TRANSACTIONS)
    before, kinds = both(gateway, TOPIC), runs_of(gateway)
    read = [consumed(gateway, level) for level in ("read_uncommitted", "read_committed")]
    assert kinds.count(ObjectKind.MARKER) == TRANSACTIONS + TRANSACTIONS // 10 + 1
    assert all(value.startswith(b"committed") for _, value in read[1])
    assert {value.split()[0] for _, value in read[0]} == {b"committed", b"aborted", b"open"}
    summary = merge(gateway, EAGER, **ENGINES[engine])
    assert not summary["damages"] and summary["orphans"] == summary["again"] == 0
    after = runs_of(gateway)
    print(f"{len(kinds)} runs before, {len(after)} after: {summary}")  # noqa: T201
    # The last run, of the transaction that is open, may grow.
    assert after == [ObjectKind.SEGMENT] * summary["segment_runs"] + [ObjectKind.WAL]
    assert differing(before, both(gateway, TOPIC)) == []
    assert [consumed(gateway, level) for level in ("read_uncommitted", "read_committed")] == read
    gateway.kill9()
    gateway.start(START_S)
    assert differing(before, both(gateway, TOPIC)) == []
    gateway.terminate()
    (gateway.data_dir / "image.db").unlink()
    gateway.start(START_S)
    assert differing(before, both(gateway, TOPIC)) == []
    delete_half(gateway, before[0].high_watermark // 2)
    (whole, committed) = both(gateway, TOPIC)
    assert whole.batches == before[0].batches[-len(whole.batches) :]
    assert committed.aborted < before[1].aborted
    gateway.terminate()
    check_audit(gateway)


def delete_half(gateway: Gateway, offset: int) -> None:
    topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
    with client_of(gateway) as client:
        response = client.ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest([topic], 30_000))
    assert response.topics[0].partitions[0].error_code == 0


def kill_again_and_again(gateway: Gateway, kills: int) -> None:
    seed = int(os.environ.get("DRAGOMAN_TEST_SEED", time.time_ns() % 1_000_000))
    dice, ends = random.Random(seed), list[str]()
    started(gateway)
    policy = {**EAGER, "task_bytes": 4096}
    for number in range(kills):
        write_transactions(gateway, TOPIC, 30)
        before = both(gateway, TOPIC)
        with merging(gateway, policy) as job:
            time.sleep(dice.uniform(0.2, 2.0))
            ends.append("killed" if job.is_running() else "done")
            if number % 2:
                gateway.kill9()
                job.wait()
                gateway.start(START_S)
            else:
                job.kill9()
        assert differing(before, both(gateway, TOPIC)) == [], f"seed {seed}, kill {number}"
    merge(gateway, policy)
    assert ObjectKind.MARKER not in runs_of(gateway)
    assert differing(before, both(gateway, TOPIC)) == [], f"seed {seed}"
    restart(gateway)
    assert differing(before, both(gateway, TOPIC)) == [], f"seed {seed}"
    print(f"{kills} kills, seed {seed}: {ends}")  # noqa: T201
    gateway.terminate()
    check_audit(gateway)


@pytest.mark.timeout(300)
def test_kills_while_transactions_are_merged_change_nothing_that_is_visible(
    gateway_factory: GatewayFactory,
) -> None:
    kill_again_and_again(gateway_factory(NO_OWN_JOBS), KILLS)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_30_kills_while_transactions_are_merged_change_nothing_that_is_visible(
    gateway_factory: GatewayFactory,
) -> None:
    kill_again_and_again(gateway_factory(NO_OWN_JOBS), FULL_KILLS)
