"""The driver of a shard: decide, append, apply, return results.

One append is in flight at a time; requests that arrive meanwhile go into the next entry (group commit).
Requests are decided when their entry is filled, so against everything durable plus what the same entry
already holds. No result is returned before the last entry that it depends on is durable.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from gateway.completion import Completion
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.journal import Journal, OwnershipLost
from gateway.coordination.ledger import Subscriber
from ledger.cluster.requests import BecomeOwner, Owner
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.journal import (
    GROUP_COMMIT_BATCHES,
    HEAD_BYTES,
    MAX_ENTRY_BYTES,
    NONCE_BYTES,
    apply_entry,
    decode_entry,
    encode_entry,
    entry_key,
)
from ledger.overlay import Overlay
from ledger.partitions.requests import CommitFile
from ledger.registry import REGISTRY, decide, encode_record
from ledger.requests import LedgerResult, Request
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

MAX_WAITING = 20_000


class _Submitted(NamedTuple):
    request: Request
    completion: Completion[LedgerResult]


@dataclass(slots=True)
class _Filling:
    """The entry that is being filled."""

    time_ms: int
    records: list[bytes] = field(default_factory=list)
    answers: list[tuple[Completion[LedgerResult], LedgerResult]] = field(default_factory=list)
    size: int = HEAD_BYTES
    work: int = 0
    files: int = 0
    """Of the answers, how many are of committed files."""

    def has_capacity(self, request: Request) -> bool:
        if not self.records:
            return True
        fits = self.size + request.weight <= MAX_ENTRY_BYTES
        return fits and self.work + request.work <= GROUP_COMMIT_BATCHES

    def fail(self, error: Exception) -> None:
        """Tell all who wait. They are let go of: the error keeps frames alive that hold this entry, and
        those who wait hold their drafts."""
        answers, self.answers = self.answers, []
        _fail(answers, error)


class Shard:
    """The owner of one shard. `state` is durable and may be read at any time on the event loop."""

    def __init__(
        self,
        journal: Journal,
        state: LedgerState,
        clock: Callable[[], int],
        commit_delay: CommitDelay | None = None,
        elapsed: Callable[[], int] | None = None,
    ) -> None:
        """Without `commit_delay` an entry is filled as soon as a request waits. `elapsed`, ms on a monotonic
        clock, lets time go on while `clock` is behind the last entry; without it time stands still."""
        self.journal = journal
        self.state = state
        self.clock = clock
        self._elapsed = elapsed
        self._went_on: tuple[int, int] | None = None
        """While the clock is behind: the entry time at which that was seen, and `elapsed` then."""
        self.journal_bytes = 0
        """Bytes appended by this process, for the decision to take a snapshot."""
        self.last_nonce = b""
        self.recovered_ms = state.entry_time_ms
        """The time of the last entry that an earlier process wrote."""
        self.broken: Exception | None = None
        """Why nothing more is accepted, once ownership is lost."""
        self.growth_refusal = ""
        """Why nothing that makes the ledger grow is accepted, while the space left is kept for deletions."""
        self._waiting: deque[_Submitted] = deque()
        self._barriers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._commit_delay = commit_delay or CommitDelay(0.0)
        self._subscribers: list[Subscriber] = []
        self._task: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()

    async def start(self, gateway: int, cluster_id: str, deadline: float) -> Owner:
        """Begin an epoch and serve. StoreUnavailable if that cannot be made durable by the deadline."""
        self._task = asyncio.create_task(self._run(), name=f"shard-{self.journal.shard}")
        asked = BecomeOwner(gateway, os.urandom(NONCE_BYTES), cluster_id)
        try:
            answer = await self.ask(asked, deadline)
        except TimeoutError as error:
            raise StoreUnavailable(
                "the metadata store did not take the first journal entry in time"
            ) from error
        assert isinstance(answer, Owner)
        return answer

    async def close(self) -> None:
        """Stop. What still waits has failed for certain, unless it is in the entry in flight; what comes
        later fails at once."""
        closed = StoreUnavailable("the gateway is shutting down")
        if self.broken is None:
            self.broken = closed
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._commit_delay.close()
        self._fail_waiting(closed)

    @property
    def why_not(self) -> str:
        """Why no request is accepted; empty if they are."""
        return "" if self.broken is None else f"this gateway does not own the shard: {self.broken}"

    def now_ms(self) -> int:
        """The time of the next entry, of keys, and of all ages that are counted from entries: never before
        the last entry, whatever the clock says. While the clock is behind it goes at half speed, so that ages
        grow and the clock catches up."""
        clock_ms, entry_ms = self.clock(), self.state.entry_time_ms
        if self._went_on is None:
            if clock_ms >= entry_ms or self._elapsed is None:
                return max(clock_ms, entry_ms)
            self._went_on = entry_ms, self._elapsed()
        assert self._elapsed is not None
        began_ms, elapsed = self._went_on
        now_ms = max(entry_ms, began_ms + (self._elapsed() - elapsed) // 2)
        if clock_ms >= now_ms:
            self._went_on = None
        return max(clock_ms, now_ms)

    def submit(self, request: Request) -> asyncio.Future[LedgerResult]:
        """Queue a request; requests are decided in the order of this call. The future raises
        StoreUnavailable for certain failure; until it is done the outcome is unknown."""
        answered: asyncio.Future[LedgerResult] = asyncio.get_running_loop().create_future()
        self.submit_for(answered, request)
        return answered

    def submit_for(self, completion: Completion[LedgerResult], request: Request) -> None:
        """The same for a caller that needs no future. What fails at once completes before this returns."""
        if self.broken is not None:
            completion.set_exception(StoreUnavailable(self.why_not))
        elif len(self._waiting) >= MAX_WAITING:
            completion.set_exception(StoreUnavailable("too many requests wait for the journal"))
        elif self.growth_refusal and type(request) in REGISTRY.growing:
            completion.set_exception(StoreUnavailable(self.growth_refusal))
        else:
            self._waiting.append(_Submitted(request, completion))
            self._wake.set()
            if type(request) is CommitFile:
                # Its batches have had their linger.
                self._commit_delay.skip()
            else:
                self._commit_delay.arrived()

    async def ask(self, request: Request, deadline: float) -> LedgerResult:
        """Ask and wait. `deadline` is loop time; TimeoutError means that the outcome is unknown."""
        async with asyncio.timeout_at(deadline):
            return await self.submit(request)

    async def barrier(self, deadline: float) -> None:
        """Return once everything is applied that was durable when this was called. Where this process
        alone can write, that is so at any time; else it is proved by a later append or a read."""
        if self.journal.store.exclusive:
            return
        if self.broken is not None:
            raise StoreUnavailable(self.why_not)
        if len(self._barriers) >= MAX_WAITING:
            raise StoreUnavailable("too many requests wait for a proof that this gateway owns the shard")
        proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append(proved)
        self._wake.set()
        async with asyncio.timeout_at(deadline):
            await proved

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Be called after each applied entry with the partitions that it touched. Returns the undo."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting or self._barriers:
                    if self._waiting:
                        await self._commit_delay.wait(asyncio.get_running_loop().time())
                    await self._write_entry()
        except OwnershipLost as error:
            log.error("shard.ownership_lost", shard=self.journal.shard, reason=str(error))
            self._break(error)
        except Exception as error:
            # A bug: nothing more may be decided on a state that may be wrong.
            log.exception("shard.failed", shard=self.journal.shard)
            self._break(error)

    async def _write_entry(self) -> None:  # noqa: C901 - one entry, from filling to results
        """One entry, or one proof of ownership for all results and barriers that need no entry."""
        barriers, self._barriers = self._barriers, []
        filling = _Filling(self.now_ms())
        try:
            self._fill(filling)
            if self._waiting:
                # The entry was full, so this request has waited.
                self._commit_delay.skip()
            if filling.records:
                await self._append(filling)
            elif barriers or (filling.answers and not self.journal.store.exclusive):
                # A refusal, or the result of a repeat, is as wrong as a read if another gateway has gone on.
                await self._prove()
        except StoreUnavailable as error:
            filling.fail(error)
            for barrier in barriers:
                if not barrier.done():
                    barrier.set_exception(error)
            barriers.clear()
            return
        except OwnershipLost as error:
            failure = StoreUnavailable(str(error)) if error.certain else OutcomeUnknown(str(error))
            filling.fail(failure)
            self._barriers = barriers + self._barriers
            raise
        except BaseException as error:
            filling.fail(OutcomeUnknown(f"the append was interrupted: {error!r}"))
            self._barriers = barriers + self._barriers
            raise
        self._commit_delay.expect(len(filling.answers) - filling.files, asyncio.get_running_loop().time())
        for completion, answer in filling.answers:
            if not completion.done():
                completion.set_result(answer)
        for barrier in barriers:
            if not barrier.done():
                barrier.set_result(None)
        if not filling.records:
            # Nothing was awaited, and a refused client may have sent its next request: let other tasks run.
            await asyncio.sleep(0)

    def _fill(self, filling: _Filling) -> None:
        overlay = Overlay(self.state)
        while self._waiting and filling.has_capacity(self._waiting[0].request):
            request, completion = self._waiting[0]
            if completion.done():
                self._waiting.popleft()
                continue  # its caller gave up while it was still undecided
            decision = decide(self.state, overlay, request, filling.time_ms)
            # Encoded before the request leaves the queue: if a record cannot be written, all that wait fail.
            records = [encode_record(record) for record in decision.records]
            self._waiting.popleft()
            filling.answers.append((completion, decision.result))
            filling.records += records
            filling.size += sum(map(len, records))
            filling.work += request.work
            filling.files += type(request) is CommitFile

    async def _append(self, filling: _Filling) -> None:
        number = self.state.applied
        epoch = self.state.epoch
        data = encode_entry(epoch, filling.time_ms, os.urandom(NONCE_BYTES), filling.records)
        await self.journal.append(number, data)
        # Applied from its bytes, as every follower and every restart will.
        entry = decode_entry(data, entry_key(self.journal.shard, number))
        touched = apply_entry(self.state, entry)
        self.journal_bytes += len(data)
        self.last_nonce = entry.nonce
        if touched:
            for subscriber in tuple(self._subscribers):
                subscriber(touched)

    async def _prove(self) -> None:
        """That no other gateway has gone on, at a moment after this call. The next entry would begin an epoch
        of that gateway, and such an entry is never pruned: that it is absent says enough."""
        try:
            is_absent = await self.journal.is_absent(self.state.applied)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error
        if not is_absent:
            raise OwnershipLost(f"journal entry {self.state.applied} was written by another gateway")

    def _break(self, error: Exception) -> None:
        self.broken = error
        self._fail_waiting(StoreUnavailable(f"this gateway does not own the shard any more: {error}"))
        self.lost.set()

    def _fail_waiting(self, error: StoreUnavailable) -> None:
        waiting, self._waiting = self._waiting, deque()
        _fail([(submitted.completion, None) for submitted in waiting], error)
        for barrier in self._barriers:
            if not barrier.done():
                barrier.set_exception(error)
        self._barriers.clear()


def _fail(waiting: Sequence[tuple[Completion[LedgerResult], LedgerResult | None]], error: Exception) -> None:
    for completion, _ in waiting:
        if not completion.done():
            completion.set_exception(error)
