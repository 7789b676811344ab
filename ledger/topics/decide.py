"""Deciding what concerns topics. The overlay is looked at first, the durable state second."""

from ledger.errors import ErrorName
from ledger.machine import Decision
from ledger.overlay import Overlay
from ledger.requests import Refused
from ledger.settings.configs import Altered, altered_configs, is_too_long
from ledger.state import LedgerState
from ledger.topics.records import PartitionsAdded, TopicConfigsSet, TopicCreated, TopicDeleted
from ledger.topics.requests import (
    AddPartitions,
    AlterTopicConfigs,
    Created,
    CreateTopic,
    Deleted,
    DeleteTopic,
    Grown,
)
from ledger.topics.state import Topic
from ledger.types import TopicId


def create_topic(state: LedgerState, overlay: Overlay, request: CreateTopic, now_ms: int) -> Decision:
    known = state.topics.by_name.get(request.name)
    there = known is not None and known.topic_id not in overlay.deleted
    if there or request.name in overlay.created:
        return Decision(Refused(ErrorName.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists."))
    record = TopicCreated(
        request.topic_id, request.name, overlay.next_number, request.partitions, request.configs
    )
    overlay.next_number += request.partitions
    overlay.created.add(request.name)
    return Decision(Created(request.topic_id), (record,))


def add_partitions(state: LedgerState, overlay: Overlay, request: AddPartitions, now_ms: int) -> Decision:
    topic = live_topic(state, overlay, request.topic_id)
    if topic is None:
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
    present = overlay.partitions.get(request.topic_id, len(topic.partitions))
    if request.total <= present:
        return Decision(Refused(ErrorName.INVALID_PARTITIONS, f"the topic has {present} partitions already"))
    added = request.total - present
    record = PartitionsAdded(request.topic_id, overlay.next_number, added)
    overlay.next_number += added
    overlay.partitions[request.topic_id] = request.total
    return Decision(Grown(request.total), (record,))


def alter_configs(state: LedgerState, overlay: Overlay, request: AlterTopicConfigs, now_ms: int) -> Decision:
    topic = live_topic(state, overlay, request.topic_id)
    if topic is None:
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION))
    before = overlay.configs.get(request.topic_id, topic.configs)
    after = altered_configs(before, request)
    if is_too_long(after):
        return Decision(Refused(ErrorName.INVALID_CONFIG, "the configs of the topic would become too long"))
    if after == before:
        return Decision(Altered(after))
    overlay.configs[request.topic_id] = after
    return Decision(Altered(after), (TopicConfigsSet(request.topic_id, after),))


def delete_topic(state: LedgerState, overlay: Overlay, request: DeleteTopic, now_ms: int) -> Decision:
    if request.topic_id not in state.topics.by_id or request.topic_id in overlay.deleted:
        return Decision(Refused(ErrorName.UNKNOWN_TOPIC_ID))
    overlay.deleted.add(request.topic_id)
    return Decision(Deleted(), (TopicDeleted(request.topic_id),))


def live_topic(state: LedgerState, overlay: Overlay, topic_id: TopicId) -> Topic | None:
    """The topic, unless it is deleted by the entry that is being filled."""
    return None if topic_id in overlay.deleted else state.topics.by_id.get(topic_id)
