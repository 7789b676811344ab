"""The fetch room: one request, one look at the ledger, one long poll, one read a round.

A fetch looks up all its partitions, counts what is there, and either waits in purgatory or reads. Only
what has been read is answered; what could not be read is an error, never an empty success.

A fetch of many partitions is worked off in slices, between which the ledger goes on; it leaves the memory
of heavy requests (`Slices.leave`) before it waits for anything else. Each partition is
answered as it was at one moment, at its last look; the moments of two partitions may differ. Where it then
waits, it enters the purgatory first and looks afterwards whether anything has moved meanwhile. What it keeps
for its partitions while it waits is charged to a budget of its own (`kept`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol

import structlog

from gateway.coordination.shard import Shard
from gateway.fetch.budget import NO_OWNER, FetchBudget, Hold, Share, give_back_at_once
from gateway.fetch.hints import PositionHints
from gateway.fetch.planning import (
    Lack,
    Want,
    answer,
    look,
    look_again,
    planned_bytes,
    readable_bytes,
    share_out,
)
from gateway.fetch.purgatory import NEWS_BYTES, ParkedFetch, Purgatory
from gateway.fetch.reader import Missing, RunReader, Wish
from gateway.fetch.sessions import (
    MAX_SESSION_PARTITIONS,
    AskedPartition,
    FetchContext,
    FetchKind,
    FetchSession,
    FetchSessions,
    PartitionKey,
    partition_key,
)
from gateway.fetch.stream import BatchStream
from gateway.requests.slicing import Owner, Slices, SliceScheduler
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.absent import AbsentPartitions
from gateway.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse
from ledger.errors import StoreError
from ledger.partitions import PartitionLog
from ledger.types import Buffer

log = structlog.get_logger(__name__)

MIB: Final = 1024 * 1024
STALE_PLANS: Final = 3
"""How often a plan is made anew because the store did not have what it named."""
CHUNK_PARTITIONS: Final = 256
"""A fetch of more is worked off in slices, so many partitions at once."""
KEPT_BYTES: Final = 700
"""What a partition of a fetch under way takes, with what its session keeps of it."""
CROWDED_MS: Final = 1_000
"""How long a client is throttled whose fetch found no memory for its partitions."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    max_response_bytes: int = 55 * MIB
    """Kafka's broker setting fetch.max.bytes."""
    in_flight_bytes: int = 256 * MIB
    """What all fetches together may hold, from before they read until it is sent."""
    round_bytes: int = 64 * MIB
    """What one fetch reads at once."""
    kept_partitions: int = 500_000
    """How many partitions large fetches under way may have together."""
    longest_wait_s: float = 120.0
    ledger_wait_s: float = 10.0
    """How long a negative answer waits for its proof, and a read for its share of the budget."""


def _never(record_bytes: int) -> int:
    return 0


class Sliced(Protocol):
    """How a request shares the event loop; made when it is first looked at (`RequestContext`)."""

    @property
    def slices(self) -> Slices: ...


class _Alone:
    """Of a request that shares the event loop with no other."""

    @property
    def slices(self) -> Slices:
        return Slices(SliceScheduler(), NO_OWNER)


ALONE: Final = _Alone()


