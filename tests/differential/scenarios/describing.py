"""InitProducerId, 0-5, DescribeCluster, 0-2, DescribeConfigs, 1-4 (of named keys only)."""

from collections.abc import Sequence

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_cluster import DescribeClusterRequest
from gateway.wire.messages.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from tests.differential.batches import i16, i32
from tests.differential.exchange import Appended, Body, Cut, Exchange
from tests.differential.steps import Create

INIT = ApiKey.INIT_PRODUCER_ID
CLUSTER = ApiKey.DESCRIBE_CLUSTER
CONFIGS = ApiKey.DESCRIBE_CONFIGS
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8

_INIT = [
    *(
        Exchange(f"init producer id: a fresh one, v{v}", INIT, v, InitProducerIdRequest(None, 60_000))
        for v in range(6)
    ),
    Exchange("init producer id: without a timeout", INIT, 0, InitProducerIdRequest(None, 0)),
    Exchange("init producer id: a negative timeout", INIT, 5, InitProducerIdRequest(None, -1)),
    *(
        Exchange(
            f"init producer id: naming id {pid} and epoch {epoch}, v{v}",
            INIT,
            v,
            InitProducerIdRequest(None, 0, pid, epoch),
        )
        for pid, epoch, v in [(12345, 3, 3), (12345, -1, 4), (-1, 3, 5), (2**62, 32767, 5)]
    ),
    *(
        Exchange(
            f"init producer id: an empty transactional id, v{v}", INIT, v, InitProducerIdRequest("", 1000)
        )
        for v in (0, 3, 5)
    ),
    Exchange("init producer id: an empty body", INIT, 0, Body(b"")),
    Exchange("init producer id: cut", INIT, 5, Cut(InitProducerIdRequest(None, 0), 4)),
    Exchange(
        "init producer id: bytes after the message",
        INIT,
        4,
        Appended(InitProducerIdRequest(None, 0), b"more"),
    ),
]


def _cluster(operations: bool, endpoint: int = 1, fenced: bool = False) -> DescribeClusterRequest:
    return DescribeClusterRequest(operations, endpoint, fenced)


_CLUSTER = [
    *(Exchange(f"describe cluster: v{v}", CLUSTER, v, _cluster(False)) for v in (0, 1, 2)),
    *(Exchange(f"describe cluster: with operations, v{v}", CLUSTER, v, _cluster(True)) for v in (0, 1, 2)),
    *(
        Exchange(f"describe cluster: endpoint type {n}, v{v}", CLUSTER, v, _cluster(False, n))
        for n in (2, 0, 3, -1)
        for v in (1, 2)
    ),
    Exchange("describe cluster: fenced brokers too", CLUSTER, 2, _cluster(False, 1, True)),
    Exchange("describe cluster: an empty body", CLUSTER, 0, Body(b"")),
    Exchange("describe cluster: cut", CLUSTER, 2, Cut(_cluster(False), 1)),
    Exchange("describe cluster: bytes after the message", CLUSTER, 1, Appended(_cluster(False), b"\x05")),
]


