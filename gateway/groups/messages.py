"""Requests of group members and their results: values without behaviour. Errors are Kafka's names."""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ledger.errors import ErrorName

NO_GENERATION: Final = -1
RETRIABLE: Final = ErrorName.COORDINATOR_NOT_AVAILABLE
"""The client looks its coordinator up again and repeats the request."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata of each, in the member's order of preference."""


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
    """The client can receive its id before it joins (KIP-394, version 4)."""
    skips_assignment: bool = True
    """The client can lead without assigning (KIP-814, version 9)."""
    reason: str = ""


class JoinedMember(NamedTuple):
    """What the leader receives about a member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error: ErrorName
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


class SyncResult(NamedTuple):
    error: ErrorName
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None
    reason: str = ""