class FetchRoom:
    """Answers fetches. Followers do not exist here: a fetch with a broker's replica id is refused."""

    def __init__(
        self,
        shard: Shard,
        reader: RunReader,
        sessions: FetchSessions,
        options: FetchOptions,
        clock: Callable[[], int],
    ) -> None:
        self.shard = shard
        self.reader = reader
        self.sessions = sessions
        self.options = options
        self.clock = clock
        self.budget = FetchBudget(options.in_flight_bytes)
        self.kept = FetchBudget(options.kept_partitions * KEPT_BYTES)
        self.purgatory = Purgatory()
        self.hints = PositionHints()
        self._unsubscribe = shard.subscribe(self._touched)

    async def fetch(
        self,
        version: int,
        request: FetchRequest,
        principal: str,
        received_at: float,
        throttle_ms: Callable[[int], int] = _never,
        hold: Hold = give_back_at_once,
        owner: Owner = NO_OWNER,
        sliced: Sliced = ALONE,
        absent: AbsentPartitions | None = None,
    ) -> FetchResponse:
        """Answer one Fetch. `received_at` is loop time; max_wait_ms counts from there. `throttle_ms` is told
        how many bytes of records there are, and says whether to answer nothing instead. `hold` is given
        what frees the share of the budget that the answer takes; `owner` is the connection whose it is.
        `absent` is what a `Sieve` took out of the request; it is told only where the answer is encoded in
        slices."""
        named = sum([len(topic.partitions) for topic in request.topics])
        is_large = named > MAX_SESSION_PARTITIONS or absent is not None
        if is_large:
            context = self.sessions.begin_large(version, request, principal)
        else:
            context = self.sessions.begin(version, request, principal, self.clock())
        if context.kind is FetchKind.REFUSED:
            return self.sessions.finish(context, (), self.clock())
        count = max(named, len(context.partitions))
        if count <= CHUNK_PARTITIONS and not is_large:
            return await self._fetch(context, request, received_at, throttle_ms, hold, owner, sliced)
        deadline = asyncio.get_running_loop().time() + self.options.ledger_wait_s
        try:
            kept = await self.kept.acquire(count * KEPT_BYTES, deadline, owner)
        except TimeoutError:
            return self.sessions.throttle(context, CROWDED_MS)
        try:
            if is_large:
                asked = await _asked_in_slices(request, context.uses_topic_ids, sliced.slices)
                context = replace(context, partitions=asked)
            response = await self._fetch(context, request, received_at, throttle_ms, hold, owner, sliced)
            if absent is not None and not response.throttle_time_ms:
                response.absent = absent
            return response
        finally:
            kept.give_back()

    async def is_newest(self) -> bool:
        """Whether the state is proved to be the newest, so that it may be said of something that it is not
        there."""
        deadline = asyncio.get_running_loop().time() + self.options.ledger_wait_s
        try:
            await self.shard.barrier(deadline)
        except (StoreError, TimeoutError) as error:
            log.warning("fetch.barrier_failed", error=str(error))
            return False
        return True

    async def _fetch(
        self,
        context: FetchContext,
        request: FetchRequest,
        received_at: float,
        throttle_ms: Callable[[int], int],
        hold: Hold,
        owner: Owner,
        sliced: Sliced,
    ) -> FetchResponse:
        under_way = _Fetch(self, request, context, received_at, owner, sliced)
        try:
            told = await under_way.run()
            answers, records = await under_way.answers(told)
            throttled = throttle_ms(records)
            if throttled:
                under_way.give_back()
                return self.sessions.throttle(context, throttled)
            response = self.sessions.finish(context, answers, self.clock())
            if response.session_id:
                self._rest(context, response.session_id, told)
        except BaseException:
            under_way.give_back()
            raise
        # What was read and goes now is free again; the rest when the client has the answer.
        share = under_way.share
        if share is not None:
            if share.size > records:
                sent = chain.from_iterable([part.records for _, part in answers if part.records])
                share.give_back(keep=_pinned(sent))
            if share.size:
                # Not with what was read beside it.
                hold(share.give_back)
        return response

    def close(self) -> None:
        """Let all that wait be answered with what there is."""
        if not self.purgatory.is_closed:
            self._unsubscribe()
            self.purgatory.close()

    def _touched(self, logs: Sequence[PartitionLog]) -> None:
        self.sessions.touched(logs)
        self.purgatory.touched(logs)

    def _rest(self, context: FetchContext, session_id: int, told: Sequence[Want]) -> None:
        """Those that have nothing to report until they move are not looked at until then."""
        at_end = [
            (want.asked, want.log.number)
            for want in told
            if want.is_at_end and want.log is not None and not want.has_moved
        ]
        self.sessions.rest(context, session_id, at_end)


