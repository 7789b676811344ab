"""CreatePartitions, 0-3, DeleteRecords, 0-2, OffsetForLeaderEpoch, 2-4."""

from collections.abc import Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from gateway.wire.messages.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.wire.messages.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.differential.batches import Batch, i16, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange
from tests.differential.scenarios.builders import EARLIEST, end_of, exists, fetch, list_offsets
from tests.differential.steps import Create, Done, Send

GROW = ApiKey.CREATE_PARTITIONS
TRIM = ApiKey.DELETE_RECORDS
EPOCH = ApiKey.OFFSET_FOR_LEADER_EPOCH
LATER = 10_000


def grown(
    count: int, assignments: Sequence[Sequence[int]] | None = None, topic: str = "{t}"
) -> CreatePartitionsTopic:
    """A topic that is to have `count` partitions; new ones may name their brokers."""
    given = None if assignments is None else [CreatePartitionsAssignment(list(a)) for a in assignments]
    return CreatePartitionsTopic(topic, count, given)


def growth(*topics: CreatePartitionsTopic, dry: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(list(topics), LATER, dry)


def _grow(
    name: str, version: int, *topics: CreatePartitionsTopic, dry: bool = False, partitions: int = 2
) -> Exchange:
    return Exchange(
        f"create partitions: {name}, v{version}",
        GROW,
        version,
        growth(*topics, dry=dry),
        [Create(partitions=partitions)],
        [exists("t")],
    )


_GROW = [
    *(_grow("two more", v, grown(4)) for v in (0, 1, 2, 3)),
    *(_grow("only checked", v, grown(4), dry=True) for v in (0, 1, 3)),
    *(_grow(f"{count}", v, grown(count)) for count in (2, 1, 0, -1) for v in (0, 3)),
    _grow("fewer, only checked", 3, grown(1), dry=True),
    *(_grow("with brokers", v, grown(4, [[1], [1]])) for v in (0, 3)),
    _grow("with brokers, only checked", 3, grown(4, [[1], [1]]), dry=True),
    _grow("with no brokers listed", 3, grown(4, [])),
    _grow("with one broker list too few", 3, grown(4, [[1]])),
    _grow("with one broker list too many", 3, grown(4, [[1], [1], [1]])),
    _grow("with a broker that is not there", 3, grown(3, [[7]])),
    _grow("with a negative broker", 3, grown(3, [[-1]])),
    _grow("with an empty broker list", 3, grown(3, [[]])),
    _grow("with a broker twice", 3, grown(3, [[1, 1]])),
    _grow("with a broker list that differs in length", 3, grown(4, [[1], [1, 2]])),
    _grow("with brokers, but no more partitions", 3, grown(2, [])),
    *(_grow("unknown topic", v, grown(4, topic="{no}")) for v in (0, 3)),
    _grow("an invalid topic", 3, grown(4, topic="a b")),
    _grow("an empty topic name", 3, grown(4, topic="")),
    _grow("known and unknown", 3, grown(4), grown(4, topic="{no}")),
    *(_grow("a topic twice", v, grown(4), grown(3)) for v in (0, 3)),
    _grow("a topic twice, and another", 3, grown(4), grown(4), grown(4, topic="{no}")),
    _grow("no topic", 3),
    Exchange("create partitions: an empty body", GROW, 0, Body(b"")),
    Exchange("create partitions: cut", GROW, 3, Cut(growth(grown(2)), 3)),
    Exchange(
        "create partitions: bytes after the message", GROW, 2, Appended(growth(grown(2)), b"x"), [Create()]
    ),
    Exchange(
        "create partitions: a null name, v0",
        GROW,
        0,
        Body(i32(1) + i16(-1) + i32(2) + i32(-1) + i32(0) + b"\0"),
    ),
    Exchange("create partitions: more topics than bytes", GROW, 0, Body(i32(2**30))),
]


_GROW_WITHOUT_TIME = [
    Exchange(
        f"create partitions: {name} within {ms} ms, v{v}",
        GROW,
        v,
        CreatePartitionsRequest(topics, ms, dry),
        [Create(partitions=2)],
        [exists("t")],
    )
    for ms in (0, -1)
    for v in (0, 3)
    for name, dry, topics in (
        ("more", False, [grown(4)]),
        ("only checked", True, [grown(4)]),
        ("no more, and of an unknown topic", False, [grown(1), grown(4, topic="{no}")]),
        ("an empty assignment", False, [grown(4, [])]),
        ("one twice", False, [grown(4), grown(5)]),
    )
]


def trim(*parts: tuple[str, int, int], timeout_ms: int = LATER) -> DeleteRecordsRequest:
    """Each (topic, partition, offset); topics that stand together become one."""
    topics: list[DeleteRecordsTopic] = []
    for topic, partition, offset in parts:
        if not topics or topics[-1].name != topic:
            topics.append(DeleteRecordsTopic(topic))
        topics[-1].partitions.append(DeleteRecordsPartition(partition, offset))
    return DeleteRecordsRequest(topics, timeout_ms)


SIX = (Send((Batch(3), Batch(3, later_ms=10))),)
START = Call(ApiKey.LIST_OFFSETS, 4, list_offsets(EARLIEST))
TRIMMED_2 = Done(Call(TRIM, 1, trim(("{t}", 0, 2))))


def _fetched(offset: int) -> Call:
    return Call(ApiKey.FETCH, 11, fetch(offset))


_TRIM = [
    *(
        Exchange(
            f"delete records: before {offset}, v{v}",
            TRIM,
            v,
            trim(("{t}", 0, offset)),
            [Create(), *SIX],
            [START, end_of(), _fetched(0), _fetched(2), _fetched(6)],
        )
        for offset in (0, 2, 3, 6, -1)
        for v in (0, 1, 2)
    ),
    *(
        Exchange(
            f"delete records: before {offset}", TRIM, 2, trim(("{t}", 0, offset)), [Create(), *SIX], [START]
        )
        for offset in (7, 2**62, -2, -(2**63))
    ),
    Exchange(
        "delete records: less than is gone",
        TRIM,
        2,
        trim(("{t}", 0, 1)),
        [Create(), *SIX, TRIMMED_2],
        [START],
    ),
    Exchange(
        "delete records: as much as is gone",
        TRIM,
        2,
        trim(("{t}", 0, 2)),
        [Create(), *SIX, TRIMMED_2],
        [START],
    ),
    Exchange("delete records: of an empty partition", TRIM, 2, trim(("{t}", 0, -1)), [Create()], [START]),
    Exchange("delete records: beyond an empty partition", TRIM, 2, trim(("{t}", 0, 1)), [Create()], [START]),
    *(Exchange(f"delete records: unknown topic, v{v}", TRIM, v, trim(("{no}", 0, 1))) for v in (0, 2)),
    *(
        Exchange(
            f"delete records: of an internal topic, before {offset}, v{v}",
            TRIM,
            v,
            trim(("__consumer_offsets", 0, offset), ("{t}", 0, 2)),
            [Create(), *SIX],
            [START],
        )
        for offset, v in ((0, 0), (-1, 1), (1, 2))
    ),
    *(
        Exchange(f"delete records: partition {n}", TRIM, 2, trim(("{t}", n, 0)), [Create()])
        for n in (1, -1, 2**31 - 1)
    ),
    Exchange("delete records: an invalid topic", TRIM, 2, trim(("a b", 0, 0))),
    Exchange("delete records: an empty topic name", TRIM, 2, trim(("", 0, 0))),
    *(
        Exchange(
            f"delete records: of a topic with cleanup.policy {policy}",
            TRIM,
            2,
            trim(("{t}", 0, 2)),
            [Create(configs={"cleanup.policy": policy}), *SIX],
            [START],
        )
        for policy in ("compact", "compact,delete", "")
    ),
    Exchange(
        "delete records: several partitions",
        TRIM,
        2,
        trim(("{t}", 0, 2), ("{t}", 1, 0), ("{t}", 5, 0), ("{no}", 0, 0)),
        [Create(partitions=2), *SIX],
        [START],
    ),
    Exchange(
        "delete records: a partition twice",
        TRIM,
        2,
        trim(("{t}", 0, 2), ("{t}", 0, 3)),
        [Create(), *SIX],
        [START],
    ),
    Exchange(
        "delete records: a topic twice",
        TRIM,
        2,
        DeleteRecordsRequest(
            [DeleteRecordsTopic("{t}", [DeleteRecordsPartition(n, 1 - n)]) for n in (0, 1)], LATER
        ),
        [Create(partitions=2), *SIX],
        [START],
    ),
    Exchange(
        "delete records: a topic without partitions",
        TRIM,
        2,
        DeleteRecordsRequest([DeleteRecordsTopic("{t}")], LATER),
        [Create()],
    ),
    Exchange("delete records: no topic", TRIM, 2, trim()),
    Exchange("delete records: an empty body", TRIM, 0, Body(b"")),
    Exchange("delete records: cut", TRIM, 2, Cut(trim(("{t}", 0, 0)), 3)),
    Exchange("delete records: a null name, v0", TRIM, 0, Body(i32(1) + i16(-1) + i32(0) + i32(0))),
]


def epochs(*parts: tuple[str, int, int, int], replica: int = -1) -> OffsetForLeaderEpochRequest:
    """Each (topic, partition, current leader epoch, leader epoch)."""
    topics: list[OffsetForLeaderTopic] = []
    for topic, partition, current, epoch in parts:
        if not topics or topics[-1].topic != topic:
            topics.append(OffsetForLeaderTopic(topic))
        topics[-1].partitions.append(OffsetForLeaderPartition(partition, current, epoch))
    return OffsetForLeaderEpochRequest(replica, topics)


_EPOCH = [
    *(
        Exchange(
            f"offset for leader epoch: {epoch} where {current} is current, v{v}",
            EPOCH,
            v,
            epochs(("{t}", 0, current, epoch)),
            [Create(), *SIX],
        )
        for v in (2, 3, 4)
        for epoch, current in (
            (0, -1),
            (0, 0),
            (0, 1),
            (1, 0),
            (1, -1),
            (-1, 0),
            (-1, -1),
            (-5, 0),
            (7, 2**31 - 1),
            (0, -2),
        )
    ),
    Exchange(
        "offset for leader epoch: of an empty partition", EPOCH, 4, epochs(("{t}", 0, 0, 0)), [Create()]
    ),
    Exchange(
        "offset for leader epoch: -1 of an empty partition", EPOCH, 4, epochs(("{t}", 0, 0, -1)), [Create()]
    ),
    Exchange(
        "offset for leader epoch: 1 of an empty partition", EPOCH, 4, epochs(("{t}", 0, 0, 1)), [Create()]
    ),
    Exchange(
        "offset for leader epoch: after records are deleted",
        EPOCH,
        4,
        epochs(("{t}", 0, 0, 0)),
        [Create(), *SIX, TRIMMED_2],
    ),
    Exchange(
        "offset for leader epoch: after all records are deleted",
        EPOCH,
        4,
        epochs(("{t}", 0, 0, 0)),
        [Create(), *SIX, Done(Call(TRIM, 1, trim(("{t}", 0, -1))))],
    ),
    *(
        Exchange(f"offset for leader epoch: unknown topic, v{v}", EPOCH, v, epochs(("{no}", 0, 0, 0)))
        for v in (2, 4)
    ),
    Exchange(
        "offset for leader epoch: unknown partitions",
        EPOCH,
        4,
        epochs(("{t}", 1, 0, 0), ("{t}", -1, 0, 0), ("{t}", 0, 0, 0)),
        [Create()],
    ),
    Exchange("offset for leader epoch: an invalid topic", EPOCH, 4, epochs(("a b", 0, 0, 0))),
    *(
        Exchange(
            f"offset for leader epoch: as replica {n}",
            EPOCH,
            4,
            epochs(("{t}", 0, 0, 0), replica=n),
            [Create(), *SIX],
        )
        for n in (-2, 0, 1, 5)
    ),
    Exchange(
        "offset for leader epoch: a partition twice",
        EPOCH,
        4,
        epochs(("{t}", 0, 0, 0), ("{t}", 0, 0, 1)),
        [Create(), *SIX],
    ),
    Exchange(
        "offset for leader epoch: known and unknown",
        EPOCH,
        3,
        epochs(("{no}", 0, 0, 0), ("{t}", 0, 0, 0)),
        [Create(), *SIX],
    ),
    Exchange("offset for leader epoch: no topic", EPOCH, 4, epochs()),
    Exchange("offset for leader epoch: an empty body", EPOCH, 2, Body(b"")),
    Exchange("offset for leader epoch: cut", EPOCH, 4, Cut(epochs(("{t}", 0, 0, 0)), 3)),
]

EXCHANGES = [*_GROW, *_GROW_WITHOUT_TIME, *_TRIM, *_EPOCH]
