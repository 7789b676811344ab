"""The groups room: finds the machine of a group, asks it, and lets the answer wait until it is due.

Groups with members are driven from the start on; empty ones are made from the journal when they are asked
for, and forgotten when nothing waits for them.
"""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from gateway.config import Settings
from gateway.coordination.shard import Shard
from gateway.groups.classic import ClassicGroup
from gateway.groups.driver import NOT_NOW, GroupDriver
from gateway.groups.states import State
from gateway.groups.values import (
    Answer,
    GroupRules,
    Join,
    JoinAnswer,
    Leaver,
    Note,
    Sync,
    SyncAnswer,
    Ticket,
    is_one_too_many,
)
from gateway.groups.views import (
    CONSUMER_PROTOCOL,
    GroupView,
    outline_of,
    simple_view,
    subscribed_topics,
    view_of,
    view_of_empty,
)
from gateway.telemetry.parked import parked
from ledger.errors import StoreError
from ledger.requests import GroupGone, Refused, RemoveGroup

log = structlog.get_logger(__name__)

DENIALS: Final = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"})
"""Errors that make a member give up what it has: told only after a barrier."""

WEIGHED_EVERY_MS: Final = 1000
"""There may be very many groups; meanwhile clients can add no more than the network carries."""
MAX_OWNER_CHARS: Final = 8_000
"""Of a client or instance id in a member id, which must be a string of the protocol, of at most 32,767 bytes:
with a longer one neither the leader nor who describes the group could be answered."""

Result = TypeVar("Result", JoinAnswer, SyncAnswer)