async def _asked_in_slices(request: FetchRequest, by_id: bool, slices: Slices) -> list[AskedPartition]:
    """The partitions of a large request, as `FetchSessions.begin` gives those of a small one."""
    asked: dict[PartitionKey, AskedPartition] = {}
    for topic in request.topics:
        partitions = topic.partitions
        for start in range(0, len(partitions), CHUNK_PARTITIONS):
            for partition in partitions[start : start + CHUNK_PARTITIONS]:
                part = AskedPartition(topic.name, topic.topic_id, partition)
                asked[partition_key(part, by_id)] = part
            if slices.is_due(min(len(partitions) - start, CHUNK_PARTITIONS)):
                await slices.turn()
        if slices.is_due():
            await slices.turn()
    slices.leave()
    return list(asked.values())


def _pinned(buffers: Iterable[Buffer]) -> int:
    """Bytes of what was read that these keep: a view keeps all that it was cut from."""
    wholes = [buffer.obj for buffer in buffers if isinstance(buffer, memoryview)]
    return sum({id(whole): memoryview(whole).nbytes for whole in wholes}.values())


def _outgoing(stream: BatchStream, count: int) -> list[Buffer]:
    """What is sent of the first batches of a stream."""
    buffers: list[Buffer] = []
    for batch in stream.batches[:count]:
        buffers += batch.outgoing()
    stream.note_end(stream.batches[count - 1])
    return buffers


