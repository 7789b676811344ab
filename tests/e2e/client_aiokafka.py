"""aiokafka: every call runs in an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from tests.support.client import (
    CLIENT_TIMEOUT_S,
    ClientUnderTest,
    Codec,
    Earliest,
    FromOffset,
    FromTimestamp,
    Latest,
    Received,
    Record,
    Start,
    TopicExists,
)

Result = TypeVar("Result")


class AiokafkaClient(ClientUnderTest):
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        asyncio.run(within_time(self._create_topic(topic, partitions)))

    def partition_count(self, topic: str) -> int:
        return asyncio.run(within_time(self._partition_count(topic)))

    def can_send(self, record: Record) -> bool:
        """It refuses a record without key and value."""
        return record.key is not None or record.value is not None

    def produce(self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool) -> list[int]:
        return asyncio.run(within_time(self._produce(topic, records, codec, idempotent)))

    def consume(
        self,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None = None,
    ) -> list[Received]:
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        return asyncio.run(within_time(self._consume(assigned, start, count, on_positioned)))

    def end_offset(self, topic: str, partition: int) -> int:
        return asyncio.run(within_time(self._end_offset(TopicPartition(topic, partition))))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        async with self._admin() as admin:
            response = await admin.create_topics([NewTopic(topic, partitions, 1)])
        for _, code, *_ in response.topic_errors:
            if code == TopicAlreadyExistsError.errno:
                raise TopicExists(topic)
            if code != 0:
                raise for_code(code)(topic)

    async def _partition_count(self, topic: str) -> int:
        async with self._admin() as admin:
            (described,) = await admin.describe_topics([topic])
            return len(described["partitions"])

    async def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec is Codec.NONE else codec.value,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
        )
        async with producer:
            acks = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [(await ack).offset for ack in acks]

    async def _consume(
        self,
        assigned: Sequence[TopicPartition],
        start: Start,
        count: int,
        on_positioned: Callable[[], object] | None,
    ) -> list[Received]:
        async with self._consumer() as consumer:
            consumer.assign(assigned)
            await position(consumer, assigned, start)
            if on_positioned is not None:
                # It may run another client's event loop.
                await asyncio.to_thread(on_positioned)
            received: list[Received] = []
            while len(received) < count:
                polled = await consumer.getmany(timeout_ms=500, max_records=count - len(received))
                for messages in polled.values():
                    received.extend(received_from(message) for message in messages)
            return received

    async def _end_offset(self, requested: TopicPartition) -> int:
        async with self._consumer() as consumer:
            return int((await consumer.end_offsets([requested]))[requested])

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def _consumer(self) -> Any:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )


async def within_time(work: Coroutine[Any, Any, Result]) -> Result:
    async with asyncio.timeout(CLIENT_TIMEOUT_S):
        return await work


async def position(consumer: Any, assigned: Sequence[TopicPartition], start: Start) -> None:
    match start:
        case Earliest():
            await consumer.seek_to_beginning(*assigned)
        case Latest():
            await consumer.seek_to_end(*assigned)
        case FromOffset(offset):
            for partition in assigned:
                consumer.seek(partition, offset)
        case FromTimestamp(timestamp_ms):
            found = await consumer.offsets_for_times(dict.fromkeys(assigned, timestamp_ms))
            ends = await consumer.end_offsets(assigned)
            for partition in assigned:
                hit = found[partition]
                consumer.seek(partition, ends[partition] if hit is None else hit.offset)
    for partition in assigned:
        await consumer.position(partition)


def received_from(message: Any) -> Received:
    record = Record(
        message.partition, message.timestamp, message.key, message.value, tuple(message.headers or ())
    )
    return Received(message.offset, message.timestamp_type, record)
