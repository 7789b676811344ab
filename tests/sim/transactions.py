"""Producers with transactional ids, and readers of what they commit.

A producer is an instance of an application: it reads the offset that its group has committed, and copies from
there, each transaction with the next offset. Two instances share a transactional id; instances die, pause for
longer than their transactions may take, give up batches, and hear of no result.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.wire.messages.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ledger.batch.control import MarkerType, read_marker
from ledger.batch.header import TRANSACTIONAL_BIT, walk
from ledger.batch.records import Producer, Record, build_batch, read_batch
from tests.sim.host import BEGUN_MS
from tests.sim.links import Lost
from tests.sim.load import NONE, PARTITIONS, Client
from tests.support.transactional_history import Attempt, Outcome, Place, Read, TransactionalHistory

TRANSACTED: Final = "transacted"
MAX_RECORDS: Final = 3
SHORT_MS, LONG_MS = 2_500, 40_000
"""Timeouts of transactions."""
DELAY_S: Final = 2.0
FENCED_S: Final = 3.0
LATE_S: Final = 8.0
"""For how long a gateway may work on a request whose client has gone."""
READ_COMMITTED: Final = 1
FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        # Its id was forgotten.
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Fenced(Exception):
    """Another producer has the id, or the transaction took too long: the instance starts again."""


class GivenUp(Exception):
    """A request had no response, and the producer aborts instead of repeating it."""


class Transactor:
    """One instance. `is_v2`: its client is of transaction version 2 (KIP-890)."""

    def __init__(
        self, client: Client, history: TransactionalHistory, transactional_id: str, *, is_v2: bool
    ) -> None:
        self._client = client
        self._history = history
        self._choose = client.choose
        self._id = transactional_id
        self._group = f"group of {transactional_id}"
        self._is_v2 = is_v2
        self._timeout_ms = self._choose.choice([SHORT_MS, LONG_MS])
        self._producer_id = self._epoch = -1
        self._sequences = [0] * PARTITIONS
        self._made = 0
        self.committed = 0
        self._begun_s = self._ends_s = 0.0
        """When the transaction began, and when it may have timed out, in loop time."""
        self._late = list[asyncio.Task[None]]()

    async def look(self) -> int:
        """The offset that is committed."""
        while True:
            with suppress(Fenced):
                return await self._committed_offset()

    async def run(self, transactions: int) -> None:
        """Until so many are committed by this instance."""
        while self.committed < transactions and not self._is_wrong:
            with suppress(Fenced):
                await self._live(transactions)
            # Two instances that start again at once fence each other for ever.
            await asyncio.sleep(FENCED_S * self._choose.random())
        await asyncio.gather(*self._late)

    @property
    def _is_wrong(self) -> bool:
        return bool(self._history.wrong or self._client.book.wrong)

    async def _live(self, transactions: int) -> None:
        """From a first InitProducerId on. Raises Fenced."""
        self._producer_id = self._epoch = -1
        await self._init()
        offset = await self._committed_offset()
        while self.committed < transactions and not self._is_wrong:
            count = self._choose.randint(1, MAX_RECORDS)
            if await self._transact(offset, count):
                offset += count

    async def _transact(self, offset: int, count: int) -> bool:
        """Whether it was committed. Raises Fenced, which is also the death of the instance."""
        now_s = self._begun_s = asyncio.get_running_loop().time()
        self._ends_s = now_s + self._timeout_ms / 1000
        attempt = self._history.begin(self._id, now_s, self._ends_s, (offset, offset + count))
        epoch = self._epoch
        try:
            await self._fill(attempt, offset, count)
        except GivenUp:
            attempt.outcome = Outcome.ABORTED
            await self._abort_after_giving_up()
            return False
        if self._choose.random() < 0.2:
            attempt.outcome = Outcome.ABORTED
            await self._end(commit=False)
            return False
        attempt.outcome = Outcome.UNKNOWN
        await self._end(commit=True)
        attempt.outcome = Outcome.COMMITTED
        self.committed += 1
        if self._is_v2:
            self._late.append(asyncio.create_task(self._repeat_late(self._producer_id, epoch)))
        return True

    async def _fill(self, attempt: Attempt, offset: int, count: int) -> None:
        """One record of output for each offset of the input, and the offset."""
        at, end, is_offset_first = offset, offset + count, self._choose.random() < 0.5
        if is_offset_first:
            await self._commit_offset(end)
        while at < end:
            size = self._choose.randint(1, end - at)
            await self._write(attempt, [f"{attempt.name}/{n}".encode() for n in range(at, at + size)])
            at += size
            await self._live_on()
        if not is_offset_first:
            await self._commit_offset(end)
            await self._live_on()

    async def _live_on(self) -> None:
        """Raises Fenced when the instance has died instead."""
        chance = self._choose.random()
        if chance < 0.03:
            raise Fenced
        if chance < 0.08:
            await asyncio.sleep(2 * SHORT_MS / 1000 * self._choose.random())
        elif chance < 0.5:
            await self._client.pause()

    async def _repeat(self, key: ApiKey, version: int, message: Any, error_of: Callable[[Any], int]) -> Any:
        """Until there is a certain result. Raises Fenced; GivenUp now and then, but for ends."""
        while True:
            try:
                response = await self._client.ask(key, version, message)
            except Lost:
                if key is ApiKey.PRODUCE and self._choose.random() < 0.3:
                    raise GivenUp from None
                self._check_wrong()
                continue
            error = error_of(response)
            if error == NONE:
                return response
            if error in FENCED or (error == ErrorCode.INVALID_TXN_STATE and self._may_be_aborted(key)):
                raise Fenced
            if error not in RETRIABLE:
                self._history.complain(f"{self._id}: {key.name} was refused with {ErrorCode(error).name}")
            self._check_wrong()
            await self._client.pause()

    def _may_be_aborted(self, key: ApiKey) -> bool:
        """Whether the transaction has timed out, or another instance has begun with its id, be it a zombie:
        then the commit contradicts its end, which was an abort."""
        is_overdue = asyncio.get_running_loop().time() >= self._ends_s
        may_be = is_overdue or not self._history.is_alone(self._id, self._begun_s)
        return self._is_v2 and key is ApiKey.END_TXN and may_be

    def _check_wrong(self) -> None:
        if self._is_wrong:
            raise Fenced

    async def _init(self) -> None:
        """With what it believes to be, if anything. Raises Fenced."""
        request = InitProducerIdRequest(self._id, self._timeout_ms, self._producer_id, self._epoch)
        self._history.taking(self._id)
        try:
            begun = await self._repeat(ApiKey.INIT_PRODUCER_ID, 4, request, _error_of)
        finally:
            # One that was lost may be carried out for a while yet.
            self._history.taken(self._id, asyncio.get_running_loop().time() + LATE_S)
        self._producer_id, self._epoch = begun.producer_id, begun.producer_epoch
        self._sequences = [0] * PARTITIONS

    async def _committed_offset(self) -> int:
        topics = [OffsetFetchRequestTopics(TRANSACTED, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self._group, topics=topics)], require_stable=True
        )
        response = await self._repeat(ApiKey.OFFSET_FETCH, 8, request, _error_of_offset)
        return max(0, int(response.groups[0].topics[0].partitions[0].committed_offset))

    async def _write(self, attempt: Attempt, values: Sequence[bytes]) -> None:
        partition = self._choose.randrange(PARTITIONS)
        place = TRANSACTED, partition
        if not self._is_v2:
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(TRANSACTED, [partition])],
            )
            await self._repeat(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding, _error_of_added)
        producer = Producer(self._producer_id, self._epoch, self._sequences[partition])
        made = [Record(offset_delta=n, value=value) for n, value in enumerate(values)]
        data = build_batch(made, base_timestamp=BEGUN_MS, producer=producer, flags=TRANSACTIONAL_BIT)
        self._sequences[partition] += len(values)
        self._history.send(attempt, place, values)
        sent = [TopicProduceData(TRANSACTED, partition_data=[PartitionProduceData(partition, data)])]
        request = ProduceRequest(self._id, -1, 3_000, sent)
        response = await self._repeat(ApiKey.PRODUCE, 12 if self._is_v2 else 11, request, _error_of_batch)
        base = response.responses[0].partition_responses[0].base_offset
        self._history.acknowledge(attempt, place, base, values)

    async def _commit_offset(self, offset: int) -> None:
        if not self._is_v2:
            adding = AddOffsetsToTxnRequest(self._id, self._producer_id, self._epoch, self._group)
            await self._repeat(ApiKey.ADD_OFFSETS_TO_TXN, 3, adding, _error_of)
        topics = [TxnOffsetCommitRequestTopic(TRANSACTED, [TxnOffsetCommitRequestPartition(0, offset)])]
        request = TxnOffsetCommitRequest(self._id, self._group, self._producer_id, self._epoch, topics=topics)
        version = 5 if self._is_v2 else 4
        await self._repeat(ApiKey.TXN_OFFSET_COMMIT, version, request, _error_of_committed)

    async def _end(self, *, commit: bool) -> None:
        """Repeated until it is certain. Raises Fenced."""
        request = EndTxnRequest(self._id, self._producer_id, self._epoch, commit)
        ended = await self._repeat(ApiKey.END_TXN, 5 if self._is_v2 else 4, request, _error_of)
        if self._is_v2:
            self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch
            self._sequences = [0] * PARTITIONS

    async def _abort_after_giving_up(self) -> None:
        """The batch may be stored yet. A client of version 1 goes on with another epoch (KIP-360)."""
        if self._choose.random() < 0.5:
            await self._end(commit=False)
            if self._is_v2:
                return
        await self._init()

    async def _repeat_late(self, producer_id: int, epoch: int) -> None:
        """An EndTxn that was under way for long: it ends no later transaction."""
        late = Client(self._client.name, self._client.book, self._choose, self._client.connect)
        # Mostly while the next transaction is open.
        await asyncio.sleep(DELAY_S * self._choose.random() ** 3)
        with suppress(Lost):
            request = EndTxnRequest(self._id, producer_id, epoch, self._choose.random() < 0.5)
            await late.ask(ApiKey.END_TXN, 5, request)


def _error_of(response: Any) -> int:
    return int(response.error_code)


def _error_of_offset(response: Any) -> int:
    group = response.groups[0]
    return int(group.error_code or group.topics[0].partitions[0].error_code)


def _error_of_added(response: Any) -> int:
    (topic,) = response.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def _error_of_batch(response: Any) -> int:
    return int(response.responses[0].partition_responses[0].error_code)


def _error_of_committed(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


class Reader:
    """Of what is committed in one partition, or of all that is there."""

    def __init__(
        self, client: Client, history: TransactionalHistory, partition: int, *, committed: bool
    ) -> None:
        self._client = client
        self._history = history
        self._place: Place = TRANSACTED, partition
        self._isolation = READ_COMMITTED if committed else 0
        self.end = self.last_stable = -1
        """High watermark and last stable offset of the last response."""

    async def read(self, offset: int, max_wait_ms: int = 300) -> tuple[list[Read], int]:
        """Records, and the offset to go on from. Raises Lost."""
        topic, partition = self._place
        seen_before = self._history.last_stable[self._place]
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic, partitions=[wanted])],
        )
        response = await self._client.ask(ApiKey.FETCH, 11, request)
        data = response.responses[0].partitions[0]
        if data.error_code:
            await self._client.pause()
            return [], offset
        self.end, self.last_stable = data.high_watermark, data.last_stable_offset
        found, offset = self._records(data, offset)
        if self._isolation:
            self._history.see(self._place, found, data.last_stable_offset, seen_before)
            self._history.check_open(self._place, data.last_stable_offset, asyncio.get_running_loop().time())
        return found, offset

    def _records(self, data: Any, offset: int) -> tuple[list[Read], int]:
        """As a client does it: from the first offset of an aborted transaction up to its marker the records
        of that producer are left out."""
        aborted = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
        leaving, found = set[int](), list[Read]()
        view = memoryview(bytes(data.records or b""))
        for walked in walk(view):
            header, records = read_batch(view[walked.position : walked.position + walked.size_bytes], 1 << 20)
            first, end = header.base_offset, header.base_offset + header.last_offset_delta + 1
            if first > offset:
                self._history.complain(f"{self._place}: a batch at {first} where {offset} was expected")
            offset = max(offset, end)
            while aborted and aborted[0].first_offset < end:
                leaving.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(view[walked.position : walked.position + walked.size_bytes])
                if marker.type is MarkerType.ABORT:
                    leaving.discard(marker.producer_id)
            elif not (self._isolation and header.is_transactional and header.producer_id in leaving):
                found += [Read(first + record.offset_delta, bytes(record.value or b"")) for record in records]
        return found, offset

    async def follow(self, is_over: Callable[[], bool]) -> None:
        offset = 0
        while not is_over():
            with suppress(Lost):
                _, offset = await self.read(offset)
            if self._client.choose.random() < 0.1:
                offset = 0
            await self._client.pause()

    async def read_all(self) -> list[Read]:
        """Up to the last stable offset or the high watermark, once these are the same: no transaction is
        open for longer than its timeout."""
        while not self._history.wrong:
            offset, found = 0, list[Read]()
            with suppress(Lost):
                while True:
                    records, after = await self.read(offset, 0)
                    found += records
                    if after == offset:
                        break
                    offset = after
                if offset == self.end == self.last_stable:
                    return found
            await self._client.pause()
        return []
