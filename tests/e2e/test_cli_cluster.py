"""`dragoman cluster`, `quotas`, and sizes and trimming of topics, against a gateway and, with
DRAGOMAN_TEST_TARGET=kafka, Kafka."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from gateway.cli.quotas import QUOTAS
from tests.e2e.conftest import Endpoint
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.command import run_here as run
from tests.support.gateway import Gateway
from tests.support.ports import free_ports


def json_of(endpoint: Endpoint, *arguments: str) -> Any:
    done = run(endpoint, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def filled(endpoint: Endpoint, topic: str, partitions: int = 2, records: int = 10) -> None:
    assert run(endpoint, "topics", "create", topic, "-p", str(partitions)).returncode == 0
    producer = Producer({"bootstrap.servers": endpoint.bootstrap, "linger.ms": 0})
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def test_info_names_the_cluster_its_brokers_and_counts_topics(endpoint: Endpoint, topic: str) -> None:
    before = json_of(endpoint, "cluster", "info")
    filled(endpoint, topic, partitions=3)
    after = json_of(endpoint, "cluster", "info")
    assert len(after["cluster_id"]) == 22 and after["cluster_id"] == before["cluster_id"]
    assert after["brokers"] == [
        {"broker": 1, "address": endpoint.bootstrap, "rack": None, "is_controller": True}
    ]
    assert (after["topics"], after["partitions"]) == (before["topics"] + 1, before["partitions"] + 3)
    shown = run(endpoint, "cluster", "info").stdout
    assert after["cluster_id"] in shown and endpoint.bootstrap in shown


def test_a_healthy_endpoint_has_no_findings(endpoint: Endpoint) -> None:
    done = run(endpoint, "cluster", "health", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["is_healthy"] and found["findings"] == []
    assert found["brokers"][0]["response_ms"] > 0


@pytest.fixture
def broker_default(endpoint: Endpoint) -> Iterator[str]:
    """A config that is not set for all brokers, also afterwards."""
    yield "log.retention.ms"
    run(endpoint, "cluster", "configs", "--unset", "log.retention.ms")


def test_defaults_of_all_brokers_are_set_shown_and_unset(endpoint: Endpoint, broker_default: str) -> None:
    def shown() -> dict[str, tuple[str, str]]:
        configs = json_of(endpoint, "cluster", "configs")["configs"]
        return {line["config"]: (line["value"], line["source"]) for line in configs}

    assert broker_default not in shown()
    changed = json_of(endpoint, "cluster", "configs", "--set", f"{broker_default}=86400000")
    assert changed == {"broker": None, "set": [broker_default], "unset": []}
    assert shown()[broker_default] == ("86400000", "all brokers")
    table = run(endpoint, "cluster", "configs").stdout
    assert [line.split()[:2] for line in table.splitlines() if broker_default in line] == [
        [broker_default, "86400000"]
    ]
    assert run(endpoint, "cluster", "configs", "--unset", broker_default).returncode == 0
    assert broker_default not in shown()
    everything = json_of(endpoint, "cluster", "configs", "--all", "--broker", "1")["configs"]
    assert "num.partitions" in [line["config"] for line in everything]


def test_a_broker_that_does_not_exist_is_refused_by_name(endpoint: Endpoint) -> None:
    done = run(endpoint, "cluster", "configs", "--broker", "77")
    assert done.returncode == 1 and "there is no broker 77; there are 1" in done.stderr


def test_a_config_that_does_not_exist_is_not_set(endpoint: Endpoint) -> None:
    done = run(endpoint, "cluster", "configs", "--set", "log.retention.ms=soon")
    assert done.returncode == 1 and "stay as they are" in done.stderr


def test_quotas_are_set_listed_and_unset(endpoint: Endpoint, topic: str) -> None:
    client = ("--client-id", topic)
    set_ = json_of(
        endpoint, "quotas", "set", "producer_byte_rate=1048576", "request_percentage=12.5", *client
    )
    quotas = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
    assert set_ == {"entity": {"client-id": topic}, "set": quotas, "unset": []}
    assert json_of(endpoint, "quotas", "list", *client) == [
        {"entity": {"client-id": topic}, "quotas": quotas}
    ]
    assert f"client-id {topic}  producer_byte_rate  1048576" in run(endpoint, "quotas", "list").stdout
    assert run(endpoint, "quotas", "unset", *quotas, *client).returncode == 0
    assert json_of(endpoint, "quotas", "list", *client) == []


def test_a_quota_that_is_not_set_is_unset_without_effect_and_that_is_said(
    endpoint: Endpoint, topic: str
) -> None:
    client = ("--client-id", topic)
    done = run(endpoint, "quotas", "unset", "consumer_byte_rate", *client)
    assert done.returncode == 0 and "Changed" not in done.stderr
    assert f"There is no quota consumer_byte_rate of client-id {topic}, so to unset it has no effect." in (
        done.stderr
    )
    assert run(endpoint, "quotas", "set", "producer_byte_rate=1", *client).returncode == 0
    both = run(endpoint, "quotas", "unset", "consumer_byte_rate", "producer_byte_rate", *client)
    assert "no effect" in both.stderr and f"Changed the quotas of client-id {topic}." in both.stderr


def test_defaults_and_pairs_of_user_and_client_id_are_entities_of_their_own(
    endpoint: Endpoint, topic: str
) -> None:
    pair = ("--default-user", "--client-id", topic)
    assert run(endpoint, "quotas", "set", "consumer_byte_rate=5e6", *pair).returncode == 0
    (line,) = json_of(endpoint, "quotas", "list", *pair)
    assert line == {"entity": {"user": None, "client-id": topic}, "quotas": {"consumer_byte_rate": 5e6}}
    assert json_of(endpoint, "quotas", "list", "--user", "alice") == []
    assert run(endpoint, "quotas", "unset", "consumer_byte_rate", *pair).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["set", "producer_byte_rate=1"], "say whose quota"),
        (["set", "producer_rate=1", "--user", "a"], f"expected one of {', '.join(QUOTAS)}"),
        (["set", "producer_byte_rate=much", "--user", "a"], "expected a number"),
        (["set", "request_percentage=nan", "--user", "a"], "expected a number"),
        (["set", "producer_byte_rate=1", "--user", "a", "--default-user"], "give one of them"),
        (["set", "producer_byte_rate=1", "--ip", "::1", "--user", "a"], "give --ip alone"),
        (["set", "producer_byte_rate=1", "--ip", "10.0.0.1"], "only connection_creation_rate"),
        (["unset", "producer_byte_rate", "--default-ip"], "only connection_creation_rate"),
        (["set", "connection_creation_rate=1", "--user", "a"], "give --ip or --default-ip"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_before_it_is_sent(
    endpoint: Endpoint, arguments: list[str], complaint: str
) -> None:
    done = run(endpoint, "quotas", *arguments)
    assert done.returncode == 2 and complaint in done.stderr


def test_sizes_of_topics_are_their_offsets_and_bytes(endpoint: Endpoint, topic: str) -> None:
    filled(endpoint, topic, records=10)
    listed = {line["topic"]: line for line in json_of(endpoint, "topics", "list", "--sizes")}
    assert listed[topic]["name"] == topic
    assert listed[topic]["offsets"] == 10
    # One batch or more with ten records of one byte.
    assert 61 + 10 * 7 <= listed[topic]["bytes"] < 10 * (61 + 9)
    plain = {line["name"]: line for line in json_of(endpoint, "topics", "list")}
    assert plain[topic]["offsets"] is None and plain[topic]["bytes"] is None


def test_trim_deletes_the_records_before_an_offset_once_it_is_executed(
    endpoint: Endpoint, topic: str
) -> None:
    filled(endpoint, topic)
    trim = ("topics", "trim", topic, "--before", "-4")
    planned = json_of(endpoint, *trim)
    assert not planned["executed"]
    assert planned["partitions"] == [
        {"partition": 0, "log_start": 0, "new_log_start": 6, "high_watermark": 10},
        {"partition": 1, "log_start": 0, "new_log_start": 0, "high_watermark": 0},
    ]
    assert run(endpoint, "consume", topic, "--to-end", "--count", "1").stdout == "0\n"
    done = run(endpoint, *trim, "--execute")
    assert done.returncode == 0 and f"Deleted 6 offsets of {topic}." in done.stderr
    assert run(endpoint, "consume", topic, "--to-end").stdout.split() == ["6", "7", "8", "9"]
    again = json_of(endpoint, *trim, "--execute")
    assert not again["executed"], "there was nothing left to delete"


def test_trim_keeps_to_the_partitions_that_are_named(endpoint: Endpoint, topic: str) -> None:
    filled(endpoint, topic)
    done = run(endpoint, "topics", "trim", topic, "--before", "latest", "-p", "1", "--execute")
    assert done.returncode == 0 and "no records before" in done.stderr
    assert len(run(endpoint, "consume", topic, "--to-end").stdout.split()) == 10
    wrong = run(endpoint, "topics", "trim", topic, "--before", "latest", "-p", "2")
    assert wrong.returncode == 2 and "partitions 0 to 1" in wrong.stderr


def test_health_counts_an_advertised_address_that_does_not_respond_and_what_readyz_says(
    tmp_path: object, gateway_factory: Any
) -> None:
    (closed,) = free_ports(1)
    gateway: Gateway = gateway_factory(["--advertise", f"127.0.0.1:{closed}"])
    gateway.start()
    done = run(gateway, "cluster", "health", "--json", "--admin", gateway.admin.address)
    found = json.loads(done.stdout)
    assert done.returncode == 3 and not found["is_healthy"]
    assert found["findings"] == [f"broker 1 does not respond at its advertised address 127.0.0.1:{closed}"]
    assert (found["transactions"], found["warnings"]) == (None, [])
    wrong = run(gateway, "cluster", "health", "--admin", gateway.bootstrap)
    assert wrong.returncode == 1 and "the admin address" in wrong.stderr
