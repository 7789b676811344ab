"""A ledger that is written and merged on virtual time, without bytes: what a long life makes of its index."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from ledger.cluster.requests import BecomeOwner
from ledger.journal import apply_entry, decode_entry, encode_entry
from ledger.keys import segment_locator, uuid7
from ledger.merging.found import FoundRun, RunPage
from ledger.merging.merge import JobAttempt, swap_of
from ledger.merging.plan import MergePolicy, MergeTask, PartitionPlanner
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.uploads import ObjectKind
from ledger.overlay import Overlay
from ledger.partitions.requests import CommitBatch, CommitFile, DrainRuns
from ledger.partitions.state import PartitionLog
from ledger.records import NEWEST_LEVEL
from ledger.registry import decide, encode_records
from ledger.requests import LedgerResult, Request
from ledger.state import LedgerState
from ledger.swaps.requests import (
    SEGMENT_HEAD_BYTES,
    SEGMENT_TRAILER_BYTES,
    ReleasePin,
    SegmentFile,
    Swapped,
    TakePin,
)
from ledger.topics.requests import CreateTopic
from ledger.types import TopicId
from tests.support.merged_partition import entered_runs

START_MS = 1_700_000_000_000
OBJECT_MS = 15 * 60_000
"""A local object is closed at this age, or at OBJECT_BYTES."""
OBJECT_BYTES = 64 * 1024 * 1024
FRAME_BYTES = 78
"""Of a flush of one batch, besides the batch."""
GRACE_MS = 3_600_000
PAGE_RUNS = 1_000
ENTRY_FLUSHES = 200
DRAINED = 2_000
FORGOTTEN = 500


@dataclass(slots=True)
class Merged:
    """What the merges have done."""

    tasks: int = 0
    bytes: int = 0
    refused: int = 0


class MergedLedger:
    """Partitions of one topic over local objects. `retention_ms` is that of a gateway's housekeeping."""

    def __init__(self, partitions: int = 1, policy: MergePolicy | None = None) -> None:
        self.state = LedgerState()
        self.now_ms = START_MS
        self.topic = TopicId(bytes(range(16)))
        self.policy = policy or MergePolicy()
        self.merged = Merged()
        self.produced = 0
        self._numbers = count(1)
        self._key, self._key_ms, self._end = "", 0, OBJECT_BYTES
        self._pending: list[CommitBatch] = []
        self.submit(BecomeOwner(1, bytes(16), "cluster", NEWEST_LEVEL))
        self.submit(CreateTopic("t", self.topic, partitions, {}))

    def submit(self, *requests: Request) -> list[LedgerResult]:
        """Decided, encoded, decoded and applied as one entry."""
        overlay = Overlay(self.state)
        decisions = [decide(self.state, overlay, request, self.now_ms) for request in requests]
        records = [
            data for done in decisions for data in encode_records(done.records, self.state.feature_level)
        ]
        if records:
            nonce = next(self._numbers).to_bytes(16, "big")
            data = encode_entry(self.state.epoch, self.now_ms, nonce, records)
            apply_entry(self.state, decode_entry(data, "entry"))
        return [done.result for done in decisions]

    def flush(self, size: int, partition: int = 0) -> None:
        """One flush of one batch. It is a run of its own; one commit has many, to be quick."""
        if self._end >= OBJECT_BYTES or self.now_ms >= self._key_ms + OBJECT_MS:
            self.commit()
            random = next(self._numbers).to_bytes(10, "big")
            self._key, self._key_ms = f"wal/0/{uuid7(self.now_ms, random)}.wal", self.now_ms
            self._end = 0
        start = self._end + FRAME_BYTES
        self._end = start + size
        batch = CommitBatch(self.topic, partition, start, size, 1, self.now_ms, 0, -1, -1, -1)
        self._pending.append(batch)
        self.produced += size
        if len(self._pending) == ENTRY_FLUSHES:
            self.commit()

    def commit(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self.submit(CommitFile(self._key, self._end, pending))

    def logs(self) -> Iterator[PartitionLog]:
        topic = self.state.topics.by_id[self.topic]
        yield from topic.partitions

    def page(self, log: PartitionLog, offset: int) -> RunPage:
        """As find-batches gives it."""
        objects = self.state.objects.by_number
        found = []
        for run in islice(log.runs_from(max(offset, log.log_start)), PAGE_RUNS):
            stored = objects[run.object_number]
            found.append(
                FoundRun(
                    stored.locator, stored.kind, run.start, run.size, run.base, run.last, run.max_timestamp
                )
            )
        return RunPage(log.layout_version, log.log_start, log.high_watermark, found)

    def plan(self, log: PartitionLog) -> Iterator[MergeTask]:
        """What is merged while it is planned is merged by the same job, which knows what it has changed."""
        planner = PartitionPlanner(self.topic, log.index, self.policy, self.now_ms)
        planned_version = log.layout_version
        while planner.next_offset is not None:
            page = self.page(log, planner.next_offset)
            yield from planner.feed(page._replace(layout_version=planned_version))

    def merge(self) -> None:
        """One job: plans are carried out while they are made."""
        self.commit()
        job = next(self._numbers).to_bytes(16, "big")
        for log in self.logs():
            for task in self.plan(log):
                # Swaps of the job itself have changed the layout since the page was read.
                self.swap(task, JobAttempt(job, 1), log.layout_version)
        self.submit(ReleasePin(job))

    def swap(self, task: MergeTask, job: JobAttempt, layout_version: int) -> None:
        """The job has a pin from then on."""
        random = next(self._numbers).to_bytes(10, "big")
        locator = segment_locator(task.topic_id, task.partition, task.first, self.now_ms, random)
        runs = entered_runs(task.runs)
        stored = SegmentFile(locator, SEGMENT_HEAD_BYTES + task.size + SEGMENT_TRAILER_BYTES)
        swap = swap_of(task, runs, stored, job, layout_version)
        self.submit(TakePin(job.job))
        (result,) = self.submit(swap)
        if isinstance(result, Swapped):
            self.merged.tasks += 1
            self.merged.bytes += task.size
        else:
            self.merged.refused += 1

    def clean(self, delete: bool = True) -> None:
        """What housekeeping does: drained runs, the floor, and dead objects after their grace."""
        self.submit(DrainRuns(DRAINED))
        self.submit(RaiseFloor(self.now_ms - GRACE_MS))
        dead = [
            each.number for each in islice(self.state.objects.due_garbage(self.now_ms, GRACE_MS), FORGOTTEN)
        ]
        if dead and delete:
            self.submit(ForgetObjects(dead))

    def runs(self) -> int:
        return sum(log.run_count for log in self.logs())

    def segment_runs(self) -> int:
        objects = self.state.objects.by_number
        found = (objects[run.object_number] for log in self.logs() for run in log.runs())
        return sum(stored.kind == ObjectKind.SEGMENT for stored in found)


def live(ledger: MergedLedger, flushes: int, every_ms: int, size: int, job_ms: int) -> Sequence[int]:
    """One producer, and a job and housekeeping every `job_ms`. Returns how many runs there were before each
    job."""
    counted: list[int] = []
    next_job_ms = ledger.now_ms + job_ms
    for _ in range(flushes):
        ledger.now_ms += every_ms
        ledger.flush(size)
        if ledger.now_ms >= next_job_ms:
            next_job_ms += job_ms
            ledger.commit()
            counted.append(ledger.runs())
            ledger.merge()
            ledger.clean()
    ledger.commit()
    return counted
