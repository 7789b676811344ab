"""The driver of a shard: decide, append, apply, answer.

One append is in flight at a time; all that waits meanwhile goes into the next entry (group commit).
Requests are decided when their entry is filled, so against everything durable plus what the same entry
already holds. No answer leaves before the last entry it looked at is durable.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import structlog

from gateway.coordination.gathering import Gathering
from gateway.coordination.journal import Journal, OwnershipLost
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.journal import (
    GROUP_COMMIT_BATCHES,
    HEAD_BYTES,
    MAX_ENTRY_BYTES,
    NONCE_BYTES,
    decode_entry,
    encode_entry,
    entry_key,
)
from ledger.machine import decide
from ledger.overlay import Overlay
from ledger.partitions import PartitionLog
from ledger.records import encode_record
from ledger.requests import GROWING, Answer, BecomeOwner, CommitFile, Owner, Request, work
from ledger.state import LedgerState

log = structlog.get_logger(__name__)

MAX_WAITING = 20_000

Subscriber = Callable[[Sequence[PartitionLog]], None]


class Asker(Protocol):
    """Who waits for an answer, and is told once, in the turn in which that may be told: a future, or what
    needs none. It may submit requests when it is told, and never raises."""

    def done(self) -> bool:
        """Whether it waits no longer; what is not decided yet is then left."""
        ...

    def set_result(self, result: Answer, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None:
        """StoreUnavailable for certain failure; of any other the outcome is unknown."""
        ...


class _Asked(NamedTuple):
    request: Request
    answered: Asker


@dataclass(slots=True)
class _Filling:
    """The entry that is being filled."""

    time_ms: int
    records: list[bytes] = field(default_factory=list)
    answers: list[tuple[Asker, Answer]] = field(default_factory=list)
    size: int = HEAD_BYTES
    work: int = 0
    files: int = 0
    """Of the answers, how many are of committed files."""

    def has_room(self, request: Request) -> bool:
        if not self.records:
            return True
        fits = self.size + request.weight <= MAX_ENTRY_BYTES
        return fits and self.work + work(request) <= GROUP_COMMIT_BATCHES

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
        gathering: Gathering | None = None,
        elapsed: Callable[[], int] | None = None,
    ) -> None:
        """Without `gathering` every entry is filled as soon as somebody asks. `elapsed`, ms on a clock that
        nobody sets, lets time go on while `clock` is behind the last entry; without it time stands still."""
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
        self._waiting: deque[_Asked] = deque()
        self._barriers: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._gathering = gathering or Gathering(0.0)
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
        self._gathering.close()
        self._fail_waiting(closed)

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

    def submit(self, request: Request) -> asyncio.Future[Answer]:
        """Queue a request; requests are decided in the order of this call. The future raises
        StoreUnavailable for certain failure; until it is done the outcome is unknown."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.submit_for(answered, request)
        return answered

    def submit_for(self, answered: Asker, request: Request) -> None:
        """The same for who needs no future; what fails at once is told before this returns."""
        if self.broken is not None:
            answered.set_exception(StoreUnavailable(f"this gateway does not own the shard: {self.broken}"))
        elif len(self._waiting) >= MAX_WAITING:
            answered.set_exception(StoreUnavailable("too many requests wait for the journal"))
        elif self.growth_refusal and type(request) in GROWING:
            answered.set_exception(StoreUnavailable(self.growth_refusal))
        else:
            self._waiting.append(_Asked(request, answered))
            self._wake.set()
            if type(request) is CommitFile:
                # Its batches have had their linger.
                self._gathering.hurry()
            else:
                self._gathering.came()

    async def ask(self, request: Request, deadline: float) -> Answer:
        """Ask and wait. `deadline` is loop time; TimeoutError means that the outcome is unknown."""
        async with asyncio.timeout_at(deadline):
            return await self.submit(request)

    async def barrier(self, deadline: float) -> None:
        """Return once everything is applied that was durable when this was called. Where this process
        alone can write, that is so at any time; else it is proved by a later append or a read."""
        if self.journal.store.exclusive:
            return
        if self.broken is not None:
            raise StoreUnavailable(f"this gateway does not own the shard: {self.broken}")
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
                        await self._gathering.gather(asyncio.get_running_loop().time())
                    await self._turn()
        except OwnershipLost as error:
            log.error("shard.ownership_lost", shard=self.journal.shard, reason=str(error))
            self._break(error)
        except Exception as error:
            # A bug: nothing more may be decided on a state that may be wrong.
            log.exception("shard.failed", shard=self.journal.shard)
            self._break(error)

    async def _turn(self) -> None:
        """One entry, or one proof for the barriers that wait."""
        barriers, self._barriers = self._barriers, []
        filling = _Filling(self.now_ms())
        try:
            self._fill(filling)
            if self._waiting:
                # There was no room for it, so it has waited.
                self._gathering.hurry()
            if filling.records:
                await self._append(filling)
            elif barriers:
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
        self._gathering.told(len(filling.answers) - filling.files, asyncio.get_running_loop().time())
        for answered, answer in filling.answers:
            if not answered.done():
                answered.set_result(answer)
        for barrier in barriers:
            if not barrier.done():
                barrier.set_result(None)
        if not filling.records:
            # Nothing was waited for, and who was refused may have asked again: others have their turn.
            await asyncio.sleep(0)

    def _fill(self, filling: _Filling) -> None:
        overlay = Overlay(self.state)
        while self._waiting and filling.has_room(self._waiting[0].request):
            asked = self._waiting[0]
            if asked.answered.done():
                self._waiting.popleft()
                continue  # its asker gave up while it was still undecided
            decision = decide(self.state, overlay, asked.request, filling.time_ms)
            # Encoded before it is taken out: whatever cannot be written fails with all that waits.
            records = [encode_record(record) for record in decision.records]
            self._waiting.popleft()
            filling.answers.append((asked.answered, decision.answer))
            filling.records += records
            filling.size += sum(map(len, records))
            filling.work += work(asked.request)
            filling.files += type(asked.request) is CommitFile

    async def _append(self, filling: _Filling) -> None:
        number = self.state.applied
        epoch = self.state.epoch
        data = encode_entry(epoch, filling.time_ms, os.urandom(NONCE_BYTES), filling.records)
        await self.journal.append(number, data)
        # Applied from its bytes, as every follower and every restart will.
        entry = decode_entry(data, entry_key(self.journal.shard, number))
        touched = self.state.apply_entry(entry)
        self.journal_bytes += len(data)
        self.last_nonce = entry.nonce
        if touched:
            for subscriber in tuple(self._subscribers):
                subscriber(touched)

    async def _prove(self) -> None:
        if not await self.journal.is_absent(self.state.applied):
            raise OwnershipLost(f"journal entry {self.state.applied} was written by another gateway")

    def _break(self, error: Exception) -> None:
        self.broken = error
        self._fail_waiting(StoreUnavailable(f"this gateway does not own the shard any more: {error}"))
        self.lost.set()

    def _fail_waiting(self, error: StoreUnavailable) -> None:
        waiting, self._waiting = self._waiting, deque()
        _fail([(asked.answered, None) for asked in waiting], error)
        for barrier in self._barriers:
            if not barrier.done():
                barrier.set_exception(error)
        self._barriers.clear()


def _fail(waiting: Sequence[tuple[Asker, Answer | None]], error: Exception) -> None:
    for answered, _ in waiting:
        if not answered.done():
            answered.set_exception(error)
