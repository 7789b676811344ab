"""Random requests about a few partitions, the same ones at both endpoints for the same seed.

Nothing depends on the response: an idempotent producer counts its sequences as if all had been taken,
and goes wrong on purpose now and then.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.fetch import FetchRequest, ForgottenTopic
from gateway.wire.messages.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gateway.wire.messages.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from gateway.wire.messages.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ledger.batch.header import Codec
from tests.differential.batches import HOUR_MS, Batch, Batches
from tests.differential.exchange import SESSION, Call, IdOf, ProducerIdOf, Step, TimeOf
from tests.differential.scenarios.builders import EARLIEST, LATEST, fetch_parts, partition_of, produce_many
from tests.differential.steps import Create, Delete, NewProducer

TOPICS: Final = ("t", "u")
PARTITIONS: Final = 2
PRODUCERS: Final = ("p", "q")
TOPIC_RESOURCE: Final = 2
SET: Final = 0
OFFSETS: Final = (*range(16), *range(16, 60, 4))
LATER_MS: Final = 10_000
FIRST_ZSTD_PRODUCE, FIRST_ZSTD_FETCH, FIRST_VERSION_WITH_IDS = 7, 10, 13
OTHER_CONFIGS: Final = (
    ("max.message.bytes", ("200", "1000", "1048588")),
    ("message.timestamp.after.max.ms", ("1000", "3600000")),
    ("message.timestamp.before.max.ms", ("1000", "9223372036854775807")),
)


@dataclass(slots=True)
class Progress:
    """Where an idempotent producer is in a partition, if all was taken."""

    epoch: int = 0
    next: int = 0


@dataclass(slots=True)
class RandomCalls:
    """`count` of them. In every second sequence topics change their codecs; no request is bounded by bytes
    then, since each endpoint packs to other sizes."""

    seed: int
    count: int
    _random: random.Random = field(init=False)
    _progress: dict[tuple[str, str, int], Progress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def packs(self) -> bool:
        return self.seed % 2 == 1

    def before(self) -> Sequence[Step]:
        return [Create(topic, PARTITIONS) for topic in TOPICS] + [NewProducer(name) for name in PRODUCERS]

    def __iter__(self) -> Iterator[Call | Step]:
        kinds = [self._produce] * 8 + [self._fetch] * 5 + [self._list_offsets] * 3
        kinds += [self._delete_records] * 2 + [self._alter, self._leader_epochs, self._grow]
        for _ in range(self.count):
            if self._random.random() < 1 / 60:
                yield from self._made_anew()
            yield self._random.choice(kinds)()

    def _produce(self) -> Call:
        some = self._random
        version = some.randint(3, 13)
        places = sorted(
            {(some.choice(TOPICS), some.randrange(PARTITIONS)) for _ in range(some.choice((1, 1, 2)))}
        )
        parts = [(topic, partition, self._batch(topic, partition, version)) for topic, partition in places]
        return Call(ApiKey.PRODUCE, version, produce_many(parts, acks=some.choice((-1, -1, 1))))

    def _batch(self, topic: str, partition: int, version: int) -> Batch | Batches:
        some = self._random
        codecs = [codec for codec in Codec if codec is not Codec.ZSTD or version >= FIRST_ZSTD_PRODUCE]
        count = some.randint(1, 6)
        batch = Batch(
            count,
            b"v" * some.choice((0, 1, 10, 100)),
            some.choice(codecs),
            later_ms=some.randrange(HOUR_MS - 5000) if some.random() < 0.95 else 3 * HOUR_MS,
            step_ms=some.choice((0, 1, 1, 1000)),
            **self._producer(topic, partition, count),
        )
        if some.random() < 0.05:
            return Batches([batch, Batch(cut=some.randint(1, 40))])
        return batch

    def _producer(self, topic: str, partition: int, count: int) -> dict[str, Any]:
        some = self._random
        if some.random() < 0.5:
            return {}
        name = some.choice(PRODUCERS)
        at = self._progress.setdefault((name, topic, partition), Progress())
        sequence = at.next
        match some.randrange(12):
            case 0:
                sequence = max(0, at.next - some.randint(1, 8))
            case 1:
                sequence = at.next + some.randint(1, 3)
            case 2:
                at.epoch, at.next, sequence = at.epoch + 1, count, 0
            case 3 if at.epoch:
                return {"producer": ProducerIdOf(name), "epoch": at.epoch - 1, "sequence": sequence}
            case _:
                at.next += count
        return {"producer": ProducerIdOf(name), "epoch": at.epoch, "sequence": sequence}

    def _fetch(self) -> Call:
        some = self._random
        version = some.randint(FIRST_ZSTD_FETCH, 18)
        topics = []
        for topic in some.sample(TOPICS, some.choice((1, 1, 2))):
            partitions = some.sample(range(PARTITIONS), some.choice((1, 2)))
            limit = 1 << 20 if self.packs else some.choice((0, 1, 100, 500, 1 << 20))
            rows = [
                partition_of(partition, some.choice((-1, *OFFSETS)), partition_max_bytes=limit)
                for partition in partitions
            ]
            topics.append((topic, rows))
        most = 1 << 20 if self.packs else some.choice((0, 300, 1 << 20, 1 << 20))
        fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": most, "isolation_level": some.randrange(2)}
        return Call(ApiKey.FETCH, version, fetch_parts(topics, **fields))

    def _list_offsets(self) -> Call:
        some = self._random
        timestamps: list[Any] = [EARLIEST, LATEST, TimeOf(some.randrange(-2 * HOUR_MS, HOUR_MS))]
        topics = []
        for topic in some.sample(TOPICS, some.choice((1, 2))):
            rows = [
                ListOffsetsPartition(i, -1, some.choice(timestamps))
                for i in range(some.randint(1, PARTITIONS))
            ]
            topics.append(ListOffsetsTopic("{" + topic + "}", rows))
        request = ListOffsetsRequest(-1, some.randrange(2), topics, LATER_MS)
        return Call(ApiKey.LIST_OFFSETS, some.randint(1, 11), request)

    def _delete_records(self) -> Call:
        some = self._random
        place = DeleteRecordsPartition(some.randrange(PARTITIONS), some.choice((-1, 0, 1, 3, 7, 15, 99)))
        topic = DeleteRecordsTopic("{" + some.choice(TOPICS) + "}", [place])
        return Call(ApiKey.DELETE_RECORDS, some.randrange(3), DeleteRecordsRequest([topic], LATER_MS))

    def _leader_epochs(self) -> Call:
        some = self._random
        part = OffsetForLeaderPartition(
            some.randrange(PARTITIONS), some.choice((-1, 0, 1)), some.choice((0, 1))
        )
        topic = OffsetForLeaderTopic("{" + some.choice(TOPICS) + "}", [part])
        version = some.randint(2, 4)
        return Call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, OffsetForLeaderEpochRequest(-1, [topic]))

    def _grow(self) -> Call:
        """To as many partitions as there are, or fewer: refused, so that the topics stay as they are."""
        some = self._random
        topic = CreatePartitionsTopic("{" + some.choice(TOPICS) + "}", some.randint(-1, PARTITIONS), None)
        return Call(ApiKey.CREATE_PARTITIONS, some.randrange(4), CreatePartitionsRequest([topic], LATER_MS))

    def _alter(self) -> Call:
        some = self._random
        if self.packs:
            kept = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
            name, value = "compression.type", some.choice(kept)
        else:
            name, values = some.choice(OTHER_CONFIGS)
            value = some.choice(values)
        resource = AlterConfigsResource(
            TOPIC_RESOURCE, "{" + some.choice(TOPICS) + "}", [AlterableConfig(name, SET, value)]
        )
        request = IncrementalAlterConfigsRequest([resource])
        return Call(ApiKey.INCREMENTAL_ALTER_CONFIGS, some.randrange(2), request, is_fenced=False)

    def _made_anew(self) -> Iterator[Step]:
        topic = self._random.choice(TOPICS)
        for place in [place for place in self._progress if place[1] == topic]:
            del self._progress[place]
        yield Delete(topic)
        yield Create(topic, PARTITIONS)


@dataclass(slots=True)
class RandomSessions(RandomCalls):
    """The same, around one fetch session at a time (KIP-227). Epochs count as if nothing had been refused."""

    _epoch: int = 0
    """Of the next fetch; 0 while there is no session."""
    _version: int = FIRST_VERSION_WITH_IDS

    @property
    def packs(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Call | Step]:
        some = self._random
        for _ in range(self.count):
            chance = some.random()
            if chance < 0.02:
                yield from self._made_anew()
            elif chance < 0.25:
                yield self._produce()
            elif chance < 0.3:
                yield self._delete_records()
            else:
                yield self._session_fetch()

    def _session_fetch(self) -> Call:
        some = self._random
        if self._epoch and some.random() < 0.08:
            # Closed, and a full fetch without a session.
            self._epoch = 0
            return self._incremental(-1)
        if self._epoch and some.random() < 0.06:
            return self._incremental(self._epoch + some.choice((1, 5, -1)))
        if self._epoch == 0 or some.random() < 0.04:
            self._version = some.choice((11, 12, 13, 17, 18))
            self._epoch = 1
            return Call(ApiKey.FETCH, self._version, self._partitions(session_id=0, session_epoch=0))
        self._epoch += 1
        return self._incremental(self._epoch - 1)

    def _incremental(self, epoch: int) -> Call:
        some = self._random
        version = self._version
        if some.random() < 0.03:
            version = 12 if version >= FIRST_VERSION_WITH_IDS else FIRST_VERSION_WITH_IDS
        forgotten: list[Any] = []
        if some.random() < 0.2:
            topic = some.choice(TOPICS)
            topic_id: Any = IdOf(topic)
            gone = some.sample(range(PARTITIONS), some.choice((1, 2)))
            forgotten.append(ForgottenTopic("{" + topic + "}", topic_id, gone))
        session: Any = SESSION
        request = self._partitions(session_id=session, session_epoch=epoch, forgotten_topics_data=forgotten)
        if some.random() < 0.5:
            request.topics = []
        return Call(ApiKey.FETCH, version, request)

    def _partitions(self, **fields: Any) -> FetchRequest:
        some = self._random
        topics = []
        for topic in some.sample(TOPICS, some.choice((1, 2))):
            rows = [
                partition_of(
                    partition,
                    some.choice((0, 0, *OFFSETS[:8])),
                    partition_max_bytes=some.choice((0, 100, 1 << 20, 1 << 20)),
                )
                for partition in some.sample(range(PARTITIONS), some.choice((1, 2)))
            ]
            topics.append((topic, rows))
        most = some.choice((0, 400, 1 << 20, 1 << 20))
        return fetch_parts(
            topics, max_wait_ms=0, min_bytes=0, max_bytes=most, isolation_level=some.randrange(2), **fields
        )
