"""The owner of a shard for one epoch, which drives it: decide, append, apply, return results.

One append is in flight at a time; requests that arrive meanwhile go into the next entry (group commit).
Requests are decided when their entry is filled, so against everything durable plus what the same entry
already holds. No result is returned before the last entry that it depends on is durable.

Over a store that does not say whether an append counts, `start` is read after it, while the next entry is
filled and appended: decided against what the unproved entry holds too (docs/decisions/0033). At most one
entry is unproved; it is applied, and its results are returned, once it is proved.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from gateway.completion import Completion
from gateway.coordination.begun import Begun
from gateway.coordination.commit_delay import CommitDelay
from gateway.coordination.filling import Filling, fail_all, inline_bytes
from gateway.coordination.journal import OwnershipLost, append, verify_counts
from gateway.coordination.replica import Replica
from gateway.coordination.successor import named_successor
from gateway.host import RandomBytes, random_bytes
from ledger.cluster.requests import BecomeOwner, Description, ShowLife
from ledger.cluster.requests import Owner as EpochBegun
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.journal import (
    NONCE_BYTES,
    encode_entry,
)
from ledger.overlay import Overlay
from ledger.partitions.requests import CommitDraft, CommitFile, DraftSource, FileCommit
from ledger.ports import Journal
from ledger.registry import REGISTRY, decide, encode_record, encode_records
from ledger.requests import LedgerResult, Request

log = structlog.get_logger(__name__)

MAX_WAITING = 20_000


class _Submitted(NamedTuple):
    request: Request
    completion: Completion[LedgerResult]


@dataclass(frozen=True, slots=True)
class _Unproved:
    """An entry that is durable, while `start` is read to find out whether it counts."""

    number: int
    data: bytes
    filling: Filling
    barriers: list[asyncio.Future[None]]


class Owner:
    """Everything that is written to the journal in one epoch. The replica applies it once it is durable."""

    def __init__(
        self,
        journal: Journal,
        replica: Replica,
        commit_delay: CommitDelay,
        random: RandomBytes = random_bytes,
    ) -> None:
        self.broken: Exception | None = None
        """Why nothing more is accepted, once ownership is lost."""
        self.lost = asyncio.Event()
        """Set when the epoch has ended, and it is known who has taken the shard over, or cannot be known."""
        self.successor = ""
        """The gateway that has taken the shard over."""
        self.recovered_ms = replica.state.entry_time_ms
        """The time of the last entry that an earlier owner wrote."""
        self.proved_at = -math.inf
        """Loop time at which the last proof began that no other gateway has gone on."""
        self._journal = journal
        self._replica = replica
        self._commit_delay = commit_delay
        self._random = random
        self._waiting: deque[_Submitted] = deque()
        self._barriers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unproved: _Unproved | None = None
        self._proof: asyncio.Task[None] | None = None
        """Of the entry that is unproved. After a failure both stay."""
        self._is_idle = False
        """Whether the task has nothing to do, and no entry is begun outside of it."""
        self._begun: Begun | None = None
        """An entry that was begun outside of the task, which the task has to end."""
        self._context = copy_context()
        """Of the task."""
        self._may_wait = True
        """Whether an entry may stay unproved while the store cannot be read."""

    @property
    def why_not(self) -> str:
        """Why no request is accepted; empty if they are."""
        return "" if self.broken is None else f"this gateway does not own the shard: {self.broken}"

    async def begin(
        self,
        gateway: int,
        cluster_id: str,
        deadline: float,
        feature_level: int = 0,
        described: Description | None = None,
    ) -> EpochBegun:
        """Begin the epoch and serve. StoreUnavailable if that cannot be made durable by the deadline.
        `feature_level` and `described`: see `BecomeOwner`."""
        self._task = asyncio.create_task(
            self._run(), name=f"shard-{self._journal.shard}", context=self._context
        )
        request = BecomeOwner(gateway, self._random(NONCE_BYTES), cluster_id, feature_level, described)
        begun: asyncio.Future[LedgerResult] = asyncio.get_running_loop().create_future()
        self.submit_for(begun, request)
        try:
            async with asyncio.timeout_at(deadline):
                result = await begun
        except TimeoutError as error:
            raise StoreUnavailable(
                "the metadata store did not take the first journal entry in time"
            ) from error
        assert isinstance(result, EpochBegun)
        return result

    async def close(self) -> None:
        """Stop. What still waits has failed for certain, unless it is in the entry in flight; what comes
        later fails at once."""
        closed = StoreUnavailable("the gateway is shutting down")
        if self.broken is None:
            self.broken = closed
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._begun is not None:
            self._begun.interrupt()
        if self._proof is not None:
            self._proof.cancel()
            await self._end_proof()
        self._fail_waiting(closed)

    def submit_for(self, completion: Completion[LedgerResult], request: Request) -> None:
        """As `Ledger.submit_for`."""
        if self.broken is not None:
            completion.set_exception(StoreUnavailable(self.why_not))
        elif len(self._waiting) >= MAX_WAITING:
            completion.set_exception(StoreUnavailable("too many requests wait for the journal"))
        else:
            self._waiting.append(_Submitted(request, completion))
            if type(request) in (CommitDraft, CommitFile):
                # Its batches have had their linger.
                self._commit_delay.skip()
            else:
                self._commit_delay.arrived()
            self._begin_next()

    def _begin_next(self) -> None:
        """Have the entry written in which the next request goes: in a later callback of the event loop, so
        that requests that arrive together share it."""
        if self._is_idle and self._is_alone and self._journal.appends_at_once and not self._wake.is_set():
            self._is_idle = False
            asyncio.get_running_loop().call_soon(self._write_at_once, context=self._context)
        else:
            self._wake.set()

    @property
    def _is_alone(self) -> bool:
        """Whether a draft alone waits, and nothing is under way."""
        is_draft = len(self._waiting) == 1 and type(self._waiting[0].request) is CommitDraft
        return is_draft and self._proof is None and not self._barriers

    def _write_at_once(self) -> None:
        """Write an entry without a step of the task, unless something must be waited for: that, and what has
        failed, is the task's."""
        if self.broken is not None:
            return
        if self._is_alone:
            self._commit_delay.begin()
            self._begun = Begun(self._write_entry())
            if not self._begun.is_done:
                self._wake.set()
                return
            self._begun = None
        self._is_idle = True
        if self._waiting or self._barriers:
            self._begin_next()

    async def prove(self, deadline: float) -> int:
        """The number of entries that were durable when this was called, or later. Where this process alone
        can write, that is known at any time; else it is proved by a later append or a read. StoreUnavailable
        once the epoch has ended: whether the last entry counts is not known then, whatever the journal is."""
        if self.broken is not None:
            raise StoreUnavailable(self.why_not)
        if not self._journal.exclusive:
            await self._proved(deadline)
        return self._replica.state.applied

    async def _proved(self, deadline: float) -> None:
        if len(self._barriers) >= MAX_WAITING:
            raise StoreUnavailable("too many requests wait for a proof that this gateway owns the shard")
        proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append(proved)
        self._wake.set()
        async with asyncio.timeout_at(deadline):
            await proved

    async def _run(self) -> None:
        try:
            while True:
                self._is_idle = True
                await self._wake.wait()
                self._is_idle = False
                self._wake.clear()
                await self._write_all()
        except OwnershipLost as error:
            await self._end_proof()
            self._break(error)
            # Everything has failed by now, so that nothing waits for this.
            self.successor = await named_successor(self._journal, self._replica.state)
            if self.successor:
                self.broken = OwnershipLost(f"{self.successor} has taken it over: {error}", error.certain)
            self.lost.set()
            log.error("shard.ownership_lost", shard=self._journal.shard, reason=str(self.broken))
        except Exception as error:
            # A bug: nothing more may be decided on a state that may be wrong.
            try:
                log.exception("shard.failed", shard=self._journal.shard)
            finally:
                await self._end_proof()
                self._break(error)
                self.lost.set()

    async def _write_all(self) -> None:
        """What waits."""
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun
        if self._proof is not None and self._proof.done():
            await self._proved_all()
        while self._waiting or self._barriers:
            if self._waiting:
                await self._commit_delay.wait(asyncio.get_running_loop().time())
            await self._write_entry()
            if self._waiting or self._barriers:
                # Perhaps nothing was awaited, and a client may have sent its next request: let other tasks
                # run.
                await asyncio.sleep(0)

    async def _write_entry(self) -> None:
        """One entry, or one proof of ownership for all results and barriers that need no entry."""
        if not self._may_overlap():
            await self._proved_all()
        barriers, self._barriers = self._barriers, []
        filling = self._next_filling()
        try:
            self._fill(filling)
            if self._waiting:
                # The entry was full, so this request has waited.
                self._commit_delay.skip()
            if filling.records or filling.is_needed:
                unproved = await self._append(filling, barriers)
            else:
                unproved = None
                await self._prove(filling, barriers)
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
        if unproved is not None:
            self._begin_proof(unproved)
            return
        self._complete(filling, barriers)

    def _complete(self, filling: Filling, barriers: Sequence[asyncio.Future[None]]) -> None:
        """Everything that the results depend on is durable and counts."""
        self._commit_delay.expect(len(filling.results) - filling.files, asyncio.get_running_loop().time())
        for completion, result in filling.results:
            if not completion.done():
                completion.set_result(result)
        for barrier in barriers:
            if not barrier.done():
                barrier.set_result(None)

    def _may_overlap(self) -> bool:
        """Whether the next entry may be decided while one is unproved."""
        if self._unproved is None:
            return True
        is_next = bool(self._waiting) and type(self._waiting[0].request) in REGISTRY.overlapping
        return is_next and self._unproved.filling.may_overlap

    def _next_filling(self) -> Filling:
        state, now_ms, batches = self._replica.state, self._replica.now_ms(), self._journal.entry_batches
        if self._unproved is None:
            return Filling(state.applied, now_ms, Overlay(state), batches, is_first=True)
        number, before = self._unproved.number + 1, self._unproved.filling
        overlay = Overlay(state, before.overlay)
        return Filling(number, max(now_ms, before.time_ms), overlay, batches, is_first=False)

    def _fill(self, filling: Filling) -> None:
        state, overlay = self._replica.state, filling.overlay
        while self._waiting and filling.takes(self._waiting[0].request):
            request, completion = self._waiting[0]
            if completion.done():
                self._waiting.popleft()
                continue  # its caller gave up while it was still undecided
            if type(request) is CommitDraft:
                self._place(filling, request.source, completion)
                self._waiting.popleft()
                continue
            decision = decide(state, overlay, request, filling.time_ms)
            # Encoded before the request leaves the queue: if a record cannot be written, all that wait fail.
            if type(request) is BecomeOwner:
                records = encode_records(decision.records, state.feature_level)
                # Such an entry is never pruned.
                filling.may_have_batches = False
            else:
                records = [encode_record(record, state.feature_level) for record in decision.records]
            self._waiting.popleft()
            filling.results.append((completion, decision.result))
            filling.records += records
            filling.size += sum(map(len, records))
            filling.work += request.work if decision.work is None else decision.work
            filling.files += type(request) is CommitFile
            filling.may_overlap = filling.may_overlap and type(request) in REGISTRY.overlapping
            filling.is_needed |= type(request) is ShowLife

    def _place(self, filling: Filling, source: DraftSource, completion: Completion[LedgerResult]) -> None:
        """Take a draft into the entry, unless the journal does not take it."""
        batches = source.take()
        if not batches:
            return
        placement = self._journal.place(filling.number, batches)
        if placement is None or not filling.has_space(placement, batches, source):
            source.not_placed()
            return
        request, state = source.placed(placement), self._replica.state
        decision = decide(state, filling.overlay, request, filling.time_ms)
        records = [encode_record(record, state.feature_level) for record in decision.records]
        if records:
            # Else it was refused whole, or has all been there before.
            filling.batches = batches
            filling.inline_bytes = inline_bytes(placement, batches)
            filling.size += filling.inline_bytes + sum(map(len, records))
        filling.records += records
        filling.results.append((completion, decision.result))
        filling.work += request.work
        filling.files += 1
        assert isinstance(decision.result, FileCommit)
        source.decided(decision.result)

    async def _append(self, filling: Filling, barriers: list[asyncio.Future[None]]) -> _Unproved | None:
        """None: the entry counts, and is applied."""
        state, number = self._replica.state, filling.number
        data = encode_entry(state.epoch, filling.time_ms, self._random(NONCE_BYTES), filling.records)
        counts = await self._next_to_proof(append(self._journal, number, data, filling.batches))
        await self._proved_all()
        if not counts:
            return _Unproved(number, data, filling, barriers)
        await self._replica.apply(data, filling.inline_bytes)
        self.proved_at = filling.began_at
        return None

    async def _next_to_proof(self, append: Coroutine[None, None, bool]) -> bool:
        """The result of the append, which ends if the entry before does not count."""
        if self._proof is None:
            return await append
        appending = asyncio.ensure_future(append)
        try:
            await asyncio.wait((appending, self._proof), return_when=asyncio.FIRST_COMPLETED)
            if not appending.done():
                await self._proved_all()
            return await appending
        finally:
            if not appending.done():
                appending.cancel()
                await asyncio.gather(appending, return_exceptions=True)

    def _begin_proof(self, unproved: _Unproved) -> None:
        self._unproved = unproved
        self._proof = asyncio.create_task(self._prove_appended(unproved), name="shard-proof")
        self._proof.add_done_callback(lambda _: self._wake.set())

    async def _prove_appended(self, unproved: _Unproved) -> None:
        """Apply the entry and return its results, once it is known to count."""
        await verify_counts(self._journal, unproved.number, lambda: self._may_wait)
        await self._replica.apply(unproved.data, unproved.filling.inline_bytes)
        self.proved_at = unproved.filling.began_at
        self._unproved = self._proof = None
        self._complete(unproved.filling, unproved.barriers)

    async def _proved_all(self) -> None:
        """Wait until every appended entry is applied. OwnershipLost if the last one does not count."""
        if self._proof is not None:
            await asyncio.shield(self._proof)

    async def _end_proof(self) -> None:
        """Nothing more is appended. The last entry counts or not, as far as the store says so now."""
        self._may_wait = False
        if self._proof is None or self._unproved is None:
            return
        unproved = self._unproved
        if not self._proof.done():
            await asyncio.gather(self._proof, return_exceptions=True)
        if self._proof is not None:
            reason = "interrupted" if self._proof.cancelled() else str(self._proof.exception())
            unproved.filling.fail(OutcomeUnknown(reason))
            self._barriers = unproved.barriers + self._barriers

    async def _prove(self, filling: Filling, barriers: Sequence[asyncio.Future[None]]) -> None:
        """That no other gateway has gone on, at a moment after this call: a refusal, or the result of a
        repeat, would be as wrong as a read. The next entry would begin an epoch of that gateway, and such an
        entry is never pruned: that it is absent says enough."""
        await self._proved_all()
        if not barriers and (not filling.results or self._journal.exclusive):
            return
        try:
            found = await self._journal.get(self._replica.state.applied)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error
        if found is not None:
            raise OwnershipLost(f"journal entry {self._replica.state.applied} was written by another gateway")
        self.proved_at = filling.began_at

    def _break(self, error: Exception) -> None:
        self.broken = error
        self._fail_waiting(StoreUnavailable(f"this gateway does not own the shard any more: {error}"))

    def _fail_waiting(self, error: StoreUnavailable) -> None:
        waiting, self._waiting = self._waiting, deque()
        fail_all([(submitted.completion, None) for submitted in waiting], error)
        for barrier in self._barriers:
            if not barrier.done():
                barrier.set_exception(error)
        self._barriers.clear()
