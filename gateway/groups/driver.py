"""Drives the machine of one group: stores what must be stored, holds answers back until it is durable, and
wakes the machine when something is due.

One `StoreGroup` of a group is under way at a time; a newer state waits and replaces what waits already. While
the journal does not say what became of it, whoever waits is told now and then to try again. If
one fails, the group goes back to what is durable, whoever waits is told to try again, and the members are
asked to join again.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from gateway.coordination.shard import Shard
from gateway.groups.classic import ClassicGroup
from gateway.groups.states import State
from gateway.groups.values import Answer, Effect, GroupRules, Note, Store
from ledger.errors import StoreUnavailable
from ledger.groups import Group
from ledger.requests import Answer as LedgerAnswer
from ledger.requests import Refused, StoreGroup

log = structlog.get_logger(__name__)

NOT_NOW: Final = "COORDINATOR_NOT_AVAILABLE"
"""The client finds its coordinator again and repeats the request."""

STALL_MS: Final = 1000
"""Members cannot say that they live while they wait for the journal; if that took longer, it is made up."""

Settle = Callable[[str | None], None]
"""Given None the answer leaves as it was decided, else with this error."""


class GroupDriver:
    """One group of the room."""

    def __init__(
        self,
        group_id: str,
        shard: Shard,
        rules: GroupRules,
        settle: Callable[[Answer, str | None], None],
        forget: Callable[["GroupDriver"], None],
        notice: Callable[[str, Note], None],
        patience_s: float,
    ) -> None:
        """`forget` is called when there is nothing that a driver made anew would not know."""
        self.group_id = group_id
        self._shard = shard
        self._rules = rules
        self._settle = settle
        self._forget = forget
        self._notice = notice
        self._patience_s = patience_s
        self._decided = self._durable = 0
        """States that had to be stored, by number: the newest, and the newest that is durable."""
        self._next: Group | None = None
        self._storing: asyncio.Future[LedgerAnswer] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._held: deque[tuple[int, Settle]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float = math.inf
        self._is_stopped = False
        self.group = self._restored()
        self._arm()

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Store(group):
                    self._decided += 1
                    self._next = group
                    self._store()
                case Answer():
                    self._hold(partial(self._settle, effect))
                case Note():
                    self._notice(self.group_id, effect)
        self._arm()
        self.rest()

    def rest(self) -> None:
        """Be forgotten, if there is nothing to remember."""
        group = self.group
        is_busy = group.pending or self._held or self._storing is not None
        if group.state is State.EMPTY and not is_busy and not self._is_stopped:
            self._forget(self)

    @property
    def is_durable(self) -> bool:
        """Whether all that was decided may be told."""
        return self._durable == self._decided

    async def durable(self) -> str | None:
        """Wait until all that was decided so far is durable; else why an answer cannot be given."""
        if self.is_durable:
            return None
        settled: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._hold(partial(_resolve, settled))
        return await settled

    def stop(self) -> None:
        """Answer all that waits; nothing is due any more."""
        self._is_stopped = True
        self._release(self._decided, NOT_NOW)
        for effect in self.group.abandon(NOT_NOW):
            if isinstance(effect, Answer):
                self._settle(effect, None)
        for timer in (self._timer, self._late):
            if timer is not None:
                timer.cancel()
        self._timer = self._late = None

    def _restored(self) -> ClassicGroup:
        group = ClassicGroup(self.group_id, self._rules)
        stored = self._shard.state.groups.by_id.get(self.group_id)
        if stored is not None:
            group.restore(stored, _now_ms())
        return group

    def _store(self) -> None:
        if self._storing is not None or self._next is None:
            return
        number, group = self._decided, self._next
        self._next = None
        self._storing = self._shard.submit(StoreGroup(group))
        self._storing.add_done_callback(partial(self._stored, number, _now_ms()))
        if not self._is_stopped:
            self._be_patient()

    def _be_patient(self) -> None:
        self._late = asyncio.get_running_loop().call_later(self._patience_s, self._put_off)

    def _put_off(self) -> None:
        """The journal may hang for as long as it likes, but nobody may wait for it as long: neither who is to
        be answered when the state is durable, nor who waits in the group, for which no time passes."""
        self._release(self._decided, NOT_NOW)
        for effect in self.group.put_off(NOT_NOW, _now_ms()):
            if isinstance(effect, Answer):
                self._settle(effect, None)
        self._be_patient()

    def _stored(self, number: int, begun: float, done: asyncio.Future[LedgerAnswer]) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._storing = None
        error = _why_failed(done)
        if error is None:
            if _now_ms() - begun >= STALL_MS:
                self.group.hear_from_all(_now_ms())
            self._durable = number
            self._release(number, None)
            self._store()
            self._arm()
            self.rest()
        else:
            self._go_back(error)

    def _go_back(self, error: str) -> None:
        log.warning("group.not_stored", group=self.group_id, error=error)
        self._next = None
        self._durable = self._decided
        self._release(self._decided, error)
        abandoned = self.group
        self.group = self._restored()
        for effect in abandoned.abandon(error):
            if isinstance(effect, Answer):
                self._settle(effect, None)
        if not self._is_stopped and self._shard.broken is None:
            self.perform(self.group.start_over(_now_ms(), "its state could not be stored"))

    def _hold(self, settle: Settle) -> None:
        if self.is_durable:
            settle(None)
        else:
            self._held.append((self._decided, settle))

    def _release(self, number: int, error: str | None) -> None:
        while self._held and self._held[0][0] <= number:
            _, settle = self._held.popleft()
            settle(error)

    def _arm(self) -> None:
        due = self.group.wake_at
        if due >= self._timer_at or self._storing is not None or self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_at(due / 1000, self._wake)

    def _wake(self) -> None:
        # The loop's clock may be coarser than what it was armed for.
        now = max(_now_ms(), self._timer_at)
        self._timer, self._timer_at = None, math.inf
        if self._storing is None:
            # Else what is due would be about members who wait for the journal; it is done afterwards.
            self.perform(self.group.tick(now))


def _why_failed(done: asyncio.Future[LedgerAnswer]) -> str | None:
    if done.cancelled():
        return NOT_NOW
    error = done.exception()
    if error is not None:
        if not isinstance(error, StoreUnavailable):
            log.error("group.outcome_unknown", reason=str(error))
        return NOT_NOW
    answer = done.result()
    return answer.error if isinstance(answer, Refused) else None


def _resolve(settled: asyncio.Future[str | None], error: str | None) -> None:
    if not settled.done():
        settled.set_result(error)


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
