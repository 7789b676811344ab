"""Configs of brokers and groups through AlterConfigs, IncrementalAlterConfigs and DescribeConfigs.

A broker's are the endpoint's own, so each change is undone before the next request. Not compared: what
Kafka lets a broker change and a gateway does not have (threads, connections), and names that neither knows,
which Kafka keeps for plugins.
"""

from collections.abc import Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.alter_configs import AlterConfigsRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from gateway.wire.messages.generated.list_config_resources import ListConfigResourcesRequest
from tests.differential.exchange import Call, Exchange
from tests.differential.scenarios.configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Changes,
    Pairs,
    altered,
    changed,
)
from tests.differential.steps import Create, Done

ALTER = ApiKey.ALTER_CONFIGS
CHANGE = ApiKey.INCREMENTAL_ALTER_CONFIGS
DESCRIBE = ApiKey.DESCRIBE_CONFIGS
LIST = ApiKey.LIST_CONFIG_RESOURCES
DELAY = "log.segment.delete.delay.ms"
POLICY = "log.cleanup.policy"
JITTER = "log.roll.jitter.ms"
OWN, ALL = "1", ""


def change(kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> Call:
    return Call(CHANGE, 1, IncrementalAlterConfigsRequest([changed(kind, name, changes)], dry))


def described(kind: int, name: str, *keys: str, version: int = 4) -> Call:
    """With synonyms, once the changes before have been heard of."""
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    return Call(DESCRIBE, version, DescribeConfigsRequest([resource], True), is_fenced=True)


def _broker(title: str, name: str, *changes: tuple[str, int, str | None]) -> Exchange:
    request = IncrementalAlterConfigsRequest([changed(BROKER, name, changes)], True)
    of = "all brokers" if name == ALL else f"broker {name}"
    return Exchange(f"change configs: of {of}, {title}", CHANGE, 1, request)


_CHECKED: Sequence[tuple[str, Changes]] = (
    ("a number", [("message.max.bytes", SET, "2000")]),
    ("a number with spaces", [("message.max.bytes", SET, " 5 ")]),
    ("a word for a number", [("message.max.bytes", SET, "x")]),
    ("below the bound", [("message.max.bytes", SET, "-1")]),
    ("null", [("message.max.bytes", SET, None)]),
    ("one of its start", [("num.partitions", SET, "3")]),
    ("one of its start deleted", [("num.partitions", DELETE, None)]),
    ("one of its start appended", [("num.partitions", APPEND, "3")]),
    ("its id", [("node.id", SET, "3")]),
    ("retention in minutes", [("log.retention.minutes", SET, "3")]),
    ("an unknown one deleted", [("no.such", DELETE, None)]),
    ("a list", [(POLICY, SET, " compact , delete ")]),
    ("an unknown item", [(POLICY, APPEND, "shred")]),
    ("an item less", [(POLICY, SUBTRACT, "compact")]),
    ("appended to a number", [("message.max.bytes", APPEND, "3")]),
    ("an unknown operation", [("message.max.bytes", 7, "3")]),
    ("good and bad", [("message.max.bytes", SET, "3"), ("num.partitions", SET, "3")]),
    ("one name twice", [("message.max.bytes", SET, "3"), ("message.max.bytes", DELETE, None)]),
    ("a ratio above 1", [("log.cleaner.min.cleanable.ratio", SET, "2")]),
    ("a small segment", [("log.segment.bytes", SET, "10")]),
    ("a codec", [("compression.type", SET, "zstd")]),
    ("an unknown codec", [("compression.type", SET, "rar")]),
    ("no boolean", [("log.preallocate", SET, "maybe")]),
    ("rolling at once", [("log.roll.ms", SET, "0")]),
    ("negative jitter", [(JITTER, SET, "-1")]),
)
_BROKERS = [
    *(_broker(title, name, *changes) for name in (OWN, ALL) for title, changes in _CHECKED),
    *(_broker("unknown", name, ("message.max.bytes", SET, "3")) for name in ("9", "one", "-1")),
    *(
        Exchange(
            f"change configs: set of a broker and described, {name!r}",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest(
                [
                    changed(
                        BROKER, name, [(DELAY, SET, "7000"), (POLICY, APPEND, "compact"), (JITTER, SET, "9")]
                    )
                ]
            ),
            [Create()],
            [
                described(BROKER, OWN, DELAY, POLICY, JITTER),
                described(BROKER, ALL, DELAY, POLICY, JITTER),
                described(TOPIC, "{t}", "file.delete.delay.ms", "cleanup.policy", "segment.jitter.ms"),
                change(BROKER, name, (DELAY, DELETE, None), (POLICY, DELETE, None), (JITTER, DELETE, None)),
                described(BROKER, OWN, DELAY, POLICY, JITTER),
                described(TOPIC, "{t}", "file.delete.delay.ms", "cleanup.policy", "segment.jitter.ms"),
            ],
        )
        for name in (OWN, ALL)
    ),
    Exchange(
        "change configs: set of a broker and of all",
        CHANGE,
        0,
        IncrementalAlterConfigsRequest(
            [changed(BROKER, OWN, [(DELAY, SET, "8000")]), changed(BROKER, ALL, [(DELAY, SET, "9000")])]
        ),
        [Create(configs={"file.delete.delay.ms": "1"})],
        [
            described(BROKER, OWN, DELAY),
            described(TOPIC, "{t}", "file.delete.delay.ms"),
            change(BROKER, OWN, (DELAY, DELETE, None)),
            described(BROKER, OWN, DELAY),
            change(BROKER, ALL, (DELAY, DELETE, None)),
        ],
    ),
    *(
        Exchange(
            f"alter configs: of a broker, v{v}",
            ALTER,
            v,
            AlterConfigsRequest([altered(BROKER, OWN, [(DELAY, "5000")])]),
            [Done(change(BROKER, OWN, (JITTER, SET, "9")))],
            [
                described(BROKER, OWN, DELAY, JITTER),
                Call(ALTER, v, AlterConfigsRequest([altered(BROKER, OWN, [])])),
                described(BROKER, OWN, DELAY, JITTER),
            ],
        )
        for v in (0, 1, 2)
    ),
    Exchange(
        "alter configs: of a broker, one of its start",
        ALTER,
        2,
        AlterConfigsRequest([altered(BROKER, OWN, [("num.partitions", "3")])], True),
    ),
]

_GOOD: Pairs = (
    ("consumer.session.timeout.ms", "50000"),
    ("consumer.session.timeout.ms", " 60000 "),
    ("consumer.heartbeat.interval.ms", "15000"),
    ("consumer.assignment.interval.ms", "0"),
    ("share.auto.offset.reset", "earliest"),
    ("share.auto.offset.reset", "by_duration:PT1H"),
    ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
    ("share.isolation.level", "read_committed"),
    ("share.delivery.count.limit", "2"),
    ("share.record.lock.duration.ms", "60000"),
    ("share.partition.max.record.locks", "4000"),
    ("share.renew.acknowledge.enable", "FALSE"),
    ("streams.num.standby.replicas", "2"),
    ("streams.initial.rebalance.delay.ms", "99999999"),
    ("streams.session.timeout.ms", "45000"),
)
_BAD: Pairs = (
    ("no.such", "1"),
    ("group.consumer.session.timeout.ms", "50000"),
    ("consumer.session.timeout.ms", "x"),
    ("consumer.session.timeout.ms", ""),
    ("consumer.session.timeout.ms", None),
    ("consumer.session.timeout.ms", "44999"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.heartbeat.interval.ms", "4999"),
    ("consumer.heartbeat.interval.ms", "15001"),
    ("consumer.assignment.interval.ms", "-1"),
    ("share.auto.offset.reset", "EARLIEST"),
    ("share.auto.offset.reset", "by_duration:P"),
    ("share.auto.offset.reset", "by_duration:-PT1H"),
    ("share.auto.offset.reset", "by_duration:1h"),
    ("share.isolation.level", "nope"),
    ("share.delivery.count.limit", "1"),
    ("share.delivery.count.limit", "11"),
    ("share.record.lock.duration.ms", "14999"),
    ("share.partition.max.record.locks", "4001"),
    ("share.renew.acknowledge.enable", "maybe"),
    ("streams.num.standby.replicas", "3"),
)
_TIMEOUT = "consumer.session.timeout.ms"
_BEFORE = Done(change(GROUP, "{g}", (_TIMEOUT, SET, "50000"), ("share.delivery.count.limit", SET, "7")))
LISTED = Call(LIST, 1, ListConfigResourcesRequest([GROUP]), is_fenced=True)
_GROUPS = [
    *(
        Exchange(f"describe configs: of a group, v{v}", DESCRIBE, v, described(GROUP, "{g}").request)
        for v in (1, 2, 4)
    ),
    Exchange("describe configs: of a group without a name", DESCRIBE, 4, described(GROUP, "").request),
    *(
        Exchange(
            f"change configs: of a group, {key} = {value}",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest([changed(GROUP, "{g}", [(key, SET, value)])]),
            after=[described(GROUP, "{g}", key)],
        )
        for key, value in (*_GOOD, *_BAD)
    ),
    *(
        Exchange(
            f"change configs: of a group, operation {op}",
            CHANGE,
            1,
            IncrementalAlterConfigsRequest([changed(GROUP, "{g}", [(_TIMEOUT, op, "50000")])]),
            [_BEFORE],
            [described(GROUP, "{g}")],
        )
        for op in (DELETE, APPEND, SUBTRACT, 8)
    ),
    Exchange(
        "change configs: of a group without a name",
        CHANGE,
        0,
        IncrementalAlterConfigsRequest([changed(GROUP, "", [(_TIMEOUT, SET, "50000")])]),
    ),
    Exchange(
        "change configs: of a group, only to validate",
        CHANGE,
        1,
        IncrementalAlterConfigsRequest([changed(GROUP, "{g}", [(_TIMEOUT, SET, "50000")])], True),
        after=[described(GROUP, "{g}", _TIMEOUT)],
    ),
    *(
        Exchange(
            f"alter configs: of a group, v{v}",
            ALTER,
            v,
            AlterConfigsRequest([altered(GROUP, "{g}", [("share.isolation.level", "read_committed")])]),
            [_BEFORE],
            [described(GROUP, "{g}"), LISTED],
        )
        for v in (0, 2)
    ),
    Exchange(
        "alter configs: none of a group",
        ALTER,
        1,
        AlterConfigsRequest([altered(GROUP, "{g}", [])]),
        [_BEFORE],
        [described(GROUP, "{g}"), LISTED],
    ),
    Exchange(
        "list config resources: groups",
        LIST,
        1,
        ListConfigResourcesRequest([GROUP]),
        [_BEFORE, Create("fence")],
    ),
]

EXCHANGES = [*_BROKERS, *_GROUPS]
