"""Metadata records of topics, and their bytes.

Partitions are named by their *number*, which `TopicCreated` and `PartitionsAdded` give once for ever, so that
a commit does not repeat topic ids.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.fields import decode_pairs, encode_pairs
from ledger.records import RecordFormat
from ledger.types import TopicId

_TOPIC = struct.Struct(">16sIIHH")
_ADDED = struct.Struct(">16sII")
_CONFIGS = struct.Struct(">16sH")


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """Partition i gets the number first_number + i."""

    topic_id: TopicId
    name: str
    first_number: int
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The name is free and the partitions unreadable at once; their runs drain in `RunsDropped` slices."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew: its next partitions get the numbers from first_number on."""

    topic_id: TopicId
    first_number: int
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All configs that are set on a topic from now on."""

    topic_id: TopicId
    configs: Mapping[str, str]


def _encode_topic(record: TopicCreated) -> bytes:
    name = record.name.encode()
    head = _TOPIC.pack(
        record.topic_id, record.first_number, record.partitions, len(name), len(record.configs)
    )
    return head + name + encode_pairs(record.configs)


def _decode_topic(body: memoryview) -> TopicCreated:
    topic_id, first, partitions, name_bytes, pairs = _TOPIC.unpack_from(body)
    pos = _TOPIC.size
    name = str(body[pos : pos + name_bytes], "utf-8")
    configs = decode_pairs(body[pos + name_bytes :], pairs)
    return TopicCreated(TopicId(topic_id), name, first, partitions, configs)


def _encode_topic_deleted(record: TopicDeleted) -> bytes:
    return bytes(record.topic_id)


def _decode_topic_deleted(body: memoryview) -> TopicDeleted:
    return TopicDeleted(TopicId(bytes(body)))


def _encode_added(record: PartitionsAdded) -> bytes:
    return _ADDED.pack(record.topic_id, record.first_number, record.partitions)


def _decode_added(body: memoryview) -> PartitionsAdded:
    topic_id, first, partitions = _ADDED.unpack(body)
    return PartitionsAdded(TopicId(topic_id), first, partitions)


def _encode_configs(record: TopicConfigsSet) -> bytes:
    return _CONFIGS.pack(record.topic_id, len(record.configs)) + encode_pairs(record.configs)


def _decode_configs(body: memoryview) -> TopicConfigsSet:
    topic_id, pairs = _CONFIGS.unpack_from(body)
    return TopicConfigsSet(TopicId(topic_id), decode_pairs(body[_CONFIGS.size :], pairs))


TOPIC_CREATED = RecordFormat(3, TopicCreated, _encode_topic, _decode_topic)
TOPIC_DELETED = RecordFormat(4, TopicDeleted, _encode_topic_deleted, _decode_topic_deleted)
PARTITIONS_ADDED = RecordFormat(12, PartitionsAdded, _encode_added, _decode_added)
TOPIC_CONFIGS_SET = RecordFormat(13, TopicConfigsSet, _encode_configs, _decode_configs)
