"""A classic group driven by hand: members by name, a clock that only moves by `wait`.

group = Played()
group.join("a"); group.settle(); group.sync("a")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.groups.classic.group import ClassicGroup
from gateway.groups.classic.states import State
from gateway.groups.machine import Complete, Effect, GroupCoordinatorConfig, Note, Store
from gateway.groups.messages import Join, JoinResult, LeavingMember, Sync, SyncResult
from ledger.errors import ErrorName
from ledger.groups.state import Group

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
DELAY_MS: Final = 3_000
RANGE: Final = (("range", b"topics"),)
CONFIG: Final = GroupCoordinatorConfig(initial_rebalance_delay_ms=DELAY_MS)


def join_of(member_id: str = "") -> Join:
    return Join(
        member_id=member_id,
        instance_id=None,
        new_member_id="new",
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=RANGE,
    )


@dataclass(slots=True)
class Pending:
    """A JoinGroup or SyncGroup, and its result when it is complete."""

    result: JoinResult | SyncResult | None = None

    @property
    def error(self) -> str | None:
        return None if self.result is None else self.result.error

    @property
    def joined(self) -> JoinResult:
        assert isinstance(self.result, JoinResult), self.result
        return self.result

    @property
    def synced(self) -> SyncResult:
        assert isinstance(self.result, SyncResult), self.result
        return self.result


@dataclass(slots=True)
class Played:
    """A group and all its effects."""

    config: GroupCoordinatorConfig = CONFIG
    now: float = 1_000.0
    group: ClassicGroup = field(init=False)
    pending: dict[int, Pending] = field(default_factory=dict)
    stores: list[Group] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        self.group = ClassicGroup("g", self.config)

    def join(self, member_id: str = "", **fields: Any) -> Pending:
        self.names += 1
        request = join_of(member_id)
        request = replace(request, **{"new_member_id": f"m{self.names}", **fields})
        ticket, pending = self._ticket()
        self._take(self.group.join(request, ticket, self.now))
        return pending

    def add(self, name: str, **fields: Any) -> Pending:
        """A member of this id, which joins without a request for the id."""
        return self.join(new_member_id=name, needs_member_id=False, **fields)

    def sync(
        self, member_id: str, generation: int | None = None, assignments: Mapping[str, bytes] | None = None,
        **fields: Any,
    ) -> Pending:  # fmt: skip
        now = self.group.generation if generation is None else generation
        request = Sync(member_id, None, now, None, None, dict(assignments or {}))
        ticket, pending = self._ticket()
        self._take(self.group.sync(replace(request, **fields), ticket, self.now))
        return pending

    def beat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> str:
        now = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, now, self.now)

    def leave(self, *members: str | LeavingMember) -> list[ErrorName]:
        leaving = [LeavingMember(member, None) if isinstance(member, str) else member for member in members]
        errors, effects = self.group.leave(leaving, self.now)
        self._take(effects)
        return errors

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> str | None:
        return self.group.check_commit(member_id, instance_id, generation, self.now)

    def wait(self, ms: float) -> None:
        """Time passes; the machine is woken at its `wake_at`."""
        end = self.now + ms
        while self.group.wake_at <= end:
            self.now = max(self.now, self.group.wake_at)
            self._take(self.group.tick(self.now))
        self.now = end

    def stable(self, *names: str, **fields: Any) -> None:
        """These members in a generation that all have synced; the first one leads."""
        joins = [self.add(name, **fields) for name in names]
        self.wait(2 * DELAY_MS)
        assert [pending.error for pending in joins] == ["NONE"] * len(joins)
        for name in names:
            self.sync(name, assignments={to: to.encode() for to in names})
        assert self.group.state is State.STABLE

    def restarted(self) -> "Played":
        """The group as another coordinator loads it."""
        again = Played(self.config, self.now)
        if self.stores:
            again.group.restore(self.stores[-1], self.now)
        again.stores, again.names = self.stores[:], self.names
        return again

    def _ticket(self) -> tuple[int, Pending]:
        ticket, pending = len(self.pending) + 1, Pending()
        self.pending[ticket] = pending
        return ticket, pending

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Complete(ticket, result):
                    assert self.pending[ticket].result is None, "completed twice"
                    self.pending[ticket].result = result
                case Store(group):
                    self.stores.append(group)
                case Note():
                    self.notes.append(effect)
