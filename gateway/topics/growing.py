"""Decides whether a topic may grow by CreatePartitions. Pure: the ledger has the last word."""

from collections.abc import Sequence

from gateway.topics.creation import CreationLimits, check_topic_size
from gateway.wire.messages.generated.create_partitions import CreatePartitionsTopic
from ledger.errors import ErrorName
from ledger.requests import Refused


def check_growth(requested: CreatePartitionsTopic, present: int, limits: CreationLimits) -> Refused | None:
    """Why a topic of `present` partitions may not grow as requested (Kafka's rules, KIP-195)."""
    added = requested.count - present
    if added == 0:
        return Refused(ErrorName.INVALID_PARTITIONS, f"The topic has {present} partitions already.")
    if added < 0:
        return Refused(
            ErrorName.INVALID_PARTITIONS,
            f"The topic has {present} partitions; {requested.count} would not be more.",
        )
    if requested.assignments is not None:
        brokers = [assignment.broker_ids for assignment in requested.assignments]
        if len(brokers) != added:
            return Refused(
                ErrorName.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are added, {len(brokers)} are assigned.",
            )
        for replicas in brokers:
            reason = check_brokers(replicas, limits.node_id)
            if reason is not None:
                return Refused(ErrorName.INVALID_REPLICA_ASSIGNMENT, reason)
    return check_topic_size(requested.count, added, limits)


def check_brokers(brokers: Sequence[int], node_id: int) -> str | None:
    """Why a partition cannot be on these brokers; this gateway is the only one."""
    if not brokers:
        return "A partition is assigned to no broker."
    unknown = next((broker for broker in brokers if broker != node_id), None)
    if unknown is not None:
        return f"A partition is assigned to broker {unknown}, which does not exist."
    if len(brokers) > 1:
        return f"A partition is assigned to broker {node_id} more than once."
    return None
