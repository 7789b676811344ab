"""The messages of SegmentsSwap (20003) as a job sends and reads them (cf. `pipeline/messages.py`)."""

from collections.abc import Sequence
from typing import Final

from ledger.swaps.requests import SegmentRun, SwapMarker, Swapped, SwapSegments
from pipeline.messages import Failure, end_request, read_failure
from pipeline.primitives import Reader, Writer

_MARKERS: Final = 0
"""Tag of the request."""
_IS_DUPLICATE: Final = 0
"""Tag of the response."""


def swap_request(swap: SwapSegments, timeout_ms: int) -> bytes:
    writer = Writer()
    writer.uuid(swap.job)
    writer.int32(swap.attempt)
    writer.uuid(swap.topic_id)
    writer.int32(swap.partition)
    writer.int64(swap.first)
    writer.int64(swap.last)
    writer.int32(swap.layout_version)
    runs = runs_by_segment(len(swap.segments), swap.runs)
    writer.count(len(swap.segments))
    for segment, inside in zip(swap.segments, runs, strict=True):
        writer.string(segment.locator)
        writer.int64(segment.object_bytes)
        write_runs(writer, inside)
        writer.tags()
    return end_request(writer, timeout_ms, {_MARKERS: _markers(swap.markers)} if swap.markers else None)


def swap_response(reader: Reader) -> tuple[Failure, Swapped]:
    reader.int32()
    failure, layout_version, log_start = read_failure(reader), reader.int32(), reader.int64()
    is_duplicate = any(reader.tags().get(_IS_DUPLICATE, b""))
    return failure, Swapped(layout_version, log_start, is_duplicate)


def runs_by_segment(segments: int, runs: Sequence[SegmentRun]) -> list[list[SegmentRun]]:
    """The runs of each of so many segments, in their order."""
    inside: list[list[SegmentRun]] = [[] for _ in range(segments)]
    for run in runs:
        inside[run.segment].append(run)
    return inside


def write_runs(writer: Writer, runs: Sequence[SegmentRun]) -> None:
    writer.count(len(runs))
    for run in runs:
        writer.int32(run.start)
        writer.int32(run.size)
        writer.int64(run.base)
        writer.int64(run.last)
        writer.int64(run.max_timestamp)
        writer.tags()


def _markers(markers: Sequence[SwapMarker]) -> bytes:
    writer = Writer()
    writer.count(len(markers))
    for offset, producer_id, epoch, is_commit, timestamp in markers:
        writer.int64(offset)
        writer.int64(producer_id)
        writer.int16(epoch)
        writer.boolean(is_commit)
        writer.int64(timestamp)
        writer.tags()
    return bytes(writer.data)