class _Fetch:
    """One fetch under way."""

    __slots__ = (
        "absent",
        "deadline",
        "has_proved",
        "has_waited",
        "is_from_broker",
        "is_over",
        "is_overdrawn",
        "isolation",
        "live",
        "max_bytes",
        "min_bytes",
        "owner",
        "room",
        "session",
        "session_epoch",
        "share",
        "sliced",
        "stale_plans",
        "wants",
    )

    def __init__(
        self,
        room: FetchRoom,
        request: FetchRequest,
        context: FetchContext,
        received_at: float,
        owner: Owner,
        sliced: Sliced,
    ) -> None:
        self.room = room
        self.is_from_broker = is_from_broker = request.replica_id >= 0
        self.wants = [Want(asked, asked.request, is_from_broker) for asked in context.partitions]
        self.live: list[Want] = []
        """Those of which the last look found something to serve or to tell."""
        self.session: FetchSession | None = context.session
        self.session_epoch = context.answer_epoch
        self.owner = owner
        self.sliced = sliced if len(self.wants) > CHUNK_PARTITIONS else None
        """Of a fetch that is worked off in slices."""
        self.isolation = request.isolation_level
        self.max_bytes = min(max(request.max_bytes, 0), room.options.max_response_bytes)
        self.is_overdrawn = request.max_bytes < 0
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        wait_s = min(request.max_wait_ms / 1000, room.options.longest_wait_s)
        self.deadline = received_at + wait_s
        self.is_over = wait_s <= 0
        """Nothing more is waited for."""
        self.absent: int | None = None
        """How many of the wants were not there at the first look."""
        self.has_proved = False
        """Something negative was."""
        self.has_waited = False
        """Since the last look, so that it may be out of date."""
        self.stale_plans = 0
        self.share: Share | None = None
        """Of the room's budget."""

    def give_back(self) -> None:
        """Free the share of the budget."""
        share, self.share = self.share, None
        if share is not None:
            share.give_back()

    async def run(self) -> Sequence[Want]:
        """What each partition gets, in the order of the response."""
        while True:
            if self.session is not None and self.session.stirred:
                self._take_stirred(self.session)
            if await self._look_once() or self.absent is None:
                await self._look_closely()
            if not self._must_wait():
                if not await self._read():
                    continue
                if not self._must_wait():
                    # As in Kafka.
                    has_odd = self.absent or self.has_proved
                    return sorted(self.wants, key=_place_in_answer) if has_odd else self.wants
                self.give_back()
            self.is_over = not await self._park()

    async def answers(
        self, told: Sequence[Want]
    ) -> tuple[list[tuple[AskedPartition, FetchPartitionResponse]], int]:
        """Each partition's part of the response, and how many bytes of records they have."""
        isolation = self.isolation
        if self.sliced is None:
            answers = [(want.asked, answer(want, isolation, _outgoing)) for want in told]
        else:
            answers, slices = [], self.sliced.slices
            for start in range(0, len(told), CHUNK_PARTITIONS):
                chunk = told[start : start + CHUNK_PARTITIONS]
                answers += [(want.asked, answer(want, isolation, _outgoing)) for want in chunk]
                if slices.is_due(len(chunk)):
                    await slices.turn()
            slices.leave()
        return answers, sum([sum(map(len, part.records)) for _, part in answers if part.records])

    def _take_stirred(self, session: FetchSession) -> None:
        """What was quiet in the session has moved meanwhile."""
        if session.epoch == self.session_epoch:
            self.wants += [Want(asked, asked.request) for asked in session.stirred]
            session.stirred.clear()

    async def _look_closely(self) -> None:
        """Behind a look: prove what is negative, and keep in mind what was not there from the first."""
        unproved = [want for want in self.live if want.is_negative and not want.is_proved]
        if unproved:
            # A negative answer may only come from a state that is not the newest.
            is_newest = await self._barrier()
            await self._look_once()
            for want in unproved:
                if want.is_negative:
                    want.is_proved = self.has_proved = True
                    if not is_newest:
                        want.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.absent is None:
            absent = [want for want in self.live if want.is_absent]
            for want in absent:
                want.was_absent = True
            self.absent = len(absent)
            if self.is_overdrawn:
                await self._overdraw()

    async def _overdraw(self) -> None:
        """As in Kafka a negative budget is used up by the first partition that is there."""
        first = next((want for want in self.wants if not want.is_absent), None)
        if first is not None:
            first.request = replace(first.request, max_bytes=-1)
            await self._look_once()

    async def _look_once(self) -> bool:
        """True if there is anything but records to tell."""
        self.has_waited = False
        if self.sliced is None:
            live = self._look(self.wants)
        else:
            live, wants, slices = [], self.wants, self.sliced.slices
            for start in range(0, len(wants), CHUNK_PARTITIONS):
                live += self._look(wants[start : start + CHUNK_PARTITIONS])
                if slices.is_due(CHUNK_PARTITIONS):
                    await slices.turn()
            slices.leave()
            self.has_waited = True
        self.live = live
        return any(want.is_odd for want in live)

    def _look(self, wants: Sequence[Want]) -> list[Want]:
        """Those of which there is something to serve or to tell."""
        topics, hints = self.room.shard.state.topics, self.room.hints
        live = []
        for want in wants:
            look_again(want, topics, self.isolation, self.max_bytes, hints)
            if not want.is_at_end:
                live.append(want)
        return live

    async def _barrier(self) -> bool:
        self.has_waited = True
        return await self.room.is_newest()

    def _must_wait(self) -> bool:
        """KIP-74, and as Kafka: an error is told at once, but not that there never was such a partition,
        unless there is nothing else to tell."""
        has_others = self.absent != len(self.wants) or (self.session is not None and self.session.quiet)
        if self.is_over or not has_others:
            return False
        for want in self.live:
            if want.is_diverging or (want.error is not ErrorCode.NONE and not want.was_absent):
                return False
        return readable_bytes(self.live) < self.min_bytes

    async def _park(self) -> bool:
        """Wait for enough bytes, or for a partition to go. False: nothing more is to be waited for."""
        is_ready = None
        if self.min_bytes - readable_bytes(self.live) > NEWS_BYTES:
            is_ready = self._readiness()
        for want in self.live:
            want.stream = None
        if self.sliced is not None:
            return await self._park_in_slices(ParkedFetch((), is_ready), self.sliced.slices)
        if self.has_waited and self._has_moved(self.wants):
            return True
        logs = [want.log for want in self.wants if want.log is not None]
        return await self._wait(self.room.purgatory.park, ParkedFetch(logs, is_ready))

    async def _park_in_slices(self, parked: ParkedFetch, slices: Slices) -> bool:
        purgatory, entered = self.room.purgatory, list[list[PartitionLog]]()
        starts = range(0, len(self.wants), CHUNK_PARTITIONS)
        try:
            for start in starts:
                chunk = self.wants[start : start + CHUNK_PARTITIONS]
                logs = [want.log for want in chunk if want.log is not None]
                entered.append(logs)
                purgatory.enter(parked, logs)
                if slices.is_due(len(chunk)):
                    await slices.turn()
            for start in starts:
                if self._has_moved(self.wants[start : start + CHUNK_PARTITIONS]):
                    return True
                if slices.is_due(CHUNK_PARTITIONS // 4):
                    await slices.turn()
            slices.leave()
            is_news = await self._wait(purgatory.wait, parked)
            while entered:
                purgatory.leave(parked, entered.pop())
                if slices.is_due(CHUNK_PARTITIONS // 2):
                    await slices.turn()
            return is_news
        finally:
            slices.leave()
            for logs in entered:
                purgatory.leave(parked, logs)

    async def _wait(
        self, wait: Callable[[ParkedFetch, float], Coroutine[None, None, bool]], parked: ParkedFetch
    ) -> bool:
        """As `wait` does, and for a quiet partition of the session as well."""
        session = self.session
        if session is None or not (session.quiet or session.stirred):
            return await wait(parked, self.deadline)
        if session.stirred and session.epoch == self.session_epoch and self._has_time():
            return True
        # In the next turn of the loop, as in purgatory: by then what is new is in the cache.
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon(parked.wake)

        session.on_stirred = wake
        try:
            return await wait(parked, self.deadline)
        finally:
            if session.on_stirred is wake:
                session.on_stirred = None

    def _has_time(self) -> bool:
        return asyncio.get_running_loop().time() < self.deadline

    def _has_moved(self, wants: Sequence[Want]) -> bool:
        """Whether something came since these were looked at, of which no news would come again, and there is
        time to look at it."""
        return any(want.has_moved for want in wants if want.error is ErrorCode.NONE) and self._has_time()

    def _readiness(self) -> Callable[[Sequence[PartitionLog]], bool]:
        """What looks at partitions that moved, and says whether there are now bytes enough."""
        room = self.room
        have: dict[int, int] = {}
        waiting: dict[int, list[Want]] = {}
        for want in self.wants:
            if want.log is not None:
                waiting.setdefault(want.log.number, []).append(want)
                have[want.log.number] = have.get(want.log.number, 0) + want.available
        total = sum(have.values())

        def is_ready(moved: Sequence[PartitionLog]) -> bool:
            nonlocal total
            topics = room.shard.state.topics
            for moved_log in moved:
                available = 0
                for want in waiting[moved_log.number]:
                    look(want, topics, self.isolation, self.max_bytes, room.hints)
                    available += want.available
                    if want.error is not ErrorCode.NONE or want.log is not moved_log:
                        # Gone, or made anew under its name: nobody would tell of that one.
                        return True
                    want.stream = None
                total += available - have[moved_log.number]
                have[moved_log.number] = available
            return total >= self.min_bytes

        return is_ready

    async def _read(self) -> bool:
        """Read what the budgets allow. False: the plan was stale, and everything must be looked at anew."""
        lacks = share_out(self.live, self.max_bytes).lacks
        if not lacks:
            return True
        budget, most = self.room.budget, self.room.options.round_bytes
        planned = min(planned_bytes(lacks), most)
        self.share = budget.acquire_now(planned, self.owner)
        if self.share is None:
            if planned > budget.fair_bytes:
                # Others wait too: a smaller answer now is better than a large one after many others.
                self.max_bytes = min(self.max_bytes, budget.fair_bytes)
                lacks = share_out(self.live, self.max_bytes).lacks
                planned = min(planned_bytes(lacks), most)
            if not await self._wait_for_share(planned):
                return True
        if await self._read_rounds(lacks):
            return True
        self.give_back()
        return False

    async def _wait_for_share(self, size: int) -> bool:
        """False: there is none in time, and the answer has no records."""
        self.has_waited = True
        latest = asyncio.get_running_loop().time() + self.room.options.ledger_wait_s
        try:
            self.share = await self.room.budget.acquire(size, max(self.deadline, latest), self.owner)
        except TimeoutError:
            self.is_over = True
            for want in self.live:
                want.batches = 0
            return False
        return True

    async def _read_rounds(self, lacks: Sequence[Lack]) -> bool:
        while lacks:
            stale = await self._read_round(lacks)
            if stale and self.stale_plans < STALE_PLANS:
                self.stale_plans += 1
                await self._barrier()
                return False
            for want, reason in stale:
                self._unreadable(want, "fetch.object_missing", reason, ErrorCode.KAFKA_STORAGE_ERROR)
            shares = share_out(self.live, self.max_bytes)
            lacks = shares.lacks
            if not lacks:
                self.is_over |= shares.out_of_budget
            elif not self._holds_enough(lacks):
                lacks = self._cut_short(lacks)
                if lacks and not await self._wait_for_share(planned_bytes(lacks)):
                    return True
        return True

    def _holds_enough(self, lacks: Sequence[Lack]) -> bool:
        """Whether the share of the budget is enough for what was read and is still to be read, or can be
        made so at once."""
        share = self.share
        if share is None:
            return False
        streams = [want.stream for want in self.live if want.stream is not None]
        held = sum([len(batch.data) for stream in streams for batch in stream.batches])
        return share.grow(min(held + planned_bytes(lacks), self.room.budget.max_bytes))

    def _cut_short(self, lacks: Sequence[Lack]) -> list[Lack]:
        """More must be read than was planned, and the budget does not have it: serve what is here. Where
        that is not even the first batch, which must be served however large it is, drop all else; the
        share is given back, and one for this batch has to be waited for."""
        first = lacks[0]
        is_due = not any(want.batches for want in self.live[: self.live.index(first.want) + 1])
        for lack in lacks[1:] if is_due else lacks:
            lack.stream.stop()
        self.is_over = True
        if not is_due:
            share_out(self.live, self.max_bytes)
            return []
        self.give_back()
        for want in self.live:
            if want is not first.want:
                want.stream = None
        return [first]

    async def _read_round(self, lacks: Sequence[Lack]) -> list[tuple[Want, str]]:
        """One read of the store for all partitions. Returns those whose plan named what is not there."""
        wishes = [Wish(lack.stream, lack.size) for lack in lacks]
        self.has_waited = True
        try:
            failures = await self.room.reader.read(wishes, self.room.options.round_bytes)
        except StoreError as error:
            log.error("fetch.storage_failed", partitions=len(lacks), error=str(error))
            for lack in lacks:
                lack.want.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return []
        stale: list[tuple[Want, str]] = []
        for lack, failure in zip(lacks, failures, strict=True):
            if isinstance(failure, Missing):
                stale.append((lack.want, str(failure)))
            elif failure is not None:
                # Unlike a storage error, which clients repeat in silence, this is told to the application.
                self._unreadable(lack.want, "fetch.batch_damaged", str(failure), ErrorCode.CORRUPT_MESSAGE)
        return stale

    def _unreadable(self, want: Want, event: str, reason: str, error: ErrorCode) -> None:
        """Acked data cannot be read. What lies before it is served; the next fetch gets the error."""
        asked, request = want.asked, want.request
        self.room.reader.alarm(
            event, topic=asked.name, partition=request.index, offset=request.fetch_offset, reason=reason
        )
        if want.stream is not None and want.stream.batches:
            want.stream.stop()
        else:
            want.fail(error)


def _place_in_answer(want: Want) -> int:
    """What is not there comes last, and first of that the topic ids that nothing has."""
    return 0 if not want.is_absent else 1 if want.error is ErrorCode.UNKNOWN_TOPIC_ID else 2
