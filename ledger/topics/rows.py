"""Image rows of topics: time of creation, and the record that would create the topic as it is."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.partitions.state import PartitionLog
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
    first = topic.partitions[0].number
    record = TopicCreated(topic.topic_id, topic.name, first, len(topic.partitions), topic.configs)
    return _CREATED.pack(topic.created_ms) + TOPIC_CREATED.framed(record)


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    partitions: defaultdict[bytes, dict[int, PartitionLog]] = defaultdict(dict)
    for log in state.logs.values():
        partitions[log.topic_id][log.index] = log
    for _, value in rows:
        (created_ms,) = _CREATED.unpack_from(value)
        (record,) = decode_records(memoryview(value)[_CREATED.size :], 1, _FORMATS)
        assert isinstance(record, TopicCreated)
        logs = partitions[record.topic_id]
        ordered = [logs[index] for index in range(record.partitions)]
        state.topics.add(Topic(record.name, record.topic_id, ordered, record.configs, created_ms))


def complete(state: LedgerState) -> None:
    listed = sum(not log.deleted for log in state.logs.values())
    if listed != sum(len(topic.partitions) for topic in state.topics.by_id.values()):
        raise StoreDamaged("the topics of an image do not have the partitions that are there")


SECTIONS = (Section(TOPIC, _keys, bytes, TopicId, _encode, _restore),)
