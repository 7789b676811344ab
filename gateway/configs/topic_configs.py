"""The topic configs of Kafka 4.3.1: names, types, defaults, allowed values, and the broker's defaults.

Each of them is accepted, stored and described, so that tools which set them work. Values are stored
normalized, as Kafka describes them: numbers without spaces, lists without spaces or repeats.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_VALUE_LENGTH: Final = 32_767
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class ConfigType(IntEnum):
    """Numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    """Set while the gateways run, for all of them."""
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class BadValue(ValueError):
    """A config value that is not allowed; the message says which values are."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic config. `parse` returns the normalized value or raises BadValue."""

    name: str
    type: ConfigType
    default: str
    parse: Callable[[str], str]
    doc: str
    synonym: str | None = None
    """The broker config whose value is the default of topics."""
    has_effect: bool = False
    """Whether the gateway acts on it; the others are checked, stored and described."""


def number(low: int, high: int = MAX_LONG, also: int | None = None) -> Callable[[str], str]:
    """An integer from `low` to `high`, or `also`."""

    def parse(text: str) -> str:
        stripped = text.strip()
        if not _INTEGER.fullmatch(stripped):
            raise BadValue("not a whole number")
        value = int(stripped)
        if not low <= value <= high and value != also:
            extra = "" if also is None else f" or {also}"
            raise BadValue(f"must be {low} to {high}{extra}")
        return str(value)

    return parse


def parse_ratio(text: str) -> str:
    """A number from 0 to 1."""
    stripped = text.strip()
    try:
        value = float(stripped) if _DECIMAL.fullmatch(stripped) else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise BadValue("must be a number from 0 to 1")
    return str(value)


def parse_boolean(text: str) -> str:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise BadValue("must be true or false")
    return value


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        value = text.strip()
        if value not in allowed:
            raise BadValue(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def some_of(*allowed: str) -> Callable[[str], str]:
    """A comma-separated list, possibly empty."""

    def parse(text: str) -> str:
        items = _items(text)
        if not set(items).issubset(allowed):
            raise BadValue(f"must be a list of {', '.join(allowed)}")
        return ",".join(items)

    return parse


def parse_throttled_replicas(text: str) -> str:
    items = _items(text)
    if items != ["*"] and not all(_REPLICA.fullmatch(item) for item in items):
        raise BadValue("must be * or a list of partition:broker")
    return ",".join(items)


def parse_remote_storage(text: str) -> str:
    value = parse_boolean(text)
    if value == "true":
        raise BadValue("tiered storage is not supported; records always lie in the backing store")
    return value


def _items(text: str) -> list[str]:
    return list(dict.fromkeys(item.strip() for item in text.split(","))) if text.strip() else []


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")

_INT_FROM_0 = number(0, MAX_INT)
_LONG_FROM_0 = number(0)
_B, _S, _I, _L, _D = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
)
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_POLICIES = some_of("compact", "delete")

