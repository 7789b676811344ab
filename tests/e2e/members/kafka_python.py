"""Members of kafka-python."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, KafkaConnectionError

from tests.e2e.members.saying import HEARTBEAT_MS, POLL_S, SESSION_MS, Orders, Voice, run_members

COMMITS: Final = 20
AGAIN_S: Final = 0.2


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, voice: Voice) -> None:
        self._voice = voice

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._voice.partitions("assigned", [part.partition for part in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        # It is called before the first assignment too.
        given_up = [part.partition for part in revoked]
        if given_up:
            self._voice.partitions("revoked", given_up)


def member(orders: Orders, number: int, stopping: threading.Event) -> None:
    voice = Voice(number)
    consumer = KafkaConsumer(
        bootstrap_servers=orders.bootstrap,
        group_id=orders.group,
        group_instance_id=orders.instance(number),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
        fetch_max_wait_ms=100,
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe([orders.topic], listener=Listener(voice))
    mine: set[int] = set()
    while not stopping.is_set():
        taken = _poll(consumer)
        records = [(record.partition, record.offset) for part in taken.values() for record in part]
        if records:
            voice.read(records)
            _commit(consumer, voice)
        mine = {part.partition for part in consumer.assignment()}
    # Said first: as soon as it has left, others may be given what was its.
    voice.partitions("revoked", mine)
    consumer.close()


def _poll(consumer: KafkaConsumer) -> Mapping[Any, Sequence[Any]]:
    """Now and then the library lets an application see that a restart refuses its connection."""
    try:
        taken: Mapping[Any, Sequence[Any]] = consumer.poll(timeout_ms=int(POLL_S * 1000))
    except KafkaConnectionError:
        return {}
    return taken


def _commit(consumer: KafkaConsumer, voice: Voice) -> None:
    """The same holds here: the call is repeated, as applications do."""
    for _ in range(COMMITS):
        try:
            consumer.commit()
        except CommitFailedError as error:
            voice.say("refused", reason=str(error))
        except KafkaConnectionError:
            time.sleep(AGAIN_S)
            continue
        return
    voice.say("failed", reason=f"{COMMITS} commits found no connection")


if __name__ == "__main__":
    run_members(Orders.from_arguments(), member)
