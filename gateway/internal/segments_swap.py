"""SegmentsSwap (20003), v0.

Put segments in the place of runs. What may be swapped, and what the errors mean, says
`ledger.swaps.requests.SwapSegments`; REQUEST_TIMED_OUT: the outcome is unknown, and the same request is sent
again.
"""

from typing import Final

from gateway.internal.shard_access import ShardAccess
from gateway.requests.audit import audited
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.segments_swap import (
    SegmentsSwapRequest,
    SegmentsSwapResponse,
    SwapRun,
    SwapSegment,
)
from ledger.errors import ErrorName
from ledger.requests import Refused
from ledger.swaps.requests import (
    MAX_SEGMENT_BYTES,
    MAX_SWAPPED_RUNS,
    SegmentFile,
    SegmentRun,
    SwapMarker,
    Swapped,
    SwapSegments,
)
from ledger.types import TopicId

MAX_KEY_BYTES: Final = 200


async def handle(
    access: ShardAccess, context: RequestContext, request: SegmentsSwapRequest
) -> SegmentsSwapResponse:
    wrong = _wrong_with(request)
    if wrong:
        return _refusal(Refused(ErrorName.INVALID_REQUEST, wrong))
    segments = [SegmentFile(segment.object_key, segment.file_size) for segment in request.segments]
    runs = [
        SegmentRun(at, run.start, run.size, run.base_offset, run.last_offset, run.max_timestamp)
        for at, segment in enumerate(request.segments)
        for run in segment.runs
    ]
    swap = SwapSegments(
        request.job_id,
        request.attempt,
        TopicId(request.topic_id),
        request.partition_index,
        request.first_offset,
        request.last_offset,
        request.layout_version,
        segments,
        runs,
        [
            SwapMarker(each.offset, each.producer_id, each.producer_epoch, each.is_commit, each.timestamp)
            for each in request.markers
        ],
    )
    result = await audited(
        context,
        access.submit(swap, context.deadline(request.timeout_ms)),
        "segments.swapped",
        job=request.job_id.hex(),
        topic_id=request.topic_id.hex(),
        partition=request.partition_index,
        first=request.first_offset,
        last=request.last_offset,
        segments=len(segments),
    )
    if isinstance(result, Refused):
        return _refusal(result)
    assert isinstance(result, Swapped), result
    return SegmentsSwapResponse(
        layout_version=result.layout_version,
        log_start_offset=result.log_start,
        is_duplicate=result.duplicate,
    )


def _wrong_with(request: SegmentsSwapRequest) -> str:
    """In words, empty if nothing is: numbers that cannot be journaled, and more than a swap may have."""
    runs = sum(len(segment.runs) for segment in request.segments)
    if not 0 < len(request.segments) <= runs <= MAX_SWAPPED_RUNS:
        return f"{len(request.segments)} segments with {runs} runs, of at most {MAX_SWAPPED_RUNS}"
    if min(request.attempt, request.partition_index, request.first_offset, request.layout_version) < 0:
        return "a number below 0"
    if request.last_offset < request.first_offset:
        return f"offsets {request.first_offset} to {request.last_offset}"
    if len(request.markers) > MAX_SWAPPED_RUNS:
        return f"{len(request.markers)} ends of transactions, of at most {MAX_SWAPPED_RUNS}"
    for segment in request.segments:
        wrong = _wrong_with_segment(segment)
        if wrong:
            return wrong
    return ""


def _wrong_with_segment(segment: SwapSegment) -> str:
    if not segment.object_key.isascii() or len(segment.object_key) > MAX_KEY_BYTES:
        return "an object key that no segment has"
    if not 0 < segment.file_size <= MAX_SEGMENT_BYTES:
        return f"a segment of {segment.file_size} bytes"
    return next((f"the run {run}" for run in segment.runs if not _is_run(run, segment.file_size)), "")


def _is_run(run: SwapRun, file_size: int) -> bool:
    is_inside = run.start >= 0 and run.size > 0 and run.start + run.size <= file_size
    return is_inside and 0 <= run.base_offset <= run.last_offset


def _refusal(refused: Refused) -> SegmentsSwapResponse:
    return SegmentsSwapResponse(
        error_code=ERROR_CODES[refused.error],
        error_message=refused.message or None,
        layout_version=-1,
        log_start_offset=-1,
    )
