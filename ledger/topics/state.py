"""Topics by name and by id, and what a topic may be called."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.partitions.logs import Partitions
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
    partitions: Partitions
    configs: Mapping[str, str]
    created_ms: int


@dataclass(slots=True)
class Topics:
    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[TopicId, Topic] = field(default_factory=dict)
    version: int = field(default=0, compare=False)
    """Grows whenever a topic comes, goes, or grows."""
    _by_metric_name: dict[str, list[str]] = field(default_factory=dict, compare=False)
    """Names with '.' or '_', which alone may collide: by what metrics would call them."""

    _names: list[str] | None = field(default=None, compare=False)
    """All in order, once they were requested for the first time."""

    @property
    def names(self) -> Sequence[str]:
        """All, in order."""
        if self._names is None:
            self._names = sorted(self.by_name)
        return self._names

    def add(self, topic: Topic) -> None:
        if self._names is not None and topic.name not in self.by_name:
            insort(self._names, topic.name)
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self.version += 1
        if may_collide(topic.name):
            self._by_metric_name.setdefault(_metric_name(topic.name), []).append(topic.name)

    def remove(self, topic_id: TopicId) -> Topic:
        topic = self.by_id.pop(topic_id)
        del self.by_name[topic.name]
        if self._names is not None:
            del self._names[bisect_left(self._names, topic.name)]
        self.version += 1
        if may_collide(topic.name):
            key = _metric_name(topic.name)
            self._by_metric_name[key].remove(topic.name)
            if not self._by_metric_name[key]:
                del self._by_metric_name[key]
        return topic

    def collision(self, name: str) -> str | None:
        """Another topic whose name differs from this one in '.' and '_' alone (Kafka's rule for the names of
        metrics)."""
        if not may_collide(name):
            return None
        others = self._by_metric_name.get(_metric_name(name), ())
        return next((other for other in others if other != name), None)


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


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
