"""Defaults of topic configs: broker configs, some of which can be set while the gateway runs.

By precedence (KIP-226): set on this broker, set for all brokers, the gateway's settings, Kafka's default.
Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.configs.topic_configs import TOPIC_CONFIGS, ConfigSource, TopicConfig
from gateway.settings import Broker

UNSET_BY_DEFAULT: Final[Mapping[str, str]] = {
    "retention.ms": "log.retention.ms",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "flush.ms": "log.flush.interval.ms",
}
"""Broker configs that take precedence over one in an older unit, and so have no default of their own."""
OLDER: Final[Mapping[str, tuple[str, str]]] = {
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.ms": ("log.roll.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", "9223372036854775807"),
}
"""The configs in older units, and their defaults."""


def broker_name(config: TopicConfig) -> str | None:
    """The broker config that is a topic config's default."""
    return config.synonym or UNSET_BY_DEFAULT.get(config.name)


DYNAMIC: Final[Mapping[str, TopicConfig]] = {
    name: config for config in TOPIC_CONFIGS.values() if (name := broker_name(config)) is not None
}
"""Broker configs that can be set while the gateway runs: the defaults of topics."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A place where the value could come from. Lists of them begin with the one of highest precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Defaults:
    """`own` values are set on this broker, `common` ones for all brokers."""

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
        value = setting_value(name, self.broker)
        if value is not None and value != config.default:
            yield Synonym(name, value, ConfigSource.STATIC_BROKER)
        if config.synonym is not None:
            yield Synonym(name, config.default, ConfigSource.DEFAULT)
        elif name in self.own or name in self.common:
            yield Synonym(*OLDER[name], ConfigSource.DEFAULT)


def setting_value(name: str, broker: Broker) -> str | None:
    """The value, as text, of a broker config that is a setting of the gateway."""
    attribute = name.replace(".", "_")
    return shown(getattr(broker, attribute)) if hasattr(broker, attribute) else None


def shown(value: object) -> str:
    """Spelled as in DescribeConfigs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
