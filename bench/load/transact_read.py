"""Reads what `transact` commits, as a reader of committed records, and takes the time since each transaction
began.

Spec: bootstrap, topic, producers, partitions, transactions, warm_transactions.
"""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.load.paced_produce import DUE
from bench.load.phases import run_phases

SILENCE_S = 30.0


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    config = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer(
        {"bootstrap.servers": spec["bootstrap"], "isolation.level": "read_committed", **config}
    )
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in range(spec["partitions"])])
    early = consumer.poll(1.0)  # connected, and its fetches wait; it may be of a transaction that warms
    each = spec["producers"] * spec["partitions"]
    warm, records = each * spec["warm_transactions"], each * spec["transactions"]
    times_ms: list[float] = []
    last = [-1] * spec["partitions"]
    yield {}
    while len(times_ms) < warm + records:
        message, early = early or consumer.poll(SILENCE_S), None
        now = time.monotonic_ns()
        if message is None:
            raise RuntimeError(f"silence after {len(times_ms)} records")
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        # Markers have offsets of their own between the records.
        if offset <= last[partition]:
            raise RuntimeError(f"offset {offset} after {last[partition]}")
        last[partition] = offset
        times_ms.append((now - DUE.unpack_from(value)[0]) / 1e6)
    consumer.close()
    yield {"times_ms": times_ms[warm:]}


if __name__ == "__main__":
    run_phases(phases)
