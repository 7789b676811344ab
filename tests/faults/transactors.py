"""Producers with transactional ids at a gateway that dies, held against their history.

A transactor copies: each transaction has the next offsets of an input that is only counted, one record of
output for each, and the offset with which its group goes on.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.transactional_history import Outcome, Place, Read, TransactionalHistory

CALL_S: Final = 60.0
END_S: Final = 90.0
HANGS_S: Final = 8.0
"""librdkafka's send_offsets_to_transaction may wait for ever when the connection to the coordinator breaks,
whatever timeout it is given (confluentinc/librdkafka#5456), at Kafka too."""
TIMEOUT_MS: Final = 300_000
QUICK: Final[Mapping[str, str | int | bool]] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}

Step = Callable[[str], None]
STEPS: Final = ("initialised", "begun", "written", "committing offsets", "ended")
"""Names of the moments between two requests of a transactor."""


def nothing(_: str) -> None:
    """Between two steps."""


@dataclass(slots=True)
class Transactor:
    """One application instance. `between` is called at each of STEPS."""

    bootstrap: str
    history: TransactionalHistory
    transactional_id: str
    topic: str
    partitions: int
    between: Step = nothing
    offset: int = 0
    """Of the input, that comes next."""
    committed: int = 0
    """Transactions."""
    _producer: Producer | None = None
    _committing_since_s: float | None = None

    def restart(self) -> None:
        """As a process that has just been started."""
        name = self.transactional_id
        self.history.taking(name)
        try:
            self._producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": name,
                    "transaction.timeout.ms": TIMEOUT_MS,
                    "linger.ms": 2,
                    **QUICK,
                }
            )
            _repeated(lambda: self._made.init_transactions(CALL_S))
        finally:
            self.history.taken(name, time.monotonic())
        self.offset = committed_offset(self.bootstrap, name, self.topic)
        self.between("initialised")

    def transact(self, count: int, *, commit: bool = True) -> bool:
        """Whether it was committed. The instance starts again after an error that is not its own."""
        if self._producer is None:
            self.restart()
        now_s = time.monotonic()
        consumed = self.offset, self.offset + count
        attempt = self.history.begin(self.transactional_id, now_s, now_s + TIMEOUT_MS / 1000, consumed)
        try:
            self._made.begin_transaction()
            self.between("begun")
            for number in range(*consumed):
                place = self.topic, number % self.partitions
                value = f"{attempt.name}/{number}".encode()
                self.history.send(attempt, place, [value])
                self._made.produce(*place[:1], value, partition=place[1], on_delivery=self._delivered)
            self._made.flush(CALL_S)
            self.between("written")
            self._commit_offset(consumed[1])
            self.between("committing offsets")
            if commit:
                self.history.conclude(attempt, Outcome.UNKNOWN)
                _repeated(lambda: self._made.commit_transaction(CALL_S))
                self.history.conclude(attempt, Outcome.COMMITTED)
                self.offset, self.committed = consumed[1], self.committed + 1
            else:
                self.history.conclude(attempt, Outcome.ABORTED)
                _repeated(lambda: self._made.abort_transaction(CALL_S))
        except KafkaException:
            self._producer = None
            return False
        self.between("ended")
        return commit

    @property
    def _made(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def hangs(self) -> bool:
        since_s = self._committing_since_s
        return since_s is not None and time.monotonic() > since_s + HANGS_S

    def _commit_offset(self, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.transactional_id, **QUICK})
        self._committing_since_s = time.monotonic()
        try:
            metadata = consumer.consumer_group_metadata()
            rows = [TopicPartition(self.topic, 0, offset)]
            _repeated(lambda: self._made.send_offsets_to_transaction(rows, metadata, CALL_S))
        finally:
            self._committing_since_s = None
            consumer.close()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """An error shows at the commit."""
        offset, value, partition = message.offset(), message.value(), message.partition()
        if error is None and offset is not None and partition is not None and isinstance(value, bytes):
            self.history.acknowledge_value((self.topic, partition), offset, value)


def _repeated(call: Callable[[], object]) -> None:
    """As long as the client says that it may be."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """With which the group goes on, once nothing of it waits for the end of a transaction."""
    configs = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        **QUICK,
    }
    consumer = Consumer(configs)
    try:
        deadline = time.monotonic() + END_S
        while True:
            with suppress(KafkaException):
                (found,) = consumer.committed([TopicPartition(topic, 0)], CALL_S)
                if found.error is None:
                    return max(0, found.offset)
            assert time.monotonic() < deadline, "an offset waits for ever"
    finally:
        consumer.close()


def read_topic(bootstrap: str, topic: str, partitions: int, *, committed: bool) -> dict[Place, list[Read]]:
    """Up to the end that readers of this isolation level have."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": level,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **QUICK,
        }
    )
    found: dict[Place, list[Read]] = {(topic, partition): [] for partition in range(partitions)}
    consumer.assign([TopicPartition(*place, 0) for place in found])
    deadline, left = time.monotonic() + END_S, set(found)
    try:
        while left:
            assert time.monotonic() < deadline, f"no end of {left}"
            for message in consumer.consume(1000, 0.2):
                place = topic, message.partition() or 0
                error, offset, value = message.error(), message.offset(), message.value()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001
                    left.discard(place)
                elif offset is not None and isinstance(value, bytes):
                    found[place].append(Read(offset, value))
    finally:
        consumer.close()
    return found


def problems_of(history: TransactionalHistory, bootstrap: str, topic: str, partitions: int) -> list[str]:
    """What readers of either kind find that contradicts the history, when all transactors have ended."""
    names = {attempt.transactional_id for attempt in history.attempts}
    offsets = {name: committed_offset(bootstrap, name, topic) for name in names}
    everything = read_topic(bootstrap, topic, partitions, committed=False)
    history.compare(everything, read_topic(bootstrap, topic, partitions, committed=True), offsets)
    return history.wrong