def _configs(
    kind: int, name: str, keys: Sequence[str] | None, synonyms: bool = False, documented: bool = False
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(kind, name, None if keys is None else list(keys))
    return DescribeConfigsRequest([resource], synonyms, documented)


# Not min.insync.replicas: since KIP-966 Kafka keeps it as a dynamic default of the cluster.
# Not message.max.bytes of a broker: only Kafka changes it without a restart.
KEYS = (
    "retention.ms",
    "cleanup.policy",
    "max.message.bytes",
    "segment.ms",
    "flush.ms",
    "min.cleanable.dirty.ratio",
)
SET = {"retention.ms": "1000", "cleanup.policy": "compact"}
EVERY_KEY = (
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes",
    "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "max.message.bytes",
    "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
    "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "preallocate",
    "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes",
    "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
)  # fmt: skip
BROKER_KEYS = ("num.partitions", "auto.create.topics.enable", "delete.topic.enable")

_CONFIGS = [
    *(
        Exchange(
            f"describe configs: a topic's, v{v}",
            CONFIGS,
            v,
            _configs(TOPIC, "{t}", KEYS),
            [Create(configs=SET)],
        )
        for v in (1, 2, 3, 4)
    ),
    *(
        Exchange(
            f"describe configs: with synonyms, v{v}",
            CONFIGS,
            v,
            _configs(TOPIC, "{t}", KEYS, True),
            [Create(configs=SET)],
        )
        for v in (1, 3, 4)
    ),
    Exchange(
        "describe configs: all that a topic has",
        CONFIGS,
        4,
        _configs(TOPIC, "{t}", EVERY_KEY, True),
        [Create()],
    ),
    Exchange(
        "describe configs: values with spaces and capitals",
        CONFIGS,
        4,
        _configs(TOPIC, "{t}", ["segment.ms", "preallocate", "cleanup.policy", "min.cleanable.dirty.ratio"]),
        [
            Create(
                configs={
                    "segment.ms": " 10 ",
                    "preallocate": "TRUE",
                    "cleanup.policy": "delete, compact",
                    "min.cleanable.dirty.ratio": ".5",
                }
            )
        ],
    ),
    Exchange(
        "describe configs: with documentation",
        CONFIGS,
        4,
        _configs(TOPIC, "{t}", KEYS, False, True),
        [Create()],
    ),
    Exchange(
        "describe configs: an unknown key",
        CONFIGS,
        4,
        _configs(TOPIC, "{t}", ["no.such", "flush.ms"]),
        [Create()],
    ),
    Exchange(
        "describe configs: one key twice",
        CONFIGS,
        4,
        _configs(TOPIC, "{t}", ["flush.ms", "flush.ms"]),
        [Create()],
    ),
    *(
        Exchange(f"describe configs: unknown topic, v{v}", CONFIGS, v, _configs(TOPIC, "{no}", KEYS))
        for v in (1, 4)
    ),
    Exchange("describe configs: an invalid topic", CONFIGS, 4, _configs(TOPIC, "a b", KEYS)),
    Exchange("describe configs: an empty topic", CONFIGS, 1, _configs(TOPIC, "", KEYS)),
    *(
        Exchange(f"describe configs: a broker's, v{v}", CONFIGS, v, _configs(BROKER, "1", BROKER_KEYS))
        for v in (1, 3, 4)
    ),
    Exchange("describe configs: brokers' in general", CONFIGS, 4, _configs(BROKER, "", BROKER_KEYS)),
    *(
        Exchange(
            f"describe configs: a broker called {name!r}", CONFIGS, 4, _configs(BROKER, name, BROKER_KEYS)
        )
        for name in ("01", "+1", "-1", "+01", "0x1", "1 ", " 1", "1.0", "+", "4294967297", "1" * 30)
    ),
    Exchange("describe configs: an unknown broker", CONFIGS, 4, _configs(BROKER, "99", BROKER_KEYS)),
    Exchange(
        "describe configs: a broker that is no number", CONFIGS, 1, _configs(BROKER, "one", BROKER_KEYS)
    ),
    *(
        Exchange(f"describe configs: resource type {n}", CONFIGS, 4, _configs(n, "x", ["y"]))
        for n in (0, 1, 3, 99, -3)
    ),
    Exchange(
        "describe configs: two resources",
        CONFIGS,
        4,
        DescribeConfigsRequest(
            [
                DescribeConfigsResource(TOPIC, "{t}", ["flush.ms"]),
                DescribeConfigsResource(TOPIC, "{no}", ["flush.ms"]),
            ]
        ),
        [Create()],
    ),
    Exchange("describe configs: nothing", CONFIGS, 4, DescribeConfigsRequest()),
    Exchange("describe configs: an empty body", CONFIGS, 1, Body(b"")),
    Exchange("describe configs: cut", CONFIGS, 4, Cut(_configs(TOPIC, "{t}", KEYS), 5)),
    Exchange("describe configs: a null name", CONFIGS, 1, Body(i32(1) + b"\2" + i16(-1) + i32(-1) + b"\0")),
    Exchange(
        "describe configs: more keys than bytes",
        CONFIGS,
        1,
        Body(i32(1) + b"\2" + i16(1) + b"a" + i32(2**30)),
    ),
]

EXCHANGES = [*_INIT, *_CLUSTER, *_CONFIGS]
