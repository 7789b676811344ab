"""Topic configs: which values are accepted, how they are normalized and described."""

import pytest

from gateway.configs.defaults import Defaults
from gateway.configs.describe import describe_broker, describe_topic, topic_value
from gateway.configs.topic_configs import TOPIC_CONFIGS, BadValue, ConfigSource, check_configs
from gateway.settings import Broker, Settings


def test_every_default_is_accepted_and_normalized() -> None:
    for config in TOPIC_CONFIGS.values():
        assert config.parse(config.default) == config.default


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("retention.ms", " 100 ", "100"),
        ("flush.ms", "+5", "5"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", "", ""),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("compression.gzip.level", "-1", "-1"),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "0:1, 1:1", "0:1,1:1"),
        ("remote.storage.enable", "false", "false"),
        ("retention.bytes", "-5", "-5"),
    ],
)
def test_a_value_is_normalized_as_kafka_describes_it(name: str, given: str, kept: str) -> None:
    assert check_configs({name: given}) == {name: kept}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.0"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 10_000),
        ("max.message.bytes", str(2**31)),
        ("segment.bytes", "1048575"),
        ("cleanup.policy", "Compact"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("min.insync.replicas", "0"),
        ("message.timestamp.type", "logappendtime"),
        ("leader.replication.throttled.replicas", "foo"),
        ("remote.storage.enable", "true"),
        ("unknown.thing", "1"),
        ("message.format.version", "3.0"),
        ("", "x"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadValue) as refusal:
        check_configs({name: value})
    assert name in str(refusal.value)
    assert len(str(refusal.value)) < 1000


def test_a_null_value_is_refused() -> None:
    with pytest.raises(BadValue, match=r"retention\.ms cannot be null"):
        check_configs({"retention.ms": None})


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadValue, match="more than"):
        check_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_a_topics_own_value_takes_precedence_over_the_gateways_and_the_default() -> None:
    broker = Broker(message_max_bytes=500)
    own = {
        value.config.name: value for value in describe_topic({"max.message.bytes": "400"}, Defaults(broker))
    }
    value = own["max.message.bytes"]
    assert (value.value, value.source) == ("400", ConfigSource.TOPIC)
    assert [(s.name, s.value) for s in value.synonyms] == [
        ("max.message.bytes", "400"),
        ("message.max.bytes", "500"),
        ("message.max.bytes", "1048588"),
    ]
    assert topic_value("max.message.bytes", {}, Defaults(broker)) == "500"
    assert topic_value("max.message.bytes", {}, Defaults(Broker())) == "1048588"


def test_the_gateway_describes_its_settings_under_kafkas_names() -> None:
    settings = Settings(broker=Broker(num_partitions=7))
    described = {value.name: value for value in describe_broker(settings, Defaults(settings.broker))}
    partitions = described["num.partitions"]
    assert (partitions.value, partitions.source) == ("7", ConfigSource.STATIC_BROKER)
    assert described["socket.request.max.bytes"].value == str(settings.limits.frame_bytes)
    assert described["log.cleanup.policy"].value == "delete"
