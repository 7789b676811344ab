"""A well-behaved client: an idempotent producer with its own consumer, and a ping on a connection of its own.

A program of its own, so that what an attack costs the test's process does not count. Lines on stdin:
`begin` forgets what was measured; `end` waits until what was sent has arrived, and prints the figures as a
line of JSON. It ends with its stdin.
"""

import json
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.raw import raw_connection, request

TOPIC = "beside"
API_VERSIONS = 18
SEND_EVERY_S = 0.1
PING_EVERY_S = 0.05
WAIT_S = 20.0
STAMP = struct.Struct(">d")


class Waits:
    """How long what was begun took, or has taken so far if it never ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[float, None] = {}
        self._longest_s = 0.0
        self._done = 0

    def begin(self) -> float:
        now = time.monotonic()
        with self._lock:
            self._open[now] = None
        return now

    def end(self, began: float) -> None:
        with self._lock:
            if began in self._open:
                del self._open[began]
                self._done += 1
                self._longest_s = max(self._longest_s, time.monotonic() - began)

    def forget(self) -> None:
        """What is on its way still counts, from now on."""
        with self._lock:
            self._longest_s, self._done = 0.0, 0
            self._open.clear()

    def open_before(self, moment: float) -> bool:
        with self._lock:
            return any(began <= moment for began in self._open)

    def longest(self, until: float) -> float:
        """Of those begun until then."""
        now = time.monotonic()
        with self._lock:
            ages = [now - began for began in self._open if began <= until]
            return max([self._longest_s, *ages])

    @property
    def done(self) -> int:
        return self._done


class GoodClient:
    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": f"{host}:{port}"}
        self._stop = threading.Event()
        self._failures: list[str] = []
        self.acks, self.arrivals, self.pings = Waits(), Waits(), Waits()

    def run(self) -> None:
        admin = AdminClient(self._bootstrap)
        with suppress(KafkaException):  # a gateway that was used before has it
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
        threads = [threading.Thread(target=run) for run in (self._produce, self._consume, self._ping)]
        for thread in threads:
            thread.start()
        try:
            self._obey()
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _obey(self) -> None:
        for line in sys.stdin:
            if line.strip() == "begin":
                self._failures.clear()
                for waits in (self.acks, self.arrivals, self.pings):
                    waits.forget()
                self._say({})
            elif line.strip() == "end":
                self._say(self._figures())

    def _figures(self) -> dict[str, Any]:
        ended = time.monotonic()
        while time.monotonic() < ended + WAIT_S:
            if not any(waits.open_before(ended) for waits in (self.acks, self.arrivals, self.pings)):
                break
            time.sleep(0.01)
        return {
            "ack_s": self.acks.longest(ended),
            "ping_s": self.pings.longest(ended),
            "end_to_end_s": self.arrivals.longest(ended),
            "records": self.arrivals.done,
            "pings": self.pings.done,
            "failures": self._failures[:5],
        }

    def _say(self, figures: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()

    def _produce(self) -> None:
        producer = Producer({**self._bootstrap, "enable.idempotence": True, "linger.ms": 0})
        while not self._stop.is_set():
            acked, arrived = self.acks.begin(), self.arrivals.begin()

            def on_delivery(error: Any, _: Any, acked: float = acked) -> None:
                if error is None:
                    self.acks.end(acked)
                else:
                    self._failures.append(f"produce: {error}")

            producer.produce(TOPIC, STAMP.pack(arrived), partition=0, on_delivery=on_delivery)
            next_at = acked + SEND_EVERY_S
            while (left := next_at - time.monotonic()) > 0:
                producer.poll(left)

    def _consume(self) -> None:
        consumer = Consumer({**self._bootstrap, "group.id": "never-joined", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.arrivals.end(STAMP.unpack(message.value() or b"")[0])
        consumer.close()

    def _ping(self) -> None:
        while not self._stop.is_set():
            # One that is closed counts as unanswered, and is a failure.
            try:
                with raw_connection(*self._address, timeout_s=120.0) as connection:
                    self._ping_over(connection)
            except OSError as error:
                self._failures.append(f"ping: {error}")
                time.sleep(PING_EVERY_S)

    def _ping_over(self, connection: Any) -> None:
        while not self._stop.is_set():
            began = self.pings.begin()
            connection.send(request(API_VERSIONS, 0))
            if not isinstance(connection.read_frame(), bytes):
                raise ConnectionError("the gateway closed the connection")
            self.pings.end(began)
            time.sleep(PING_EVERY_S)


if __name__ == "__main__":
    GoodClient(sys.argv[1], int(sys.argv[2])).run()
