"""Topics by name and by id, and what a topic may be called."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.partitions import PartitionLog
from ledger.types import TopicId

MAX_NAME_LENGTH = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own, into which clients do not write; of a gateway their contents are in the journal."""
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(slots=True)
class Topic:
    """A live topic; `configs` holds only what was set."""

    name: str
    topic_id: TopicId
    partitions: list[PartitionLog]
    configs: Mapping[str, str]
    created_ms: int


@dataclass(slots=True)
class Topics:
    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[TopicId, Topic] = field(default_factory=dict)

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic

    def remove(self, topic_id: TopicId) -> Topic:
        topic = self.by_id.pop(topic_id)
        del self.by_name[topic.name]
        return topic


def check_topic_name(name: str) -> str | None:
    """Why a name is not legal, or None (Kafka's rule: 1 to 249 of [a-zA-Z0-9._-], neither "." nor "..")."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name has {len(name)} characters; {MAX_NAME_LENGTH} are the most"
    if not _LEGAL.issuperset(name):
        return f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def collides(name: str, other: str) -> bool:
    """Kafka's rule for metric names: names that differ only in '.' and '_' collide."""
    return name.replace(".", "_") == other.replace(".", "_")
