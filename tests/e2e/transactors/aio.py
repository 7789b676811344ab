"""Transactions of aiokafka, whose event loop runs in a thread of its own: it works between two orders too."""

import asyncio
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from tests.e2e.transactors.orders import (
    END,
    HEARTBEAT_MS,
    SESSION_MS,
    Copying,
    ProducersByName,
    UntilEnd,
    serve,
)
from tests.support.loop_thread import Call, loop_in_thread

POLL_MS = 200
Taken = Mapping[TopicPartition, Sequence[Any]]


class Aio(ProducersByName[AIOKafkaProducer]):
    def __init__(self, loop: asyncio.AbstractEventLoop, call: Call) -> None:
        super().__init__()
        self._loop = loop
        self._call = call

    def initialized(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        return self._call(initialized(bootstrap, transactional_id, timeout_ms))

    def begin(self, producer: str) -> None:
        self._call(self.producers[producer].begin_transaction())

    def send(self, producer: str, topic: str, partition: int, values: Iterable[bytes]) -> None:
        sending = self.producers[producer]

        async def send() -> None:
            sent = [await sending.send(topic, value, partition=partition) for value in values]
            for future in sent:
                await future

        self._call(send())

    def end(self, producer: str, commit: bool) -> None:
        ending = self.producers[producer]
        self._call(ending.commit_transaction() if commit else ending.abort_transaction())

    def read(self, bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
        return self._call(read(bootstrap, topic, partitions, committed))

    def copy(self, copying: Copying) -> None:
        asyncio.run_coroutine_threadsafe(copy(copying), self._loop).result()


async def read(bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    found = UntilEnd(partitions)
    while not found.is_over:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                found.add(record.partition, record.value)
    await consumer.stop()
    return found.values


async def copy(copying: Copying) -> None:
    producer = await initialized(copying.bootstrap, copying.transactional_id, 60_000)
    consumer = AIOKafkaConsumer(
        copying.source,
        bootstrap_servers=copying.bootstrap,
        group_id=copying.group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=100,
    )
    await consumer.start()
    ends = 0
    for number in itertools.count(1):
        if ends == copying.partitions:
            break
        taken: Taken = {}
        while not taken:
            taken = await consumer.getmany(timeout_ms=POLL_MS, max_records=copying.batch)
        await producer.begin_transaction()
        try:
            await transfer(producer, copying, taken)
            if not copying.is_aborted(number):
                await producer.commit_transaction()
                ends += sum(record.value == END.encode() for one in taken.values() for record in one)
                continue
            await producer.flush()
        except ProducerFenced:
            raise
        except KafkaError as error:
            sys.stderr.write(f"aborted: {error!r}\n")
        await producer.abort_transaction()
        for place in consumer.assignment():
            consumer.seek(place, await consumer.committed(place) or 0)
    await consumer.stop()
    await producer.stop()


async def initialized(bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    await producer.start()
    return producer


async def transfer(producer: AIOKafkaProducer, copying: Copying, taken: Taken) -> None:
    """All that one transaction has."""
    for place, records in taken.items():
        for record in records:
            await producer.send(copying.target, record.value, partition=place.partition)
    await asyncio.sleep(copying.pause_s)
    following = {place: records[-1].offset + 1 for place, records in taken.items()}
    await producer.send_offsets_to_transaction(following, copying.group)


if __name__ == "__main__":
    with loop_in_thread("aiokafka") as (loop, call):
        serve(Aio(loop, call))
