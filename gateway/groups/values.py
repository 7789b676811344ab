"""What a group is asked and what it answers: values without behaviour. Errors are Kafka's names."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from ledger.groups import Group

NO_GENERATION: Final = -1
NEW_MEMBER_JOIN_MS: Final = 5 * 60 * 1000
"""A new member does not know its id yet, so it cannot send heartbeats while its JoinGroup waits; so long
may it wait, as in Kafka."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata, the one that the member likes best first."""
Ticket: TypeAlias = int
"""Stands for a JoinGroup or SyncGroup that waits for its answer."""


ORDINARY_ID_CHARS: Final = 1024
MOST_LONG_IDS: Final = 1 / 32
"""Of the most groups there may be: the longest id that the protocol carries is 32 times an ordinary one."""


def is_one_too_many(group_id: str, known: int, most_groups: int) -> bool:
    """Whether no further group may be made where so many are. Kafka takes ids of any length; here those that
    nobody has in earnest are taken only while there are few groups, so that all ids have a bound in bytes."""
    is_long = len(group_id) > ORDINARY_ID_CHARS
    return known >= most_groups * (MOST_LONG_IDS if is_long else 1)


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Kafka's broker configs of groups; times in ms."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 30 * 60 * 1000
    max_size: int = 10_000
    max_bytes: int = 768 * 1024
    """Of all members, their protocols included and their assignments not."""


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. `new_member_id` is the id that the member gets if it has none."""

    member_id: str
    instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    """The client can be told its id before it joins (KIP-394, version 4)."""
    skips_assignment: bool = True
    """The client can be told to lead without assigning (KIP-814, version 9)."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: str
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """Empty for all but the leader."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; the protocol's type and name are None where the version does not carry them."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]
    """By member id; empty for all but the leader."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: str
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leaver:
    member_id: str
    instance_id: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A waiting request gets its answer, once everything stored before is durable."""

    ticket: Ticket
    result: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class Store:
    """Must be durable before any answer that comes later leaves."""

    group: Group


@dataclass(frozen=True, slots=True)
class Note:
    """Something that an operator wants to read in the log."""

    event: str
    member_id: str
    reason: str


Effect: TypeAlias = Answer | Store | Note
