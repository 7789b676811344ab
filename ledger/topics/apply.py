"""Applying the metadata records of topics."""

from ledger.partitions.isolation_rows import forget
from ledger.partitions.logs import Partitions
from ledger.partitions.rows import PARTITION, PRODUCER
from ledger.partitions.state import PartitionLog
from ledger.settled.apply import release
from ledger.state import LedgerState
from ledger.topics.records import PartitionsAdded, TopicConfigsSet, TopicCreated, TopicDeleted
from ledger.topics.rows import TOPIC
from ledger.topics.state import Topic

SLICE_PARTITIONS = 1_000
"""Partitions of a deleted topic that are let go of at once."""


def topic_created(state: LedgerState, record: TopicCreated) -> None:
    partitions = Partitions(record.topic_id, state.logs)
    topic = Topic(record.name, record.topic_id, partitions, dict(record.configs), state.entry_time_ms)
    state.topics.add(topic)
    _grow(state, topic, record.first_number, record.partitions)


def partitions_added(state: LedgerState, record: PartitionsAdded) -> None:
    _grow(state, state.topics.by_id[record.topic_id], record.first_number, record.partitions)


def topic_configs_set(state: LedgerState, record: TopicConfigsSet) -> None:
    state.topics.by_id[record.topic_id].configs = dict(record.configs)
    state.dirty[TOPIC].add(record.topic_id)


def topic_deleted(state: LedgerState, record: TopicDeleted) -> None:
    """From here on nothing finds the topic or its partitions; `let_go` does the rest."""
    partitions = state.topics.remove(record.topic_id).partitions
    partitions.delete()
    state.dirty[TOPIC].add(record.topic_id)
    state.dirty.deleted.update((gone.first_number, gone) for gone in partitions.ranges)
    state.leaving.append((partitions, 0))


def let_go(state: LedgerState) -> None:
    """Let go of the next SLICE_PARTITIONS partitions of deleted topics: those without runs are gone, those
    with runs begin to drain. It is the rest of applying the entry that deleted them."""
    left = SLICE_PARTITIONS
    while left and state.leaving:
        partitions, first = state.leaving.popleft()
        end = min(first + left, len(partitions))
        left -= end - first
        for log in partitions.made[first:end]:
            if log is not None:
                _release(state, log)
        # Memory is given back slice by slice, too.
        partitions.made[first:end] = [None] * (end - first)
        if end < len(partitions):
            state.leaving.appendleft((partitions, end))


def _release(state: LedgerState, log: PartitionLog) -> None:
    number = log.number
    if state.cut is not None:
        state.cut.keep(number)
    log.deleted = True
    release(state, number)
    forget(state, log)
    if log.producers:
        forgotten = log.forget_producers()
        state.producer_count -= len(forgotten)
        state.dirty[PRODUCER].update((number, producer_id) for producer_id in forgotten)
    state.touched[number] = log
    if log.run_count:
        state.dirty[PARTITION].add(number)
        state.draining[number] = log
        state.logs.deleted += 1
    else:
        del state.logs[number]
        state.draining.pop(number, None)


def _grow(state: LedgerState, topic: Topic, first_number: int, count: int) -> None:
    added = topic.partitions.grow(first_number, count)
    state.topics.version += 1
    state.next_number = added.end
    state.dirty[TOPIC].add(topic.topic_id)
    state.dirty.created[first_number] = added
