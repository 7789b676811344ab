"""AlterConfigs, 0-2, IncrementalAlterConfigs, 0-1, ListConfigResources, 0-1."""

from collections.abc import Mapping, Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated import alter_configs, incremental_alter_configs
from gateway.wire.messages.generated.alter_configs import AlterConfigsRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from gateway.wire.messages.generated.list_config_resources import ListConfigResourcesRequest
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Call, Cut, Exchange
from tests.differential.steps import Create

ALTER = ApiKey.ALTER_CONFIGS
CHANGE = ApiKey.INCREMENTAL_ALTER_CONFIGS
LIST = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
REPLICAS = "leader.replication.throttled.replicas"
KEYS = ("retention.ms", "cleanup.policy", "max.message.bytes", REPLICAS)
BEFORE = {"retention.ms": "1000", "cleanup.policy": "compact,delete"}

Pairs = Sequence[tuple[str, str | None]]
Changes = Sequence[tuple[str, int, str | None]]


def described(topic: str = "t", is_fenced: bool = True) -> Call:
    """Some configs of a topic, once the changes before have been heard of."""
    resource = DescribeConfigsResource(TOPIC, "{" + topic + "}", list(KEYS))
    return Call(ApiKey.DESCRIBE_CONFIGS, 1, DescribeConfigsRequest([resource]), is_fenced)


def altered(kind: int, name: str, pairs: Pairs) -> alter_configs.AlterConfigsResource:
    given = [alter_configs.AlterableConfig(key, value) for key, value in pairs]
    return alter_configs.AlterConfigsResource(kind, name, given)


def changed(kind: int, name: str, changes: Changes) -> incremental_alter_configs.AlterConfigsResource:
    given = [incremental_alter_configs.AlterableConfig(*change) for change in changes]
    return incremental_alter_configs.AlterConfigsResource(kind, name, given)


def _alter(
    name: str, version: int, pairs: Pairs, dry: bool = False, before: Mapping[str, str] = BEFORE
) -> Exchange:
    request = AlterConfigsRequest([altered(TOPIC, "{t}", pairs)], dry)
    return Exchange(
        f"alter configs: {name}, v{version}", ALTER, version, request, [Create(configs=before)], [described()]
    )


def _change(
    name: str, changes: Changes, version: int = 1, dry: bool = False, before: Mapping[str, str] = BEFORE
) -> Exchange:
    request = IncrementalAlterConfigsRequest([changed(TOPIC, "{t}", changes)], dry)
    title = f"change configs: {name}, v{version}"
    return Exchange(title, CHANGE, version, request, [Create(configs=before)], [described()])


BAD = (
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("max.message.bytes", "-1"),
    ("max.message.bytes", str(2**31)),
    ("cleanup.policy", "shred"),
    ("compression.type", "rar"),
    ("message.timestamp.type", "Never"),
    ("min.insync.replicas", "0"),
    ("min.cleanable.dirty.ratio", "2"),
    ("remote.storage.enable", "true"),
    ("preallocate", "maybe"),
    (REPLICAS, "x"),
    ("no.such.config", "1"),
    ("", "1"),
)
"""Values and names that no topic takes."""
RESOURCES = [
    (TOPIC, "{no}"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "99"), (BROKER, "one"), (LOGGER, "99"),
    (GROUP, ""), (METRICS, ""), (0, "x"), (1, "x"), (3, "x"), (99, "x"), (-3, "x"),
]  # fmt: skip
"""Resources that are not there, and types without configs."""
READ_ONLY = (
    ("num.partitions", "3"),
    ("broker.id", "5"),
    ("delete.topic.enable", "false"),
    ("listeners", "PLAINTEXT://:1"),
)
"""What Kafka does not change while it runs."""

