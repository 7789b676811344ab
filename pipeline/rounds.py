"""One round of a merge job: tasks whose runs are in memory together are read, merged, written, and swapped in
one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger.errors import ErrorName
from ledger.formats.segment import SegmentBytes
from ledger.keys import RANDOM_BYTES, segment_locator
from ledger.merging.merge import JobAttempt, RunDamaged, merge, swap_of
from ledger.merging.plan import MergeTask
from ledger.merging.reads import ObjectRead, ReadRule, plan_reads
from ledger.requests import Refused
from ledger.swaps.requests import SegmentFile, Swapped, SwapSegments
from ledger.types import Buffer, Position
from pipeline.pins import Pin
from pipeline.planning import PlannedTask

READ_BYTES: Final = 8 * 1024 * 1024
"""Of ranges that are read at once, unless one has more."""
LOOKS: Final = 3
"""How often a missing object is taken for an outdated plan. Then it is taken for damage."""
MAX_DAMAGES: Final = 20


class JobError(Exception):
    """The job cannot go on; one sentence says why and what helps."""


class Swapper(Protocol):
    """As `pipeline.peer.PeerClient`."""

    def swap(self, swap: SwapSegments) -> Swapped | Refused:
        """Sent again by itself while the partition has other work in the same journal entry. Errors:
        PeerUnavailable, also where it is unknown whether it happened."""
        ...


class JobStore(Protocol):
    """Where runs are read and segments written. Calls block, each with a deadline. Errors: StoreError."""

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """The bytes of each position; None where object or range is not there."""
        ...

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        """A segment and its index: durable when it returns, and never written over another."""
        ...


@dataclass(slots=True)
class MergeTotals:
    """What a job has done so far."""

    partitions: int = 0
    """Looked at, to their ends."""
    runs: int = 0
    """Replaced."""
    run_bytes: int = 0
    """Of these."""
    segments: int = 0
    """Swapped in."""
    segment_runs: int = 0
    """Of these: what is in the ledger now in the place of `runs`."""
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    """Ranges of objects."""
    writes: int = 0
    """Segments and their indexes."""
    again: int = 0
    """Plans that were made again, because others had changed the runs."""
    orphans: int = 0
    """Segments that were written in vain; the gateway deletes them."""
    left_runs: int = 0
    """Runs that stay as they are, since they are damaged, missing or too large."""
    damages: list[str] = field(default_factory=list)
    """A sentence for each of the first ones."""

    def damaged(self, sentence: str) -> None:
        self.left_runs += 1
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(sentence)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a round needs of the job."""

    swapper: Swapper
    store: JobStore
    rule: ReadRule
    pin: Pin
    random: Callable[[int], bytes]


