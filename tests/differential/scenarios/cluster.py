"""DescribeTopicPartitions, DescribeLogDirs, 1-5, DescribeProducers, ElectLeaders, 0-2, and
Alter- and ListPartitionReassignments."""

from collections.abc import Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated import describe_producers, describe_topic_partitions
from gateway.wire.messages.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gateway.wire.messages.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from gateway.wire.messages.generated.describe_producers import DescribeProducersRequest
from gateway.wire.messages.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
)
from gateway.wire.messages.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.wire.messages.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.differential.batches import Batch
from tests.differential.exchange import Body, Call, Cut, Exchange, ProducerIdOf
from tests.differential.scenarios.builders import exists
from tests.differential.scenarios.partitions import trim
from tests.differential.steps import Create, Done, NewProducer, Send

DESCRIBE = ApiKey.DESCRIBE_TOPIC_PARTITIONS
DIRS = ApiKey.DESCRIBE_LOG_DIRS
PRODUCERS = ApiKey.DESCRIBE_PRODUCERS
ELECT = ApiKey.ELECT_LEADERS
REASSIGN = ApiKey.ALTER_PARTITION_REASSIGNMENTS
MOVES = ApiKey.LIST_PARTITION_REASSIGNMENTS
TWO = (Create("a", 3), Create("b", 2))


