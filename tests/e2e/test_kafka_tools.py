"""Kafka's own command-line tools say the same of a gateway and of Apache Kafka."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from gateway.config import load_settings
from gateway.configs.defaults import Defaults
from gateway.configs.describe import describe_broker
from gateway.handlers.api_versions import FEATURES
from gateway.router import HANDLERS
from tests.e2e.conftest import Endpoint
from tests.e2e.kafka_tools import Said, SideBySide, Tool, without_reason
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.kafka import KafkaServer
from tests.support.tool_runner import ToolRunner

FIGURE = re.compile(r"\d+(\.\d+)?")
API_ROW = re.compile(r"\t\w+\((\d+)\): .*?,?$")
FEATURE_ROW = re.compile(r"Feature: (\S+) .* (FinalizedVersionLevel: \S+)")
CONFIG_ROW = re.compile(r"  ([\w.]+)=")
OWN_CONFIGS = {
    *("advertised.listeners", "listeners", "max.connections", "node.id"),
    *("group.initial.rebalance.delay.ms", "group.max.size"),
}
"""Of the broker's configs those that are not Kafka's for a reason."""


@pytest.fixture
def both(tool_runner: ToolRunner, kafka_oracle: KafkaServer, endpoint: Endpoint) -> SideBySide:
    return SideBySide(tool_runner, kafka_oracle, endpoint)


@pytest.fixture
def tool_topic(both: SideBySide, topic: str) -> str:
    """A topic at both, of two partitions."""
    name = f"tools-{topic}"
    for target in (both.kafka, both.endpoint):
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(name, 2)])[name].result(CLIENT_TIMEOUT_S)
    return name


def send(both: SideBySide, topic: str, partition: int, timestamps: Sequence[int]) -> None:
    """One batch of 10-byte records, the same to both."""
    for target in (both.kafka, both.endpoint):
        producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 50})
        for i, timestamp in enumerate(timestamps):
            producer.produce(topic, b"%010d" % i, partition=partition, timestamp=timestamp)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0


def test_kafka_topics_creates_describes_alters_lists_and_deletes(both: SideBySide, topic: str) -> None:
    name = f"tools-{topic}"
    configs = ("--config", "retention.ms=86400000", "--config", "cleanup.policy=delete")

    def own(line: str) -> str | None:
        return line if name in line else None

    created = both.run(Tool.TOPICS, "--create", "--topic", name, "--partitions", "3", *configs)
    assert created.lines == [f"Created topic {name}."]
    again = both.run(Tool.TOPICS, "--create", "--topic", name, compared=without_reason)
    assert again.exit_code == 1 and "TopicExistsException" in again.lines[-1]
    both.run(Tool.TOPICS, "--alter", "--topic", name, "--partitions", "5")
    fewer = both.run(Tool.TOPICS, "--alter", "--topic", name, "--partitions", "2", compared=without_reason)
    assert fewer.exit_code == 1 and "InvalidPartitionsException" in fewer.lines[-1]
    described = both.run(Tool.TOPICS, "--describe", "--topic", name)
    assert len(described.lines) == 6 and "PartitionCount: 5" in described.lines[0]
    assert described.lines[0].endswith("Configs: cleanup.policy=delete,retention.ms=86400000")
    both.run(Tool.TOPICS, "--describe", "--topics-with-overrides", compared=own)
    assert both.run(Tool.TOPICS, "--list", compared=own).lines == [name]
    assert both.run(Tool.TOPICS, "--delete", "--topic", name).exit_code == 0
    assert both.run(Tool.TOPICS, "--describe", "--topic", name).exit_code == 1


def test_kafka_configs_sets_and_shows_quotas_of_clients_users_and_addresses(
    both: SideBySide, topic: str
) -> None:
    name = f"tools-{topic}"
    entities = {
        "producer_byte_rate=1048576,consumer_byte_rate=2097152": (
            "--entity-type",
            "clients",
            "--entity-name",
            name,
        ),
        "request_percentage=200.0": ("--entity-type", "users", "--entity-name", name),
        "producer_byte_rate=5000000": (
            *("--entity-type", "users", "--entity-name", name),
            *("--entity-type", "clients", "--entity-default"),
        ),
        "connection_creation_rate=500": ("--entity-type", "ips", "--entity-name", "10.9.8.7"),
    }

    # Of a user alone the tool also requests SCRAM credentials.
    of_users = {"request_percentage=200.0"}

    def own(line: str) -> str | None:
        # What is set is printed in the order of a hash table.
        return (
            " ".join(sorted(line.replace(",", " ").split())) if name in line or "10.9.8.7" in line else line
        )

    for quotas, entity in entities.items():
        assert both.run(Tool.CONFIGS, "--alter", *entity, "--add-config", quotas).exit_code == 0
        if quotas not in of_users:
            described = both.run(Tool.CONFIGS, "--describe", *entity, compared=own)
            assert any(quotas.partition(",")[0] in line for line in described.lines), described

    def own_alone(line: str) -> str | None:
        # The Kafka is shared: other tests have quotas there.
        return own(line) if name in line else None

    everyone = both.run(
        Tool.CONFIGS, "--describe", "--entity-type", "clients", compared=own_alone, ordered=False
    )
    assert any(name in line for line in everyone.lines)
    wrong = both.run(
        Tool.CONFIGS,
        *("--alter", *entities["request_percentage=200.0"], "--add-config", "producer_byte_rate=-5"),
        compared=without_reason,
    )
    assert wrong.exit_code == 1
    for quotas, entity in entities.items():
        keys = ",".join(quota.partition("=")[0] for quota in quotas.split(","))
        assert both.run(Tool.CONFIGS, "--alter", *entity, "--delete-config", keys).exit_code == 0
        if quotas not in of_users:
            both.run(Tool.CONFIGS, "--describe", *entity, compared=own)


def test_kafka_configs_describes_adds_and_deletes(both: SideBySide, tool_topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", tool_topic)
    everything = both.run(Tool.CONFIGS, "--describe", *of_topic, "--all")
    assert len(everything.lines) > 30
    changed = "max.message.bytes=2000000,retention.ms=1000000,cleanup.policy=[compact,delete]"
    both.run(Tool.CONFIGS, "--alter", *of_topic, "--add-config", changed)
    described = both.run(Tool.CONFIGS, "--describe", *of_topic)
    assert "  cleanup.policy=compact,delete sensitive=false" in described.lines[1]
    assert len(described.lines) == 4
    both.run(Tool.CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    assert len(both.run(Tool.CONFIGS, "--describe", *of_topic).lines) == 2
    wrong = both.run(
        Tool.CONFIGS, "--alter", *of_topic, "--add-config", "retention.mss=5", compared=without_reason
    )
    assert wrong.exit_code == 1 and "InvalidConfigurationException" in wrong.lines[-1]


def test_kafka_configs_describes_the_broker(both: SideBySide) -> None:
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert both.run(Tool.CONFIGS, "--describe", *of_broker).lines == ["Dynamic configs for broker 1 are:"]
    settings = load_settings({}, {})
    described = describe_broker(settings, Defaults(settings.broker))
    returned = {config.name for config in described} - OWN_CONFIGS

    def shared(line: str) -> str | None:
        row = CONFIG_ROW.match(line)
        return line if row is None or row[1] in returned else None

    assert len(both.run(Tool.CONFIGS, "--describe", *of_broker, "--all", compared=shared).lines) > 30


def test_kafka_configs_sets_defaults_of_topics_and_configs_of_groups(both: SideBySide, topic: str) -> None:
    delay = "log.segment.delete.delay.ms"
    for entity in (("--entity-default",), ("--entity-name", "1")):
        of_broker = ("--entity-type", "brokers", *entity)
        both.run(Tool.CONFIGS, "--alter", *of_broker, "--add-config", f"{delay}=70000")
        await_applied(both, of_broker, f"{delay}=70000", is_there=True)
        described = both.run(Tool.CONFIGS, "--describe", *of_broker, compared=without_replicas)
        assert any(line.startswith(f"  {delay}=70000 ") for line in described.lines)
        both.run(Tool.CONFIGS, "--alter", *of_broker, "--delete-config", delay)
        await_applied(both, of_broker, delay, is_there=False)
        assert len(both.run(Tool.CONFIGS, "--describe", *of_broker, compared=without_replicas).lines) == 1
    at_start = ("--entity-type", "brokers", "--entity-name", "1", "--add-config", "num.partitions=3")
    refused = both.run(Tool.CONFIGS, "--alter", *at_start, compared=without_reason)
    assert refused.exit_code == 1 and "InvalidRequestException" in refused.lines[-1]
    of_group = ("--entity-type", "groups", "--entity-name", f"tools-{topic}")
    both.run(Tool.CONFIGS, "--alter", *of_group, "--add-config", "consumer.session.timeout.ms=50000")
    await_applied(both, of_group, "consumer.session.timeout.ms=50000", is_there=True)
    assert "50000" in both.run(Tool.CONFIGS, "--describe", *of_group).lines[-1]


def await_applied(both: SideBySide, entity: Sequence[str], config: str, *, is_there: bool) -> None:
    def until(found: Said) -> bool:
        return any(config in line for line in found.lines) is is_there

    both.await_kafka(Tool.CONFIGS, "--describe", *entity, until=until)


def without_replicas(line: str) -> str | None:
    """A dynamic default of a new Kafka cluster (KIP-966); here it is one of the software."""
    return None if "min.insync.replicas" in line else line


def test_kafka_get_offsets_delete_records_and_log_dirs(
    both: SideBySide, tool_topic: str, tmp_path: Path
) -> None:
    send(both, tool_topic, 0, [1000, 5000, 3000])
    send(both, tool_topic, 1, [2000])

    def offsets(time: str) -> list[str]:
        found = both.run(Tool.GET_OFFSETS, "--topic", tool_topic, "--time", time)
        return [line.removeprefix(f"{tool_topic}:") for line in found.lines]

    assert offsets("latest") == ["0:3", "1:1"]
    assert offsets("max-timestamp") == ["0:1", "1:0"]
    assert offsets("2500") == ["0:1"]
    sizes = both.run(Tool.LOG_DIRS, "--describe", "--topic-list", tool_topic, compared=log_dir)
    assert len(sizes.lines) == 3 and "<dir>" in sizes.lines[-1]
    wanted = [{"topic": tool_topic, "partition": n, "offset": at} for n, at in ((0, 2), (1, -1))]
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    deleted = both.run(Tool.DELETE_RECORDS, "--offset-json-file", str(file), ordered=False)
    assert f"partition: {tool_topic}-0\tlow_watermark: 2" in deleted.lines
    assert offsets("earliest") == ["0:2", "1:1"]


def test_the_producers_and_the_console_consumer(both: SideBySide, tool_topic: str) -> None:
    both.run(Tool.TOPICS, "--create", "--topic", f"{tool_topic}-one", "--partitions", "1")
    perf = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    measured = both.run(Tool.PRODUCER_PERF, "--topic", f"{tool_topic}-one", *perf, compared=figures)
    assert "# records sent" in measured.lines[-1]
    verified = both.run(
        Tool.VERIFIABLE_PRODUCER, "--topic", f"{tool_topic}-one", "--max-messages", "5", compared=verifiable
    )
    assert any('"acked": 5' in line for line in verified.lines)
    typed = "k1:one\nk2:two\nk1:three\nk3:\n"
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    both.run(Tool.CONSOLE_PRODUCER, "--topic", tool_topic, "--compression-codec", "zstd", *keyed, stdin=typed)
    shown = [f"--formatter-property=print.{what}=true" for what in ("key", "offset", "partition", "headers")]
    place = ("--topic", tool_topic, "--partition", "1")
    read = both.run(Tool.CONSOLE_CONSUMER, *place, "--offset", "earliest", "--max-messages", "1", *shown)
    assert read.lines[-1] == "Processed a total of 1 messages"
    tail = ("--topic", f"{tool_topic}-one", "--partition", "0", "--offset", "2002", "--max-messages", "3")
    assert both.run(Tool.CONSOLE_CONSUMER, *tail).lines[:3] == ["2", "3", "4"]


def test_kafka_features_and_broker_api_versions_show_what_is_built(both: SideBySide) -> None:
    def served(line: str) -> str | None:
        row = API_ROW.match(line)
        return line.rstrip(",") if row is None or int(row[1]) in HANDLERS else None

    assert len(both.run(Tool.API_VERSIONS, compared=served).lines) == len(HANDLERS) + 2

    features = both.run(Tool.FEATURES, "describe", compared=built)
    assert "metadata.version FinalizedVersionLevel: 4.3-IV0" in features.lines
    assert len(features.lines) == len(FEATURES)


def built(line: str) -> str | None:
    row = FEATURE_ROW.match(line)
    return line if row is None else f"{row[1]} {row[2] if FEATURES.get(row[1]) else 'off'}"


def log_dir(line: str) -> str | None:
    return re.sub(r'"logDir":"[^"]*"', '"logDir":"<dir>"', line)


def figures(line: str) -> str | None:
    return FIGURE.sub("#", line)


def verifiable(line: str) -> str | None:
    said = json.loads(line)
    return json.dumps({key: said[key] for key in said if key not in ("timestamp", "avg_throughput")})


@pytest.mark.parametrize(
    "action",
    [
        ("--list",),
        ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
        ("--remove", "--force", "--topic", "t"),
    ],
    ids=lambda action: action[0],
)
def test_kafka_acls_finds_no_authorizer(both: SideBySide, action: Sequence[str]) -> None:
    said = both.run(Tool.ACLS, *action)
    assert any("SecurityDisabledException: No Authorizer is configured" in line for line in said.lines)
