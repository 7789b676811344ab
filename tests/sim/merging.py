"""A merge job of a history: it plans, reads, writes segments and has them swapped in, beside a gateway that
crashes.

It is a process of its own: it may die at any moment, sleep for longer than the grace and than its pin, and
hear of no result. Where it does not know what became of a request it sends the same one again.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.coordination.shard import Shard
from ledger.errors import ErrorName, StoreError
from ledger.keys import RANDOM_BYTES, index_locator, segment_locator
from ledger.merging.found import FoundRun, RunPage
from ledger.merging.merge import JobAttempt, swap_of
from ledger.merging.plan import MergePolicy, MergeTask, PartitionPlanner
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import is_marker
from ledger.partitions.state import PartitionLog
from ledger.ports import Blobs, SegmentStore
from ledger.requests import LedgerResult, Refused, Request
from ledger.swaps.requests import Pinned, ReleasePin, SegmentFile, Swapped, SwapSegments, TakePin
from ledger.types import Buffer, Position
from pipeline.carrying import RunMissing, merged_parts
from tests.sim.book import Book
from tests.support.swapping import found_marker

POLICY = MergePolicy(due_runs=2, tail_ms=0, small_segment_bytes=500, many_segments=3)
MAX_TASKS = 3
"""Of one partition and job."""
ASK_S = 3.0
PAUSE_S = 0.1
BETWEEN_S = 0.5
LONG_S = 8.0
"""Longer than the grace, and than a pin lives that is not renewed: a sweep comes in between."""
LEGAL = frozenset(
    {
        ErrorName.COORDINATOR_NOT_AVAILABLE,
        ErrorName.INVALID_UPDATE_VERSION,
        ErrorName.KAFKA_STORAGE_ERROR,
        ErrorName.UNKNOWN_MEMBER_ID,
        ErrorName.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of swaps that a job without bugs may meet."""


class Died(Exception):
    """The job has been killed."""


class MergingJobs:
    """One job after the other."""

    def __init__(
        self,
        choose: random.Random,
        book: Book,
        shard: Callable[[], Shard | None],
        stores: tuple[SegmentStore, Blobs],
    ) -> None:
        """`shard`: that of the gateway which runs now. `stores` are never closed."""
        self._choose = choose
        self._book = book
        self._shard = shard
        self._segments, self._blobs = stores
        self._attempt = 0
        self.swapped = 0
        self.ends_merged = 0
        """Ends of transactions that went into segments."""
        self.refused: set[ErrorName] = set()

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            with suppress(Died, StoreError):
                await self._job()
            await asyncio.sleep(BETWEEN_S * self._choose.random())

    async def _job(self) -> None:
        job = self._choose.randbytes(16)
        pinned = await self._ask(TakePin(job))
        if not isinstance(pinned, Pinned):
            self._book.complain(f"a pin was refused: {pinned}")
            return
        taken_s = asyncio.get_running_loop().time()
        for log in self._logs():
            for _ in range(MAX_TASKS):
                passed_ms = int((asyncio.get_running_loop().time() - taken_s) * 1000)
                tasks = self._plan(log, pinned.started_ms + passed_ms)
                if not tasks:
                    break
                await self._merge(self._choose.choice(tasks), job, pinned.started_ms + passed_ms)
        if self._choose.random() < 0.7:
            await self._ask(ReleasePin(job))

    def _logs(self) -> Sequence[PartitionLog]:
        shard = self._shard()
        if shard is None:
            return []
        logs = [log for topic in shard.state.topics.by_name.values() for log in topic.partitions[:]]
        self._choose.shuffle(logs)
        return logs

    def _plan(self, log: PartitionLog, now_ms: int) -> Sequence[MergeTask]:
        """As of now: the gateway may change all of it before the swap."""
        shard = self._shard()
        if shard is None:
            return []
        objects = shard.state.objects.by_number
        runs = []
        for run in log.runs_from(log.log_start):
            if is_marker(run):
                where = "", ObjectKind.MARKER, 0, run.size, run.base, run.last, run.max_timestamp
                runs.append(FoundRun(*where, found_marker(run)))
                continue
            stored = objects.get(run.object_number)
            if stored is None:
                # The shard of a gateway that has died meanwhile.
                return []
            place = stored.locator, stored.kind, run.start, run.size
            runs.append(FoundRun(*place, run.base, run.last, run.max_timestamp))
        planner = PartitionPlanner(log.topic_id, log.index, POLICY, now_ms)
        page = RunPage(log.layout_version, log.log_start, log.high_watermark, runs)
        return planner.feed(page)

    async def _merge(self, task: MergeTask, job: bytes, created_ms: int) -> None:
        await self._sleep()
        found: list[Buffer | None] = [None] * len(task.runs)
        stored = [at for at, run in enumerate(task.runs) if not run.is_marker]
        places = [task.runs[at] for at in stored]
        data = await self._segments.read([Position(run.locator, run.start, run.size) for run in places])
        for at, part in zip(stored, data, strict=True):
            found[at] = part
        parts = merged_parts(task, found, created_ms, self._damaged, without_missing=False)
        try:
            for merged in parts:
                segment = merged.segment
                first, random_bytes = task.runs[merged.begin].base, self._choose.randbytes(RANDOM_BYTES)
                where = segment_locator(task.topic_id, task.partition, first, created_ms, random_bytes)
                await self._blobs.put(index_locator(where), [segment.index])
                await self._sleep()
                await self._blobs.put(where, segment.buffers)
                if self._choose.random() < 0.15:
                    await asyncio.sleep(LONG_S)
                self._attempt += 1
                file = SegmentFile(where, segment.size)
                await self._swap(swap_of(task, segment.runs, file, JobAttempt(job, self._attempt)))
        except RunMissing:
            # Merged by another swap, or gone with a topic; the next job plans again.
            return

    async def _swap(self, request: SwapSegments) -> None:
        """Now and then once more, though there was a result."""
        for _ in range(self._choose.choice([1, 1, 2])):
            result = await self._ask(request)
            if isinstance(result, Refused):
                self.refused.add(result.error)
                if result.error not in LEGAL:
                    self._book.complain(f"a swap was refused: {result}")
            else:
                assert isinstance(result, Swapped)
                self.swapped += not result.duplicate
                self.ends_merged += 0 if result.duplicate else len(request.markers)
            await self._sleep()

    async def _sleep(self) -> None:
        """Raises Died."""
        chance = self._choose.random()
        if chance < 0.02:
            raise Died
        if chance < 0.07:
            await asyncio.sleep(LONG_S * self._choose.random())

    async def _ask(self, request: Request) -> LedgerResult:
        """Again until there is a certain result. Raises Died."""
        while True:
            shard = self._shard()
            if shard is not None:
                loop = asyncio.get_running_loop()
                asking = loop.create_task(shard.ask(request, loop.time() + ASK_S))
                await asyncio.wait({asking}, timeout=2 * ASK_S)
                if not asking.done():
                    asking.cancel()
                elif not asking.cancelled() and asking.exception() is None:
                    return asking.result()
            await self._sleep()
            await asyncio.sleep(PAUSE_S)

    def _damaged(self, sentence: str) -> None:
        self._book.complain(f"a job has found a damaged run: {sentence}")
