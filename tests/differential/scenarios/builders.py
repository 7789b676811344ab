"""The usual requests, short to write."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.metadata import MetadataRequest, MetadataRequestTopic
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import Batch, Batches
from tests.differential.exchange import Call, IdOf

MIB: Final = 1 << 20
ALL: Final = -1
LATEST, EARLIEST = -1, -2
Records = Batch | Batches | bytes | None


def produce(
    records: Records, *, partition: int = 0, topic: str = "t", acks: int = ALL, timeout_ms: int = 10_000
) -> ProduceRequest:
    """One partition's records."""
    return produce_many([(topic, partition, records)], acks=acks, timeout_ms=timeout_ms)


def produce_many(
    parts: Sequence[tuple[str, int, Records]],
    *,
    acks: int = ALL,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Partitions of one topic must follow each other."""
    topics: dict[str, TopicProduceData] = {}
    for name, partition, records in parts:
        id_of: Any = IdOf(name)
        data: Any = records
        topic = topics.setdefault(name, TopicProduceData("{" + name + "}", id_of))
        topic.partition_data.append(PartitionProduceData(partition, data))
    return ProduceRequest(transactional_id, acks, timeout_ms, list(topics.values()))


def fetch(offset: int = 0, *, topic: str = "t", partition: int = 0, **fields: Any) -> FetchRequest:
    """One partition from an offset; fields named `part_...` are the partition's."""
    own = {name.removeprefix("part_"): value for name, value in fields.items() if name.startswith("part_")}
    rest = {name: value for name, value in fields.items() if not name.startswith("part_")}
    return fetch_parts([(topic, [partition_of(partition, offset, **own)])], **rest)


def partition_of(partition: int, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(
        **{"partition": partition, "fetch_offset": offset, "partition_max_bytes": MIB, **fields}
    )


def fetch_parts(topics: Sequence[tuple[str, list[FetchPartition]]], **fields: Any) -> FetchRequest:
    return FetchRequest(topics=fetch_topics(topics), **fields)


def fetch_topics(topics: Sequence[tuple[str, list[FetchPartition]]]) -> list[FetchTopic]:
    named: list[FetchTopic] = []
    for name, parts in topics:
        id_of: Any = IdOf(name)
        named.append(FetchTopic("{" + name + "}", id_of, parts))
    return named


def list_offsets(
    timestamp: int,
    *,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    isolation: int = 0,
    replica: int = -1,
) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition, epoch, timestamp)
    return ListOffsetsRequest(replica, isolation, [ListOffsetsTopic("{" + topic + "}", [part])], 10_000)


def metadata_of(*topics: str, create: bool = False) -> MetadataRequest:
    """By name."""
    return MetadataRequest([MetadataRequestTopic(name="{" + name + "}") for name in topics], create)


def metadata_of_ids(*topics: str) -> MetadataRequest:
    asked_for = []
    for name in topics:
        id_of: Any = IdOf(name)
        asked_for.append(MetadataRequestTopic(id_of, None))
    return MetadataRequest(asked_for, False)


def read_back(topic: str = "t", partition: int = 0) -> Call:
    """Everything in a partition, with its offsets."""
    return Call(ApiKey.FETCH, 11, fetch(0, topic=topic, partition=partition))


def end_of(topic: str = "t", partition: int = 0) -> Call:
    return Call(ApiKey.LIST_OFFSETS, 4, list_offsets(LATEST, topic=topic, partition=partition))


def exists(*topics: str) -> Call:
    return Call(ApiKey.METADATA, 5, metadata_of(*topics), is_fenced=True)
