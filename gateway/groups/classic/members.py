"""The members of a group while its coordinator lives: their sessions, waiting requests and protocols."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.groups.classic.given_ids import GivenIds
from gateway.groups.machine import Ticket
from gateway.groups.messages import JoinedMember, Protocols
from ledger.groups.state import Member
from ledger.requests import text_bytes

NEVER: Final = math.inf
MEMBER_BYTES: Final = 32
"""Of a member's numbers and lengths."""
LIVE_BYTES: Final = 1024
"""Of memory that a member takes besides."""


@dataclass(slots=True)
class LiveMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Ticket | None = None
    """Its JoinGroup that waits."""
    syncing: Ticket | None = None
    """Its SyncGroup that waits."""
    is_new: bool = False
    """It has not received its first generation."""
    session_expires_at: float = NEVER
    """When it is removed unless a heartbeat arrives, in ms on the machine's clock."""

    @property
    def size(self) -> int:
        """About the bytes that it takes to store it, its assignment aside."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return MEMBER_BYTES + sum(map(text_bytes, names)) + protocols_size(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self) -> Member:
        return Member(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )


def protocols_size(protocols: Protocols) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)


def restored_member(member: Member) -> LiveMember:
    """A member as it was stored."""
    return LiveMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.protocols,
        member.assignment,
    )


class Roster:
    """The members of one group, in the order in which they joined, and the ids that were given out."""

    def __init__(self) -> None:
        self.by_id: dict[str, LiveMember] = {}
        self.by_instance: dict[str, LiveMember] = {}
        self.pending = GivenIds()
        self.leader: str | None = None
        self.joining = 0
        """Number of members that wait in JoinGroup."""
        self.bytes = 0
        """Of all members, as `LiveMember.size` counts."""
        self._assigned_bytes = 0
        self._supporters: Counter[str] = Counter()
        """Number of members that support each protocol."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[LiveMember]:
        return iter(tuple(self.by_id.values()))

    @property
    def weight(self) -> int:
        """About the memory of its members, with their assignments, and of ids that were given out."""
        return self.bytes + self._assigned_bytes + LIVE_BYTES * len(self.by_id) + self.pending.bytes

    def assign(self, member: LiveMember, assignment: bytes) -> None:
        self._assigned_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def add(self, member: LiveMember) -> None:
        self.by_id[member.member_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member
        self._count(member.protocols, 1)
        self.bytes += member.size
        self._assigned_bytes += len(member.assignment)
        if member.joining is not None:
            self.joining += 1
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: LiveMember) -> None:
        """To be called after the member's waiting requests are completed."""
        del self.by_id[member.member_id]
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        self._count(member.protocols, -1)
        self.bytes -= member.size
        self._assigned_bytes -= len(member.assignment)
        if member.joining is not None:
            self.joining -= 1
        if self.leader == member.member_id:
            self.leader = next(iter(self.by_id), None)

    def rename(self, member: LiveMember, member_id: str) -> None:
        """Another process takes over the instance, under an id of its own (KIP-345)."""
        del self.by_id[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        self.bytes += text_bytes(member_id) - text_bytes(member.member_id)
        member.member_id = member_id
        self.by_id[member_id] = member

    def change_protocols(self, member: LiveMember, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        self.bytes += protocols_size(protocols) - protocols_size(member.protocols)
        member.protocols = protocols
        self._count(protocols, 1)

    def begin_join(self, member: LiveMember, ticket: Ticket) -> Ticket | None:
        """Returns the member's earlier JoinGroup, which the new one replaces."""
        earlier = member.joining
        member.joining = ticket
        if earlier is None:
            self.joining += 1
        return earlier

    def end_join(self, member: LiveMember) -> Ticket | None:
        """Its JoinGroup waits no longer."""
        ticket, member.joining = member.joining, None
        if ticket is not None:
            self.joining -= 1
        return ticket

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members support one of them."""
        return any(self._supporters[name] == len(self.by_id) for name, _ in protocols)

    def select_protocol(self) -> str | None:
        """The protocol that all support and most prefer; among equals the one that the leader prefers."""
        common = {name for name, count in self._supporters.items() if count == len(self.by_id)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self if common
        )
        if not votes or self.leader is None:
            return None
        highest = max(votes.values())
        return next(name for name, _ in self.by_id[self.leader].protocols if votes[name] == highest)

    def elect_joined_leader(self) -> bool:
        """Let a member lead that waits in JoinGroup. False if none waits."""
        if self.leader is not None and self.by_id[self.leader].joining is not None:
            return True
        joined = next((member for member in self.by_id.values() if member.joining is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)

    def joined_members(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.by_id.values()
        )

    def _count(self, protocols: Protocols, step: int) -> None:
        for name, _ in protocols:
            self._supporters[name] += step
            if not self._supporters[name]:
                del self._supporters[name]
