"""The clients of a history. Each writes into the book what it was promised and what it has read."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.heartbeat import HeartbeatRequest
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.wire.messages.generated.leave_group import LeaveGroupRequest
from gateway.wire.messages.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.messages.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from tests.sim.book import OPAQUE_FROM, Book, TopicPartition, batches_of
from tests.sim.host import BEGUN_MS, now_ms
from tests.sim.links import Connection, Lost

TOPIC = "kept"
PARTITIONS = 2
CHURNED = "churned"
TRIMMED = "trimmed"
RETENTION_MS = 5_000
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
GROUPS = ("g", "h")
MEMBERS_GROUP = "m"
SESSION_MS = 6_000
PAUSE_S = 0.05
THINKING_S = 2.0
TIMEOUT_MS = 3_000
NONE, EXISTS, UNKNOWN = 0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NEVER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that no client of a topic that exists may see here."""


class Client:
    """One connection at a time."""

    def __init__(
        self, name: str, book: Book, choose: random.Random, connect: Callable[[], Connection]
    ) -> None:
        self.name = name
        self.book = book
        self.choose = choose
        self.connect = connect
        self._connection: Connection | None = None
        self._made = 0

    async def ask(self, key: ApiKey, version: int, message: Any) -> Any:
        """Raises Lost, if it is unknown what became of the request."""
        while self._connection is None or self._connection.is_lost:
            try:
                self._connection = self.connect()
            except Lost:
                await self.pause()
        return await self._connection.ask(key, version, message)

    async def pause(self) -> None:
        await asyncio.sleep(self.choose.uniform(PAUSE_S / 2, PAUSE_S))

    async def _think(self) -> None:
        """Mostly short, so that requests of several clients meet, and sometimes long."""
        if self.choose.random() < 0.6:
            await asyncio.sleep(self.choose.random() ** 4 * THINKING_S)

    def batch(self, records: int, producer: Producer = NO_PRODUCER, base_timestamp: int = BEGUN_MS) -> bytes:
        """Of which there is no second one."""
        self._made += 1
        values = [f"{self.name}/{self._made}/{n}".encode() for n in range(records)]
        made = [Record(offset_delta=n, value=value) for n, value in enumerate(values)]
        return bytes(build_batch(made, base_timestamp=base_timestamp, producer=producer))

    async def produce(self, place: TopicPartition, data: bytes) -> tuple[int, int]:
        """(error, base offset). Raises Lost."""
        topic, partition = place
        sent = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, data)])]
        response = await self.ask(ApiKey.PRODUCE, 8, ProduceRequest(None, -1, TIMEOUT_MS, sent))
        (result,) = response.responses[0].partition_responses
        return result.error_code, result.base_offset

    async def fetch(self, place: TopicPartition, offset: int, max_wait_ms: int = 300) -> Any:
        """The response of the partition. Raises Lost."""
        topic, partition = place
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic, partitions=[wanted])]
        )
        response = await self.ask(ApiKey.FETCH, 11, request)
        return response.responses[0].partitions[0]

    async def create(self, topic: str, partitions: int, configs: Mapping[str, str] = NO_CONFIGS) -> None:
        set_ = [CreatableTopicConfig(name, value) for name, value in configs.items()]
        while True:
            request = CreateTopicsRequest([CreatableTopic(topic, partitions, 1, [], set_)], TIMEOUT_MS)
            try:
                (result,) = (await self.ask(ApiKey.CREATE_TOPICS, 5, request)).topics
            except Lost:
                continue
            if result.error_code in (NONE, EXISTS):
                return
            await self.pause()

    async def delete(self, topic: str) -> None:
        while True:
            request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
            try:
                (result,) = (await self.ask(ApiKey.DELETE_TOPICS, 4, request)).responses
            except Lost:
                continue
            if result.error_code in (NONE, UNKNOWN):
                return
            await self.pause()

    def refuse(self, what: str, error: int) -> None:
        if error in NEVER:
            self.book.complain(f"{self.name}: {what} was refused with {ErrorCode(error).name}")

    # What clients do

    async def produce_exactly_once(self, batches: int) -> None:
        """One batch at a time, each sent again until it is acknowledged."""
        producer_id = await self._producer_id()
        sequences = [0] * PARTITIONS
        for _ in range(batches):
            place, records = (TOPIC, self.choose.randrange(PARTITIONS)), self.choose.randint(1, 3)
            data = self.batch(records, Producer(producer_id, 0, sequences[place[1]]))
            sequences[place[1]] += records
            self.book.will_send(place, data, once=True)
            while not await self._send(place, data, records):
                if self.book.wrong:
                    return
                await self.pause()
            await self._think()

    async def _producer_id(self) -> int:
        while True:
            try:
                response = await self.ask(ApiKey.INIT_PRODUCER_ID, 3, InitProducerIdRequest(None))
            except Lost:
                continue
            if not response.error_code:
                return int(response.producer_id)
            await self.pause()

    async def _send(self, place: TopicPartition, data: bytes, records: int) -> bool:
        """Whether it was acknowledged."""
        try:
            error, base = await self.produce(place, data)
        except Lost:
            return False
        if error:
            self.refuse("a batch", error)
            return False
        self.book.acknowledge(place, base, data, records)
        return True

    async def produce_plainly(self, rounds: int) -> None:
        """Several batches at a time, and each only once."""
        for _ in range(rounds):
            sending = []
            for _ in range(self.choose.randint(1, 3)):
                place, records = (TOPIC, self.choose.randrange(PARTITIONS)), self.choose.randint(1, 3)
                data = self.batch(records)
                self.book.will_send(place, data)
                sending.append(self._send(place, data, records))
            await asyncio.gather(*sending)
            await self._think()

    async def consume(self, partition: int, is_over: Callable[[], bool]) -> None:
        place, offset = (TOPIC, partition), 0
        while not is_over():
            end_before = self.book.ends[place]
            try:
                data = await self.fetch(place, offset)
            except Lost:
                continue
            if data.error_code:
                self.refuse(f"a fetch at {offset}", data.error_code)
                await self.pause()
                continue
            records = bytes(data.records or b"")
            offset = self.book.read(place, offset, records, data.high_watermark, end_before)
            if self.choose.random() < 0.1:
                offset = 0
            await self.pause()

    async def commit(self, group: str, rounds: int) -> None:
        """The only one who commits for this group; sometimes it looks."""
        place, offset = (group, 0), 0
        for _ in range(rounds):
            if self.choose.random() < 0.3:
                await self.look_at_commit(place)
                continue
            offset += self.choose.randint(1, 5)
            self.book.attempts[place] = offset
            row = OffsetCommitRequestPartition(0, offset)
            request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions=[row])])
            try:
                response = await self.ask(ApiKey.OFFSET_COMMIT, 7, request)
            except Lost:
                continue
            (result,) = response.topics[0].partitions
            if not result.error_code:
                self.book.commits[place] = offset
            self.refuse("an offset commit", result.error_code)
            await self._think()

    async def look_at_commit(self, place: TopicPartition) -> bool:
        """Whether there was a response."""
        at_least = self.book.commits[place]
        request = OffsetFetchRequest(place[0], [OffsetFetchRequestTopic(TOPIC, [place[1]])])
        try:
            response = await self.ask(ApiKey.OFFSET_FETCH, 5, request)
        except Lost:
            return False
        if response.error_code or response.topics[0].partitions[0].error_code:
            return False
        self.book.committed(place, response.topics[0].partitions[0].committed_offset, at_least)
        return True

    async def be_member(self, group: str, rounds: int) -> None:
        """Join, be assigned, send heartbeats, leave: again and again, and with other members."""
        member_id = ""
        for _ in range(rounds):
            with suppress(Lost):
                member_id = await self._membership(group, member_id)
            await self._think()

    async def _membership(self, group: str, member_id: str) -> str:
        """One generation. Returns the member id to join with next."""
        protocol = JoinGroupRequestProtocol("range", self.name.encode())
        join = JoinGroupRequest(group, SESSION_MS, SESSION_MS, member_id, None, "consumer", [protocol])
        joined = await self.ask(ApiKey.JOIN_GROUP, 5, join)
        if joined.error_code:
            return joined.member_id if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
        member_id, generation = joined.member_id, joined.generation_id
        assigned = [SyncGroupRequestAssignment(one.member_id, b"a") for one in joined.members]
        sync = SyncGroupRequest(group, generation, member_id, assignments=assigned)
        if (await self.ask(ApiKey.SYNC_GROUP, 3, sync)).error_code:
            return member_id
        for _ in range(self.choose.randint(1, 4)):
            beat = HeartbeatRequest(group, generation, member_id)
            if (await self.ask(ApiKey.HEARTBEAT, 3, beat)).error_code:
                return member_id
            await self._think()
        if self.choose.random() < 0.5:
            return member_id
        await self.ask(ApiKey.LEAVE_GROUP, 2, LeaveGroupRequest(group, member_id))
        return ""

    async def churn(self, rounds: int) -> None:
        """Create a topic, produce to it, delete it: again and again under one name."""
        place = (CHURNED, 0)
        for number in range(rounds):
            await self.create(CHURNED, 1)
            mine = set[bytes]()
            for _ in range(self.choose.randint(1, 3)):
                data = self.batch(1)
                mine.add(data[16:])
                try:
                    await self.produce(place, data)
                except Lost:
                    await self.pause()
            await self._check_incarnation(place, mine, number)
            await self.delete(CHURNED)
            await self._think()

    async def _check_incarnation(self, place: TopicPartition, mine: set[bytes], number: int) -> None:
        try:
            data = await self.fetch(place, 0, 0)
        except Lost:
            return
        for batch in batches_of(bytes(data.records or b"")):
            if batch.identity not in mine:
                self.book.complain(f"{CHURNED}: incarnation {number} has records of another")

    async def trim(self, rounds: int) -> None:
        """Produce, delete records, read what is left: alone on a topic whose retention is short."""
        await self.create(TRIMMED, 1, {"retention.ms": str(RETENTION_MS)})
        place, stored = (TRIMMED, 0), dict[int, bytes]()
        end = 0
        for _ in range(rounds):
            records = self.choose.randint(1, 3)
            data = self.batch(records, base_timestamp=BEGUN_MS + now_ms())
            self.book.will_send(place, data)
            try:
                error, base = await self.produce(place, data)
                if not error:
                    stored[base], end = data[OPAQUE_FROM:], base + records
                if self.choose.random() < 0.3:
                    await self._delete_records(place, self.choose.randint(0, end))
                await self._check_trimmed(place, stored)
            except Lost:
                await self.pause()
            await self._think()

    async def _delete_records(self, place: TopicPartition, offset: int) -> int:
        """Returns where the log begins, -1 if that was refused. Raises Lost."""
        partition = DeleteRecordsPartition(place[1], offset)
        request = DeleteRecordsRequest([DeleteRecordsTopic(place[0], [partition])], TIMEOUT_MS)
        (topic,) = (await self.ask(ApiKey.DELETE_RECORDS, 1, request)).topics
        low = int(topic.partitions[0].low_watermark)
        if topic.partitions[0].error_code:
            return -1
        if low < offset:
            self.book.complain(f"{place}: low watermark {low} after {offset}")
        return low

    async def _check_trimmed(self, place: TopicPartition, stored: dict[int, bytes]) -> None:
        """`stored`: by offset, what was acknowledged."""
        begin = await self._delete_records(place, 0)
        if begin < 0:
            return
        found = await self.fetch(place, begin, 0)
        if found.error_code and found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            self.refuse("a fetch of what was trimmed", found.error_code)
        for batch in batches_of(bytes(found.records or b"")):
            if stored.get(batch.base, batch.identity) != batch.identity:
                self.book.complain(f"{place}: offset {batch.base} changed its batch")
            if batch.identity not in self.book.sent[place]:
                self.book.complain(f"{place}: a batch at {batch.base} that no client sent")

    async def alter(self, rounds: int) -> None:
        for _ in range(rounds):
            value = str(self.choose.randint(1 << 20, 1 << 21))
            config = AlterConfigsResource(2, TOPIC, [AlterableConfig("max.message.bytes", 0, value)])
            try:
                await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, IncrementalAlterConfigsRequest([config]))
            except Lost:
                continue
            await self._think()
