"""Reads a topic from its beginning (manual assignment), and checks offsets and sizes.

Spec: bootstrap, topic, partitions, records, payload_bytes.
"""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.load.phases import run_phases

SILENCE_S = 60.0
AT_ONCE = 10_000


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    config = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": spec["bootstrap"], **config})
    consumer.list_topics(spec["topic"], timeout=30)
    partitions, total = spec["partitions"], spec["records"]
    yield {}
    started = time.monotonic()
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in range(partitions)])
    offsets = [0] * partitions
    seen = 0
    while seen < total:
        messages = consumer.consume(min(AT_ONCE, total - seen), SILENCE_S)
        if not messages:
            raise RuntimeError(f"silence after {seen} of {total} records")
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            if message.offset() != offsets[partition] or len(value) != spec["payload_bytes"]:
                raise RuntimeError(
                    f"partition {partition}: offset {message.offset()} with {len(value)} bytes where "
                    f"{offsets[partition]} was due"
                )
            offsets[partition] += 1
        seen += len(messages)
    took_s = time.monotonic() - started
    consumer.close()
    yield {"records": seen, "took_s": took_s}


if __name__ == "__main__":
    run_phases(phases)
