"""AdoptRuns (20008), v0.

Enter runs of segments that stay in another bucket, as the next ones of a partition whose adoption is open.
Nothing of the segments is read: the job has verified them, and a sender that may use this listener is trusted
with it. REQUEST_TIMED_OUT: the outcome is unknown, and the same request is sent again.
"""

from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.adopt_runs import AdoptRunsRequest, AdoptRunsResponse
from ledger.adoption.requests import MAX_ADOPTED_RUNS, Adopted, AdoptedSegment, AdoptRuns
from ledger.errors import ErrorName
from ledger.requests import LedgerResult, Refused
from ledger.swaps.requests import SegmentRun
from ledger.types import TopicId


async def handle(
    access: ShardAccess, context: RequestContext, request: AdoptRunsRequest
) -> AdoptRunsResponse:
    count = sum(len(segment.runs) for segment in request.segments)
    if count > MAX_ADOPTED_RUNS or len(request.segments) > count:
        reason = f"{len(request.segments)} segments with {count} runs, of at most {MAX_ADOPTED_RUNS}"
        return _response(Refused(ErrorName.INVALID_REQUEST, reason))
    runs = [
        SegmentRun(at, run.start, run.size, run.base_offset, run.last_offset, run.max_timestamp)
        for at, segment in enumerate(request.segments)
        for run in segment.runs
    ]
    if any(min(run.start, run.size) < 0 for run in runs):
        return _response(Refused(ErrorName.INVALID_REQUEST, "a number below 0"))
    segments = [
        AdoptedSegment(segment.key, segment.file_size, segment.created_ms) for segment in request.segments
    ]
    adopt = AdoptRuns(TopicId(request.topic_id), request.partition_index, request.place, segments, runs)
    return _response(await access.submit(adopt, context.deadline(request.timeout_ms)))


def _response(result: LedgerResult) -> AdoptRunsResponse:
    if isinstance(result, Refused):
        return AdoptRunsResponse(error_code=ERROR_CODES[result.error], error_message=result.message or None)
    assert isinstance(result, Adopted), result
    return AdoptRunsResponse(high_watermark=result.high_watermark, is_duplicate=result.duplicate)
