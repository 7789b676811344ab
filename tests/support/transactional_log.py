"""A partition with short transactions, written and read request by request: all that a Fetch says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gateway.addresses import Address
from gateway.cli.client import Client
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import TRANSACTIONAL_BIT, walk
from ledger.batch.records import Producer, Record, build_batch
from tests.support.gateway import Gateway

WAIT_MS: Final = 30_000
ISOLATIONS: Final = (0, 1)
START_MS: Final = 1_700_000_000_000
LARGE: Final = 1 << 20
EARLIEST: Final = -2


class Transactions:
    """A producer with a transactional id, in version 2 of the protocol: partitions are added by Produce."""

    def __init__(self, gateway: Gateway, name: str, topic: str) -> None:
        self._name, self._topic, self._client = name, topic, client_of(gateway)
        request = InitProducerIdRequest(name, 600_000)
        made = self._checked(self._client.ask(ApiKey.INIT_PRODUCER_ID, 5, request))
        self._producer = Producer(made.producer_id, made.producer_epoch, 0)
        self._records = 0
        """Of all transactions: their timestamps ascend."""

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    def send(self, records: int, kind: str) -> None:
        """One batch, which is a run of its own."""
        values = [b"%s of %s: %d" % (kind.encode(), self._name.encode(), at) for at in range(records)]
        batch = build_batch(
            [Record(at, at, b"k", value, ()) for at, value in enumerate(values)],
            base_timestamp=START_MS + self._records,
            producer=self._producer,
            flags=TRANSACTIONAL_BIT,
        )
        data = TopicProduceData(self._topic, partition_data=[PartitionProduceData(0, bytes(batch))])
        response = self._client.ask(ApiKey.PRODUCE, 12, ProduceRequest(self._name, -1, WAIT_MS, [data]))
        assert response.responses[0].partition_responses[0].error_code == 0, response
        self._records += records
        self._producer = self._producer._replace(base_sequence=self._producer.base_sequence + records)

    def end(self, *, commit: bool) -> None:
        producer = self._producer
        request = EndTxnRequest(self._name, producer.producer_id, producer.epoch, commit)
        ended = self._checked(self._client.ask(ApiKey.END_TXN, 5, request))
        self._producer = Producer(ended.producer_id, ended.producer_epoch, 0)

    @staticmethod
    def _checked(response: Any) -> Any:
        assert response.error_code == 0, response
        return response


@dataclass(frozen=True, slots=True)
class WholeLog:
    """What the gateway says of a partition, to readers of one isolation level. `batches`: each as it is
    served; `heads`: what a fetch of one batch has, from each batch on."""

    high_watermark: int
    last_stable: int
    batches: list[bytes]
    aborted: set[tuple[int, int]]
    heads: list[tuple[bytes, list[tuple[int, int]]]]
    offsets: list[tuple[int, int, int]]
    producers: list[Any] = field(default_factory=list)


def client_of(gateway: Gateway) -> Client:
    return Client(Address(gateway.host, gateway.port), timeout=60.0)


def write_transactions(gateway: Gateway, topic: str, count: int, records: int = 10) -> None:
    """Of two producers whose transactions overlap now and then; every third is aborted, and one stays open
    meanwhile. It is aborted in the end, when another is left open."""
    one, other, long = (Transactions(gateway, f"{name} {topic}", topic) for name in ("one", "other", "long"))
    long.send(1, "open")
    for number in range(count):
        commit = number % 3 != 1
        kind = "committed" if commit else "aborted"
        one.send(records, kind)
        if number % 10 == 5:
            other.send(records, "committed")
        one.end(commit=commit)
        if number % 10 == 6:
            other.end(commit=True)
    long.end(commit=False)
    one.send(1, "open")
    for producer in (one, other, long):
        producer.close()


def read_whole(gateway: Gateway, topic: str, isolation: int) -> WholeLog:
    """From the log start offset to the last one that is readable."""
    with client_of(gateway) as client:
        batches, aborted = list[bytes](), set[tuple[int, int]]()
        _, _, offset = _offset_of(client, topic, isolation, EARLIEST)
        while True:
            part = _fetch(client, topic, isolation, offset, LARGE)
            data = memoryview(bytes(part.records or b""))
            aborted.update((each.producer_id, each.first_offset) for each in part.aborted_transactions or ())
            for batch in walk(data):
                batches.append(bytes(data[batch.position : batch.position + batch.size_bytes]))
                offset = batch.base_offset + batch.last_offset_delta + 1
            if not data:
                break
        heads = [_head(client, topic, isolation, batch) for batch in batches[::7]]
        stamps = [-3, -2, -1, START_MS, START_MS + 55, START_MS + 10**6, START_MS + 10**14]
        offsets = [_offset_of(client, topic, isolation, stamp) for stamp in stamps]
        request = DescribeProducersRequest([TopicRequest(topic, [0])])
        producers = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0].active_producers
    ends = part.high_watermark, part.last_stable_offset
    # Their order may be another after a restart.
    return WholeLog(*ends, batches, aborted, heads, offsets, sorted(producers, key=_producer_id))


def _producer_id(producer: Any) -> int:
    return int(producer.producer_id)


def differing(before: Sequence[WholeLog], after: Sequence[WholeLog]) -> list[str]:
    """What is not the same, of each level."""
    return [
        f"{each.name} of level {level}: {getattr(one, each.name)!s:.500}, {getattr(other, each.name)!s:.500}"
        for level, (one, other) in enumerate(zip(before, after, strict=True))
        for each in fields(WholeLog)
        if getattr(one, each.name) != getattr(other, each.name)
    ]


def both(gateway: Gateway, topic: str) -> list[WholeLog]:
    return [read_whole(gateway, topic, isolation) for isolation in ISOLATIONS]


def _head(client: Client, topic: str, isolation: int, batch: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    part = _fetch(client, topic, isolation, int.from_bytes(batch[:8], "big"), 1)
    aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    return bytes(part.records or b""), aborted


def _fetch(client: Client, topic: str, isolation: int, offset: int, size: int) -> Any:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=LARGE,
        isolation_level=isolation,
        topics=[FetchTopic(topic, partitions=[wanted])],
    )
    part = client.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0]
    assert part.error_code == 0, part
    return part


def _offset_of(client: Client, topic: str, isolation: int, timestamp: int) -> tuple[int, int, int]:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=timestamp)])
    request = ListOffsetsRequest(-1, isolation, [wanted], WAIT_MS)
    part = client.ask(ApiKey.LIST_OFFSETS, 8, request).topics[0].partitions[0]
    return part.error_code, part.timestamp, part.offset
