"""The group configs of Kafka 4.3.1 (KIP-848, KIP-932, KIP-1071): names, types, defaults, allowed values.

They are for groups of the newer protocols. They are checked, stored and described, so that tools which set
them work. Bounds are the defaults of Kafka's broker configs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.configs.defaults import Synonym
from gateway.configs.topic_configs import (
    MAX_INT,
    MAX_NAME_SHOWN,
    BadValue,
    ConfigSource,
    ConfigType,
    number,
    one_of,
    parse_boolean,
)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """`synonym` is the broker config whose value is the default of groups."""

    name: str
    type: ConfigType
    default: str
    parse: Callable[[str], str]
    synonym: str


@dataclass(frozen=True, slots=True)
class GroupValue:
    config: GroupConfig
    value: str
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


DURATION: Final = re.compile(
    r"by_duration:P(?=.)(\d{1,9}D)?(T(?=.)(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,9})?S)?)?", re.IGNORECASE
)
DOC: Final = "Kept for tools; it is for groups of a protocol that is not spoken here yet."


def _parse_reset(text: str) -> str:
    value = text.strip()
    if value not in ("earliest", "latest") and not (
        value.startswith("by_duration:") and DURATION.fullmatch(value)
    ):
        raise BadValue("must be earliest, latest or by_duration: and an ISO 8601 duration")
    return value


def _int(name: str, default: int, low: int, high: int = MAX_INT) -> GroupConfig:
    return GroupConfig(name, ConfigType.INT, str(default), number(low, high), f"group.{name}")


def _of_protocol(protocol: str) -> tuple[GroupConfig, ...]:
    return (
        _int(f"{protocol}.assignment.interval.ms", 1_000, 0, 15_000),
        _int(f"{protocol}.heartbeat.interval.ms", 5_000, 5_000, 15_000),
        _int(f"{protocol}.session.timeout.ms", 45_000, 45_000, 60_000),
    )


_ALL = (
    *_of_protocol("consumer"),
    *_of_protocol("share"),
    GroupConfig(
        "share.auto.offset.reset", ConfigType.STRING, "latest", _parse_reset, "share.auto.offset.reset"
    ),
    _int("share.delivery.count.limit", 5, 2, 10),
    GroupConfig(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "share.isolation.level",
    ),
    _int("share.partition.max.record.locks", 2_000, 100, 4_000),
    _int("share.record.lock.duration.ms", 30_000, 15_000, 60_000),
    GroupConfig(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        "true",
        parse_boolean,
        "share.renew.acknowledge.enable",
    ),
    *_of_protocol("streams"),
    _int("streams.initial.rebalance.delay.ms", 3_000, 0),
    _int("streams.num.standby.replicas", 0, 0, 2),
)
GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {config.name: config for config in _ALL}


def parse_group_config(name: str, text: str) -> str:
    """The normalized value. BadValue with a sentence for the client."""
    config = GROUP_CONFIGS.get(name)
    if config is None:
        raise BadValue(f"Unknown group config name: {name[:MAX_NAME_SHOWN]}")
    try:
        return config.parse(text)
    except BadValue as error:
        raise BadValue(f"Invalid value {text[:MAX_NAME_SHOWN]} for {name}: {error}") from None


def describe_group_configs(configs: Mapping[str, str]) -> list[GroupValue]:
    """Every group config of a group on which `configs` are set."""
    return [_value(config, configs.get(config.name)) for config in GROUP_CONFIGS.values()]


def _value(config: GroupConfig, own_value: str | None) -> GroupValue:
    standard = Synonym(config.synonym, config.default, ConfigSource.DEFAULT)
    if own_value is None:
        return GroupValue(config, config.default, ConfigSource.DEFAULT, (standard,))
    own = Synonym(config.name, own_value, ConfigSource.GROUP)
    return GroupValue(config, own_value, ConfigSource.GROUP, (own, standard))
