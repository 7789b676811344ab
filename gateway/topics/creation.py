"""Decides whether a topic may be created, and with what. Pure: the ledger has the last word.

Kafka's limits (KIP-4, KIP-464 for -1), with one difference: any replication factor from 1 on is accepted,
since durability is the backing store's and every gateway serves every partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.configs.topic_configs import BadValue, check_configs
from gateway.wire.messages.generated.create_topics import CreatableReplicaAssignment, CreatableTopic
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.topics.state import Topics, check_topic_name

RESERVED_TOPICS = frozenset({"__cluster_metadata", "__diskless_metadata"})
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that may be created; `configs` are in the form in which they are stored."""

    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreationLimits:
    """`partitions_left`: by how many partitions all topics together may still grow."""

    default_partitions: int
    max_partitions: int
    partitions_left: int
    node_id: int


def check_new_name(name: str, topics: Topics) -> Refused | None:
    """Why a topic of this name cannot be created, or None. Only the ledger checks whether it exists."""
    reason = check_topic_name(name)
    if reason is not None:
        return Refused(ErrorName.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name in RESERVED_TOPICS:
        return Refused(ErrorName.INVALID_REQUEST, f"Topic {name} is internal and cannot be created.")
    other = topics.collision(name)
    if other is not None:
        return Refused(ErrorName.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with topic '{other}'.")
    return None


def plan_topic(topic: CreatableTopic, limits: CreationLimits) -> NewTopic | Refused:
    """What to create for one topic of a CreateTopics request whose name is fine. As in Kafka, its configs are
    looked at first."""
    try:
        configs = check_configs({config.name: config.value for config in topic.configs})
    except BadValue as error:
        return Refused(ErrorName.INVALID_CONFIG, str(error))
    if topic.assignments:
        refused = _check_assignments(topic, limits.node_id)
        partitions = len(topic.assignments)
    else:
        refused = _check_counts(topic)
        partitions = (
            limits.default_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions
        )
    if refused is None:
        refused = check_partition_count(partitions, limits)
    if refused is not None:
        return refused
    return NewTopic(topic.name, partitions, configs)


def check_partition_count(partitions: int, limits: CreationLimits) -> Refused | None:
    """Why a new topic may not have this many partitions."""
    return check_topic_size(partitions, partitions, limits)


def check_topic_size(partitions: int, added: int, limits: CreationLimits) -> Refused | None:
    """Why a topic may not have `partitions`, of which `added` are new."""
    if partitions > limits.max_partitions:
        return Refused(
            ErrorName.POLICY_VIOLATION,
            f"{partitions} partitions; a topic may have {limits.max_partitions} (limits.topic_partitions).",
        )
    if added > limits.partitions_left:
        return Refused(
            ErrorName.POLICY_VIOLATION,
            f"{added} partitions; only {limits.partitions_left} more are allowed (limits.partitions).",
        )
    return None


def _check_counts(topic: CreatableTopic) -> Refused | None:
    if topic.num_partitions == 0 or topic.num_partitions < BROKER_DEFAULT:
        return Refused(
            ErrorName.INVALID_PARTITIONS, "The number of partitions must be positive, or -1 for the default."
        )
    if topic.replication_factor == 0 or topic.replication_factor < BROKER_DEFAULT:
        return Refused(
            ErrorName.INVALID_REPLICATION_FACTOR,
            "The replication factor must be positive, or -1 for the default.",
        )
    return None


def _check_assignments(topic: CreatableTopic, node_id: int) -> Refused | None:
    if topic.replication_factor != BROKER_DEFAULT:
        return Refused(ErrorName.INVALID_REQUEST, "With an assignment the replication factor must be -1.")
    if topic.num_partitions != BROKER_DEFAULT:
        return Refused(ErrorName.INVALID_REQUEST, "With an assignment the number of partitions must be -1.")
    seen = [assignment.partition_index for assignment in topic.assignments]
    if len(set(seen)) < len(seen):
        return Refused(ErrorName.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once.")
    if set(seen) != set(range(len(seen))):
        return Refused(
            ErrorName.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without a gap."
        )
    reasons = (_check_replicas(assignment, node_id) for assignment in topic.assignments)
    reason = next((reason for reason in reasons if reason is not None), None)
    return None if reason is None else Refused(ErrorName.INVALID_REPLICA_ASSIGNMENT, reason)


def _check_replicas(assignment: CreatableReplicaAssignment, node_id: int) -> str | None:
    brokers = assignment.broker_ids
    if not brokers:
        return f"Partition {assignment.partition_index} is assigned to no broker."
    if len(set(brokers)) < len(brokers):
        return f"Partition {assignment.partition_index} is assigned to a broker more than once."
    unknown = next((broker for broker in brokers if broker != node_id), None)
    if unknown is not None:
        return (
            f"Partition {assignment.partition_index} is assigned to broker {unknown}, which does not exist."
        )
    return None
