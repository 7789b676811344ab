"""The group coordinator: hands requests to the machine of their group, and completes them when they are due.

Groups with members have a runner from the start on. Runners of empty groups are made from the journal on
demand, and evicted when nothing waits for them.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from gateway.coordination.ledger import Ledger
from gateway.groups.describe import DEAD, EMPTY, GroupDescription, describe_simple, describe_stored
from gateway.groups.events import log_limit
from gateway.groups.group_runner import GroupRunner
from gateway.groups.limits import MAX_GROUPS, MEMBERS_BYTES, exceeds_max_groups
from gateway.groups.machine import LIMIT_REACHED, Complete, GroupCoordinatorConfig, Note, Ticket
from gateway.groups.machine_factory import restored_machine
from gateway.groups.messages import RETRIABLE, Join, JoinResult, LeavingMember, Sync, SyncResult
from gateway.groups.subscriptions import CONSUMER_PROTOCOL
from gateway.host import new_uuid4
from gateway.settings import Settings
from gateway.telemetry.parked import parked
from ledger.errors import ErrorName, StoreError
from ledger.groups.requests import GroupGone, RemoveGroup
from ledger.groups.state import each_once
from ledger.requests import Refused
from ledger.transactions.state import Transactions

log = structlog.get_logger(__name__)

FATAL_MEMBER_ERRORS: Final = frozenset(
    {ErrorName.UNKNOWN_MEMBER_ID, ErrorName.ILLEGAL_GENERATION, ErrorName.FENCED_INSTANCE_ID}
)
"""Errors that make a member give up what it has."""

ASSIGNMENTS_SHARE: Final = 4
"""Beyond the bound on members their assignments have a quarter of it: those that were let in get theirs."""
MAX_OWNER_CHARS: Final = 8_000
"""Of a client or instance id within a member id, which must fit a string of the protocol (32,767 bytes): with
a longer one neither JoinGroup of the leader nor DescribeGroups could be encoded."""


class GroupCoordinator:
    """Every group of the shard."""

    def __init__(
        self,
        shard: Ledger,
        settings: Settings,
        new_id: Callable[[], str] | None = None,
        on_note: Callable[[str, Note], None] | None = None,
    ) -> None:
        """`new_id` makes the unique part of member ids. `on_note` gets each group's notes, by default to log
        them."""
        self._shard = shard
        self._config = _coordinator_config(settings)
        self._max_groups = settings.limits.groups
        self._max_bytes = settings.limits.members_bytes
        self._weight = 0
        """About the bytes of all groups that are open."""
        self._timeout_s = settings.ledger.commit_timeout_ms / 1000
        self._new_id = new_id or _random_id
        self._on_note = on_note or log_note
        self._runners: dict[str, GroupRunner] = {}
        self._waiting: dict[Ticket, asyncio.Future[JoinResult | SyncResult]] = {}
        self._tickets = itertools.count(1)
        self._is_closed = False

    async def begin_epoch(self) -> None:
        """Load all groups with members; their sessions begin again in full."""
        self._is_closed = False
        for group in self._shard.state.groups.by_id.values():
            if group.members:
                self._open(group.group_id)

    def close(self) -> None:
        """Complete all that waits. Members are not removed any more; they return after the restart."""
        self._is_closed = True
        for runner in self._runners.values():
            runner.stop()

    async def end_epoch(self) -> None:
        """The same when the shard is lost. What was not durable is forgotten: the next owner does not know
        it."""
        self.close()
        self._runners.clear()

    async def join(self, group_id: str, request: Join, deadline: float) -> JoinResult:
        """JoinGroup. `deadline` (loop time) is for linearizable reads; the group decides how long the join
        waits. `new_member_id` is set here, whatever `request` says."""
        error = self._validate(group_id)
        config = self._config
        if error is None and not (
            config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms
        ):
            error = ErrorName.INVALID_SESSION_TIMEOUT
        if error is not None:
            return JoinResult(error, request.member_id)
        runner = self._find(group_id)
        if self._is_out_of_memory() and (runner is None or runner.group.growth(request) > 0):
            if runner is not None:
                runner.evict_if_idle()
            log_limit(MEMBERS_BYTES, group_id)
            return JoinResult(await self.confirmed(ErrorName.GROUP_MAX_SIZE_REACHED, deadline), "")
        if runner is None and not request.member_id:
            if self._has_max_groups(group_id):
                log_limit(MAX_GROUPS, group_id)
                return JoinResult(await self.confirmed(ErrorName.GROUP_MAX_SIZE_REACHED, deadline), "")
            runner = self._open(group_id)
        if runner is None:
            return JoinResult(await self.confirmed(ErrorName.UNKNOWN_MEMBER_ID, deadline), request.member_id)
        if not request.member_id:
            owner = request.client_id if request.instance_id is None else request.instance_id
            request = replace(request, new_member_id=f"{owner[:MAX_OWNER_CHARS]}-{self._new_id()}")
        ticket, future = self._new_ticket()
        runner.execute(runner.group.join(request, ticket, _now_ms()))
        result = await self._result(ticket, future, deadline)
        assert isinstance(result, JoinResult)
        return result

    async def sync(self, group_id: str, request: Sync, deadline: float) -> SyncResult:
        """SyncGroup; waits for the leader's assignment."""
        error = self._validate(group_id)
        if error is not None:
            return SyncResult(error)
        runner = self._find(group_id)
        if runner is None:
            return SyncResult(await self.confirmed(ErrorName.UNKNOWN_MEMBER_ID, deadline))
        if not self._takes(request.assignments):
            # The client joins again; no error says that there is no memory for what it assigns.
            log_limit(MEMBERS_BYTES, group_id)
            return SyncResult(RETRIABLE)
        ticket, future = self._new_ticket()
        runner.execute(runner.group.sync(request, ticket, _now_ms()))
        result = await self._result(ticket, future, deadline)
        assert isinstance(result, SyncResult)
        return result

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, deadline: float
    ) -> ErrorName:
        """The error's name, or NONE."""
        error = self._validate(group_id)
        if error is not None:
            return error
        runner = self._find(group_id)
        if runner is None:
            return await self.confirmed(ErrorName.UNKNOWN_MEMBER_ID, deadline)
        error = runner.group.heartbeat(member_id, instance_id, generation, _now_ms())
        failed = None
        if error != ErrorName.NONE or not runner.is_durable:
            runner.evict_if_idle()
            failed = await runner.wait_until_durable()
        return failed or await self.confirmed(error, deadline)

    def try_heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorName | None:
        """The same without waiting. None, and no change, if it would have to wait."""
        error = self._validate(group_id)
        if error is not None:
            return error
        if not self._shard.is_exclusive:
            return None
        runner = self._find(group_id)
        if runner is None or not runner.is_durable:
            return None
        error = runner.group.heartbeat(member_id, instance_id, generation, _now_ms())
        if error in FATAL_MEMBER_ERRORS:
            return None
        if error != ErrorName.NONE:
            runner.evict_if_idle()
        return error

    async def leave(
        self, group_id: str, leaving: Sequence[LeavingMember], deadline: float
    ) -> ErrorName | list[ErrorName]:
        """LeaveGroup: one error for all, or each one's error or NONE."""
        error = self._validate(group_id)
        if error is not None:
            return error
        runner = self._find(group_id)
        if runner is None:
            return [await self.confirmed(ErrorName.UNKNOWN_MEMBER_ID, deadline)] * len(leaving)
        errors, effects = runner.group.leave(leaving, _now_ms())
        runner.execute(effects)
        failed = await runner.wait_until_durable()
        if failed is not None:
            return failed
        # One linearizable read confirms all.
        is_confirmed = await self.confirmed(ErrorName.NONE, deadline) == ErrorName.NONE
        return errors if is_confirmed else [RETRIABLE] * len(errors)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        in_transaction: bool = False,
    ) -> ErrorName | None:
        """The error's name if offsets may not be committed, else None. Counts as a heartbeat. A generation
        below 0 without a member is a simple commit, which only an empty or unknown group takes, unless it is
        `in_transaction`."""
        runner = self._runners.get(group_id)
        if runner is not None:
            return runner.group.check_commit(member_id, instance_id, generation, _now_ms(), in_transaction)
        stored = self._shard.state.groups.by_id.get(group_id)
        if stored is not None and stored.members:
            # A group with members has a runner while this gateway owns the shard: so it does not now.
            return RETRIABLE
        if generation < 0:
            return None
        return (
            ErrorName.UNKNOWN_MEMBER_ID
            if self._shard.state.groups.has(group_id)
            else ErrorName.ILLEGAL_GENERATION
        )

    async def confirm_refusal(self, group_id: str, error: ErrorName, deadline: float) -> ErrorName:
        """The error to return for a commit that `check_commit` refused. What led to the refusal may not be
        durable yet, and a member that is fenced never comes back: so the error waits until it is."""
        runner = self._runners.get(group_id)
        failed = await runner.wait_until_durable() if runner is not None else None
        return failed or await self.confirmed(error, deadline)

    async def confirmed(self, error: ErrorName, deadline: float) -> ErrorName:
        """The error, or NONE, after a linearizable read: newer entries of the journal, by another owner, may
        refute it. RETRIABLE if that fails."""
        if error != RETRIABLE:
            try:
                await self._shard.barrier(deadline)
            except (StoreError, TimeoutError):
                return RETRIABLE
        return error

    def describe(self, group_id: str) -> GroupDescription | None:
        """The group as it is known here and now; None if there is no such group."""
        return self._describe(group_id, with_members=True)

    def listing(self, group_id: str) -> GroupDescription | None:
        """The same without its members."""
        return self._describe(group_id, with_members=False)

    def ids(self) -> Iterator[str]:
        """Ids of groups that have members, had some, or have offsets, be it in an open transaction; as
        `each_once`."""
        stored = self._shard.state.groups
        waiting = self._shard.state.part(Transactions).waiting_groups()
        return each_once(self._runners, stored.by_id, stored.offsets, waiting)

    def _describe(self, group_id: str, *, with_members: bool) -> GroupDescription | None:
        runner = self._runners.get(group_id)
        stored = self._shard.state.groups
        if runner is not None and runner.group.state != DEAD:
            return runner.group.describe() if with_members else runner.group.listing()
        if runner is None and group_id in stored.by_id:
            return describe_stored(stored.by_id[group_id])
        return describe_simple(group_id) if self._is_stored(group_id) else None

    def _is_stored(self, group_id: str) -> bool:
        """Whether the ledger knows it: by its members, or by offsets, be they in an open transaction."""
        state = self._shard.state
        return state.groups.has(group_id) or state.part(Transactions).is_waiting(group_id)

    def members_of(self, group_id: str) -> int:
        """Members of a group that are known here."""
        runner = self._runners.get(group_id)
        return 0 if runner is None else runner.group.member_count

    def figures(self) -> Iterator[tuple[str, int]]:
        """State and number of members of each group that is known here with members, or while anything waits
        for it. There may be very many, and they may change between two steps."""
        return ((runner.group.state, runner.group.member_count) for runner in list(self._runners.values()))

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Topics that the members' consumers subscribe to; None if that is not known, as for groups of
        another protocol type."""
        runner = self._runners.get(group_id)
        if runner is not None:
            return runner.group.subscribed_topics()
        group = self._shard.state.groups.by_id.get(group_id)
        has_consumers = group is not None and group.protocol_type == CONSUMER_PROTOCOL
        return frozenset() if has_consumers else None

    async def delete(self, group_id: str, deadline: float) -> Refused | None:
        """Remove an empty group with all its offsets, durably; None when done."""
        if self._is_closed:
            return Refused(RETRIABLE)
        runner = self._find(group_id)
        if runner is None:
            return Refused(await self.confirmed(ErrorName.GROUP_ID_NOT_FOUND, deadline))
        group = runner.group
        if group.state != EMPTY:
            error = ErrorName.GROUP_ID_NOT_FOUND if group.state == DEAD else ErrorName.NON_EMPTY_GROUP
            return Refused(await self.confirmed(error, deadline))
        group.die()
        try:
            return await self._remove(group_id, deadline)
        finally:
            # Also if the client hangs up meanwhile: later requests follow the removal in the journal.
            if runner.group is group:
                group.revive()
            runner.evict_if_idle()

    async def _remove(self, group_id: str, deadline: float) -> Refused | None:
        runner = self._runners[group_id]
        try:
            async with asyncio.timeout_at(deadline):
                # The journal must have the empty group before it can lose it.
                failed = await runner.wait_until_durable()
                if failed is not None:
                    return Refused(failed)
                while self._is_stored(group_id):
                    result = await self._shard.submit(RemoveGroup(group_id))
                    if isinstance(result, Refused):
                        return result
                    assert isinstance(result, GroupGone)
        except (StoreError, TimeoutError):
            return Refused(RETRIABLE)
        return None

    def _validate(self, group_id: str) -> ErrorName | None:
        if self._is_closed or self._shard.why_not:
            return RETRIABLE
        return None if group_id else ErrorName.INVALID_GROUP_ID

    def _has_max_groups(self, group_id: str) -> bool:
        known = max(len(self._runners), len(self._shard.state.groups.by_id))
        return exceeds_max_groups(group_id, known, self._max_groups)

    def _is_out_of_memory(self) -> bool:
        """Whether no group may take further members, nor members whose metadata grow."""
        return self._weight >= self._max_bytes

    def _takes(self, assignments: Mapping[str, bytes]) -> bool:
        """Whether there is memory for them. Members that were let in get some beyond the bound on members."""
        most = self._max_bytes + self._max_bytes // ASSIGNMENTS_SHARE
        return not assignments or self._weight + sum(map(len, assignments.values())) <= most

    def _grown(self, size_bytes: int) -> None:
        self._weight += size_bytes

    def _find(self, group_id: str) -> GroupRunner | None:
        """The group, if it is known here and now."""
        runner = self._runners.get(group_id)
        if runner is None and self._is_stored(group_id):
            runner = self._open(group_id)
        return runner

    def _open(self, group_id: str) -> GroupRunner:
        runner = GroupRunner(
            group_id,
            self._shard,
            partial(restored_machine, group_id, self._config),
            self._complete,
            self._evict,
            self._on_note,
            self._grown,
            self._timeout_s,
        )
        self._runners[group_id] = runner
        return runner

    def _evict(self, runner: GroupRunner) -> None:
        if self._runners.get(runner.group_id) is runner:
            del self._runners[runner.group_id]
            runner.stop()

    def _new_ticket(self) -> tuple[Ticket, asyncio.Future[JoinResult | SyncResult]]:
        ticket = next(self._tickets)
        future: asyncio.Future[JoinResult | SyncResult] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        return ticket, future

    async def _result(
        self, ticket: Ticket, future: asyncio.Future[JoinResult | SyncResult], deadline: float
    ) -> JoinResult | SyncResult:
        try:
            with parked():
                result = await future
        finally:
            # When a client hangs up its member stays: it may come back for the result.
            self._waiting.pop(ticket, None)
        # Other members may have taken longer than the journal is given: its time begins with the result.
        deadline = max(deadline, asyncio.get_running_loop().time() + self._timeout_s)
        return result._replace(error=await self.confirmed(result.error, deadline))

    def _complete(self, completed: Complete, error: ErrorName | None) -> None:
        future = self._waiting.get(completed.ticket)
        if future is None or future.done():
            return
        result = completed.result
        if error is not None:
            member_id = result.member_id if isinstance(result, JoinResult) else ""
            result = JoinResult(error, member_id) if isinstance(result, JoinResult) else SyncResult(error)
        future.set_result(result)


def _coordinator_config(settings: Settings) -> GroupCoordinatorConfig:
    groups = settings.groups
    return GroupCoordinatorConfig(
        groups.group_initial_rebalance_delay_ms,
        groups.group_min_session_timeout_ms,
        groups.group_max_session_timeout_ms,
        groups.group_max_size,
        settings.limits.group_bytes,
    )


def log_note(group_id: str, note: Note) -> None:
    """Write a note of a group into the log."""
    if note.event == LIMIT_REACHED:
        log_limit(note.reason, group_id)
        return
    # Changes of a group are logged at info; those of members, which come by the thousand, at debug.
    level = log.debug if note.event.startswith("member_") else log.info
    level(f"group.{note.event}", group=group_id, member=note.member_id, reason=note.reason)


def _random_id() -> str:
    return str(new_uuid4())


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
