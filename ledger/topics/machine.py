"""Topics, as a machine of the registry."""

from ledger.machine import Machine
from ledger.topics.apply import partitions_added, topic_configs_set, topic_created, topic_deleted
from ledger.topics.decide import add_partitions, alter_configs, create_topic, delete_topic
from ledger.topics.records import (
    PARTITIONS_ADDED,
    TOPIC_CONFIGS_SET,
    TOPIC_CREATED,
    TOPIC_DELETED,
    PartitionsAdded,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
)
from ledger.topics.requests import AddPartitions, AlterTopicConfigs, CreateTopic, DeleteTopic
from ledger.topics.rows import SECTIONS, complete

TOPICS = Machine(
    decide={
        CreateTopic: create_topic,
        AddPartitions: add_partitions,
        AlterTopicConfigs: alter_configs,
        DeleteTopic: delete_topic,
    },
    formats=(TOPIC_CREATED, TOPIC_DELETED, PARTITIONS_ADDED, TOPIC_CONFIGS_SET),
    apply={
        TopicCreated: topic_created,
        TopicDeleted: topic_deleted,
        PartitionsAdded: partitions_added,
        TopicConfigsSet: topic_configs_set,
    },
    sections=SECTIONS,
    complete=complete,
    growing=frozenset({CreateTopic, AddPartitions}),
)
