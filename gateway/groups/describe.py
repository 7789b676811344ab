"""Descriptions of groups, as DescribeGroups and ListGroups return them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.groups.state import Group

CLASSIC: Final = "classic"
EMPTY: Final = "Empty"
STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""States that the groups of each protocol have, spelled as Kafka spells them."""


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Of the group's protocol; empty unless the group is stable."""
    assignment: bytes
    """Of the generation before, while the next one has none."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str | None = None
    members: tuple[MemberDescription, ...] = ()
    is_simple: bool = False
    """It has only offsets."""
    group_type: str = CLASSIC


def describe_stored(group: Group) -> GroupDescription:
    """A group without members that only the journal knows."""
    return GroupDescription(group.group_id, EMPTY, group.protocol_type)


def describe_simple(group_id: str) -> GroupDescription:
    """A group that has only offsets."""
    return GroupDescription(group_id, EMPTY, is_simple=True)
