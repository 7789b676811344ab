"""Decides whether a topic may grow by CreatePartitions. Pure: the ledger has the last word."""

from collections.abc import Sequence

from gateway.topics.creation import CreationRules, check_topic_size
from gateway.wire.messages.generated.create_partitions import CreatePartitionsTopic
from ledger.requests import Refused


def check_growth(asked: CreatePartitionsTopic, present: int, rules: CreationRules) -> Refused | None:
    """Why a topic of `present` partitions does not become as large as asked (Kafka's rules, KIP-195)."""
    added = asked.count - present
    if added == 0:
        return Refused("INVALID_PARTITIONS", f"The topic has {present} partitions already.")
    if added < 0:
        return Refused(
            "INVALID_PARTITIONS", f"The topic has {present} partitions; {asked.count} would not be more."
        )
    if asked.assignments is not None:
        brokers = [assignment.broker_ids for assignment in asked.assignments]
        if len(brokers) != added:
            return Refused(
                "INVALID_REPLICA_ASSIGNMENT", f"{added} partitions are added, {len(brokers)} are assigned."
            )
        for one in brokers:
            reason = check_brokers(one, rules.node_id)
            if reason is not None:
                return Refused("INVALID_REPLICA_ASSIGNMENT", reason)
    return check_topic_size(asked.count, added, rules)


def check_brokers(brokers: Sequence[int], node_id: int) -> str | None:
    """Why a partition cannot lie on these brokers; the gateway that is asked is the only one."""
    if not brokers:
        return "A partition is assigned to no broker."
    unknown = next((broker for broker in brokers if broker != node_id), None)
    if unknown is not None:
        return f"A partition is assigned to broker {unknown}, which does not exist."
    if len(brokers) > 1:
        return f"A partition is assigned to broker {node_id} more than once."
    return None
