"""Members of aiokafka."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError

from tests.e2e.members.saying import HEARTBEAT_MS, POLL_S, SESSION_MS, Orders, Voice


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self.is_leaving = False

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        if self.is_leaving:
            return  # a rebalance ends while this member goes: nothing of it is worked on
        self._voice.partitions("assigned", [part.partition for part in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        given_up = [part.partition for part in revoked]
        if given_up:
            self._voice.partitions("revoked", given_up)


async def member(orders: Orders, number: int, stopping: asyncio.Event) -> None:
    voice = Voice(number)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=orders.bootstrap,
        group_id=orders.group,
        group_instance_id=orders.instance(number),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
        fetch_max_wait_ms=100,
        metadata_max_age_ms=5000,
    )
    await consumer.start()
    listener = Listener(voice)
    consumer.subscribe([orders.topic], listener=listener)
    try:
        while not stopping.is_set():
            taken = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            records = [(record.partition, record.offset) for part in taken.values() for record in part]
            if records:
                voice.read(records)
                await _commit(consumer, voice)
    except Exception as error:
        voice.say("failed", reason=repr(error))
    listener.is_leaving = True
    # Said first: as soon as it has left, others may be given what was its.
    voice.partitions("revoked", (part.partition for part in consumer.assignment()))
    await consumer.stop()


async def _commit(consumer: AIOKafkaConsumer, voice: Voice) -> None:
    try:
        await consumer.commit()
    except CommitFailedError as error:
        voice.say("refused", reason=str(error))


async def main(orders: Orders) -> None:
    stopping = asyncio.Event()
    members = [asyncio.create_task(member(orders, n, stopping)) for n in range(orders.members)]
    await asyncio.to_thread(sys.stdin.read)
    stopping.set()
    await asyncio.gather(*members)


if __name__ == "__main__":
    asyncio.run(main(Orders.from_arguments()))
