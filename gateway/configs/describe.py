"""The configs of topics and of the gateway as DescribeConfigs returns them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.config import SETTINGS
from gateway.configs.defaults import DYNAMIC, Defaults, Synonym, shown
from gateway.configs.topic_configs import TOPIC_CONFIGS, ConfigSource, ConfigType, TopicConfig
from gateway.settings import Broker, Groups, Settings, Transactions


@dataclass(frozen=True, slots=True)
class TopicValue:
    """A topic config's effective value, and where it comes from."""

    config: TopicConfig
    value: str
    source: ConfigSource
    synonyms: Sequence[Synonym]


@dataclass(frozen=True, slots=True)
class BrokerValue:
    """A config of the gateway under Kafka's name. One that is not dynamic needs a restart to change."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    doc: str
    synonyms: Sequence[Synonym]
    is_dynamic: bool = False


def describe_topic(configs: Mapping[str, str], defaults: Defaults) -> list[TopicValue]:
    """Every topic config, by name."""
    return [_topic_value(config, configs, defaults) for config in TOPIC_CONFIGS.values()]


def topic_value(name: str, configs: Mapping[str, str], defaults: Defaults) -> str:
    """The effective value of one topic config."""
    return _topic_value(TOPIC_CONFIGS[name], configs, defaults).value


def describe_broker(settings: Settings, defaults: Defaults) -> list[BrokerValue]:
    """The gateway's configs under Kafka's names: its own, those that follow from its limits, and the
    defaults that topics have."""
    values = {
        name: _broker_value(name, value, default, doc)
        for name, (value, default, doc) in (_own(settings) | _limits(settings)).items()
    }
    for name, config in DYNAMIC.items():
        values[name] = _dynamic_value(name, config, defaults.of(config))
    return [values[name] for name in sorted(values)]


def describe_common(defaults: Defaults) -> list[BrokerValue]:
    """The configs that are set for all brokers while they run."""
    found = []
    for name, value in sorted(defaults.common.items()):
        synonyms = [Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT)]
        found.append(_dynamic_value(name, DYNAMIC[name], synonyms))
    return found


def _dynamic_value(name: str, config: TopicConfig, synonyms: Sequence[Synonym]) -> BrokerValue:
    if not synonyms:
        return BrokerValue(name, None, config.type, ConfigSource.DEFAULT, config.doc, (), True)
    first = synonyms[0]
    return BrokerValue(name, first.value, config.type, first.source, config.doc, synonyms, True)


def _topic_value(config: TopicConfig, configs: Mapping[str, str], defaults: Defaults) -> TopicValue:
    synonyms = defaults.of(config)
    if config.name in configs:
        synonyms.insert(0, Synonym(config.name, configs[config.name], ConfigSource.TOPIC))
    if not synonyms:
        return TopicValue(config, config.default, ConfigSource.DEFAULT, ())
    first = synonyms[0]
    return TopicValue(config, first.value or "", first.source, tuple(synonyms))


def _own(settings: Settings) -> dict[str, tuple[object, object, str]]:
    """The sections whose settings have Kafka's names."""
    return (
        _section("broker", settings.broker, Broker())
        | _section("groups", settings.groups, Groups())
        | _section("transactions", settings.transactions, Transactions())
    )


def _section(
    name: str, section: Broker | Groups | Transactions, standard: Broker | Groups | Transactions
) -> dict[str, tuple[object, object, str]]:
    return {
        entry.encode_name: (
            getattr(section, entry.name),
            getattr(standard, entry.name),
            SETTINGS[f"{name}.{entry.encode_name}"].doc,
        )
        for entry in msgspec.structs.fields(type(section))
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
    text = shown(value)
    synonyms = [Synonym(name, shown(default), ConfigSource.DEFAULT)]
    if source is ConfigSource.STATIC_BROKER:
        synonyms.insert(0, Synonym(name, text, source))
    return BrokerValue(name, text, _type_of(value), source, doc, tuple(synonyms))


def _type_of(value: object) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.LONG if value > 2**31 - 1 else ConfigType.INT
    return ConfigType.LIST if isinstance(value, tuple) else ConfigType.STRING