def _describe(
    name: str, topics: Sequence[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Exchange:
    requested = [describe_topic_partitions.TopicRequest(topic) for topic in topics]
    at = None if cursor is None else DescribeTopicPartitionsRequestCursor(*cursor)
    request = DescribeTopicPartitionsRequest(requested, limit, at)
    return Exchange(f"describe topic partitions: {name}", DESCRIBE, 0, request, TWO)


_DESCRIBE = [
    _describe("two", ["{a}", "{b}"]),
    _describe("in another order", ["{b}", "{a}"]),
    _describe("one twice", ["{a}", "{a}"]),
    _describe("unknown", ["{no}"]),
    _describe("known and unknown", ["{z}", "{a}", "{no}"]),
    _describe("an invalid name", ["a b"]),
    _describe("an empty name", [""]),
    _describe("an empty name among others", ["{b}", "", "{a}", "{b}"]),
    _describe("an empty name after a cursor", ["{b}", "", "{a}"], 9, ("{a}", 0)),
    _describe("wrong twice", ["{b}", "", "{a}", "{b}"], 9, ("{c}", 0)),
    *(_describe(f"limit {limit}", ["{a}", "{b}"], limit) for limit in (1, 2, 3, 4, 5, 6, 0, -1, 2**31 - 1)),
    *(
        _describe(f"from {topic} {partition}, limit {limit}", ["{a}", "{b}"], limit, (topic, partition))
        for topic, partition, limit in [
            ("{a}", 0, 2), ("{a}", 1, 1), ("{a}", 1, 3), ("{a}", 3, 2), ("{a}", 7, 2), ("{a}", -1, 2),
            ("{b}", 0, 2), ("{b}", 1, 9), ("{b}", 2, 9), ("{aa}", 0, 9), ("{aa}", 1, 9), ("{c}", 0, 9),
            ("0", 0, 9), ("", 0, 9), ("", 1, 9),
        ]
    ),
    _describe("from an unknown topic that is requested", ["{no}", "{a}"], 9, ("{no}", 1)),
    _describe("unknown ones count nothing", ["{a}", "{aa}", "{ab}", "{b}"], 4),
    Exchange("describe topic partitions: an empty body", DESCRIBE, 0, Body(b"")),
    Exchange(
        "describe topic partitions: cut",
        DESCRIBE,
        0,
        Cut(DescribeTopicPartitionsRequest([describe_topic_partitions.TopicRequest("{a}")]), 3),
    ),
]  # fmt: skip


def dirs(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest([DescribableLogDirTopic(name, parts) for name, parts in topics])


FILLED = (Create(partitions=2), Send((Batch(3), Batch(2, later_ms=10))))
_DIRS = [
    *(
        Exchange(f"describe log dirs: two partitions, v{v}", DIRS, v, dirs(("{t}", [0, 1])), FILLED)
        for v in (1, 2, 3, 4, 5)
    ),
    Exchange("describe log dirs: one partition", DIRS, 5, dirs(("{t}", [0])), FILLED),
    Exchange("describe log dirs: unknown partitions", DIRS, 5, dirs(("{t}", [0, 5, -1])), FILLED),
    *(Exchange(f"describe log dirs: unknown topic, v{v}", DIRS, v, dirs(("{no}", [0]))) for v in (1, 5)),
    Exchange("describe log dirs: known and unknown", DIRS, 4, dirs(("{t}", [1]), ("{no}", [0])), FILLED),
    Exchange("describe log dirs: a partition twice", DIRS, 4, dirs(("{t}", [0, 0])), FILLED),
    Exchange("describe log dirs: a topic twice", DIRS, 4, dirs(("{t}", [0]), ("{t}", [1])), FILLED),
    Exchange("describe log dirs: a topic without partitions", DIRS, 4, dirs(("{t}", [])), FILLED),
    *(Exchange(f"describe log dirs: none, v{v}", DIRS, v, dirs()) for v in (1, 5)),
    Exchange("describe log dirs: an invalid topic", DIRS, 4, dirs(("a b", [0]))),
    Exchange("describe log dirs: an empty body", DIRS, 1, Body(b"")),
    Exchange("describe log dirs: cut", DIRS, 5, Cut(dirs(("{t}", [0])), 3)),
]


def producers_of(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest([describe_producers.TopicRequest(name, parts) for name, parts in topics])


def _sent(count: int, sequence: int, epoch: int = 0) -> Send:
    return Send((Batch(count, producer=ProducerIdOf(), epoch=epoch, sequence=sequence),))


WRITTEN = (Create(partitions=2), NewProducer())
_PRODUCERS = [
    Exchange("describe producers: one", PRODUCERS, 0, producers_of(("{t}", [0])), [*WRITTEN, _sent(3, 0)]),
    Exchange(
        "describe producers: after two batches",
        PRODUCERS,
        0,
        producers_of(("{t}", [0])),
        [*WRITTEN, _sent(3, 0), _sent(2, 3)],
    ),
    Exchange(
        "describe producers: of a newer epoch",
        PRODUCERS,
        0,
        producers_of(("{t}", [0])),
        [*WRITTEN, _sent(3, 0), _sent(2, 0, 1)],
    ),
    Exchange(
        "describe producers: none", PRODUCERS, 0, producers_of(("{t}", [0, 1])), [*WRITTEN, Send((Batch(),))]
    ),
    Exchange(
        "describe producers: whose records are deleted",
        PRODUCERS,
        0,
        producers_of(("{t}", [0])),
        [*WRITTEN, _sent(3, 0), Done(Call(ApiKey.DELETE_RECORDS, 1, trim(("{t}", 0, -1))))],
    ),
    Exchange("describe producers: unknown partitions", PRODUCERS, 0, producers_of(("{t}", [2, -1])), WRITTEN),
    Exchange("describe producers: unknown topic", PRODUCERS, 0, producers_of(("{no}", [0, 1]))),
    Exchange("describe producers: an invalid topic", PRODUCERS, 0, producers_of(("a b", [0]))),
    Exchange("describe producers: an empty topic", PRODUCERS, 0, producers_of(("", [0]))),
    Exchange("describe producers: a partition twice", PRODUCERS, 0, producers_of(("{t}", [0, 0])), WRITTEN),
    Exchange(
        "describe producers: a topic twice", PRODUCERS, 0, producers_of(("{t}", [0]), ("{t}", [1])), WRITTEN
    ),
    Exchange(
        "describe producers: a topic without partitions", PRODUCERS, 0, producers_of(("{t}", [])), WRITTEN
    ),
    Exchange("describe producers: no topic", PRODUCERS, 0, producers_of()),
    Exchange("describe producers: an empty body", PRODUCERS, 0, Body(b"")),
    Exchange("describe producers: cut", PRODUCERS, 0, Cut(producers_of(("{t}", [0])), 3)),
]


def election(kind: int, *topics: tuple[str, list[int]]) -> ElectLeadersRequest:
    return ElectLeadersRequest(kind, [TopicPartitions(name, parts) for name, parts in topics], 10_000)


_ELECT = [
    *(
        Exchange(
            f"elect leaders: preferred, v{v}", ELECT, v, election(0, ("{t}", [0, 1])), [Create(partitions=2)]
        )
        for v in (0, 1, 2)
    ),
    *(
        Exchange(f"elect leaders: unclean, v{v}", ELECT, v, election(1, ("{t}", [0])), [Create()])
        for v in (1, 2)
    ),
    *(
        Exchange(f"elect leaders: type {n}, v{v}", ELECT, v, election(n, ("{t}", [0])), [Create()])
        for n in (2, -1, 99)
        for v in (1, 2)
    ),
    Exchange("elect leaders: unknown partitions", ELECT, 2, election(0, ("{t}", [0, 1, -1])), [Create()]),
    *(
        Exchange(f"elect leaders: unknown topic, v{v}", ELECT, v, election(0, ("{no}", [0, 1])))
        for v in (0, 2)
    ),
    Exchange("elect leaders: unclean, unknown topic", ELECT, 2, election(1, ("{no}", [0, 1]))),
    Exchange("elect leaders: an invalid topic", ELECT, 2, election(0, ("a b", [0]))),
    Exchange(
        "elect leaders: known and unknown", ELECT, 2, election(0, ("{no}", [0]), ("{t}", [0])), [Create()]
    ),
    Exchange("elect leaders: a partition twice", ELECT, 2, election(0, ("{t}", [0, 0])), [Create()]),
    Exchange(
        "elect leaders: a topic twice",
        ELECT,
        2,
        election(0, ("{t}", [0]), ("{t}", [1])),
        [Create(partitions=2)],
    ),
    Exchange(
        "elect leaders: a topic twice, one unknown partition",
        ELECT,
        2,
        election(0, ("{t}", [0]), ("{t}", [7])),
        [Create()],
    ),
    Exchange("elect leaders: a topic without partitions", ELECT, 2, election(0, ("{t}", [])), [Create()]),
    Exchange("elect leaders: no topic", ELECT, 2, election(0)),
    *(
        Exchange(f"elect leaders: all, type {n}, v{v}", ELECT, v, ElectLeadersRequest(n, None, 10_000))
        for n, v in ((0, 0), (0, 1), (0, 2), (1, 2), (5, 2))
    ),
    Exchange("elect leaders: an empty body", ELECT, 0, Body(b"")),
    Exchange("elect leaders: cut", ELECT, 2, Cut(election(0, ("{t}", [0])), 3)),
]


def moves(
    *topics: tuple[str, list[tuple[int, list[int] | None]]], other_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    requested = [
        ReassignableTopic(name, [ReassignablePartition(*part) for part in parts]) for name, parts in topics
    ]
    return AlterPartitionReassignmentsRequest(10_000, other_factor, requested)


def _move(name: str, brokers: list[int] | None, version: int = 1, other_factor: bool = True) -> Exchange:
    request = moves(("{t}", [(0, brokers)]), other_factor=other_factor)
    return Exchange(f"reassign: {name}, v{version}", REASSIGN, version, request, [Create()], [exists("t")])


_REASSIGN = [
    *(_move("to where it is", [1], v) for v in (0, 1)),
    _move("to where it is, with the same factor", [1], 1, False),
    *(_move("to a broker that is not there", [2], v) for v in (0, 1)),
    _move("to one more that is not there", [1, 2]),
    _move("to one more, with the same factor", [1, 2], 1, False),
    _move("to no broker", []),
    _move("to no broker, with the same factor", [], 1, False),
    _move("to a broker twice", [1, 1]),
    _move("to a negative broker", [-1]),
    *(_move("cancelled", None, v) for v in (0, 1)),
    Exchange(
        "reassign: unknown partition",
        REASSIGN,
        1,
        moves(("{t}", [(1, [1]), (-1, [1]), (7, None)])),
        [Create()],
    ),
    *(
        Exchange(f"reassign: unknown topic, v{v}", REASSIGN, v, moves(("{no}", [(0, [1]), (1, None)])))
        for v in (0, 1)
    ),
    Exchange("reassign: an invalid topic", REASSIGN, 1, moves(("a b", [(0, [1])]))),
    Exchange("reassign: an empty topic name", REASSIGN, 1, moves(("", [(0, [1])]))),
    Exchange(
        "reassign: several",
        REASSIGN,
        1,
        moves(("{t}", [(0, [1]), (1, None)]), ("{no}", [(0, [1])])),
        [Create(partitions=2)],
    ),
    Exchange("reassign: a partition twice", REASSIGN, 1, moves(("{t}", [(0, [1]), (0, [1])])), [Create()]),
    Exchange(
        "reassign: a topic twice", REASSIGN, 1, moves(("{t}", [(0, [1])]), ("{t}", [(0, [1])])), [Create()]
    ),
    Exchange("reassign: a topic without partitions", REASSIGN, 1, moves(("{t}", [])), [Create()]),
    Exchange("reassign: no topic", REASSIGN, 1, moves()),
    Exchange("reassign: an empty body", REASSIGN, 0, Body(b"")),
    Exchange("reassign: cut", REASSIGN, 1, Cut(moves(("{t}", [(0, [1])])), 3)),
]


def listing(*topics: tuple[str, list[int]]) -> ListPartitionReassignmentsRequest:
    requested = [ListPartitionReassignmentsTopics(name, parts) for name, parts in topics]
    return ListPartitionReassignmentsRequest(10_000, requested)


_MOVES = [
    Exchange("list reassignments: all", MOVES, 0, ListPartitionReassignmentsRequest()),
    Exchange("list reassignments: none", MOVES, 0, listing()),
    Exchange("list reassignments: a topic's", MOVES, 0, listing(("{t}", [0, 5])), [Create()]),
    Exchange("list reassignments: unknown topic", MOVES, 0, listing(("{no}", [0]))),
    Exchange("list reassignments: an invalid topic", MOVES, 0, listing(("a b", [0]))),
    Exchange("list reassignments: an empty body", MOVES, 0, Body(b"")),
]

EXCHANGES = [*_DESCRIBE, *_DIRS, *_PRODUCERS, *_ELECT, *_REASSIGN, *_MOVES]
