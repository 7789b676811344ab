"""Reads a topic from its beginning (manual assignment) and checks content, order and offsets.

Spec: bootstrap, topic, partitions, records, payload_bytes, config.
"""

import time
from collections.abc import Iterator
from typing import Any

import crc32c
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.load.payloads import expected_crcs, payload_pool, records_in
from bench.load.phases import run_phases

SILENCE_S = 30.0
AT_ONCE = 10_000


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    failures: list[str] = []

    def note(error: KafkaError) -> None:
        failures.append(str(error))

    config = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    servers = {"bootstrap.servers": spec["bootstrap"], "error_cb": note}
    consumer = Consumer({**servers, **config, **spec.get("config", {})})
    consumer.list_topics(spec["topic"], timeout=30)
    partitions, total = spec["partitions"], spec["records"]
    expected = expected_crcs(payload_pool(spec["payload_bytes"]), total, partitions)
    yield {}
    started = time.monotonic()
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in range(partitions)])
    crcs, offsets = [0] * partitions, [0] * partitions
    seen = 0
    while seen < total:
        messages = consumer.consume(min(AT_ONCE, total - seen), SILENCE_S)
        if not messages:
            raise RuntimeError(f"silence after {seen} of {total} records; {failures[:3]}")
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            if message.offset() != offsets[partition]:
                raise RuntimeError(
                    f"partition {partition}: offset {message.offset()} after {offsets[partition]}"
                )
            offsets[partition] += 1
            crcs[partition] = crc32c.crc32c(value, crcs[partition])
        seen += len(messages)
    took_s = time.monotonic() - started
    if offsets != [records_in(partition, total, partitions) for partition in range(partitions)]:
        raise RuntimeError(f"partitions hold {offsets} records")
    if crcs != expected:
        raise RuntimeError("the records are not those that were sent, or not in their order")
    consumer.close()
    yield {"records": seen, "took_s": took_s}


if __name__ == "__main__":
    run_phases(phases)
