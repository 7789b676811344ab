"""Idempotent producers that note every acknowledgement, and what a reader finds held against it.

Every value is unique: `name/number:` and filler. A producer spreads its records evenly over the
partitions, so its numbers must stand in each partition in ascending order.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

FILLER = bytes(range(256)) * 20
FLUSH_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
# Linger and batch size keep batches small, and so many; reconnects are quick, as restarts are.
PRODUCER_CONFIG: Mapping[str, str | int | float | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "batch.size": 8192,
    "message.timeout.ms": 300_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A record that was acknowledged at `at_ns` (time.monotonic_ns)."""

    at_ns: int
    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it was read."""

    offset: int
    value: bytes
    timestamp_ms: int


Log = Mapping[Place, Sequence[Found]]


@dataclass(slots=True)
class Load:
    """One idempotent producer in a thread of its own, with a bounded number of unanswered records."""

    bootstrap: str
    name: str
    topic: str
    partitions: int
    max_outstanding: int = 400
    pause_s: float = 0.0
    """Between two records."""
    max_records: int = 1 << 40
    acks: list[Ack] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    sent: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def outstanding(self) -> int:
        """Records that were handed over and have no result yet."""
        return self.sent - len(self.acks) - len(self.failures)

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> "Load":
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return self

    def stop_sending(self) -> None:
        self._stopping.set()

    def finish(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Send no more, and wait for what is unanswered."""
        self._stopping.set()
        self.complete(timeout_s)

    def complete(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Wait until all records are sent and have a result."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name}: {self.outstanding} records still unanswered"

    def _run(self) -> None:
        config = {"bootstrap.servers": self.bootstrap, "client.id": self.name, **PRODUCER_CONFIG}
        producer = Producer({**config, "error_cb": self._on_error})
        while not self._stopping.is_set() and self.sent < self.max_records:
            if self.outstanding >= self.max_outstanding:
                producer.poll(0.01)
                continue
            self._send(producer)
            producer.poll(0)
            if self.pause_s:
                time.sleep(self.pause_s)
        while len(producer) and self.outstanding:
            producer.poll(0.05)

    def _send(self, producer: Producer) -> None:
        number = self.sent
        value = b"%s/%d:" % (self.name.encode(), number) + FILLER[: number * 37 % 900]
        self.sent += 1
        producer.produce(self.topic, value, partition=number % self.partitions, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        at_ns = time.monotonic_ns()
        if error is not None:
            self.failures.append(f"{self.name}: {error}")
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        value = message.value()
        assert topic is not None and partition is not None and offset is not None
        assert isinstance(value, bytes)
        self.acks.append(Ack(at_ns, (topic, partition), offset, value))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal: {error}")


def new_consumer(bootstrap: str, settings: Mapping[str, bool] = MappingProxyType({})) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "fetch.error.backoff.ms": 50,
            "log_level": 0,
            **settings,
        }
    )


def read_all(bootstrap: str, topics: Mapping[str, int]) -> dict[Place, list[Found]]:
    """Everything in these topics (name -> partitions), from offset 0 to the high watermark."""
    consumer = new_consumer(bootstrap)
    places = [(name, index) for name, count in topics.items() for index in range(count)]
    log: dict[Place, list[Found]] = {place: [] for place in places}
    try:
        left = {place: high_watermark(consumer, place) for place in places}
        left = {place: end for place, end in left.items() if end}
        consumer.assign([TopicPartition(*place, 0) for place in left])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"could not read on at {left}"
            for message in consumer.consume(1000, 0.2):
                place, found = found_in(message)
                log[place].append(found)
                if place in left and found.offset >= left[place] - 1:
                    del left[place]
    finally:
        consumer.close()
    return log


def high_watermark(consumer: Consumer, place: Place) -> int:
    marks = consumer.get_watermark_offsets(TopicPartition(*place), timeout=READ_TIMEOUT_S)
    assert marks is not None
    low, high = marks
    assert low == 0, f"{place} begins at {low}"
    return int(high)


def found_in(message: Message) -> tuple[Place, Found]:
    """Errors: KafkaException when the message reports one."""
    error, value = message.error(), message.value()
    if error is not None:
        raise KafkaException(error)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    assert isinstance(value, bytes)
    return (topic, partition), Found(offset, value, message.timestamp()[1])


def problems(log: Log, acks: Iterable[Ack]) -> list[str]:
    """What contradicts invariants 1 to 3: acked records missing or elsewhere, records twice, offsets not
    dense or used twice, a producer's records out of order. Empty = all is well."""
    return [
        *(problem for place, found in log.items() for problem in _order_problems(place, found)),
        *_ack_problems(log, acks),
    ]


def _order_problems(place: Place, found: Sequence[Found]) -> list[str]:
    wrong = []
    offsets = [record.offset for record in found]
    if offsets != list(range(len(offsets))):
        gap = next(at for at, offset in enumerate(offsets) if offset != at)
        wrong.append(f"{place}: the record after offset {gap - 1} has offset {offsets[gap]}")
    last: dict[bytes, int] = {}
    for record in found:
        name, number = record.value.partition(b":")[0].split(b"/")
        if int(number) <= last.get(name, -1):
            wrong.append(
                f"{place}: {name.decode()}/{int(number)} at offset {record.offset} comes after {last[name]}"
            )
        last[name] = int(number)
    return wrong


def _ack_problems(log: Log, acks: Iterable[Ack]) -> list[str]:
    by_offset = {(place, record.offset): record.value for place, found in log.items() for record in found}
    wrong, seen = [], set()
    for ack in acks:
        stored = by_offset.get((ack.place, ack.offset))
        name = ack.value.partition(b":")[0].decode()
        if stored is None:
            wrong.append(f"{ack.place}: acked {name} at offset {ack.offset} is missing")
        elif stored != ack.value:
            wrong.append(f"{ack.place}: offset {ack.offset} was acked for {name}, holds {stored[:40]!r}")
        if (ack.place, ack.offset) in seen:
            wrong.append(f"{ack.place}: offset {ack.offset} was acked twice")
        seen.add((ack.place, ack.offset))
    return wrong
