"""One round of a merge job: tasks whose runs are in memory together are read, merged, written, and swapped in
one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger.errors import ErrorName
from ledger.keys import RANDOM_BYTES
from ledger.merging.merge import JobAttempt, swap_of
from ledger.merging.plan import MergeTask
from ledger.merging.reads import NEAR, ReadRule, plan_reads
from ledger.requests import Refused
from ledger.swaps.requests import Swapped, SwapSegments
from ledger.types import Buffer
from pipeline.carrying import (
    JobStore,
    RunMissing,
    Traffic,
    Written,
    merged_parts,
    read_pieces,
    write_segment,
)
from pipeline.pins import Pin, PinLost
from pipeline.planning import PlannedTask

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
    shuffled_bytes: int = 0
    """Of runs that went from one process to another, of Spark, before they were written."""
    again: int = 0
    """Plans that were made again, because others had changed the runs."""
    orphans: int = 0
    """Segments that were written in vain; the gateway deletes them."""
    left_runs: int = 0
    """Runs that stay as they are, since they are damaged, missing or too large."""
    damages: list[str] = field(default_factory=list)
    """A sentence for each of the first ones."""

    def add_traffic(self, traffic: Traffic) -> None:
        self.read_bytes += traffic.read_bytes
        self.written_bytes += traffic.written_bytes
        self.reads += traffic.reads
        self.writes += traffic.writes
        self.shuffled_bytes += traffic.shuffled_bytes

    def damaged(self, sentence: str) -> None:
        self.left_runs += 1
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(sentence)


class Carrier(Protocol):
    """Carries tasks out: what an engine is."""

    def carry_out(self, planned: Sequence[PlannedTask], swaps: "Swaps") -> None:
        """All of them, as far as they can be: for each segment that is durable `swaps.put_in_place`, and
        `swaps.pin.keep` once a minute or more often. Errors: JobError, PinLost; PeerUnavailable,
        PeerRefused; StoreError."""
        ...


class Round:
    """Carries tasks out in this process: all are read, then each is merged, written and swapped in."""

    def __init__(self, store: JobStore, random: Callable[[int], bytes], rule: ReadRule = NEAR) -> None:
        self._store = store
        self._random = random
        self._rule = rule

    def carry_out(self, planned: Sequence[PlannedTask], swaps: "Swaps") -> None:
        found: list[list[Buffer | None]] = [[None] * len(each.task.runs) for each in planned]
        reads = plan_reads([each.task for each in planned], self._rule)
        traffic = Traffic()
        for piece, data in read_pieces(reads, self._store, traffic, swaps.pin.keep):
            found[piece.task][piece.run] = data
        swaps.totals.add_traffic(traffic)
        for each in planned:
            # What was merged is released at once.
            self._merge(each, found.pop(0), swaps)
            swaps.pin.keep()

    def _merge(self, planned: PlannedTask, data: Sequence[Buffer | None], swaps: "Swaps") -> None:
        """The task, or what can be read of it."""
        if planned.is_outdated:
            return
        created_ms = swaps.pin.now_ms()
        without_missing = planned.partition.looks >= LOOKS
        parts = merged_parts(
            planned.task, data, created_ms, swaps.totals.damaged, without_missing=without_missing
        )
        try:
            for merged in parts:
                traffic = Traffic()
                noise = self._random(RANDOM_BYTES)
                written = write_segment(planned.task, merged, created_ms, noise, self._store, traffic)
                swaps.totals.add_traffic(traffic)
                swaps.pin.keep()
                swaps.put_in_place(planned, written)
                if planned.is_outdated:
                    return
        except RunMissing:
            swaps.missing(planned)


class Swaps:
    """Has the gateway put segments in the place of runs, and counts what was done. One for each pin."""

    def __init__(self, swapper: Swapper, pin: Pin, totals: MergeTotals) -> None:
        self.pin = pin
        self.totals = totals
        self._swapper = swapper
        self._attempt = 0

    def missing(self, planned: PlannedTask) -> None:
        """Others may have merged or deleted a run since it was found."""
        planned.partition.looks += 1
        self._plan_again(planned, planned.task)

    def put_in_place(self, planned: PlannedTask, written: Written) -> None:
        """A segment that is durable. Errors: JobError, PinLost; PeerUnavailable, PeerRefused."""
        task = written.of(planned.task)
        self._attempt += 1
        asked_by = JobAttempt(self.pin.job, self._attempt)
        version = planned.partition.version_for(task)
        result = self._swapper.swap(swap_of(task, written.runs, written.segment, asked_by, version))
        if isinstance(result, Refused):
            self.totals.orphans += 1
            self._refused(planned, task, result)
            return
        planned.partition.swapped(result.layout_version)
        if result.log_start > task.last:
            # Retention was faster.
            self.totals.orphans += 1
            return
        self.totals.segments += 1
        self.totals.segment_runs += len(written.runs)
        self.totals.runs += len(task.runs)
        self.totals.run_bytes += task.size

    def _refused(self, planned: PlannedTask, task: MergeTask, result: Refused) -> None:
        match result.error:
            case ErrorName.INVALID_UPDATE_VERSION | ErrorName.KAFKA_STORAGE_ERROR:
                self._plan_again(planned, task)
            case ErrorName.UNKNOWN_MEMBER_ID:
                raise PinLost
            case ErrorName.UNKNOWN_TOPIC_OR_PARTITION | ErrorName.UNKNOWN_TOPIC_ID:
                planned.partition.is_gone = True
            case ErrorName.COORDINATOR_NOT_AVAILABLE:
                # Always busy: for the next job.
                planned.partition.is_gone = True
            case _:
                raise JobError(f"the gateway refuses a swap: {result.error}: {result.message}")

    def _plan_again(self, planned: PlannedTask, task: MergeTask) -> None:
        self.totals.again += 1
        planned.partition.begin_again(task.first)
