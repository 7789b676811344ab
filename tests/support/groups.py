"""A classic group driven by hand: members by name, a clock that stands until it is moved.

group = Played()
group.join("a"); group.settle(); group.sync("a")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gateway.groups.classic import ClassicGroup
from gateway.groups.states import State
from gateway.groups.values import (
    Answer,
    Effect,
    GroupRules,
    Join,
    JoinAnswer,
    Leaver,
    Note,
    Store,
    Sync,
    SyncAnswer,
)
from ledger.groups import Group

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
DELAY_MS: Final = 3_000
RANGE: Final = (("range", b"topics"),)
RULES: Final = GroupRules(initial_rebalance_delay_ms=DELAY_MS)


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
class Asked:
    """A JoinGroup or SyncGroup and what came of it."""

    result: JoinAnswer | SyncAnswer | None = None

    @property
    def error(self) -> str | None:
        return None if self.result is None else self.result.error

    @property
    def joined(self) -> JoinAnswer:
        assert isinstance(self.result, JoinAnswer), self.result
        return self.result

    @property
    def synced(self) -> SyncAnswer:
        assert isinstance(self.result, SyncAnswer), self.result
        return self.result


@dataclass(slots=True)
class Played:
    """A group and everything that it has said."""

    rules: GroupRules = RULES
    now: float = 1_000.0
    group: ClassicGroup = field(init=False)
    asked: dict[int, Asked] = field(default_factory=dict)
    stores: list[Group] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        self.group = ClassicGroup("g", self.rules)

    def join(self, member_id: str = "", **fields: Any) -> Asked:
        self.names += 1
        request = join_of(member_id)
        request = replace(request, **{"new_member_id": f"m{self.names}", **fields})
        ticket, asked = self._ticket()
        self._take(self.group.join(request, ticket, self.now))
        return asked

    def add(self, name: str, **fields: Any) -> Asked:
        """A member of this id that need not ask for it first."""
        return self.join(new_member_id=name, needs_member_id=False, **fields)

    def sync(
        self, member_id: str, generation: int | None = None, assignments: Mapping[str, bytes] | None = None,
        **fields: Any,
    ) -> Asked:  # fmt: skip
        now = self.group.generation if generation is None else generation
        request = Sync(member_id, None, now, None, None, dict(assignments or {}))
        ticket, asked = self._ticket()
        self._take(self.group.sync(replace(request, **fields), ticket, self.now))
        return asked

    def beat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> str:
        now = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, now, self.now)

    def leave(self, *members: str | Leaver) -> list[str]:
        leavers = [Leaver(member, None) if isinstance(member, str) else member for member in members]
        errors, effects = self.group.leave(leavers, self.now)
        self._take(effects)
        return errors

    def commit(self, member_id: str, generation: int, instance_id: str | None = None) -> str | None:
        return self.group.check_commit(member_id, instance_id, generation, self.now)

    def wait(self, ms: float) -> None:
        """Time goes by; the machine is woken when it asked for it."""
        end = self.now + ms
        while self.group.wake_at <= end:
            self.now = max(self.now, self.group.wake_at)
            self._take(self.group.tick(self.now))
        self.now = end

    def stable(self, *names: str, **fields: Any) -> None:
        """These members in a generation that all have synced; the first one leads."""
        joins = [self.add(name, **fields) for name in names]
        self.wait(2 * DELAY_MS)
        assert [asked.error for asked in joins] == ["NONE"] * len(joins)
        for name in names:
            self.sync(name, assignments={to: to.encode() for to in names})
        assert self.group.state is State.STABLE

    def restarted(self) -> "Played":
        """The group as another coordinator takes it up."""
        again = Played(self.rules, self.now)
        if self.stores:
            again.group.restore(self.stores[-1], self.now)
        again.stores, again.names = self.stores[:], self.names
        return again

    def _ticket(self) -> tuple[int, Asked]:
        ticket, asked = len(self.asked) + 1, Asked()
        self.asked[ticket] = asked
        return ticket, asked

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(ticket, result):
                    assert self.asked[ticket].result is None, "answered twice"
                    self.asked[ticket].result = result
                case Store(group):
                    self.stores.append(group)
                case Note():
                    self.notes.append(effect)
