"""What others are told of a group, and which topics its consumers have subscribed to."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from gateway.groups.classic import ClassicGroup
from gateway.groups.members import Roster
from gateway.groups.states import State
from ledger.groups import Group

CLASSIC: Final = "classic"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers, whose metadata are a `ConsumerProtocolSubscription` message."""
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Of the group's protocol; empty unless the group is stable."""
    assignment: bytes
    """Of the generation before, while the next one has none."""


@dataclass(frozen=True, slots=True)
class GroupView:
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str | None = None
    members: tuple[MemberView, ...] = ()
    is_simple: bool = False
    """It has nothing but offsets."""
    group_type: str = CLASSIC


def outline_of(group: ClassicGroup) -> GroupView:
    """Without its members."""
    return GroupView(group.group_id, group.state.value, group.protocol_type, _protocol(group))


def view_of(group: ClassicGroup) -> GroupView:
    is_stable = group.state is State.STABLE
    members = tuple(
        MemberView(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.roster
    )
    return replace(outline_of(group), members=members)


def _protocol(group: ClassicGroup) -> str | None:
    return group.protocol if group.state is State.STABLE else None


def view_of_empty(group: Group) -> GroupView:
    """Of a group without members that only the journal knows."""
    return GroupView(group.group_id, State.EMPTY.value, group.protocol_type)


def simple_view(group_id: str) -> GroupView:
    return GroupView(group_id, State.EMPTY.value, is_simple=True)


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Topics that members have subscribed to; None if it cannot be told."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    if not len(group.roster):
        return frozenset()
    return None if group.protocol is None else _topics_of(group.roster, group.protocol)


def _topics_of(roster: Roster, protocol: str) -> frozenset[str] | None:
    topics: set[str] = set()
    for member in roster:
        try:
            topics.update(_topics(member.metadata(protocol)))
        except ValueError:
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> Iterable[str]:
    """Of a ConsumerProtocolSubscription: version int16, then an array of topic names. ValueError if it is
    none."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            raise ValueError("not a subscription")
        names, at = [], _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                raise ValueError("not a subscription")
            names.append(metadata[at : at + length].decode())
            at += length
    except struct.error as error:
        raise ValueError("not a subscription") from error
    return names
