"""What topics are given that say nothing: broker configs, some of which can be set while the gateway runs.

The strongest first (KIP-226): set on this broker, set for all brokers, the gateway's settings, Kafka's
default. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.config import Broker
from gateway.topics.configs import TOPIC_CONFIGS, ConfigSource, TopicConfig

UNSET_BY_DEFAULT: Final[Mapping[str, str]] = {
    "retention.ms": "log.retention.ms",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "flush.ms": "log.flush.interval.ms",
}
"""Broker configs that stand before another one in an older unit, and so have no default of their own."""
OLDER: Final[Mapping[str, tuple[str, str]]] = {
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.ms": ("log.roll.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", "9223372036854775807"),
}
"""Those others, and their defaults."""


def broker_name(config: TopicConfig) -> str | None:
    """The broker config that is a topic config's default."""
    return config.synonym or UNSET_BY_DEFAULT.get(config.name)


DYNAMIC: Final[Mapping[str, TopicConfig]] = {
    name: config for config in TOPIC_CONFIGS.values() if (name := broker_name(config)) is not None
}
"""Broker configs that can be set while the gateway runs: the defaults of topics."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A place where the value could come from, the strongest first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Defaults:
    """`own` is set on this broker, `common` on all."""

    broker: Broker
    own: Mapping[str, str] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    def of(self, config: TopicConfig) -> list[Synonym]:
        """Where the default of a topic config could come from."""
        return list(self._of(config))

    def _of(self, config: TopicConfig) -> Iterator[Synonym]:
        name = broker_name(config)
        if name is None:
            return
        if name in self.own:
            yield Synonym(name, self.own[name], ConfigSource.DYNAMIC_BROKER)
        if name in self.common:
            yield Synonym(name, self.common[name], ConfigSource.DYNAMIC_DEFAULT)
        given = given_value(name, self.broker)
        if given is not None and given != config.default:
            yield Synonym(name, given, ConfigSource.STATIC_BROKER)
        if config.synonym is not None:
            yield Synonym(name, config.default, ConfigSource.DEFAULT)
        elif name in self.own or name in self.common:
            yield Synonym(*OLDER[name], ConfigSource.DEFAULT)


def given_value(name: str, broker: Broker) -> str | None:
    """Of a broker config that is a setting of the gateway, as text."""
    attribute = name.replace(".", "_")
    return shown(getattr(broker, attribute)) if hasattr(broker, attribute) else None


def shown(value: object) -> str:
    """As DescribeConfigs spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
