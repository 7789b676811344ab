"""Metrics by topic, partition and group: what an operator reads in a scrape of a running gateway."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.process.test_admin_pages import WAIT_S, page, samples
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.prometheus import check_metrics
from tests.support.topics import create_topics, delete_topics

RECORDS = 150


@pytest.fixture
def gateway(gateway_factory: GatewayFactory) -> Gateway:
    started = gateway_factory(
        ["--set", "metrics.topics=true", "--set", "groups.group.initial.rebalance.delay.ms=0"]
    )
    started.start()
    return started


def produce(gateway: Gateway, topic: str, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for _ in range(count):
        producer.produce(topic, bytes(100), partition=0)
    assert producer.flush(WAIT_S) == 0


def consumer(gateway: Gateway, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def commit(gateway: Gateway, group: str, topic: str, offset: int) -> None:
    committing = consumer(gateway, group)
    try:
        committing.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        committing.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3 * WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_group_100_records_behind_has_a_lag_of_100(gateway: Gateway) -> None:
    create_topics(gateway.bootstrap, {"orders": 2})
    produce(gateway, "orders")
    commit(gateway, "billing", "orders", RECORDS - 100)
    found = samples(gateway)
    labels = '{group="billing",topic="orders",partition="0"}'
    assert found[f"dragoman_group_lag_records{labels}"] == 100
    assert found[f"dragoman_group_committed_offset{labels}"] == RECORDS - 100
    assert found['dragoman_partition_log_end_offset{topic="orders",partition="0"}'] == RECORDS
    assert found['dragoman_partition_log_end_offset{topic="orders",partition="1"}'] == 0
    produce(gateway, "orders", 10)
    assert samples(gateway)[f"dragoman_group_lag_records{labels}"] == 110
    commit(gateway, "billing", "orders", RECORDS + 10)
    assert samples(gateway)[f"dragoman_group_lag_records{labels}"] == 0


def test_records_and_bytes_are_counted_by_topic_in_and_out(gateway: Gateway) -> None:
    create_topics(gateway.bootstrap, {"orders": 1, "quiet": 1})
    produce(gateway, "orders")
    reader = consumer(gateway, "never-joined")
    try:
        reader.assign([TopicPartition("orders", 0, 0)])
        assert len(reader.consume(RECORDS, WAIT_S)) == RECORDS
    finally:
        reader.close()
    found = samples(gateway)
    for direction in ("produce", "fetch"):
        assert found[f"dragoman_{direction}_records_total"] >= RECORDS
        assert found[f'dragoman_topic_{direction}_records_total{{topic="orders"}}'] >= RECORDS
        assert found[f'dragoman_topic_{direction}_bytes_total{{topic="orders"}}'] > RECORDS * 100
        assert found[f'dragoman_topic_{direction}_bytes_total{{topic="quiet"}}'] == 0
    assert found["dragoman_produce_records_total"] == RECORDS
    stored = found['dragoman_partition_bytes{topic="orders",partition="0"}']
    assert stored == found["dragoman_produce_bytes_total"] == found["dragoman_live_bytes"]
    delete_topics(gateway.bootstrap, ["orders"])
    assert not [name for name in samples(gateway) if 'topic="orders"' in name]


def test_a_group_shows_its_members_and_each_rebalance_with_its_reason(gateway: Gateway) -> None:
    create_topics(gateway.bootstrap, {"orders": 2})
    joined, left = (f'dragoman_rebalances_total{{reason="member_{how}"}}' for how in ("joined", "left"))
    assert samples(gateway)[joined] == samples(gateway)[left] == 0
    members = [consumer(gateway, "billing") for _ in range(2)]
    try:
        for member in members:
            member.subscribe(["orders"])
        wait_for(lambda: all(member.poll(0.1) is None and member.assignment() for member in members))
        found = samples(gateway)
        assert found['dragoman_group_size{group="billing"}'] == 2
        assert found['dragoman_groups_by_state{state="Stable"}'] == 1
        assert found[joined] >= 1 and found[left] == 0
        generation = found['dragoman_group_generation{group="billing"}']
        members.pop().close()
        wait_for(lambda: members[0].poll(0.1) is None and len(members[0].assignment()) == 2)
        found = samples(gateway)
        assert found['dragoman_group_size{group="billing"}'] == found[left] == 1
        assert found['dragoman_group_generation{group="billing"}'] > generation
    finally:
        for member in members:
            member.close()


def test_a_scrape_is_clean_whatever_clients_choose_as_names(gateway: Gateway) -> None:
    create_topics(gateway.bootstrap, {"with.dots_and-dashes": 1})
    produce(gateway, "with.dots_and-dashes", 1)
    odd = 'a "quoted\\name"', "новая группа"
    hidden = "two\nlines", "null\x01byte", "x" * 250
    for group in (*odd, *hidden):
        commit(gateway, group, "with.dots_and-dashes", 1)
    status, text = page(gateway, "/metrics")
    assert status == 200
    check_metrics(text)
    assert 'group="a \\"quoted\\\\name\\""' in text and 'group="новая группа"' in text
    assert samples(gateway)['dragoman_series_left_out{kind="group"}'] == len(hidden)
