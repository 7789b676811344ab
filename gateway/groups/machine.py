"""The machine of one group, of whichever protocol: what GroupCoordinator and GroupRunner know of it.

Pure: the time is an argument, in ms on a clock that never goes back. What must happen outside is returned as
effects, in order; GroupRunner stores first and completes afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.groups.describe import GroupDescription
from gateway.groups.messages import Join, JoinResult, LeavingMember, Sync, SyncResult
from ledger.errors import ErrorName
from ledger.groups.state import Group

Ticket: TypeAlias = int
"""Names a JoinGroup or SyncGroup that waits for its result."""


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Kafka's broker configs of groups; times in ms."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 30 * 60 * 1000
    max_size: int = 10_000
    max_bytes: int = 768 * 1024
    """Of all members, their protocols included and their assignments not."""


class Complete(NamedTuple):
    """A waiting request gets its result, once everything stored before is durable."""

    ticket: Ticket
    result: JoinResult | SyncResult


@dataclass(frozen=True, slots=True)
class Store:
    """Must be durable before any later `Complete` takes effect."""

    group: Group


LIMIT_REACHED: Final = "limit_reached"
"""As the event of a note: a member is refused; `reason` is the setting."""


class RebalanceReason(StrEnum):
    """Why a rebalance begins, as the log says it. The name, in lower case, is a label of the metrics."""

    MEMBER_JOINED = "a new member joins"
    MEMBER_LEFT = "a member left"
    SESSION_EXPIRED = "a member's session ended"
    PROTOCOLS_CHANGED = "a member's protocols changed"
    LEADER_REJOINED = "the leader joins again"
    STATIC_MEMBER_RETURNED = "a static member returns"
    SYNC_TIMEOUT = "members sent no SyncGroup in time"
    NOT_STORED = "its state could not be stored"


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the operator's log."""

    event: str
    member_id: str
    reason: str
    rebalance: RebalanceReason | None = None
    """Of a rebalance that begins; `reason` may have more details, which the client has chosen."""


Effect: TypeAlias = Complete | Store | Note


class GroupMachine(Protocol):
    """One group. Every request is decided at once, or waits until an effect completes its ticket."""

    @property
    def state(self) -> str:
        """Spelled as Kafka spells it; each kind of group has `EMPTY` and `DEAD`."""
        ...

    @property
    def wake_at(self) -> float:
        """Nothing is due before then; `tick` may be called earlier at no harm."""
        ...

    @property
    def member_count(self) -> int: ...

    @property
    def weight(self) -> int:
        """About the bytes of its members, and of member ids that were given out."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether a machine restored from the journal would have the same state."""
        ...

    def join(self, request: Join, ticket: Ticket, now: float) -> list[Effect]: ...

    def growth(self, request: Join) -> int:
        """By how many bytes this JoinGroup would enlarge the group."""
        ...

    def sync(self, request: Sync, ticket: Ticket, now: float) -> list[Effect]: ...

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorName:
        """The error, or NONE."""
        ...

    def leave(self, leaving: Sequence[LeavingMember], now: float) -> tuple[list[ErrorName], list[Effect]]:
        """The error of each member, or NONE. A static member may be removed by its instance id alone."""
        ...

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: float,
        in_transaction: bool = False,
    ) -> ErrorName | None:
        """Why offsets may not be committed, or None. A commit that may be counts as a heartbeat, unless it is
        one of a transaction."""
        ...

    def tick(self, now: float) -> list[Effect]:
        """Do what is due."""
        ...

    def abandon(self, error: ErrorName) -> list[Effect]:
        """Complete all waiting requests: this coordinator cannot continue with this state of the group."""
        ...

    def fail_waiters_retriably(self, error: ErrorName, now: float) -> list[Effect]:
        """Complete all waiting requests, and continue with the group: members will repeat their requests."""
        ...

    def restart_rebalance(self, now: float, reason: RebalanceReason) -> list[Effect]:
        """Make all members join again."""
        ...

    def reset_session_timers(self, now: float) -> None:
        """Begin every session again: no heartbeat could arrive."""
        ...

    def die(self) -> None:
        """The group is being deleted. Only an empty one is; its pending members must begin again."""
        ...

    def revive(self) -> None:
        """The deletion could not be stored."""
        ...

    def describe(self) -> GroupDescription: ...

    def listing(self) -> GroupDescription:
        """The same without its members."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that the members' consumers subscribe to; None if that is not known, as for groups of
        another protocol type."""
        ...
