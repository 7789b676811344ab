"""The configs of topics and of the gateway as DescribeConfigs tells them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.config import SETTINGS, Broker, Settings
from gateway.topics.configs import TOPIC_CONFIGS, ConfigSource, ConfigType, TopicConfig


@dataclass(frozen=True, slots=True)
class Synonym:
    """A place where the value could come from, the strongest first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class TopicValue:
    """A topic config's value in force, and where it comes from."""

    config: TopicConfig
    value: str
    source: ConfigSource
    synonyms: Sequence[Synonym]


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """A config of the gateway under Kafka's name. It is changed by a restart only."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    doc: str
    synonyms: Sequence[Synonym]


def describe_topic(configs: Mapping[str, str], broker: Broker) -> list[TopicValue]:
    """Every topic config, by name."""
    return [_topic_value(config, configs, broker) for config in TOPIC_CONFIGS.values()]


def topic_value(name: str, configs: Mapping[str, str], broker: Broker) -> str:
    """The value of one topic config in force."""
    return _topic_value(TOPIC_CONFIGS[name], configs, broker).value


def describe_broker(settings: Settings) -> list[BrokerValue]:
    """The gateway's configs under Kafka's names: its own, those that follow from its limits, and the
    defaults that topics have."""
    values: dict[str, BrokerValue] = {}
    for config in TOPIC_CONFIGS.values():
        if config.synonym is not None:
            itself = (Synonym(config.synonym, config.default, ConfigSource.DEFAULT),)
            values[config.synonym] = BrokerValue(
                config.synonym, config.default, config.type, ConfigSource.DEFAULT, config.doc, itself
            )
    for name, (value, default, doc) in (_own(settings) | _limits(settings)).items():
        values[name] = _broker_value(name, value, default, doc)
    return [values[name] for name in sorted(values)]


def _topic_value(config: TopicConfig, configs: Mapping[str, str], broker: Broker) -> TopicValue:
    synonyms = []
    if config.name in configs:
        synonyms.append(Synonym(config.name, configs[config.name], ConfigSource.TOPIC))
    if config.synonym is not None:
        given = _given(config.synonym, broker)
        if given is not None and given != config.default:
            synonyms.append(Synonym(config.synonym, given, ConfigSource.STATIC_BROKER))
        synonyms.append(Synonym(config.synonym, config.default, ConfigSource.DEFAULT))
    if not synonyms:
        return TopicValue(config, config.default, ConfigSource.DEFAULT, ())
    first = synonyms[0]
    return TopicValue(config, first.value or "", first.source, tuple(synonyms))


def _given(name: str, broker: Broker) -> str | None:
    attribute = name.replace(".", "_")
    return _text(getattr(broker, attribute)) if hasattr(broker, attribute) else None


def _own(settings: Settings) -> dict[str, tuple[object, object, str]]:
    defaults = Broker()
    return {
        entry.encode_name: (
            getattr(settings.broker, entry.name),
            getattr(defaults, entry.name),
            SETTINGS[f"broker.{entry.encode_name}"].doc,
        )
        for entry in msgspec.structs.fields(Broker)
    }


def _limits(settings: Settings) -> dict[str, tuple[object, object, str]]:
    """Settings of other sections that Kafka has a name for."""
    standard = Settings()
    pairs = {
        "socket.request.max.bytes": "limits.frame_bytes",
        "connections.max.idle.ms": "limits.idle_ms",
        "max.connections": "limits.connections",
        "max.incremental.fetch.session.cache.slots": "limits.fetch_sessions",
        "listeners": "listeners.listen",
        "advertised.listeners": "listeners.advertise",
    }
    found = {}
    for kafka_name, name in pairs.items():
        section, key = name.split(".")
        value = getattr(getattr(settings, section), key)
        found[kafka_name] = (value, getattr(getattr(standard, section), key), SETTINGS[name].doc)
    found["default.replication.factor"] = (1, 1, "There is no replication; any factor is accepted.")
    return found


def _broker_value(name: str, value: object, default: object, doc: str) -> BrokerValue:
    source = ConfigSource.DEFAULT if value == default else ConfigSource.STATIC_BROKER
    text = _text(value)
    synonyms = [Synonym(name, _text(default), ConfigSource.DEFAULT)]
    if source is ConfigSource.STATIC_BROKER:
        synonyms.insert(0, Synonym(name, text, source))
    return BrokerValue(name, text, _type_of(value), source, doc, tuple(synonyms))


def _type_of(value: object) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.LONG if value > 2**31 - 1 else ConfigType.INT
    return ConfigType.LIST if isinstance(value, tuple) else ConfigType.STRING


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
