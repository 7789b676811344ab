"""Reads what `paced_produce` sends and takes the time end to end.

Spec: bootstrap, topic, partitions, records, warm_records.
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
    consumer = Consumer({"bootstrap.servers": spec["bootstrap"], **config})
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in range(spec["partitions"])])
    consumer.poll(1.0)  # connected, and its fetches wait
    times_ms: list[float] = []
    offsets = [0] * spec["partitions"]
    yield {}
    while len(times_ms) < spec["records"]:
        message = consumer.poll(SILENCE_S)
        now = time.monotonic_ns()
        if message is None:
            raise RuntimeError(f"silence after {len(times_ms)} records")
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        if message.offset() != offsets[partition]:
            raise RuntimeError(f"offset {message.offset()} where {offsets[partition]} was due")
        offsets[partition] += 1
        times_ms.append((now - DUE.unpack_from(value)[0]) / 1e6)
    consumer.close()
    yield {"times_ms": times_ms[spec["warm_records"] :]}


if __name__ == "__main__":
    run_phases(phases)