class GroupsRoom:
    """Every group of the shard."""

    def __init__(
        self,
        shard: Shard,
        settings: Settings,
        new_id: Callable[[], str] | None = None,
        notice: Callable[[str, Note], None] | None = None,
    ) -> None:
        """`new_id` makes what is unique in a member id; `notice` gets what an operator may want to know."""
        self._shard = shard
        self._rules = _rules(settings)
        self._most_groups = settings.limits.groups
        self._most_bytes = settings.limits.members_bytes
        self._weight, self._weighed_at = 0, 0.0
        self._patience_s = settings.ledger.commit_timeout_ms / 1000
        self._new_id = new_id or _random_id
        self._notice = notice or _log
        self._drivers: dict[str, GroupDriver] = {}
        self._waiting: dict[Ticket, asyncio.Future[JoinAnswer | SyncAnswer]] = {}
        self._tickets = itertools.count(1)
        self._is_closed = False

    def start(self) -> None:
        """Take up all groups with members; their sessions begin again in full."""
        for group in self._shard.state.groups.by_id.values():
            if group.members:
                self._open(group.group_id)

    def close(self) -> None:
        """Answer all that waits. Members are not dropped any more; they come back after the restart."""
        self._is_closed = True
        for driver in self._drivers.values():
            driver.stop()

    async def join(self, group_id: str, asked: Join, deadline: float) -> JoinAnswer:
        """JoinGroup. `deadline` (loop time) is for proofs; how long the join waits is the group's affair.
        The room gives out member ids: `new_member_id` of `asked` is not looked at."""
        error = self._why_not(group_id)
        rules = self._rules
        if error is None and not (
            rules.min_session_timeout_ms <= asked.session_timeout_ms <= rules.max_session_timeout_ms
        ):
            error = "INVALID_SESSION_TIMEOUT"
        if error is not None:
            return JoinAnswer(error, asked.member_id)
        driver = self._find(group_id)
        if self._has_no_memory() and (driver is None or driver.group.growth(asked) > 0):
            if driver is not None:
                driver.rest()
            return JoinAnswer("GROUP_MAX_SIZE_REACHED", "")
        if driver is None and not asked.member_id:
            if self._has_too_many_groups(group_id):
                return JoinAnswer("GROUP_MAX_SIZE_REACHED", "")
            driver = self._open(group_id)
        if driver is None:
            return JoinAnswer(await self._proved("UNKNOWN_MEMBER_ID", deadline), asked.member_id)
        if not asked.member_id:
            owner = asked.client_id if asked.instance_id is None else asked.instance_id
            asked = replace(asked, new_member_id=f"{owner[:MAX_OWNER_CHARS]}-{self._new_id()}")
        ticket, answered = self._wait()
        driver.perform(driver.group.join(asked, ticket, _now_ms()))
        answer = await self._answer(ticket, answered, deadline)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def sync(self, group_id: str, asked: Sync, deadline: float) -> SyncAnswer:
        """SyncGroup; waits for the leader's assignment."""
        error = self._why_not(group_id)
        if error is not None:
            return SyncAnswer(error)
        driver = self._find(group_id)
        if driver is None:
            return SyncAnswer(await self._proved("UNKNOWN_MEMBER_ID", deadline))
        ticket, answered = self._wait()
        driver.perform(driver.group.sync(asked, ticket, _now_ms()))
        answer = await self._answer(ticket, answered, deadline)
        assert isinstance(answer, SyncAnswer)
        return answer

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, deadline: float
    ) -> str:
        """The error's name, or NONE."""
        error = self._why_not(group_id)
        if error is not None:
            return error
        driver = self._find(group_id)
        if driver is None:
            return await self._proved("UNKNOWN_MEMBER_ID", deadline)
        error = driver.group.heartbeat(member_id, instance_id, generation, _now_ms())
        if error == "NONE" and driver.is_durable:
            return error
        driver.rest()
        failed = await driver.durable()
        return failed or await self._proved(error, deadline)

    def heartbeat_at_once(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> str | None:
        """The same without waiting; None if that cannot be, and then nothing has happened."""
        error = self._why_not(group_id)
        if error is not None:
            return error
        driver = self._find(group_id)
        if driver is None or not driver.is_durable:
            return None
        error = driver.group.heartbeat(member_id, instance_id, generation, _now_ms())
        if error in DENIALS:
            return None
        if error != "NONE":
            driver.rest()
        return error

    async def leave(self, group_id: str, leavers: Sequence[Leaver], deadline: float) -> str | list[str]:
        """LeaveGroup: one error for all, or each one's error or NONE."""
        error = self._why_not(group_id)
        if error is not None:
            return error
        driver = self._find(group_id)
        if driver is None:
            return [await self._proved("UNKNOWN_MEMBER_ID", deadline)] * len(leavers)
        errors, effects = driver.group.leave(leavers, _now_ms())
        driver.perform(effects)
        failed = await driver.durable()
        if failed is not None:
            return failed
        denied = next((error for error in errors if error in DENIALS), "NONE")
        # One proof is good for all.
        may_deny = await self._proved(denied, deadline) == denied
        return errors if may_deny else [NOT_NOW if error in DENIALS else error for error in errors]

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> str | None:
        """Why offsets may not be committed, as an error's name. Counts as a heartbeat. A generation below 0
        without a member is a simple commit, which only an empty or unknown group takes."""
        driver = self._drivers.get(group_id)
        if driver is not None:
            return driver.group.check_commit(member_id, instance_id, generation, _now_ms())
        if generation < 0:
            return None
        return "UNKNOWN_MEMBER_ID" if self._shard.state.groups.has(group_id) else "ILLEGAL_GENERATION"

    async def denied(self, group_id: str, error: str, deadline: float) -> str:
        """What to tell whom `check_commit` has refused: what is decided and not durable may yet not be so,
        and somebody who is told to be fenced never comes back."""
        driver = self._drivers.get(group_id)
        failed = await driver.durable() if driver is not None else None
        return failed or await self._proved(error, deadline)

    def view(self, group_id: str) -> GroupView | None:
        """What is known here and now; None if there is no such group."""
        return self._view(group_id, view_of)

    def outline(self, group_id: str) -> GroupView | None:
        """The same without its members."""
        return self._view(group_id, outline_of)

    def _view(self, group_id: str, shown: Callable[[ClassicGroup], GroupView]) -> GroupView | None:
        driver = self._drivers.get(group_id)
        stored = self._shard.state.groups
        if driver is not None and driver.group.state is not State.DEAD:
            return shown(driver.group)
        if driver is None and group_id in stored.by_id:
            return view_of_empty(stored.by_id[group_id])
        return simple_view(group_id) if group_id in stored.offsets else None

    def views(self) -> list[GroupView]:
        """Every group without its members, by id."""
        stored = self._shard.state.groups
        ids = sorted({*self._drivers, *stored.by_id, *stored.offsets})
        views = (self._view(group_id, outline_of) for group_id in ids)
        return [view for view in views if view is not None]

    @property
    def group_count(self) -> int:
        """Groups that have members, had some, or have committed offsets."""
        stored = self._shard.state.groups
        return len(self._drivers.keys() | stored.by_id.keys() | stored.offsets.keys())

    @property
    def member_count(self) -> int:
        """Members of all groups that are known here."""
        return sum(len(driver.group.roster) for driver in self._drivers.values())

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that the members' consumers have subscribed to; None if that cannot be told, as for groups
        of another protocol type."""
        driver = self._drivers.get(group_id)
        if driver is not None:
            return subscribed_topics(driver.group)
        group = self._shard.state.groups.by_id.get(group_id)
        is_consumers = group is not None and group.protocol_type == CONSUMER_PROTOCOL
        return frozenset() if is_consumers else None

    async def delete(self, group_id: str, deadline: float) -> Refused | None:
        """Remove an empty group with all its offsets, durably; None when done."""
        if self._is_closed:
            return Refused(NOT_NOW)
        driver = self._find(group_id)
        if driver is None:
            return Refused(await self._proved("GROUP_ID_NOT_FOUND", deadline))
        group = driver.group
        if group.state is not State.EMPTY:
            return Refused("GROUP_ID_NOT_FOUND" if group.state is State.DEAD else "NON_EMPTY_GROUP")
        group.die()
        try:
            return await self._remove(group_id, deadline)
        finally:
            # Also if the client hangs up meanwhile: what comes now stands behind the removal.
            if driver.group is group:
                group.live_again()
            driver.rest()

    async def _remove(self, group_id: str, deadline: float) -> Refused | None:
        driver = self._drivers[group_id]
        try:
            async with asyncio.timeout_at(deadline):
                # The journal must have the empty group before it can lose it.
                failed = await driver.durable()
                if failed is not None:
                    return Refused(failed)
                while self._shard.state.groups.has(group_id):
                    answer = await self._shard.submit(RemoveGroup(group_id))
                    if isinstance(answer, Refused):
                        return answer
                    assert isinstance(answer, GroupGone)
        except (StoreError, TimeoutError):
            return Refused(NOT_NOW)
        return None

    def _why_not(self, group_id: str) -> str | None:
        if self._is_closed or self._shard.broken is not None:
            return NOT_NOW
        return None if group_id else "INVALID_GROUP_ID"

    def _has_too_many_groups(self, group_id: str) -> bool:
        known = max(len(self._drivers), len(self._shard.state.groups.by_id))
        return is_one_too_many(group_id, known, self._most_groups)

    def _has_no_memory(self) -> bool:
        """For further members of whatever group, nor for members that tell more than before."""
        now = _now_ms()
        if now >= self._weighed_at + WEIGHED_EVERY_MS:
            self._weight = sum(driver.group.weight for driver in self._drivers.values())
            self._weighed_at = now
        return self._weight >= self._most_bytes

    def _find(self, group_id: str) -> GroupDriver | None:
        """The group, if it is known here and now."""
        driver = self._drivers.get(group_id)
        if driver is None and self._shard.state.groups.has(group_id):
            driver = self._open(group_id)
        return driver

    def _open(self, group_id: str) -> GroupDriver:
        driver = GroupDriver(
            group_id,
            self._shard,
            self._rules,
            self._settle,
            self._forget,
            self._notice,
            self._patience_s,
        )
        self._drivers[group_id] = driver
        return driver

    def _forget(self, driver: GroupDriver) -> None:
        if self._drivers.get(driver.group_id) is driver:
            del self._drivers[driver.group_id]
            driver.stop()

    def _wait(self) -> tuple[Ticket, asyncio.Future[JoinAnswer | SyncAnswer]]:
        ticket = next(self._tickets)
        answered: asyncio.Future[JoinAnswer | SyncAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answered
        return ticket, answered

    async def _answer(
        self, ticket: Ticket, answered: asyncio.Future[JoinAnswer | SyncAnswer], deadline: float
    ) -> JoinAnswer | SyncAnswer:
        try:
            with parked():
                answer = await answered
        finally:
            # A client that has gone does not take its member with it: it may come back for the answer.
            self._waiting.pop(ticket, None)
        return replace(answer, error=await self._proved(answer.error, deadline))

    def _settle(self, answer: Answer, error: str | None) -> None:
        answered = self._waiting.get(answer.ticket)
        if answered is None or answered.done():
            return
        result = answer.result
        if error is not None:
            member_id = result.member_id if isinstance(result, JoinAnswer) else ""
            result = JoinAnswer(error, member_id) if isinstance(result, JoinAnswer) else SyncAnswer(error)
        answered.set_result(result)

    async def _proved(self, error: str, deadline: float) -> str:
        """The error, after a barrier if it denies what another coordinator may know better."""
        if error in DENIALS or error == "GROUP_ID_NOT_FOUND":
            try:
                await self._shard.barrier(deadline)
            except (StoreError, TimeoutError):
                return NOT_NOW
        return error


def _rules(settings: Settings) -> GroupRules:
    groups = settings.groups
    return GroupRules(
        groups.group_initial_rebalance_delay_ms,
        groups.group_min_session_timeout_ms,
        groups.group_max_session_timeout_ms,
        groups.group_max_size,
        settings.limits.group_bytes,
    )


def _log(group_id: str, note: Note) -> None:
    # Of a group at large, little; of each member only for who asks for it, as members come by the thousand.
    level = log.debug if note.event.startswith("member_") else log.info
    level(f"group.{note.event}", group=group_id, member=note.member_id, reason=note.reason)


def _random_id() -> str:
    return str(uuid.uuid4())


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
