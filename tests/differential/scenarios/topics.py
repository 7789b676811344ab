"""CreateTopics, 2-7, and DeleteTopics, 1-6."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.differential.batches import Batch, i16, i32
from tests.differential.exchange import Appended, Body, Cut, Exchange, IdOf
from tests.differential.scenarios.builders import exists
from tests.differential.steps import Create, Delete, Send

CREATE = ApiKey.CREATE_TOPICS
DELETE = ApiKey.DELETE_TOPICS
CREATE_VERSIONS = (2, 4, 5, 7)
DELETE_VERSIONS = (1, 4, 6)
LATER = 10_000


def topic(
    name: str = "{t}", partitions: int = 1, factor: int = 1, configs: Mapping[str, str | None] | None = None
) -> CreatableTopic:
    given = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    return CreatableTopic(name, partitions, factor, configs=given)


def creation(*topics: CreatableTopic, dry: bool = False, timeout_ms: int = LATER) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(topics), timeout_ms, dry)


def assigned(
    *assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1
) -> CreateTopicsRequest:
    """A topic whose partitions name their brokers."""
    given = [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments]
    return creation(CreatableTopic("{t}", partitions, factor, given))


def configured(name: str, value: str | None) -> CreateTopicsRequest:
    return creation(topic(configs={name: value}))


GOOD_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "3600000",
    "retention.bytes": "-1",
    "max.message.bytes": "2000",
    "compression.type": "gzip",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "1",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.25",
    "delete.retention.ms": "0",
    "preallocate": "TRUE",
    "compression.zstd.level": "-5",
    "unclean.leader.election.enable": "true",
    "flush.messages": "1",
    "segment.ms": " 10 ",
}
BAD_CONFIGS: Mapping[str, tuple[str, str | None]] = {
    "an unknown config": ("no.such.config", "1"),
    "a broker's config": ("log.retention.ms", "1"),
    "a word for a number": ("retention.ms", "soon"),
    "an empty number": ("retention.ms", ""),
    "a number below its bound": ("retention.ms", "-2"),
    "a null value": ("retention.ms", None),
    "an unknown policy": ("cleanup.policy", "burn"),
    "an empty policy": ("cleanup.policy", ""),
    "an unknown codec": ("compression.type", "rar"),
    "an unknown timestamp type": ("message.timestamp.type", "Whenever"),
    "no boolean": ("preallocate", "yes"),
    "a ratio above 1": ("min.cleanable.dirty.ratio", "1.5"),
    "a segment of 10 bytes": ("segment.bytes", "10"),
    "a negative message size": ("max.message.bytes", "-1"),
    "an int beyond 2^31": ("max.message.bytes", "2147483648"),
    "zero in-sync replicas": ("min.insync.replicas", "0"),
    "a gzip level of 10": ("compression.gzip.level", "10"),
    "a fraction for an int": ("max.message.bytes", "1.5"),
    "replicas that are none": ("leader.replication.throttled.replicas", "x"),
    "lags crossed": ("max.compaction.lag.ms", "0"),
}

_CREATE = [
    *(
        Exchange(f"create topics: one, v{v}", CREATE, v, creation(topic()), after=[exists("t")])
        for v in CREATE_VERSIONS
    ),
    *(
        Exchange(
            f"create topics: several at once, v{v}",
            CREATE,
            v,
            creation(topic("{a}"), topic("{b}", 3), topic("{c}")),
            after=[exists("a", "b", "c")],
        )
        for v in (2, 7)
    ),
    *(
        Exchange(f"create topics: it is there, v{v}", CREATE, v, creation(topic()), [Create()])
        for v in CREATE_VERSIONS
    ),
    *(
        Exchange(
            f"create topics: only to validate, v{v}",
            CREATE,
            v,
            creation(topic(partitions=4), dry=True),
            after=[exists("t")],
        )
        for v in CREATE_VERSIONS
    ),
    Exchange(
        "create topics: only to validate what is there", CREATE, 7, creation(topic(), dry=True), [Create()]
    ),
    Exchange("create topics: only to validate a bad name", CREATE, 7, creation(topic("a b"), dry=True)),
    Exchange(
        "create topics: only to validate a bad config",
        CREATE,
        7,
        creation(topic(configs={"x": "1"}), dry=True),
    ),
    *(
        Exchange(
            f"create topics: named twice, v{v}", CREATE, v, creation(topic(), topic()), after=[exists("t")]
        )
        for v in (2, 5, 7)
    ),
    Exchange(
        "create topics: named twice with another",
        CREATE,
        7,
        creation(topic(), topic("{u}"), topic()),
        after=[exists("t", "u")],
    ),
    *(
        Exchange(
            f"create topics: a bad config and {what}",
            CREATE,
            7,
            creation(
                CreatableTopic("{t}", partitions, factor, configs=[CreatableTopicConfig("retention.ms", "x")])
            ),
        )
        for what, partitions, factor in (
            ("no partitions", 0, 1),
            ("no replicas", 1, 0),
            ("too many replicas", 1, 9),
        )
    ),
    *(
        Exchange(f"create topics: zero partitions, v{v}", CREATE, v, creation(topic(partitions=0)))
        for v in CREATE_VERSIONS
    ),
    Exchange("create topics: -2 partitions", CREATE, 7, creation(topic(partitions=-2))),
    *(
        Exchange(
            f"create topics: the default of partitions, v{v}",
            CREATE,
            v,
            creation(topic(partitions=-1, factor=-1)),
            after=[exists("t")],
        )
        for v in (2, 4, 7)
    ),
    *(
        Exchange(f"create topics: replication factor {n}", CREATE, 7, creation(topic(factor=n)))
        for n in (0, -2)
    ),
    Exchange(
        "create topics: good and bad together",
        CREATE,
        5,
        creation(topic("{a}"), topic("b d"), topic("{c}", 0)),
        after=[exists("a", "c")],
    ),
    *(
        Exchange(f"create topics: the name {name!r:.20}", CREATE, v, creation(topic(name)))
        for name, v in [
            ("", 2),
            (".", 5),
            ("..", 7),
            ("a b", 7),
            ("a/b", 2),
            ("x" * 250, 7),
            ("tópico", 5),
            ("a\0b", 7),
        ]
    ),
    Exchange("create topics: a name of 249 characters", CREATE, 7, creation(topic("y" * 249), dry=True)),
    Exchange("create topics: a name that collides", CREATE, 7, creation(topic("{a_b}.c")), [Create("a_b_c")]),
    Exchange(
        "create topics: names that collide in one request",
        CREATE,
        7,
        creation(topic("{a}.c"), topic("{a}_c")),
    ),
    Exchange("create topics: the log of the metadata", CREATE, 7, creation(topic("__cluster_metadata"))),
    Exchange("create topics: no topics", CREATE, 7, creation()),
    Exchange("create topics: assigned", CREATE, 7, assigned((0, [1]), (1, [1])), after=[exists("t")]),
    Exchange("create topics: assigned, v2", CREATE, 2, assigned((0, [1]), (1, [1])), after=[exists("t")]),
    Exchange(
        "create topics: assigned in another order",
        CREATE,
        5,
        assigned((1, [1]), (0, [1])),
        after=[exists("t")],
    ),
    Exchange("create topics: assigned with a count", CREATE, 7, assigned((0, [1]), partitions=1)),
    Exchange("create topics: assigned with a factor", CREATE, 7, assigned((0, [1]), factor=1)),
    Exchange("create topics: assigned with a gap", CREATE, 7, assigned((0, [1]), (2, [1]))),
    Exchange("create topics: assigned twice", CREATE, 7, assigned((0, [1]), (0, [1]))),
    Exchange("create topics: assigned to no broker", CREATE, 7, assigned((0, []))),
    Exchange("create topics: assigned to an unknown broker", CREATE, 7, assigned((0, [77]))),
    Exchange("create topics: assigned to one broker twice", CREATE, 7, assigned((0, [1, 1]))),
    Exchange("create topics: assigned from partition 1 on", CREATE, 7, assigned((1, [1]))),
    *(
        Exchange(f"create topics: {name} = {value}", CREATE, 7, configured(name, value))
        for name, value in GOOD_CONFIGS.items()
    ),
    *(Exchange(f"create topics: {what}", CREATE, 7, configured(*pair)) for what, pair in BAD_CONFIGS.items()),
    Exchange(
        "create topics: one config twice",
        CREATE,
        7,
        creation(
            CreatableTopic(
                "{t}",
                1,
                1,
                configs=[
                    CreatableTopicConfig("retention.ms", "1"),
                    CreatableTopicConfig("retention.ms", "2"),
                ],
            )
        ),
    ),
    Exchange("create topics: an unknown config, v2", CREATE, 2, configured("no.such.config", "1")),
    Exchange("create topics: an unknown config, v5", CREATE, 5, configured("no.such.config", "1")),
    Exchange("create topics: an empty body", CREATE, 2, Body(b"")),
    Exchange("create topics: cut", CREATE, 7, Cut(creation(topic()), 2)),
    Exchange("create topics: more topics than bytes", CREATE, 2, Body(i32(99_999) + i16(1) + b"a")),
    Exchange("create topics: a null array of topics", CREATE, 2, Body(i32(-1) + i32(1000) + b"\0")),
    Exchange(
        "create topics: a null name",
        CREATE,
        2,
        Body(i32(1) + i16(-1) + i32(1) + i16(1) + i32(0) + i32(0) + i32(1000) + b"\0"),
    ),
    Exchange(
        "create topics: bytes after the message",
        CREATE,
        7,
        Appended(creation(topic()), b"xyz"),
        after=[exists("t")],
    ),
]


def deletion(*names: str, timeout_ms: int = LATER) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name) for name in names]
    return DeleteTopicsRequest(states, list(names), timeout_ms)


def deletion_by_id(*topics: str) -> DeleteTopicsRequest:
    ids: list[Any] = [IdOf(name) for name in topics]
    return _by_ids(ids, LATER)


def _by_ids(ids: Sequence[Any], timeout_ms: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(None, topic_id) for topic_id in ids], [], timeout_ms)


def _both(name: str, topic_id: Any) -> DeleteTopicsRequest:
    return DeleteTopicsRequest([DeleteTopicState(name, topic_id)], [], LATER)


_DELETE = [
    *(
        Exchange(f"delete topics: by name, v{v}", DELETE, v, deletion("{t}"), [Create()])
        for v in DELETE_VERSIONS
    ),
    *(Exchange(f"delete topics: unknown name, v{v}", DELETE, v, deletion("{no}")) for v in (1, 3, 5, 6)),
    *(
        Exchange(f"delete topics: known and unknown, v{v}", DELETE, v, deletion("{t}", "{no}"), [Create()])
        for v in (1, 6)
    ),
    *(
        Exchange(f"delete topics: deleted already, v{v}", DELETE, v, deletion("{t}"), [Create(), Delete()])
        for v in (1, 6)
    ),
    Exchange("delete topics: with records", DELETE, 4, deletion("{t}"), [Create(), Send((Batch(3),))]),
    Exchange("delete topics: by id", DELETE, 6, deletion_by_id("t"), [Create()]),
    Exchange(
        "delete topics: by id, with records", DELETE, 6, deletion_by_id("t"), [Create(), Send((Batch(3),))]
    ),
    Exchange("delete topics: unknown id", DELETE, 6, deletion_by_id("no")),
    Exchange("delete topics: id of a deleted topic", DELETE, 6, deletion_by_id("t"), [Create(), Delete()]),
    Exchange("delete topics: ids known and unknown", DELETE, 6, deletion_by_id("t", "no"), [Create()]),
    Exchange(
        "delete topics: neither name nor id", DELETE, 6, DeleteTopicsRequest([DeleteTopicState()], [], LATER)
    ),
    Exchange("delete topics: name and id", DELETE, 6, _both("{t}", IdOf("t")), [Create()], [exists("t")]),
    Exchange("delete topics: named twice", DELETE, 6, deletion("{t}", "{t}"), [Create()], [exists("t")]),
    Exchange("delete topics: named twice, v1", DELETE, 1, deletion("{t}", "{t}"), [Create()], [exists("t")]),
    Exchange("delete topics: unknown name twice", DELETE, 6, deletion("{no}", "{no}")),
    Exchange("delete topics: unknown id twice", DELETE, 6, deletion_by_id("no", "no")),
    Exchange("delete topics: id twice", DELETE, 6, deletion_by_id("t", "t"), [Create()], [exists("t")]),
    Exchange(
        "delete topics: its name and its id",
        DELETE,
        6,
        DeleteTopicsRequest([*deletion("{t}").topics, *deletion_by_id("t").topics], [], LATER),
        [Create()],
        [exists("t")],
    ),
    Exchange("delete topics: an invalid name", DELETE, 5, deletion("a b")),
    Exchange("delete topics: an empty name", DELETE, 6, deletion("")),
    Exchange("delete topics: none", DELETE, 6, deletion()),
    Exchange("delete topics: none, v1", DELETE, 1, deletion()),
    Exchange("delete topics: an empty body", DELETE, 1, Body(b"")),
    Exchange("delete topics: cut", DELETE, 6, Cut(deletion("{t}"), 3)),
    Exchange("delete topics: more names than bytes", DELETE, 1, Body(i32(2**30))),
    Exchange("delete topics: a null name, v1", DELETE, 1, Body(i32(1) + i16(-1) + i32(1000))),
]

_NO_TIME = [
    *(
        Exchange(
            f"create topics: {name} within {ms} ms, v{v}",
            CREATE,
            v,
            creation(*topics, dry=dry, timeout_ms=ms),
            [Create("old")],
            [exists("t", "old")],
        )
        for ms in (0, -1)
        for v in (2, 7)
        for name, dry, topics in (
            ("one", False, [CreatableTopic("{t}", 1, 1)]),
            ("one that is only checked", True, [CreatableTopic("{t}", 1, 1)]),
            ("bad ones", False, [CreatableTopic("{t}", 0, 1), CreatableTopic("a b", 1, 1)]),
            ("one that is there", False, [CreatableTopic("{old}", 1, 1), CreatableTopic("{t}", 1, 1)]),
            ("one twice", False, [CreatableTopic("{t}", 1, 1), CreatableTopic("{t}", 1, 1)]),
        )
    ),
    *(
        Exchange(
            f"delete topics: {name} within {ms} ms, v{v}",
            DELETE,
            v,
            deletion(*names, timeout_ms=ms),
            [Create("t"), Create("old")],
            [exists("t", "old")],
        )
        for ms in (0, -1)
        for v in (1, 6)
        for name, names in (
            ("one", ["{t}"]),
            ("two", ["{t}", "{old}"]),
            ("one twice", ["{t}", "{t}"]),
            ("unknown and known", ["{no}", "{t}"]),
        )
    ),
    *(
        Exchange(
            f"delete topics: by {name} within {ms} ms",
            DELETE,
            6,
            _by_ids(ids, ms),
            [Create("t")],
            [exists("t")],
        )
        for ms in (0, -1)
        for name, ids in (("id", [IdOf("t")]), ("an unknown id", [IdOf("no")]), ("the zero id", [bytes(16)]))
    ),
]

EXCHANGES = [*_CREATE, *_DELETE, *_NO_TIME]
