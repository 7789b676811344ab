"""Applying the metadata records of topics."""

from ledger.partitions.rows import PARTITION, PRODUCER
from ledger.partitions.state import partitions_of
from ledger.state import LedgerState
from ledger.topics.records import PartitionsAdded, TopicConfigsSet, TopicCreated, TopicDeleted
from ledger.topics.rows import TOPIC
from ledger.topics.state import Topic


def topic_created(state: LedgerState, record: TopicCreated) -> None:
    topic = Topic(record.name, record.topic_id, [], dict(record.configs), state.entry_time_ms)
    state.topics.add(topic)
    _grow(state, topic, record.first_number, record.partitions)


def partitions_added(state: LedgerState, record: PartitionsAdded) -> None:
    _grow(state, state.topics.by_id[record.topic_id], record.first_number, record.partitions)


def topic_configs_set(state: LedgerState, record: TopicConfigsSet) -> None:
    state.topics.by_id[record.topic_id].configs = dict(record.configs)
    state.dirty[TOPIC].add(record.topic_id)


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    topic = state.topics.remove(record.topic_id)
    state.dirty[TOPIC].add(record.topic_id)
    for log in topic.partitions:
        log.deleted = True
        state.dirty[PRODUCER].update((log.number, producer_id) for producer_id in log.producers)
        state.producer_count -= len(log.producers)
        log.producers = {}
        state.touched[log.number] = log
        state.dirty[PARTITION].add(log.number)
        if log.run_count:
            state.draining[log.number] = log
        else:
            del state.logs[log.number]
            state.draining.pop(log.number, None)


def _grow(state: LedgerState, topic: Topic, first_number: int, count: int) -> None:
    logs = partitions_of(topic.topic_id, first_number, count, len(topic.partitions))
    topic.partitions += logs
    state.topics.version += 1
    state.next_number = first_number + count
    state.dirty[TOPIC].add(topic.topic_id)
    for log in logs:
        state.logs[log.number] = log
        state.dirty[PARTITION].add(log.number)