class Round:
    """Carries tasks out, and counts what was done."""

    def __init__(self, tools: Tools, totals: MergeTotals) -> None:
        self._tools = tools
        self._totals = totals
        self._attempt = 0

    def run(self, planned: Sequence[PlannedTask]) -> None:
        """Errors: JobError, PinLost; PeerUnavailable, PeerRefused; StoreError."""
        found = self._read([each.task for each in planned])
        for each in planned:
            # What was merged is released at once.
            self._merge(each, found.pop(0))
            self._tools.pin.keep()

    def _read(self, tasks: Sequence[MergeTask]) -> list[list[Buffer | None]]:
        """By task and run; None for one that is not there."""
        found: list[list[Buffer | None]] = [[None] * len(task.runs) for task in tasks]
        some: list[ObjectRead] = []
        size = 0
        for read in plan_reads(tasks, self._tools.rule):
            if some and size + read.position.size > READ_BYTES:
                self._read_some(some, found)
                some, size = [], 0
            some.append(read)
            size += read.position.size
        if some:
            self._read_some(some, found)
        return found

    def _read_some(self, reads: Sequence[ObjectRead], found: Sequence[list[Buffer | None]]) -> None:
        for read, data in zip(reads, self._read_ranges([read.position for read in reads]), strict=True):
            if data is not None:
                for piece, part in read.runs(memoryview(data)):
                    found[piece.task][piece.run] = part
            elif len(read.pieces) > 1:
                # Perhaps only one of the runs is not there.
                locator, start = read.position.locator, read.position.start
                alone = [Position(locator, start + piece.start, piece.size) for piece in read.pieces]
                for piece, one in zip(read.pieces, self._read_ranges(alone), strict=True):
                    found[piece.task][piece.run] = one
        self._tools.pin.keep()

    def _read_ranges(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        data = self._tools.store.read(positions)
        self._totals.reads += len(positions)
        self._totals.read_bytes += sum(len(each) for each in data if each is not None)
        return data

    def _merge(self, planned: PlannedTask, data: Sequence[Buffer | None]) -> None:
        """The task, or what can be read of it."""
        left = [(planned.task, data)]
        while left and not planned.is_outdated:
            task, found = left.pop(0)
            try:
                whole = [_there(task, number, each) for number, each in enumerate(found)]
                created_ms = self._tools.pin.now_ms()
                merged = merge(task, whole, created_ms)
            except RunMissing as error:
                if planned.partition.looks < LOOKS:
                    # Others may have merged or deleted it since it was found.
                    planned.partition.looks += 1
                    self._plan_again(planned, task)
                    return
                self._totals.damaged(str(error))
                left = _parts(task, found, error.run) + left
            except RunDamaged as error:
                self._totals.damaged(str(error))
                left = _parts(task, found, error.run) + left
            else:
                self._put_in_place(planned, task, merged, created_ms)

    def _put_in_place(
        self, planned: PlannedTask, task: MergeTask, merged: SegmentBytes, created_ms: int
    ) -> None:
        tools = self._tools
        noise = tools.random(RANDOM_BYTES)
        locator = segment_locator(task.topic_id, task.partition, task.first, created_ms, noise)
        tools.store.write(locator, merged.buffers, merged.index)
        self._totals.writes += 2
        self._totals.written_bytes += merged.size + len(merged.index)
        tools.pin.keep()
        self._attempt += 1
        asked_by = JobAttempt(tools.pin.job, self._attempt)
        version = planned.partition.version_for(task)
        segment = SegmentFile(locator, merged.size)
        result = tools.swapper.swap(swap_of(task, merged.runs, segment, asked_by, version))
        if isinstance(result, Refused):
            self._totals.orphans += 1
            self._refused(planned, task, result)
            return
        planned.partition.swapped(result.layout_version)
        if result.log_start > task.last:
            # Retention was faster.
            self._totals.orphans += 1
            return
        self._totals.segments += 1
        self._totals.segment_runs += len(merged.runs)
        self._totals.runs += len(task.runs)
        self._totals.run_bytes += task.size

    def _refused(self, planned: PlannedTask, task: MergeTask, result: Refused) -> None:
        match result.error:
            case ErrorName.INVALID_UPDATE_VERSION | ErrorName.KAFKA_STORAGE_ERROR:
                self._plan_again(planned, task)
            case ErrorName.UNKNOWN_TOPIC_OR_PARTITION | ErrorName.UNKNOWN_TOPIC_ID:
                planned.partition.is_gone = True
            case ErrorName.COORDINATOR_NOT_AVAILABLE:
                # Always busy: for the next job.
                planned.partition.is_gone = True
            case _:
                raise JobError(f"the gateway refuses a swap: {result.error}: {result.message}")

    def _plan_again(self, planned: PlannedTask, task: MergeTask) -> None:
        self._totals.again += 1
        planned.partition.begin_again(task.first)


class RunMissing(Exception):
    """The store does not have the bytes of a run. `run`: which of the task's runs."""

    def __init__(self, run: int, message: str) -> None:
        super().__init__(message)
        self.run = run


def _there(task: MergeTask, number: int, data: Buffer | None) -> Buffer:
    if data is None:
        run = task.runs[number]
        where = f"{run.locator} at byte {run.start} (offsets {run.base} to {run.last})"
        raise RunMissing(number, f"{where} is missing; dragoman audit names all damages")
    return data


def _parts(
    task: MergeTask, data: Sequence[Buffer | None], run: int
) -> list[tuple[MergeTask, Sequence[Buffer | None]]]:
    """The runs before and after one that stays as it is, as tasks of their own."""
    halves = [half for half in (data[:run], data[run + 1 :]) if half]
    return list(zip(task.without(run), halves, strict=True))
