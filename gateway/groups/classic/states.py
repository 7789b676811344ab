"""The states of a classic group under Kafka's names, and how a group gets from one to the next.

`docs/groups.md` is printed from this table.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Spelled as ListGroups and DescribeGroups return it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MEANINGS: Final = {
    State.EMPTY: "no members; there may be offsets",
    State.PREPARING_REBALANCE: "members must join again, and JoinGroup waits for them",
    State.COMPLETING_REBALANCE: "a generation is decided; SyncGroup waits for the leader's assignment",
    State.STABLE: "each member of the generation can have its assignment",
    State.DEAD: "the group is being deleted, or there is none of this name",
}


@dataclass(frozen=True, slots=True)
class Transition:
    source: State
    target: State
    when: str


TRANSITIONS: Final = (
    Transition(State.EMPTY, State.PREPARING_REBALANCE, "a member joins; the initial delay begins"),
    Transition(
        State.PREPARING_REBALANCE,
        State.COMPLETING_REBALANCE,
        "all members have joined, or the rebalance timeout has removed the others: next generation",
    ),
    Transition(State.PREPARING_REBALANCE, State.EMPTY, "no member is left: next generation"),
    Transition(State.COMPLETING_REBALANCE, State.STABLE, "the leader's assignment has come"),
    Transition(
        State.COMPLETING_REBALANCE,
        State.PREPARING_REBALANCE,
        "a member joins, changes or goes, or has not synced within the rebalance timeout",
    ),
    Transition(
        State.STABLE,
        State.PREPARING_REBALANCE,
        "a member joins, changes or goes; the leader joins again; a member has never synced",
    ),
    Transition(State.EMPTY, State.DEAD, "the group is deleted"),
    Transition(State.DEAD, State.EMPTY, "the deletion could not be stored"),
)

ALLOWED: Final = frozenset((transition.source, transition.target) for transition in TRANSITIONS)
