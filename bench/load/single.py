"""Sends one record a request, from several producers with a partition each, and counts the requests.

Spec: bootstrap, topic, producers, records (of all together), payload_bytes.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from bench.load.payloads import POOL, payload_pool
from bench.load.phases import run_phases

WINDOW_RECORDS = 2 * POOL
FLUSH_S = 120.0
STATISTICS_MS = 200


class Counted:
    """A producer and the Produce requests it says to have sent."""

    def __init__(self, bootstrap: str) -> None:
        self.requests = 0
        self.reports = 0
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "enable.idempotence": True,
                "compression.type": "none",
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._count,
            }
        )

    def _count(self, text: str) -> None:
        self.reports += 1
        brokers = json.loads(text)["brokers"].values()
        self.requests = sum(broker["req"].get("Produce", 0) for broker in brokers)

    def final_requests(self) -> int:
        """After the last acknowledgement: the second report from now on was begun after it."""
        awaited = self.reports + 2
        while self.reports < awaited:
            self.producer.poll(0.1)
        return self.requests


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    members = [Counted(spec["bootstrap"]) for _ in range(spec["producers"])]
    for member in members:
        member.producer.list_topics(spec["topic"], timeout=30)
    pool = payload_pool(spec["payload_bytes"])
    chunk = [{"value": payload} for payload in pool]
    each = spec["records"] // len(members)
    yield {}
    started = time.monotonic()
    sent = [0] * len(members)
    while any(count < each for count in sent):
        for i, member in enumerate(members):
            if sent[i] < each and len(member.producer) <= WINDOW_RECORDS - POOL:
                part = chunk[: each - sent[i]]
                sent[i] += member.producer.produce_batch(spec["topic"], part, partition=i)
            member.producer.poll(0.001)
    for member in members:
        if left := member.producer.flush(FLUSH_S):
            raise RuntimeError(f"{left} records not acknowledged")
    took_s = time.monotonic() - started
    requests = sum(member.final_requests() for member in members)
    yield {"records": sum(sent), "requests": requests, "took_s": took_s}


if __name__ == "__main__":
    run_phases(phases)
