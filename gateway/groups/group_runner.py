"""Runs the machine of one group: stores what must be durable, completes requests afterwards, and wakes the
machine when something is due.

One `StoreGroup` of a group is in flight at a time; a newer state waits, and replaces one that waits already.
While the outcome is unknown, waiting requests are completed after a timeout with an error that makes clients
repeat them. If the journal refuses or fails, the group goes back to its durable state, waiting requests fail
with a retriable error, and the members must join again.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from gateway.coordination.ledger import Ledger
from gateway.coordination.steps import in_steps
from gateway.groups.events import log_not_stored
from gateway.groups.machine import Complete, Effect, GroupMachine, Note, RebalanceReason, Store
from gateway.groups.messages import RETRIABLE
from ledger.errors import ErrorName, StoreUnavailable
from ledger.groups.records import MEMBERS_AT_ONCE, encoding_group
from ledger.groups.requests import StoreGroup
from ledger.groups.state import Group
from ledger.requests import LedgerResult, Refused

log = structlog.get_logger(__name__)

STALL_MS: Final = 1000
"""Members cannot send heartbeats while they wait for the journal: after a longer wait sessions restart."""

OnDurable = Callable[[str | None], None]
"""Called with None when the state is durable, else with the error that replaces the result."""


class GroupRunner:
    """One group of the coordinator."""

    def __init__(  # noqa: PLR0913 - its callbacks
        self,
        group_id: str,
        shard: Ledger,
        restored: Callable[[Group | None, float], GroupMachine],
        complete: Callable[[Complete, ErrorName | None], None],
        evict: Callable[["GroupRunner"], None],
        on_note: Callable[[str, Note], None],
        on_weight: Callable[[int], None],
        timeout_s: float,
    ) -> None:
        """`restored` makes the machine from its durable state (None: a new group) at a time in ms. `evict` is
        called when a new runner would know all that this one does. `on_weight` is called with the bytes by
        which the group has grown, or become smaller. `timeout_s` bounds how long requests wait for the
        journal."""
        self.group_id = group_id
        self._shard = shard
        self._restored = restored
        self._complete = complete
        self._evict = evict
        self._on_note = on_note
        self._on_weight = on_weight
        self._weighed = 0
        self._timeout_s = timeout_s
        self._decided = self._durable = 0
        """States that had to be stored, by number: the newest, and the newest that is durable."""
        self._unsent: Group | None = None
        """The newest state, while an older one is in flight."""
        self._storing: asyncio.Future[LedgerResult] | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._held: deque[tuple[int, OnDurable]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float = math.inf
        self._is_stopped = False
        self.group = self._restore()
        self._weigh(self.group.weight)
        self._arm()

    def execute(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Store(group):
                    self._decided += 1
                    self._unsent = group
                    self._store()
                case Complete():
                    self._when_durable(partial(self._complete, effect))
                case Note():
                    self._on_note(self.group_id, effect)
        self._weigh(self.group.weight)
        self._arm()
        self.evict_if_idle()

    def evict_if_idle(self) -> None:
        is_busy = self._held or self._storing is not None or self._is_stopped
        if not is_busy and self.group.is_idle:
            self._evict(self)

    @property
    def is_durable(self) -> bool:
        """Whether all that was decided is durable, so that results may leave."""
        return self._durable == self._decided

    async def wait_until_durable(self) -> ErrorName | None:
        """Wait until all that was decided so far is durable. Returns the error if that fails."""
        if self.is_durable:
            return None
        outcome: asyncio.Future[ErrorName | None] = asyncio.get_running_loop().create_future()
        self._when_durable(partial(_set_result, outcome))
        return await outcome

    def stop(self) -> None:
        """Complete all waiting requests, and stop the timers."""
        self._is_stopped = True
        self._release(self._decided, RETRIABLE)
        self._complete_all(self.group.abandon(RETRIABLE))
        for timer in (self._timer, self._timeout):
            if timer is not None:
                timer.cancel()
        self._timer = self._timeout = None
        self._weigh(0)

    def _weigh(self, weight: int) -> None:
        if weight != self._weighed:
            self._on_weight(weight - self._weighed)
            self._weighed = weight

    def _restore(self) -> GroupMachine:
        return self._restored(self._shard.state.groups.by_id.get(self.group_id), _now_ms())

    def _store(self) -> None:
        if self._storing is not None or self._unsent is None:
            return
        number, group = self._decided, self._unsent
        self._unsent = None
        self._storing = self._submit(group)
        self._storing.add_done_callback(partial(self._on_stored, number, _now_ms()))
        if not self._is_stopped:
            self._arm_timeout()

    def _submit(self, group: Group) -> asyncio.Future[LedgerResult]:
        if len(group.members) <= MEMBERS_AT_ONCE:
            return self._shard.submit(StoreGroup(group))
        # No member knows of this state before it is durable, so it need not be submitted at once.
        return asyncio.get_running_loop().create_task(self._encode_and_submit(group), name="store group")

    async def _encode_and_submit(self, group: Group) -> LedgerResult:
        """In steps of the event loop: thousands of members are encoded and deflated in 30 ms."""
        encoded = await in_steps(encoding_group(group))
        if self._is_stopped:
            # The shard may be owned again by now, and others may have changed the group meanwhile.
            raise StoreUnavailable("the epoch of the group has ended")
        return await self._shard.submit(StoreGroup(group, encoded))

    def _arm_timeout(self) -> None:
        self._timeout = asyncio.get_running_loop().call_later(self._timeout_s, self._fail_waiters_retriably)

    def _fail_waiters_retriably(self) -> None:
        """The journal may hang for any time, but no request waits for it longer than the timeout: neither one
        whose result is held until the state is durable, nor one that waits inside the group, for which no
        time passes."""
        self._release(self._decided, RETRIABLE)
        self._complete_all(self.group.fail_waiters_retriably(RETRIABLE, _now_ms()))
        self._arm_timeout()

    def _on_stored(self, number: int, began_ms: float, done: asyncio.Future[LedgerResult]) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        self._storing = None
        failure = _failure_of(done)
        if failure is not None:
            self._roll_back(failure)
            return
        if _now_ms() - began_ms >= STALL_MS:
            self.group.reset_session_timers(_now_ms())
        self._durable = number
        self._release(number, None)
        self._store()
        self._arm()
        self.evict_if_idle()

    def _roll_back(self, failure: "_Failure") -> None:
        error, message = failure
        log_not_stored(self.group_id, error, message)
        self._unsent = None
        self._durable = self._decided
        self._release(self._decided, error)
        abandoned = self.group
        self.group = self._restore()
        self._weigh(0 if self._is_stopped else self.group.weight)
        self._complete_all(abandoned.abandon(error))
        if not self._is_stopped and not self._shard.why_not:
            self.execute(self.group.restart_rebalance(_now_ms(), RebalanceReason.NOT_STORED))

    def _complete_all(self, effects: Sequence[Effect]) -> None:
        """Complete these requests at once, whatever is durable."""
        for effect in effects:
            if isinstance(effect, Complete):
                self._complete(effect, None)

    def _when_durable(self, callback: OnDurable) -> None:
        if self.is_durable:
            callback(None)
        else:
            self._held.append((self._decided, callback))

    def _release(self, number: int, error: ErrorName | None) -> None:
        while self._held and self._held[0][0] <= number:
            _, callback = self._held.popleft()
            callback(error)

    def _arm(self) -> None:
        due = self.group.wake_at
        if due >= self._timer_at or self._storing is not None or self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_at(due / 1000, self._wake)

    def _wake(self) -> None:
        # The loop's clock may be coarser than the time that the timer was armed for.
        now = max(_now_ms(), self._timer_at)
        self._timer, self._timer_at = None, math.inf
        if self._storing is None:
            # Otherwise what is due may concern members that wait for the journal; it is done afterwards.
            self.execute(self.group.tick(now))


class _Failure(NamedTuple):
    """Why a state is not durable: what clients get, and a sentence for the operator."""

    error: ErrorName
    message: str


def _failure_of(done: asyncio.Future[LedgerResult]) -> _Failure | None:
    if done.cancelled():
        return _Failure(RETRIABLE, "the request to the journal was cancelled")
    error = done.exception()
    if error is not None:
        if not isinstance(error, StoreUnavailable):
            log.error("group.outcome_unknown", reason=str(error))
        return _Failure(RETRIABLE, str(error))
    result = done.result()
    return _Failure(result.error, result.message) if isinstance(result, Refused) else None


def _set_result(outcome: asyncio.Future[ErrorName | None], error: ErrorName | None) -> None:
    if not outcome.done():
        outcome.set_result(error)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
