"""Admin clients change topics as they change those of Apache Kafka, and a restart keeps what they did."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition

from tests.e2e.client_confluent import ConfluentClient
from tests.e2e.conftest import Endpoint
from tests.e2e.sample_records import expected, small_records
from tests.support.client import CLIENT_TIMEOUT_S, Codec, Earliest
from tests.support.client_java import SOURCES, why_no_java_client
from tests.support.kafka import kafka_classpath

ADMIN_CALLS = SOURCES / "AdminCalls.java"


@pytest.fixture
def confluent(endpoint: Endpoint) -> ConfluentClient:
    return ConfluentClient(endpoint.bootstrap)


@pytest.fixture
def admin(endpoint: Endpoint) -> AdminClient:
    return AdminClient({"bootstrap.servers": endpoint.bootstrap})


@pytest.fixture
def python_admin(endpoint: Endpoint) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=endpoint.bootstrap)
    yield client
    client.close()


def only_result(futures: dict[Any, Any]) -> Any:
    """The only result. Errors: KafkaException."""
    (future,) = futures.values()
    return future.result(CLIENT_TIMEOUT_S)


def error_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        only_result(futures)
    return int(raised.value.args[0].code())


def change(admin: AdminClient, topic: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> None:
    given = [ConfigEntry(name, value, incremental_operation=how) for name, value, how in entries]
    only_result(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=given)]
        )
    )


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    change(admin, topic, (name, value, AlterConfigOpType.SET))


def config(admin: AdminClient, topic: str, name: str) -> str:
    return str(only_result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[name].value)


def test_librdkafka_grows_a_topic(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic, 1)
    only_result(admin.create_partitions([NewPartitions(topic, 3)], validate_only=True))
    assert confluent.partition_count(topic) == 1
    only_result(admin.create_partitions([NewPartitions(topic, 3)]))
    assert confluent.partition_count(topic) == 3
    assert error_of(admin.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS
    records = small_records(30, 3)
    confluent.produce(topic, records, Codec.NONE, idempotent=True)
    assert confluent.consume(topic, [2], Earliest(), 10) == expected(records[2::3], range(10))


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_librdkafka_changes_configs(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic, 1)
    how = AlterConfigOpType
    change(admin, topic, ("retention.ms", "86400000", how.SET), ("cleanup.policy", "compact", how.APPEND))
    assert config(admin, topic, "retention.ms") == "86400000"
    assert config(admin, topic, "cleanup.policy") == "delete,compact"
    change(admin, topic, ("retention.ms", None, how.DELETE), ("cleanup.policy", "delete", how.SUBTRACT))
    assert config(admin, topic, "retention.ms") == "604800000"
    assert config(admin, topic, "cleanup.policy") == "compact"
    with pytest.raises(KafkaException) as raised:
        change(admin, topic, ("retention.ms", "soon", how.SET))
    assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG
    only_result(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"flush.ms": "7"})]))
    assert config(admin, topic, "flush.ms") == "7"
    assert config(admin, topic, "cleanup.policy") == "delete"


def test_librdkafka_deletes_records(admin: AdminClient, confluent: ConfluentClient, topic: str) -> None:
    confluent.create_topic(topic, 1)
    records = small_records(100)
    confluent.produce(topic, records, Codec.ZSTD, idempotent=True)
    assert only_result(admin.delete_records([TopicPartition(topic, 0, 60)])).low_watermark == 60
    assert confluent.consume(topic, [0], Earliest(), 40) == expected(records[60:], range(60, 100))
    beyond = admin.delete_records([TopicPartition(topic, 0, 101)])
    assert error_of(beyond) == KafkaError.OFFSET_OUT_OF_RANGE


def test_librdkafka_needs_to_elect_no_leader(
    admin: AdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, 1)
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(CLIENT_TIMEOUT_S)
    assert [error.code() for error in found.values()] == [KafkaError.ELECTION_NOT_NEEDED]


def test_kafka_python_finds_its_way(
    python_admin: KafkaAdminClient, confluent: ConfluentClient, topic: str
) -> None:
    confluent.create_topic(topic, 1)
    confluent.produce(topic, small_records(10), Codec.NONE, idempotent=True)
    python_admin.create_partitions({topic: 2})
    (described,) = python_admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    first = PythonPartition(topic, 0)
    assert python_admin.delete_records({first: 4})[first]["low_watermark"] == 4
    assert python_admin.list_partition_reassignments() == {}
    (log_dir,) = python_admin.describe_log_dirs({topic: [0, 1]})[0]["log_dirs"]
    assert log_dir["total_bytes"] > log_dir["usable_bytes"] > 0


@pytest.mark.skipif(why_no_java_client() is not None, reason=str(why_no_java_client()))
def test_the_java_admin_client_works(
    endpoint: Endpoint, confluent: ConfluentClient, topic: str, tmp_path: Path
) -> None:
    confluent.create_topic(topic, 1)
    confluent.produce(topic, small_records(3), Codec.NONE, idempotent=True)
    command = ["java", "-Xmx256m", f"-Djava.io.tmpdir={tmp_path}", "-cp", kafka_classpath(), str(ADMIN_CALLS)]
    done = subprocess.run(
        [*command, endpoint.bootstrap, topic], capture_output=True, text=True, timeout=120, check=True
    )
    responses = dict(line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    assert responses == {
        "create partitions": "null",
        "partitions": "3",
        "create fewer": "InvalidPartitionsException",
        "change configs": "null",
        "retention.ms": "86400000",
        "cleanup.policy": "delete,compact",
        "producers": "1",
        "delete records": "2",
        "log dirs": "true",
        "elect leaders": "ElectionNotNeededException",
        "reassign": "null",
        "cancel": "NoReassignmentInProgressException",
        "reassignments": "{}",
        "config resources": "true",
    }


def cleanly(endpoint: Endpoint) -> None:
    endpoint.restart()


def by_kill_9(endpoint: Endpoint) -> None:
    endpoint.kill9()
    endpoint.restart()


@pytest.mark.parametrize("restart", [cleanly, by_kill_9])
def test_partitions_configs_and_deleted_records_stay_so_over_a_restart(
    endpoint: Endpoint,
    admin: AdminClient,
    confluent: ConfluentClient,
    topic: str,
    restart: Callable[[Endpoint], None],
) -> None:
    confluent.create_topic(topic, 1)
    records = small_records(50)
    confluent.produce(topic, records, Codec.NONE, idempotent=True)
    only_result(admin.create_partitions([NewPartitions(topic, 4)]))
    set_config(admin, topic, "retention.bytes", "1000000")
    only_result(admin.delete_records([TopicPartition(topic, 0, 20)]))
    restart(endpoint)
    fresh = AdminClient({"bootstrap.servers": endpoint.bootstrap})
    assert confluent.partition_count(topic) == 4
    assert config(fresh, topic, "retention.bytes") == "1000000"
    assert confluent.consume(topic, [0], Earliest(), 30) == expected(records[20:], range(20, 50))
