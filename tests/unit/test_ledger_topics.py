"""What a topic may be called, and how it is found."""

import pytest

from ledger.topics import Topic, Topics, check_topic_name, collides
from ledger.types import TopicId


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "..a", "_", "-", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_is_taken(name: str) -> None:
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "a\n", "a:b", "٣", "a,b", "a\\b"]
)
def test_an_illegal_name_is_refused_with_its_reason(name: str) -> None:
    assert check_topic_name(name)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("a.b", "a_b", True), ("a.b", "a.b", True), ("a.b_c", "a_b.c", True), ("a.b", "a-b", False)],
)
def test_names_that_differ_only_in_dots_and_underscores_collide(one: str, other: str, same: bool) -> None:
    assert collides(one, other) is same


def test_a_topic_is_found_by_name_and_by_id_until_it_is_removed() -> None:
    topics, topic = Topics(), Topic("t", TopicId(bytes(16)), [], {}, 0)
    topics.add(topic)
    assert topics.by_name["t"] is topics.by_id[topic.topic_id] is topic
    assert topics.remove(topic.topic_id) is topic
    assert not topics.by_name and not topics.by_id
