"""Image rows of topics: time of creation, and the record that would create the topic as it is."""

import struct
from collections.abc import Iterable, Mapping, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.partitions.logs import Partitions
from ledger.partitions.rows import RestoredNumbers
from ledger.records import decode_records
from ledger.state import LedgerState
from ledger.topics.records import TOPIC_CREATED, TopicCreated
from ledger.topics.state import Topic
from ledger.types import TopicId

TOPIC = 1

_CREATED = struct.Struct(">q")
_FORMATS = {TOPIC_CREATED.number: TOPIC_CREATED}


def _keys(state: LedgerState) -> Iterable[TopicId]:
    return state.topics.by_id


def _encode(state: LedgerState, topic_id: TopicId) -> bytes | None:
    topic = state.topics.by_id.get(topic_id)
    if topic is None:
        return None
    first = topic.partitions.ranges[0].first_number
    record = TopicCreated(topic.topic_id, topic.name, first, len(topic.partitions), topic.configs)
    return _CREATED.pack(topic.created_ms) + TOPIC_CREATED.framed(record)


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    numbers = state.part(RestoredNumbers).by_topic
    for _, value in rows:
        (created_ms,) = _CREATED.unpack_from(value)
        (record,) = decode_records(memoryview(value)[_CREATED.size :], 1, _FORMATS)
        assert isinstance(record, TopicCreated)
        partitions = _partitions(state, record, numbers.pop(record.topic_id))
        state.topics.add(Topic(record.name, record.topic_id, partitions, record.configs, created_ms))


def _partitions(state: LedgerState, record: TopicCreated, numbers: Mapping[int, int]) -> Partitions:
    """`numbers` by index. Those that follow one another become one range, which is what records add."""
    partitions = Partitions(record.topic_id, state.logs)
    if len(numbers) != record.partitions:
        raise StoreDamaged("a topic of an image does not have the partitions that are there")
    first, count = numbers[0], 0
    for index in range(record.partitions):
        if numbers[index] != first + count:
            partitions.grow(first, count)
            first, count = numbers[index], 0
        count += 1
    partitions.grow(first, count)
    for found in partitions.ranges:
        for number in range(found.first_number, found.end):
            log = state.logs.get(number)
            if log is not None:
                partitions.put_back(log)
    return partitions


def complete(state: LedgerState) -> None:
    if state.part(RestoredNumbers).count != state.logs.in_topics:
        raise StoreDamaged("the topics of an image do not have the partitions that are there")
    if state.next_number <= max((found.end - 1 for found in state.logs.ranges()), default=-1):
        raise StoreDamaged("the next partition number of an image is taken")


SECTIONS = (Section(TOPIC, _keys, bytes, TopicId, _encode, _restore),)
