"""Which topics may be created, by name, counts and assignment."""

import pytest

from gateway.topics.creation import CreationLimits, NewTopic, check_new_name, plan_topic
from gateway.wire.messages.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from ledger.partitions.logs import PartitionLogs, Partitions
from ledger.requests import Refused
from ledger.topics.state import Topic, Topics
from ledger.types import TopicId

LIMITS = CreationLimits(default_partitions=4, max_partitions=100, partitions_left=50, node_id=1)


def with_topics(*names: str) -> Topics:
    topics = Topics()
    for number, name in enumerate(names):
        topic_id = TopicId(number.to_bytes(16, "big"))
        topics.add(Topic(name, topic_id, Partitions(topic_id, PartitionLogs()), {}, 0))
    return topics


def error_of(topic: CreatableTopic) -> str:
    planned = plan_topic(topic, LIMITS)
    return planned.error if isinstance(planned, Refused) else "NONE"


def assigned(*replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(index, brokers) for index, brokers in replicas]
    return CreatableTopic("t", partitions, factor, assignments)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
def test_an_illegal_name_is_refused(name: str) -> None:
    refused = check_new_name(name, Topics())
    assert refused is not None and refused.error == "INVALID_TOPIC_EXCEPTION"


def test_a_name_that_differs_from_another_only_in_dots_and_underscores_is_refused() -> None:
    refused = check_new_name("a_b", with_topics("a.b"))
    assert refused is not None and "a.b" in refused.message
    assert check_new_name("a_b", with_topics("a_b", "ab")) is None


def test_the_journals_name_is_refused() -> None:
    refused = check_new_name("__cluster_metadata", Topics())
    assert refused is not None and refused.error == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (1, 1, "NONE"),
        (-1, -1, "NONE"),
        (1, 3, "NONE"),
        (0, 1, "INVALID_PARTITIONS"),
        (-2, 1, "INVALID_PARTITIONS"),
        (1, 0, "INVALID_REPLICATION_FACTOR"),
        (1, -2, "INVALID_REPLICATION_FACTOR"),
        (50, 1, "NONE"),
        (51, 1, "POLICY_VIOLATION"),
        (101, 1, "POLICY_VIOLATION"),
        (2**31 - 1, 1, "POLICY_VIOLATION"),
    ],
)
def test_counts_are_checked_as_kafka_checks_them(partitions: int, factor: int, error: str) -> None:
    assert error_of(CreatableTopic("t", partitions, factor)) == error


def test_minus_one_partition_is_the_default() -> None:
    assert plan_topic(CreatableTopic("t", -1, -1), LIMITS) == NewTopic("t", 4, {})


def test_an_assignment_to_this_gateway_gives_the_number_of_partitions() -> None:
    assert plan_topic(assigned((1, [1]), (0, [1])), LIMITS) == NewTopic("t", 2, {})


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (assigned((1, [1])), "INVALID_REPLICA_ASSIGNMENT"),
        (assigned((0, [2])), "INVALID_REPLICA_ASSIGNMENT"),
        (assigned((0, [1, 1])), "INVALID_REPLICA_ASSIGNMENT"),
        (assigned((0, [])), "INVALID_REPLICA_ASSIGNMENT"),
        (assigned((0, [1]), (0, [1])), "INVALID_REPLICA_ASSIGNMENT"),
        (assigned((0, [1]), partitions=1), "INVALID_REQUEST"),
        (assigned((0, [1]), factor=1), "INVALID_REQUEST"),
    ],
)
def test_an_assignment_that_is_not_possible_is_refused(topic: CreatableTopic, error: str) -> None:
    assert error_of(topic) == error


def test_a_bad_config_is_refused() -> None:
    topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("retention.ms", "x")])
    assert error_of(topic) == "INVALID_CONFIG"