_ALL = (
    TopicConfig(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        _POLICIES,
        "delete: retention removes records beyond its time or size; compact: records need a key.",
        "log.cleanup.policy",
        has_effect=True,
    ),
    TopicConfig(
        "compression.gzip.level",
        _I,
        "-1",
        number(1, 9, -1),
        "Kept for tools; gzip compresses at level 6.",
        "compression.gzip.level",
    ),
    TopicConfig(
        "compression.lz4.level",
        _I,
        "9",
        number(1, 17),
        "Kept for tools; lz4 has one level here.",
        "compression.lz4.level",
    ),
    TopicConfig(
        "compression.type",
        _S,
        "producer",
        one_of(*_CODECS),
        "The codec of stored batches; producer: the producer's.",
        "compression.type",
        has_effect=True,
    ),
    TopicConfig(
        "compression.zstd.level",
        _I,
        "3",
        number(-131072, 22),
        "Kept for tools; zstd compresses at level 3.",
        "compression.zstd.level",
    ),
    TopicConfig(
        "delete.retention.ms",
        _L,
        str(DAY_MS),
        _LONG_FROM_0,
        "Kept for tools; nothing is compacted yet.",
        "log.cleaner.delete.retention.ms",
    ),
    TopicConfig(
        "file.delete.delay.ms",
        _L,
        "60000",
        _LONG_FROM_0,
        "Kept for tools; bytes here stay for the grace of the ledger.",
        "log.segment.delete.delay.ms",
    ),
    TopicConfig(
        "flush.messages",
        _L,
        str(MAX_LONG),
        number(1),
        "Kept for tools; every acknowledged record is durable.",
        "log.flush.interval.messages",
    ),
    TopicConfig(
        "flush.ms", _L, str(MAX_LONG), _LONG_FROM_0, "Kept for tools; every acknowledged record is durable."
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        parse_throttled_replicas,
        "Kept for tools; there is no replication.",
    ),
    TopicConfig(
        "index.interval.bytes",
        _I,
        "4096",
        _INT_FROM_0,
        "Kept for tools; there are no index files.",
        "log.index.interval.bytes",
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        parse_throttled_replicas,
        "Kept for tools; there is no replication.",
    ),
    TopicConfig(
        "local.retention.bytes",
        _L,
        "-2",
        number(-2),
        "Kept for tools; there are no tiers.",
        "log.local.retention.bytes",
    ),
    TopicConfig(
        "local.retention.ms",
        _L,
        "-2",
        number(-2),
        "Kept for tools; there are no tiers.",
        "log.local.retention.ms",
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        _L,
        str(MAX_LONG),
        number(1),
        "Kept for tools; nothing is compacted yet.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfig(
        "max.message.bytes",
        _I,
        "1048588",
        _INT_FROM_0,
        "Largest record batch, also after recompression.",
        "message.max.bytes",
        has_effect=True,
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        _L,
        str(HOUR_MS),
        _LONG_FROM_0,
        "How far in the future a record's time may be.",
        "log.message.timestamp.after.max.ms",
        has_effect=True,
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        _L,
        str(MAX_LONG),
        _LONG_FROM_0,
        "How far in the past a record's time may be.",
        "log.message.timestamp.before.max.ms",
        has_effect=True,
    ),
    TopicConfig(
        "message.timestamp.type",
        _S,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "CreateTime: the producer's clock stamps records; LogAppendTime: the gateway's.",
        "log.message.timestamp.type",
        has_effect=True,
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        parse_ratio,
        "Kept for tools; nothing is compacted yet.",
        "log.cleaner.min.cleanable.ratio",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        _L,
        "0",
        _LONG_FROM_0,
        "Kept for tools; nothing is compacted yet.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfig(
        "min.insync.replicas",
        _I,
        "1",
        number(1, MAX_INT),
        "Kept for tools; durability is the backing store's.",
        "min.insync.replicas",
    ),
    TopicConfig(
        "preallocate",
        _B,
        "false",
        parse_boolean,
        "Kept for tools; files grow as they are written.",
        "log.preallocate",
    ),
    TopicConfig("remote.log.copy.disable", _B, "false", parse_boolean, "Kept for tools; there are no tiers."),
    TopicConfig(
        "remote.log.delete.on.disable", _B, "false", parse_boolean, "Kept for tools; there are no tiers."
    ),
    TopicConfig(
        "remote.storage.enable",
        _B,
        "false",
        parse_remote_storage,
        "Kept for tools; there are no tiers, and true is refused.",
    ),
    TopicConfig(
        "retention.bytes",
        _L,
        "-1",
        number(-MAX_LONG - 1),
        "Bytes a partition keeps; -1 = all.",
        "log.retention.bytes",
        has_effect=True,
    ),
    TopicConfig(
        "retention.ms",
        _L,
        str(7 * DAY_MS),
        number(-1),
        "How long records are kept; -1 = forever.",
        has_effect=True,
    ),
    TopicConfig(
        "segment.bytes",
        _I,
        "1073741824",
        number(2**20, MAX_INT),
        "Kept for tools; partitions have no segment files.",
        "log.segment.bytes",
    ),
    TopicConfig(
        "segment.index.bytes",
        _I,
        "10485760",
        number(4, MAX_INT),
        "Kept for tools; partitions have no segment files.",
        "log.index.size.max.bytes",
    ),
    TopicConfig(
        "segment.jitter.ms", _L, "0", _LONG_FROM_0, "Kept for tools; partitions have no segment files."
    ),
    TopicConfig(
        "segment.ms", _L, str(7 * DAY_MS), number(1), "Kept for tools; partitions have no segment files."
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        _B,
        "false",
        parse_boolean,
        "Kept for tools; there is no replication.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {config.name: config for config in _ALL}


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The normalized configs of a topic. Raises BadValue with a sentence for the client."""
    normalized = {}
    for name, value in configs.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            raise BadValue(f"Unknown topic config name: {name[:MAX_NAME_SHOWN]}")
        if value is None:
            raise BadValue(f"Topic config {name} cannot be null")
        if len(value) > MAX_VALUE_LENGTH:
            raise BadValue(
                f"The value of {name} has {len(value)} characters; {MAX_VALUE_LENGTH} are the most"
            )
        try:
            normalized[name] = config.parse(value)
        except BadValue as error:
            raise BadValue(f"Invalid value {value[:MAX_NAME_SHOWN]} for {name}: {error}") from None
    _check_combination(normalized)
    return normalized


MAX_NAME_SHOWN: Final = 256


def _check_combination(normalized: Mapping[str, str]) -> None:
    shortest, longest = (
        int(normalized.get(name, TOPIC_CONFIGS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if shortest > longest:
        raise BadValue(f"min.compaction.lag.ms {shortest} is more than max.compaction.lag.ms {longest}")
