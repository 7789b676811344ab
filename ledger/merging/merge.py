"""From the bytes of runs to a segment, and to the request that puts it in their place.

Nothing of a batch changes but its first 16 bytes, which its CRC does not cover: the base offset becomes the
one that the ledger has given, and the leader epoch 0, as they are when the batch is served. A marker, which
is in no object, is put in as it is served, too. The same task gives the same bytes wherever it is carried
out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledger.batch.header import BatchError, verify_crc, walk
from ledger.errors import StoreDamaged
from ledger.formats.segment import INDEX_INTERVAL, EncodedRun, SegmentBatch, SegmentBytes, encode_segment
from ledger.merging.found import FoundRun
from ledger.merging.plan import MergeTask
from ledger.partitions.runs import without_timestamp
from ledger.swaps.requests import SegmentFile, SegmentRun, SwapMarker, SwapSegments
from ledger.types import NO_TIMESTAMP, Buffer


class RunDamaged(StoreDamaged):
    """The bytes of a run are not the batches that the ledger has entered. `run`: which of the task's runs."""

    def __init__(self, run: int, message: str) -> None:
        super().__init__(message)
        self.run = run


class JobAttempt(NamedTuple):
    """A job, by its 16 bytes, and which of its attempts at a task this is."""

    job: bytes
    attempt: int


def merge(
    task: MergeTask, data: Sequence[Buffer], created_ms: int, interval: int = INDEX_INTERVAL
) -> SegmentBytes:
    """The segment of a task; its key has `task.first` and `created_ms`. `data` has the bytes of each run, in
    the order of the task, and anything for markers. They are passed on, not copied, but for small batches.

    RunDamaged if a CRC, a length or an offset is wrong.
    """
    merged = encode_segment(batches_of(task, data), task.first, created_ms, interval)
    # Where a batch was taken out of a segment, its offsets are a gap of the range.
    merged.runs[0] = merged.runs[0]._replace(base=task.first)
    merged.runs[-1] = merged.runs[-1]._replace(last=task.last)
    return merged


def swap_of(
    task: MergeTask,
    runs: Sequence[EncodedRun],
    segment: SegmentFile,
    job: JobAttempt,
    layout_version: int | None = None,
) -> SwapSegments:
    """The request, once the segment and its index are durable. `layout_version`: what the swap of the task
    before has returned, as every swap changes it; None for the first of a partition's tasks."""
    return SwapSegments(
        job.job,
        job.attempt,
        task.topic_id,
        task.partition,
        task.first,
        task.last,
        task.layout_version if layout_version is None else layout_version,
        [segment],
        [SegmentRun(0, *run) for run in runs],
        tuple(
            SwapMarker(run.base, *run.marker, run.max_timestamp)
            for run in task.runs
            if run.marker is not None
        ),
    )


def batches_of(task: MergeTask, data: Sequence[Buffer]) -> Iterator[SegmentBatch]:
    """The batches of a task's runs with their final offsets. RunDamaged."""
    for number, (run, found) in enumerate(zip(task.runs, data, strict=True)):
        if run.is_marker:
            yield SegmentBatch(run.base, run.marker_bytes)
            continue
        view = memoryview(found)
        if len(view) != run.size:
            raise _damaged(number, run, run.start, f"{len(view)} bytes are there of {run.size}")
        yield from _batches_of_run(number, run, view)


def _batches_of_run(number: int, run: FoundRun, view: memoryview) -> Iterator[SegmentBatch]:
    untimed, has_offsets = _untimed(run), run.is_segment
    expected, last, at = run.base, run.base - 1, run.start
    try:
        for batch in walk(view):
            at = run.start + batch.position
            data = view[batch.position : batch.position + batch.size_bytes]
            if not verify_crc(data):
                raise _damaged(number, run, at, "the batch does not match its CRC")
            # In a segment the offsets of a batch are its own. In a WAL object they are the producer's.
            base, delta = batch.base_offset if has_offsets else expected, batch.last_offset_delta
            if base < expected or delta < 0:
                raise _damaged(number, run, at, f"offset {base} comes where {expected} was expected")
            last = base + delta
            expected = last + 1
            yield SegmentBatch(base, data, untimed)
    except BatchError as error:
        raise _damaged(number, run, at, error.reason) from error
    if last > run.last or (last < run.last and not run.is_segment):
        raise _damaged(number, run, at, f"its batches end at offset {last}, not at {run.last}")


def _untimed(run: FoundRun) -> int:
    """What a batch without timestamps in this run has in place of one: when it was committed. Among others
    that have timestamps it is as old as those, and so it need not be kept apart from them."""
    if run.max_timestamp != NO_TIMESTAMP:
        return min(run.max_timestamp, NO_TIMESTAMP)
    created_ms = run.created_ms
    return without_timestamp(created_ms) if created_ms else NO_TIMESTAMP


def _damaged(number: int, run: FoundRun, position: int, reason: str) -> RunDamaged:
    where = f"{run.locator} at byte {position} (offsets {run.base} to {run.last})"
    return RunDamaged(number, f"{where} is damaged: {reason}; dragoman audit names all damages")
