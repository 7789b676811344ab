"""Moves record batches out of journal entries into WAL objects: those of all partitions into one object, so
that a trickle into many topics costs one put every few minutes.

Entries with live batches inside hold the journal (`gateway/housekeeping/pruning.py`), so they are moved when
they are old, or many, when the metadata store runs short of space, before a snapshot, and before a job
begins: jobs read objects alone. The bytes stay as they are. The object is durable before an entry puts it in
the place of the runs: a crash in between leaves an orphan. What is inside of entries that a restore has not
found is not looked for (`ledger.objects.state.Objects.lost`). What is inside of entries that the metadata
store has lost, or that are damaged, is looked for at each move; jobs do not wait for it.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

import structlog

from gateway.coordination.inline_limits import HELD_BYTES, QUOTA_SHARE, STUCK_SHARE
from gateway.coordination.shard import Shard
from gateway.housekeeping.housekeeper import Housekeeper
from gateway.telemetry.logs import QuietLog
from ledger.errors import StoreError, StoreUnavailable
from ledger.inline.plan import (
    MAX_LOOKED_AT,
    OBJECT_BYTES,
    InlineRange,
    batches_of,
    look_from,
    look_past_missing,
    moved,
    requests_of,
    without,
)
from ledger.inline.requests import MoveInline, RangeMove
from ledger.keys import inline_name
from ledger.partitions.requests import StaleObject
from ledger.partitions.runs import Run
from ledger.ports import SegmentStore
from ledger.requests import Done, Refused
from ledger.types import Buffer, DraftBatch, Position

log = structlog.get_logger(__name__)
quiet = QuietLog(600.0, keyed_by=("offset", "partition"))

PAUSE_S: Final = 30.0
"""After a move that failed."""
LOOK_S: Final = 2.0
"""How often it is looked whether a move is due."""
MOVE_BYTES: Final = 8 * 1024 * 1024
"""So many bytes are moved at once."""
MOVE_AGE_MS: Final = 5 * 60_000
"""And what is in an entry of this age, with all that is younger."""
OBJECT_RUNS: Final = 10_000
"""Nor of more runs: an object is encoded in one iteration of the event loop."""
SLICE_PARTITIONS: Final = 50
PARTITION_RUNS: Final = MAX_LOOKED_AT // SLICE_PARTITIONS
"""To look at a partition costs as much as to look at so many runs."""
ATTEMPTS: Final = 3
"""How often an object is stored that is too old to be named."""
CONTENDED: Final = 5
"""How often a move begins again of which nothing counts, since others change the same partitions."""
assert MOVE_BYTES < HELD_BYTES

_Bytes: TypeAlias = dict[Run, Buffer]
"""By run, which names its object."""


class InlineMover:
    """Of one shard, a part of its owner's scope. Moves of several callers are made one after the other."""

    def __init__(
        self,
        shard: Shard,
        segments: SegmentStore,
        wait_s: float,
        *,
        quota_share: Callable[[], float] = lambda: 0.0,
        alarm: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`quota_share`: of the quota of the metadata store, what is used. `alarm` is called with an event
        name for each run whose bytes are missing."""
        self._shard = shard
        self._segments = segments
        self._wait_s = wait_s
        self._quota_share = quota_share
        self._alarm = alarm
        self._moving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._paused_until = -math.inf
        """Loop time."""
        self._passed = dict[int, int]()
        """By partition number, the offset below which all runs inside of entries are missing, as the last
        move has found. None is ever entered below it."""
        self.has_looked = False
        """Whether a move has come to its end in this epoch: until then it is not known what is missing."""
        self.failure = ""
        """Why the last move did not move everything; empty if it did."""

    async def begin_epoch(self) -> None:
        self.has_looked = False
        housekeeper = Housekeeper()
        housekeeper.add("inline", LOOK_S, self.move_if_due)
        self._task = asyncio.create_task(housekeeper.run(), name="inline moves")

    async def end_epoch(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def held_bytes(self) -> int:
        """Inside of entries that have live runs."""
        return self._shard.state.objects.inline_bytes

    def is_due(self) -> bool:
        objects = self._shard.state.objects
        oldest = objects.oldest_inline
        if oldest is None:
            return False
        is_old = self._shard.now_ms() - oldest.created_ms >= MOVE_AGE_MS
        return is_old or objects.inline_bytes >= MOVE_BYTES or self._quota_share() >= QUOTA_SHARE

    def refusal(self) -> str:
        """Why nothing may make the ledger grow: what is inside of entries cannot be moved, and holds the
        journal, while the metadata store gets full. Else empty."""
        share = self._quota_share()
        if not self.failure or share < STUCK_SHARE or not self.held_bytes:
            return ""
        return (
            f"{self.held_bytes} bytes of records are inside of journal entries and cannot be moved into "
            f"objects ({self.failure}), and {share:.0%} of the metadata store's quota is used: repair "
            "storage.data; with storage.inline_bytes = 0 no further records come into entries"
        )

    async def move_if_due(self) -> None:
        loop_time = asyncio.get_running_loop().time
        if not self.is_due() or loop_time() < self._paused_until:
            return
        try:
            await self.move()
        finally:
            if self.failure:
                self._paused_until = loop_time() + PAUSE_S

    async def move(self) -> None:
        """All that is inside of entries when this is called. Raises StoreError and TimeoutError; runs whose
        bytes are missing are left where they are, and runs of partitions that others change all the time."""
        await self._move()

    async def move_for_job(self) -> None:
        """As `move`, before a job, which takes a run that is not moved for the end of its partition: raises
        StoreUnavailable if any is left that is not missing."""
        if await self._move():
            raise StoreUnavailable("others change the partitions with records inside of journal entries")

    def passed(self, number: int) -> int:
        """The offset of a partition below which no run inside of an entry is waited for: they are missing."""
        return self._passed.get(number, 0)

    async def _move(self) -> bool:
        """Whether runs are left that are not missing."""
        if self._shard.state.objects.oldest_inline is None:
            self.failure, self.has_looked, self._passed = "", True, {}
            return False
        async with self._moving:
            end = self._shard.state.applied
            try:
                is_contended = await self._move_up_to(end)
            except (StoreError, TimeoutError) as error:
                self.failure = str(error) or "the journal did not answer in time"
                raise
            self.has_looked = self.has_looked or not is_contended
            return is_contended

    async def _move_up_to(self, end: int) -> bool:
        """All entries below `end`; `failure` says why not all of them. Returns whether others have kept it
        from being more."""
        loop = asyncio.get_running_loop()
        began_s, ranges, missing, in_vain = loop.time(), 0, set[int](), 0
        while in_vain < CONTENDED and self._is_before(end, missing):
            found = await self._found(missing)
            if not found:
                # What is left is below log starts, and waits to be drained.
                break
            readable, data, unread = await self._read(found)
            count = await self._put(readable, data) if readable else 0
            missing |= unread
            ranges += count
            in_vain = 0 if count or unread else in_vain + 1
            if in_vain:
                # In the next entry the move may be before the request that was before it in this one.
                await self._shard.barrier(loop.time() + self._wait_s)
        if ranges:
            log.info("inline.moved", ranges=ranges, took_s=round(loop.time() - began_s, 3))
        await self._pass(missing)
        self.failure = self._failure(end, missing)
        return in_vain == CONTENDED

    def _failure(self, end: int, missing: Collection[int]) -> str:
        if not self._is_before(end):
            return ""
        if missing:
            return f"the bytes of {len(missing)} journal entries are missing"
        return "others change the same partitions"

    async def _pass(self, missing: Collection[int]) -> None:
        """Note where the runs of these objects are, which are missing."""
        if not missing and not self._passed:
            return
        # Jobs read what was noted before until all of it is noted again.
        passed, looked = dict[int, int](), 0
        for number in list(self._shard.state.objects.inline_runs):
            offset: int | None = self._passed.get(number, 0)
            while offset is not None:
                state = self._shard.state
                if (known := state.logs.get(number)) is None:
                    break
                look = look_past_missing(state, known, offset, missing)
                if look.end:
                    passed[number] = look.end
                offset, looked = look.next_offset, looked + look.runs + PARTITION_RUNS
                if looked >= MAX_LOOKED_AT:
                    await asyncio.sleep(0)
                    looked = 0
        self._passed = passed

    def _is_before(self, end: int, missing: Collection[int] = ()) -> bool:
        """Whether anything is inside of entries below `end`, but for these objects."""
        for number, stored in self._shard.state.objects.inline.items():
            if number not in missing:
                name = inline_name(stored.locator)
                return name is not None and name.entry < end
        return False

    async def _found(self, missing: Collection[int]) -> list[InlineRange]:
        """Ranges for one object, without those objects whose bytes are missing: these might be all that
        it can hold."""
        found: list[InlineRange] = []
        size = runs = looked = 0
        for number in list(self._shard.state.objects.inline_runs):
            offset: int | None = 0
            while offset is not None:
                state = self._shard.state
                if (known := state.logs.get(number)) is None:
                    break
                look = look_from(state, known, offset)
                for each in _without(look.ranges, missing):
                    size, runs = size + each.size, runs + len(each.runs)
                    if found and (size > OBJECT_BYTES or runs > OBJECT_RUNS):
                        return found
                    found.append(each)
                offset, looked = look.next_offset, looked + look.runs + PARTITION_RUNS
                if looked >= MAX_LOOKED_AT:
                    await asyncio.sleep(0)
                    looked = 0
        return found

    async def _read(self, found: Sequence[InlineRange]) -> tuple[list[InlineRange], _Bytes, set[int]]:
        """What of these ranges can be read, the bytes of their runs, and which objects are missing."""
        objects = self._shard.state.objects.by_number
        positions = {
            run: Position(objects[run.object_number].locator, run.start, run.size)
            for each in found
            for run in each.runs
            # What has gone meanwhile need not be moved.
            if run.object_number in objects
        }
        read = await self._segments.read(list(positions.values()))
        data = {run: one for run, one in zip(positions, read, strict=True) if one is not None}
        readable: list[InlineRange] = []
        for each in found:
            unread = [run for run in each.runs if run not in data]
            readable += without(each, unread) if unread else [each]
            self._report(each, unread)
        # What has gone meanwhile is not missing.
        missing = {run.object_number for run in positions if run not in data} & objects.keys()
        return readable, data, missing

    def _report(self, found: InlineRange, unread: Sequence[Run]) -> None:
        for run in unread:
            if (stored := self._shard.state.objects.by_number.get(run.object_number)) is not None:
                self._alarm("inline.missing")
                partition = f"{found.log.topic_id.hex()}-{found.log.index}"
                quiet.error("inline.missing", partition=partition, offset=run.base, locator=stored.locator)

    async def _put(self, found: Sequence[InlineRange], data: _Bytes) -> int:
        """Into one object. Returns in the place of how many ranges it is now."""
        batches: list[DraftBatch] = []
        firsts: list[list[int]] = []
        for each in found:
            # The first batch of each run.
            firsts.append([])
            for run in each.runs:
                firsts[-1].append(len(batches))
                batches += batches_of(each, run, data[run])
            await asyncio.sleep(0)
        for _ in range(ATTEMPTS):
            state = self._shard.state
            stored = await self._segments.write(batches, self._shard.now_ms(), state.feature_level)
            moves: list[RangeMove] = []
            for each, first in zip(found, firsts, strict=True):
                moves.append(moved(each, [stored.starts[at] for at in first]))
                if len(moves) % SLICE_PARTITIONS == 0:
                    await asyncio.sleep(0)
            count = await self._submit(list(requests_of(stored.locator, stored.object_bytes, moves)))
            if count is not None:
                return count
            await self._segments.abandon(stored.locator)
        raise StoreUnavailable(f"the object was too old to be named {ATTEMPTS} times")

    async def _submit(self, requests: Sequence[MoveInline]) -> int | None:
        """None: the object is too old. If some of it was entered before, that stays."""
        count = 0
        for request in requests:
            deadline = asyncio.get_running_loop().time() + self._wait_s
            match await self._shard.ask(request, deadline):
                case Done(count=done):
                    count += done
                case StaleObject():
                    return None
                case Refused(message=message):
                    raise StoreUnavailable(message)
        return count


def _without(ranges: Sequence[InlineRange], missing: Collection[int]) -> Sequence[InlineRange]:
    if not missing:
        return ranges
    return [
        part
        for each in ranges
        for part in without(each, [run for run in each.runs if run.object_number in missing])
    ]
