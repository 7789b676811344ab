"""Sends records at a fixed rate and takes the time to each acknowledgement.

A record begins with the monotonic time (ns) at which it was due, so that a consumer on the same machine
takes the time end to end, and a stall counts for all records that it delayed.
Spec: bootstrap, topic, partitions, records, payload_bytes, rate, warm_records, config.
"""

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.load.phases import run_phases

DUE = struct.Struct(">q")
FLUSH_S = 60.0


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    config = {"linger.ms": 0, "enable.idempotence": True, "compression.type": "none"}
    config |= spec.get("config", {})
    producer = Producer({"bootstrap.servers": spec["bootstrap"], **config})
    producer.list_topics(spec["topic"], timeout=30)
    filler = bytes(spec["payload_bytes"] - DUE.size)
    times_ms: list[float] = []
    failures: list[str] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        now = time.monotonic_ns()
        if error is not None:
            failures.append(str(error))
        value = message.value()
        assert value is not None
        times_ms.append((now - DUE.unpack_from(value)[0]) / 1e6)

    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            producer.poll(0.1)

    server = threading.Thread(target=serve)
    yield {}
    server.start()
    step_ns = int(1e9 / spec["rate"])
    due = time.monotonic_ns()
    for i in range(spec["records"]):
        due += step_ns
        if (early_ns := due - time.monotonic_ns()) > 0:
            time.sleep(early_ns / 1e9)
        producer.produce(
            spec["topic"], DUE.pack(due) + filler, partition=i % spec["partitions"], on_delivery=acknowledged
        )
    left = producer.flush(FLUSH_S)
    over.set()
    server.join()
    if left or failures or len(times_ms) != spec["records"]:
        raise RuntimeError(f"{left} records not acknowledged, {len(times_ms)} were; {failures[:3]}")
    yield {"times_ms": times_ms[spec["warm_records"] :]}


if __name__ == "__main__":
    run_phases(phases)
