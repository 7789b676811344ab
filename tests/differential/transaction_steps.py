"""The requests of transactional producers, short to write, and the step that begins an id.

The producer id that InitProducerId returns is `ProducerIdOf("p")` afterwards. Epochs are written out: a new
transactional id has epoch 0, and each end by EndTxn of version 5 adds one (KIP-890).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gateway.wire.messages.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gateway.wire.messages.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ledger.batch.header import TRANSACTIONAL_BIT
from tests.differential.batches import Batch, Batches
from tests.differential.conversation import Conversation
from tests.differential.exchange import Call, IdOf, ProducerIdOf
from tests.differential.scenarios.builders import LATEST, fetch, list_offsets, produce_many
from tests.differential.steps import response_of

P: Final = ProducerIdOf("p")
Q: Final = ProducerIdOf("q")
X: Final = "{x}"
Y: Final = "{y}"
TIMEOUT_MS: Final = 60_000
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
INIT_VERSION, ADD_VERSION, OFFSETS_VERSION = 5, 3, 4
PRODUCE_V1, PRODUCE_V2 = 11, 12
"""The newest version of a client of transaction version 1, and the first of version 2."""
END_V1, END_V2 = 4, 5
COMMIT_V1, COMMIT_V2 = 4, 5

Places = Sequence[tuple[str, Sequence[int]]]
"""(topic alias, partitions)."""


def init(
    *, name: str = X, timeout_ms: int = TIMEOUT_MS, producer: Any = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(name, timeout_ms, producer, epoch)


def add(
    places: Places = (("t", (0,)),), *, name: str = X, producer: Any = P, epoch: int = 0
) -> AddPartitionsToTxnRequest:
    """As producers send it (versions 0 to 3)."""
    topics = [AddPartitionsToTxnTopic("{" + topic + "}", list(parts)) for topic, parts in places]
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


def adding(
    places: Places = (("t", (0,)),),
    *,
    name: str = X,
    producer: Any = P,
    epoch: int = 0,
    verify: bool = False,
) -> AddPartitionsToTxnTransaction:
    """One transaction of a batched request (versions 4 and 5), which brokers send."""
    topics = [AddPartitionsToTxnTopic("{" + topic + "}", list(parts)) for topic, parts in places]
    return AddPartitionsToTxnTransaction(name, producer, epoch, verify, topics)


def add_all(*transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(list(transactions))


def add_offsets(
    group: str = "{g}", *, name: str = X, producer: Any = P, epoch: int = 0
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(name, producer, epoch, group)


def commit_offsets(
    *offsets: tuple[str, int, int],
    group: str = "{g}",
    name: str = X,
    producer: Any = P,
    epoch: int = 0,
    metadata: str | None = "note",
    **member: Any,
) -> TxnOffsetCommitRequest:
    """`offsets`: (topic alias, partition, offset), those of one topic together. `member`: further fields."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for alias, partition, offset in offsets:
        topic = topics.setdefault(alias, TxnOffsetCommitRequestTopic("{" + alias + "}"))
        topic.partitions.append(TxnOffsetCommitRequestPartition(partition, offset, -1, metadata))
    return TxnOffsetCommitRequest(name, group, producer, epoch, topics=list(topics.values()), **member)


def end(commit: bool = True, *, name: str = X, producer: Any = P, epoch: int = 0) -> EndTxnRequest:
    return EndTxnRequest(name, producer, epoch, commit)


def records(
    sequence: int = 0, count: int = 1, *, producer: Any = P, epoch: int = 0, value: bytes = b"value"
) -> Batch:
    """A transactional batch."""
    return Batch(count, value, producer=producer, epoch=epoch, sequence=sequence, flags=TRANSACTIONAL_BIT)


def produced(
    batch: Batch | Batches,
    *,
    version: int = PRODUCE_V2,
    name: str | None = X,
    topic: str = "t",
    partition: int = 0,
) -> Call:
    request = produce_many([(topic, partition, batch)], transactional_id=name)
    return Call(ApiKey.PRODUCE, version, request)


def added(*, version: int = ADD_VERSION, **fields: Any) -> Call:
    return Call(ApiKey.ADD_PARTITIONS_TO_TXN, version, add(**fields))


def offsets_added(*, version: int = OFFSETS_VERSION, **fields: Any) -> Call:
    return Call(ApiKey.ADD_OFFSETS_TO_TXN, version, add_offsets(**fields))


def offsets_committed(*offsets: tuple[str, int, int], version: int = COMMIT_V2, **fields: Any) -> Call:
    return Call(ApiKey.TXN_OFFSET_COMMIT, version, commit_offsets(*offsets, **fields))


def ended(commit: bool = True, *, version: int = END_V2, **fields: Any) -> Call:
    return Call(ApiKey.END_TXN, version, end(commit, **fields))


def described(*names: str) -> Call:
    return Call(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(list(names or (X,))))


def producers_of(topic: str = "t", partition: int = 0) -> Call:
    request = DescribeProducersRequest([TopicRequest("{" + topic + "}", [partition])])
    return Call(ApiKey.DESCRIBE_PRODUCERS, 0, request)


def read(
    offset: int = 0,
    *,
    isolation: int = READ_COMMITTED,
    version: int = 11,
    topic: str = "t",
    partition: int = 0,
) -> Call:
    """A fetch that waits for nothing."""
    request = fetch(
        offset, topic=topic, partition=partition, isolation_level=isolation, max_wait_ms=0, min_bytes=0
    )
    return Call(ApiKey.FETCH, version, request)


def stable_end(topic: str = "t", partition: int = 0) -> Call:
    request = list_offsets(LATEST, topic=topic, partition=partition, isolation=READ_COMMITTED)
    return Call(ApiKey.LIST_OFFSETS, 4, request)


def group_offsets(group: str = "{g}", *, stable: bool = True, topic: str = "t", version: int = 9) -> Call:
    """Of partitions 0 and 1."""
    id_of: Any = IdOf(topic)
    topics = [OffsetFetchRequestTopics("{" + topic + "}", id_of, [0, 1])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable
    )
    return Call(ApiKey.OFFSET_FETCH, version, request)


def marker(
    commit: bool = False,
    places: Places = (("t", (0,)),),
    *,
    producer: Any = P,
    epoch: int = 0,
    coordinator_epoch: int = 0,
) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic("{" + topic + "}", list(parts)) for topic, parts in places]
    return WritableTxnMarker(producer, epoch, commit, topics, coordinator_epoch)


def marked(*markers: WritableTxnMarker, version: int = 1) -> Call:
    return Call(ApiKey.WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest(list(markers)))


@dataclass(frozen=True, slots=True)
class Begin:
    """InitProducerId of a transactional id; its producer id has the alias afterwards."""

    producer: str = "p"
    name: str = X
    timeout_ms: int = TIMEOUT_MS

    def run(self, conversation: Conversation) -> None:
        request = init(name=self.name, timeout_ms=self.timeout_ms)
        response = response_of(conversation, Call(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, request))
        conversation.producer_ids[self.producer] = response.producer_id
