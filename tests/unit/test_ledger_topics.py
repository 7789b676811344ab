"""What a topic may be called, and how it is found."""

import pytest

from ledger.partitions.logs import PartitionLogs, Partitions
from ledger.topics.state import Topic, Topics, check_topic_name
from ledger.types import TopicId


def topic_of(name: str, topic_id: bytes) -> Topic:
    return Topic(name, TopicId(topic_id), Partitions(TopicId(topic_id), PartitionLogs()), {}, 0)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "..a", "_", "-", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_is_taken(name: str) -> None:
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "a\n", "a:b", "٣", "a,b", "a\\b"]
)
def test_an_illegal_name_is_refused_with_its_reason(name: str) -> None:
    assert check_topic_name(name)


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [("a.b", "a_b", True), ("a.b", "a.b", False), ("a.b_c", "a_b.c", True), ("a.b", "a-b", False)],
)
def test_names_that_differ_only_in_dots_and_underscores_collide(one: str, other: str, collides: bool) -> None:
    topics = Topics()
    topics.add(topic_of(one, bytes(16)))
    assert topics.collision(other) == (one if collides else None)


def test_names_are_in_order_whatever_comes_and_goes() -> None:
    topics = Topics()
    for name in "dbeca":
        topics.add(topic_of(name, name.encode() * 16))
        assert list(topics.names) == sorted(topics.by_name)
    for name in "cad":
        topics.remove(TopicId(name.encode() * 16))
        assert list(topics.names) == sorted(topics.by_name)


def test_a_name_that_left_collides_with_none() -> None:
    topics = Topics()
    for i, name in enumerate(("a.b.c", "a_b.c", "a_b_c")):
        topics.add(topic_of(name, i.to_bytes(16, "big")))
    assert topics.collision("a.b_c") == "a.b.c"
    topics.remove(TopicId(bytes(16)))
    assert topics.collision("a.b_c") == "a_b.c"
    assert topics.collision("a_b.c") == "a_b_c"
    topics.remove(TopicId((1).to_bytes(16, "big")))
    topics.remove(TopicId((2).to_bytes(16, "big")))
    assert topics.collision("a.b_c") is None


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed() -> None:
    topics, topic = Topics(), topic_of("t", bytes(16))
    topics.add(topic)
    assert topics.by_name["t"] is topics.by_id[topic.topic_id] is topic
    assert topics.remove(topic.topic_id) is topic
    assert not topics.by_name and not topics.by_id