_ALTER = [
    *(_alter("one, and defaults for the rest", v, [("max.message.bytes", "2000")]) for v in (0, 1, 2)),
    _alter("none: all go back to defaults", 2, []),
    *(_alter("only checked", v, [("max.message.bytes", "2000")], True) for v in (0, 2)),
    _alter("a bad value, only checked", 2, [("max.message.bytes", "x")], True),
    *(_alter("a null value", v, [("retention.ms", None)]) for v in (0, 2)),
    _alter("one name twice", 2, [("retention.ms", "1"), ("retention.ms", "2")]),
    _alter("a good and a bad one", 2, [("max.message.bytes", "2000"), ("retention.ms", "x")]),
    _alter("the same value again", 2, list(BEFORE.items())),
    _alter(
        "lags that contradict each other",
        2,
        [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
    ),
    *(_alter(f"{name} = {value}", 2, [(name, value)]) for name, value in BAD),
    *(
        Exchange(
            f"alter configs: type {kind} named {name!r}, v{v}",
            ALTER,
            v,
            AlterConfigsRequest([altered(kind, name, [("retention.ms", "1")])]),
        )
        for kind, name in RESOURCES
        for v in (0, 2)
    ),
    Exchange(
        "alter configs: one good and one bad resource",
        ALTER,
        2,
        AlterConfigsRequest(
            [altered(TOPIC, "{t}", [("retention.ms", "7")]), altered(TOPIC, "{u}", [("retention.ms", "x")])]
        ),
        [Create(), Create("u")],
        [described(), described("u", False)],
    ),
    *(
        Exchange(
            f"alter configs: {name} of broker {broker!r}",
            ALTER,
            2,
            AlterConfigsRequest([altered(BROKER, broker, [(name, value)])]),
        )
        for broker in ("1", "")
        for name, value in READ_ONLY
    ),
    *(
        Exchange(
            f"alter configs: of an unknown topic, {value}",
            ALTER,
            2,
            AlterConfigsRequest([altered(TOPIC, "{no}", [("retention.ms", value)])]),
        )
        for value in ("x", None)
    ),
    Exchange("alter configs: nothing", ALTER, 2, AlterConfigsRequest()),
    Exchange("alter configs: an empty body", ALTER, 0, Body(b"")),
    Exchange("alter configs: cut", ALTER, 2, Cut(AlterConfigsRequest([altered(TOPIC, "{t}", [])]), 2)),
    Exchange(
        "alter configs: a null resource name, v0", ALTER, 0, Body(i32(1) + b"\2" + i16(-1) + i32(0) + b"\0")
    ),
]

_CHANGE = [
    *(_change("set", [("max.message.bytes", SET, "2000")], v) for v in (0, 1)),
    *(_change("delete", [("retention.ms", DELETE, None)], v) for v in (0, 1)),
    _change("delete, with a value", [("retention.ms", DELETE, "5")]),
    _change("delete what is not set", [("max.message.bytes", DELETE, None)]),
    _change("delete what no topic has", [("no.such.config", DELETE, None)]),
    *(_change("append", [(REPLICAS, APPEND, "0:1,1:1")], v) for v in (0, 1)),
    _change("append to a list that is set", [(REPLICAS, APPEND, "1:1")], before={REPLICAS: "0:1"}),
    _change("append what is there", [("cleanup.policy", APPEND, "delete")]),
    _change("append to a default", [("cleanup.policy", APPEND, "compact")], before={}),
    _change("append a bad item", [("cleanup.policy", APPEND, "shred")]),
    _change("append nothing to nothing", [(REPLICAS, APPEND, "")]),
    _change("append with spaces", [(REPLICAS, APPEND, " 0:1 , 1:1 ")]),
    _change("append one thing twice", [(REPLICAS, APPEND, "0:1,0:1")]),
    _change("append to everything", [(REPLICAS, APPEND, "0:1")], before={REPLICAS: "*"}),
    _change("append a bad item to others", [(REPLICAS, APPEND, "0:1,x")]),
    _change("append nothing", [("cleanup.policy", APPEND, "")]),
    *(_change("subtract", [("cleanup.policy", SUBTRACT, "delete")], v) for v in (0, 1)),
    _change("subtract nothing", [("cleanup.policy", SUBTRACT, "")]),
    _change("subtract with spaces", [("cleanup.policy", SUBTRACT, " delete ")]),
    _change("set a list to nothing", [("cleanup.policy", SET, "")]),
    _change("set a list with an empty item", [("cleanup.policy", SET, "delete,")]),
    _change("subtract all", [("cleanup.policy", SUBTRACT, "delete,compact")]),
    _change("subtract what is not there", [(REPLICAS, SUBTRACT, "0:1")]),
    _change("subtract from a default", [("cleanup.policy", SUBTRACT, "delete")], before={}),
    _change("subtract a bad item", [("cleanup.policy", SUBTRACT, "shred")]),
    *(
        _change(f"operation {op} on what is no list", [("retention.ms", op, "5")])
        for op in (APPEND, SUBTRACT)
    ),
    *(_change(f"operation {op}", [("retention.ms", op, "5")], v) for op in (4, -1, 99) for v in (0, 1)),
    *(
        _change(f"operation {op} without a value", [("cleanup.policy", op, None)])
        for op in (SET, APPEND, SUBTRACT)
    ),
    *(_change(f"{name} = {value}", [(name, SET, value)]) for name, value in BAD),
    *(_change(f"operation {op} on an unknown name", [("no.such", op, "1")]) for op in (APPEND, SUBTRACT)),
    _change("one name twice", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]),
    _change("a good and a bad one", [("max.message.bytes", SET, "2000"), ("retention.ms", SET, "x")]),
    _change("a list set with repeats", [("cleanup.policy", SET, "delete,delete")]),
    *(_change("only checked", [("max.message.bytes", SET, "2000")], v, True) for v in (0, 1)),
    _change("a bad value, only checked", [("max.message.bytes", SET, "x")], dry=True),
    _change("nothing", []),
    _change("the same value again", [("retention.ms", SET, "1000")]),
    _change(
        "contradicting what is set",
        [("min.compaction.lag.ms", SET, "10")],
        before={"max.compaction.lag.ms": "5"},
    ),
    *(
        Exchange(
            f"change configs: type {kind} named {name!r}, v{v}",
            CHANGE,
            v,
            IncrementalAlterConfigsRequest([changed(kind, name, [("retention.ms", SET, "1")])]),
        )
        for kind, name in RESOURCES
        for v in (0, 1)
    ),
    Exchange(
        "change configs: a resource twice",
        CHANGE,
        1,
        IncrementalAlterConfigsRequest(
            [changed(TOPIC, "{t}", [("retention.ms", SET, v)]) for v in ("1", "2")]
        ),
        [Create(configs=BEFORE)],
        [described()],
    ),
    Exchange(
        "change configs: good and bad resources",
        CHANGE,
        1,
        IncrementalAlterConfigsRequest(
            [
                changed(TOPIC, "{t}", [("retention.ms", SET, "7")]),
                changed(TOPIC, "{u}", [("retention.ms", SET, "x")]),
                changed(TOPIC, "{no}", [("retention.ms", SET, "7")]),
                changed(BROKER, "99", [("num.partitions", SET, "7")]),
            ]
        ),
        [Create(), Create("u")],
        [described(), described("u", False)],
    ),
    *(
        Exchange(
            f"change configs: {name} of broker {broker!r}",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest([changed(BROKER, broker, [(name, SET, value)])]),
        )
        for broker in ("1", "")
        for name, value in READ_ONLY
    ),
    *(
        Exchange(
            f"change configs: operation {op} on num.partitions of a broker",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest([changed(BROKER, "1", [("num.partitions", op, "1")])]),
        )
        for op in (DELETE, APPEND, SUBTRACT, 7)
    ),
    Exchange(
        "change configs: none of a broker",
        CHANGE,
        1,
        IncrementalAlterConfigsRequest([changed(BROKER, "1", [])]),
    ),
    *(
        Exchange(
            f"change configs: of an unknown topic, {title}",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest([changed(TOPIC, topic, changes)]),
        )
        for topic in ("{no}", "a b", "")
        for title, changes in (
            (f"bad value, {topic}", [("retention.ms", SET, "x")]),
            (f"unknown config, {topic}", [("no.such", SET, "x")]),
            (f"null, {topic}", [("retention.ms", SET, None)]),
            (f"append to a number, {topic}", [("retention.ms", APPEND, "5")]),
            (f"unknown operation, {topic}", [("retention.ms", 9, "5")]),
            (f"one name twice, {topic}", [("retention.ms", SET, "5"), ("retention.ms", SET, "5")]),
            (f"nothing, {topic}", []),
        )
    ),
    Exchange("change configs: no resource", CHANGE, 1, IncrementalAlterConfigsRequest()),
    Exchange("change configs: an empty body", CHANGE, 0, Body(b"")),
    Exchange(
        "change configs: cut", CHANGE, 1, Cut(IncrementalAlterConfigsRequest([changed(TOPIC, "{t}", [])]), 2)
    ),
    Exchange(
        "change configs: bytes after the message",
        CHANGE,
        1,
        Appended(IncrementalAlterConfigsRequest([changed(TOPIC, "{t}", [("retention.ms", SET, "5")])]), b"x"),
        [Create()],
        [described()],
    ),
]

_LIST = [
    Exchange("list config resources: v0", LIST, 0, ListConfigResourcesRequest()),
    *(
        Exchange(f"list config resources: types {types}", LIST, 1, ListConfigResourcesRequest(types))
        for types in (
            [BROKER],
            [METRICS],
            [GROUP],
            [BROKER, METRICS, GROUP],
            [METRICS, METRICS],
            [0],
            [1],
            [3],
            [99],
            [-3],
            [METRICS, 99],
        )
    ),
    Exchange(
        "list config resources: topics", LIST, 1, ListConfigResourcesRequest([TOPIC]), [Create(), Create("u")]
    ),
    Exchange("list config resources: cut", LIST, 1, Cut(ListConfigResourcesRequest([TOPIC]), 2)),
]

EXCHANGES = [*_ALTER, *_CHANGE, *_LIST]
