"""Retention by time while runs are merged all the time: records go when they are too old, and none before."""

import threading
import time
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.load import new_consumer
from tests.faults.merge_jobs import merge
from tests.support.gateway import GatewayFactory

TOPIC: Final = "aging"
RETENTION_MS: Final = 3_000
LIFE_S: Final = 10.0
LATE_MS: Final = 4_000
"""For the check of every 200 ms, and the load of this machine."""
POLICY: Final = {"due_runs": 2, "tail_ms": 200}
WAIT_S: Final = 30.0
START_S: Final = 60.0
OPTIONS: Final = [
    *("--set", "housekeeping.merge_runs=0"),
    *("--set", "broker.log.retention.check.interval.ms=200"),
]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Aging:
    """A record every few milliseconds, each a run of its own, and the timestamp of each by offset."""

    def __init__(self, bootstrap: str) -> None:
        self.stamps: dict[int, int] = {}
        self.failures: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.005):
            self._producer.produce(TOPIC, bytes(100), partition=0, on_delivery=self._acked)
            self._producer.poll(0)
        self._producer.flush(WAIT_S)

    def _acked(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            self.failures.append(str(error))
        else:
            self.stamps[offset] = message.timestamp()[1]


@pytest.mark.timeout(180)
def test_records_go_on_time_and_none_before_while_runs_are_merged(gateway_factory: GatewayFactory) -> None:
    gateway = gateway_factory(OPTIONS)
    gateway.start(START_S)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topic = NewTopic(TOPIC, 1, config={"retention.ms": str(RETENTION_MS)})
    admin.create_topics([topic])[TOPIC].result(WAIT_S)
    consumer = new_consumer(gateway.bootstrap)

    def marks() -> tuple[int, int]:
        found = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=WAIT_S)
        assert found is not None
        return found

    aging = Aging(gateway.bootstrap)
    merged = raised = 0
    try:
        began_ms, gap_ms = now_ms(), 0
        while now_ms() < began_ms + LIFE_S * 1_000:
            job_ms = now_ms()
            merged += merge(gateway, POLICY)["runs"]
            # A merged run has what came since the job before, and goes with the newest of it.
            gap_ms = max(gap_ms, now_ms() - job_ms)
            asked_ms = now_ms()
            low, _ = marks()
            known = dict(aging.stamps)
            if low:
                raised += 1
                assert known[low - 1] < now_ms() - RETENTION_MS, "a record went before its time"
            oldest_ms = known.get(low, asked_ms)
            assert oldest_ms > asked_ms - RETENTION_MS - 2 * gap_ms - LATE_MS, "a record stays for too long"
    finally:
        aging.end()
    deadline = time.monotonic() + WAIT_S
    while (ends := marks())[0] < ends[1]:
        assert time.monotonic() < deadline, f"offsets {ends} stay"
        time.sleep(0.2)
    consumer.close()
    assert aging.failures == []
    assert merged > 100 and raised > 1
