"""Transactions of real clients: readers of what is committed see that and nothing else."""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.conftest import Endpoint
from tests.e2e.transactional import (
    LIBRARIES,
    Transactor,
    fill,
    numbered,
    read_until_end,
    running_server,
    running_transactor,
    why_no_transactor,
)
from tests.support.client import CLIENT_TIMEOUT_S
from tests.support.topics import create_topics

PARTITIONS: Final = 2
COPIED: Final = 60
BATCH, ABORT_EVERY = 7, 3
FENCED: Final[Mapping[str, tuple[str, ...]]] = {
    "confluent": ("_FENCED",),
    "kafka-python": ("ProducerFencedError",),
    "aiokafka": ("ProducerFenced",),
    "java": ("ProducerFencedException", "InvalidProducerEpochException"),
    "java-3.9": ("ProducerFencedException", "InvalidProducerEpochException"),
    "sarama": ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    "franz-go": ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    "kafkajs": ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
}
"""What each library calls the end of a producer whose transactional id another one has taken."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def started(
    server: Endpoint, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Transactor]:
    reason = why_no_transactor(request.param)
    if reason is not None:
        pytest.skip(reason)
    with running_transactor(request.param, server, tmp_path_factory.mktemp("transactors")) as transactor:
        yield transactor


@pytest.fixture
def topic(server: Endpoint, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[-100:]
    create_topics(server.bootstrap, {name: PARTITIONS})
    return name


@pytest.mark.parametrize("started", LIBRARIES, indirect=True)
def test_readers_of_what_is_committed_see_no_record_of_an_aborted_transaction(
    started: Transactor, topic: str
) -> None:
    started.init("producer", topic)
    started.transact("producer", topic, ["a", "b"], ["c"])
    started.transact("producer", topic, ["lost"], ["lost too"], commit=False)
    started.transact("producer", topic, ["d"])
    started.transact("producer", topic, ["end"], ["end"])
    assert started.read(topic, PARTITIONS) == [["a", "b", "d", "end"], ["c", "end"]]
    uncommitted = started.read(topic, PARTITIONS, committed=False)
    assert uncommitted == [["a", "b", "lost", "d", "end"], ["c", "lost too", "end"]]


@pytest.mark.parametrize(
    ("library", "started"), [(name, name) for name in LIBRARIES], ids=LIBRARIES, indirect=["started"]
)
def test_a_producer_whose_id_another_one_has_taken_is_fenced(
    started: Transactor, topic: str, library: str
) -> None:
    started.init("first", topic)
    started.begin("first")
    started.send("first", topic, ["of the first"])
    started.init("second", topic)
    started.transact("second", topic, ["of the second"])
    with pytest.raises(RuntimeError) as fenced:
        started.end("first", commit=True)
    assert str(fenced.value).partition(":")[0] in FENCED[library]
    started.transact("second", topic, ["end"], ["end"])
    assert started.read(topic, PARTITIONS) == [["of the second", "end"], ["end"]]


@pytest.mark.parametrize("started", LIBRARIES, indirect=True)
def test_what_is_consumed_transformed_and_produced_in_transactions_is_there_once(
    server: Endpoint, started: Transactor, topic: str
) -> None:
    source = numbered(COPIED, PARTITIONS)
    target = f"{topic}-copy"
    create_topics(server.bootstrap, {target: PARTITIONS})
    fill(server, topic, *source)
    started.start_copying(topic, target, PARTITIONS, BATCH, ABORT_EVERY)
    started.end_copying()
    assert read_until_end(server, target, PARTITIONS, committed=True) == source
    uncommitted = read_until_end(server, target, PARTITIONS, committed=False)
    assert sum(map(len, uncommitted)) > sum(map(len, source)), "no transaction was aborted"
    assert consumed(server, f"copier-{topic}", topic) == [len(values) for values in source]


def consumed(server: Endpoint, group: str, topic: str) -> list[int]:
    """The offset that the group has committed in each partition."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
    return [place.offset for place in found.result(CLIENT_TIMEOUT_S).topic_partitions]
