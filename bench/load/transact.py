"""Commits transactions, each with one record in every partition, and takes the time of each commit.

A record begins with the monotonic time (ns) at which its transaction began, so that `transact_read` on the
same machine takes the time until a reader of committed records has it.
Spec: bootstrap, topic, producers, partitions, transactions, warm_transactions, payload_bytes. `producers`
work side by side, each with a transactional id of its own; the numbers of transactions are of each.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.load.paced_produce import DUE
from bench.load.phases import run_phases

CALL_S = 60.0


class Transactor:
    """One producer with a transactional id, in a thread."""

    def __init__(self, spec: dict[str, Any], number: int) -> None:
        self.times_ms: list[float] = []
        self.failures: list[str] = []
        self._spec = spec
        self._filler = bytes(spec["payload_bytes"] - DUE.size)
        name = f"{spec['topic']}-{number}"
        servers = {"bootstrap.servers": spec["bootstrap"], "transactional.id": name}
        # What the next transaction needs of the last one's connection is not to wait for a linger.
        self._producer = Producer({**servers, "linger.ms": 0, "compression.type": "none"})
        self._producer.init_transactions(CALL_S)

    def transact(self, transactions: int) -> None:
        for _ in range(transactions):
            begun_ns = time.monotonic_ns()
            self._producer.begin_transaction()
            value = DUE.pack(begun_ns) + self._filler
            for partition in range(self._spec["partitions"]):
                self._producer.produce(
                    self._spec["topic"], value, partition=partition, on_delivery=self._noted
                )
            self._producer.commit_transaction(CALL_S)
            self.times_ms.append((time.monotonic_ns() - begun_ns) / 1e6)

    def _noted(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(str(error))


def phases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    transactors = [Transactor(spec, number) for number in range(spec["producers"])]
    # Ids, partitions and connections are known before anything is measured.
    for transactor in transactors:
        transactor.transact(spec["warm_transactions"])
        transactor.times_ms.clear()
    yield {}
    started = time.monotonic()
    threads = [
        threading.Thread(target=transactor.transact, args=(spec["transactions"],))
        for transactor in transactors
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - started
    times_ms = [time_ms for transactor in transactors for time_ms in transactor.times_ms]
    failures = [failure for transactor in transactors for failure in transactor.failures]
    if failures or len(times_ms) != spec["producers"] * spec["transactions"]:
        raise RuntimeError(f"{len(times_ms)} transactions were committed; {failures[:3]}")
    yield {"times_ms": times_ms, "took_s": took_s}


if __name__ == "__main__":
    run_phases(phases)
