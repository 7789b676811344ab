"""Sends records as fast as librdkafka takes them; done when all are acknowledged.

Spec: bootstrap, topic, partitions, records, payload_bytes, config.
"""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, Producer

from bench.load.payloads import POOL, payload_pool, records_in
from bench.load.phases import run_phases

WINDOW_BYTES = 64 * 1024 * 1024
WINDOW_RECORDS = 100_000
FLUSH_S = 300.0
CHUNK = 200
CONFIG = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "compression.type": "none",
    "enable.idempotence": True,
    # The window below bounds what waits; librdkafka's own bounds must not refuse records in the middle.
    "queue.buffering.max.messages": 2 * WINDOW_RECORDS,
    "queue.buffering.max.kbytes": 2 * WINDOW_BYTES // 1024,
}


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    failures: list[str] = []

    def note(error: KafkaError) -> None:
        failures.append(str(error))

    servers = {"bootstrap.servers": spec["bootstrap"], "error_cb": note}
    producer = Producer({**servers, **CONFIG, **spec.get("config", {})})
    producer.list_topics(spec["topic"], timeout=30)
    partitions, total = spec["partitions"], spec["records"]
    pool = payload_pool(spec["payload_bytes"])
    # Twice the pool, so that any stretch of it is one slice.
    ring = [{"value": payload} for payload in (*pool, *pool)]
    counts = [records_in(partition, total, partitions) for partition in range(partitions)]
    window = min(WINDOW_RECORDS, WINDOW_BYTES // spec["payload_bytes"])
    yield {}
    started = time.monotonic()
    for k in range(0, max(counts), CHUNK):
        for partition, count in enumerate(counts):
            at = (k + partition) % POOL
            part = ring[at : at + min(CHUNK, max(count - k, 0))]
            while len(producer) > window - CHUNK:
                producer.poll(0.001)
            if producer.produce_batch(spec["topic"], part, partition=partition) != len(part):
                raise RuntimeError("librdkafka refused records within its bounds")
    left = producer.flush(FLUSH_S)
    took_s = time.monotonic() - started
    if left or failures:
        raise RuntimeError(f"{left} records not acknowledged; {failures[:3]}")
    yield {"records": total, "took_s": took_s}


if __name__ == "__main__":
    run_phases(phases)
