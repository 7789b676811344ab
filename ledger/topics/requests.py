"""Requests that create, alter and delete topics, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ledger.requests import SMALL
from ledger.settings.configs import MAX_CONFIG_BYTES, ConfigChange
from ledger.types import TopicId


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    topic_id: TopicId
    partitions: int
    configs: Mapping[str, str]
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        pairs = sum(len(key) + len(value) for key, value in self.configs.items())
        return SMALL + 4 * (len(self.name) + pairs) + 8 * len(self.configs)


@dataclass(frozen=True, slots=True)
class Created:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Let a topic grow to `total` partitions."""

    topic_id: TopicId
    total: int
    weight: int = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Grown:
    partitions: int


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs:
    """Change some configs of a topic. `replace`: what is not named goes back to its default.
    `list_defaults`: what a list that is not set holds, for APPEND and SUBTRACT."""

    topic_id: TopicId
    changes: Sequence[ConfigChange]
    replace: bool = False
    list_defaults: Mapping[str, str] = field(default_factory=dict)
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        # The record holds all configs of the topic, not only those that change.
        return SMALL + MAX_CONFIG_BYTES


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic_id: TopicId
    weight: int = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Deleted:
    pass
