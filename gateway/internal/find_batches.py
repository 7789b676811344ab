"""DisklessFindBatches (98), v0.

KIP-1164: where the batches of partitions are stored, from an offset on. A run is returned as one batch: the
whole run, also where a part of it is below the log start offset. All runs of a partition in a response are of
one layout version: they are taken in one step.

Offset errors are those of Fetch. A partition for which there was no place in the response has no batches, and
its high watermark says that there are more.

Ends of transactions are runs without an object. With `wants_isolation` (ours) the response also has what a
reader of committed records needs: the last stable offset, which may be below the end of the last run, and the
aborted transactions in these runs. Where those are very many, there are fewer runs.

Jobs cannot read what is inside of journal entries. So for them a partition ends where the first such run
begins: before a job gets a pin these runs are moved into objects, and later ones do not concern it. Runs that
cannot be moved, since their entries are lost or damaged, are returned as those of any object that is missing.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from gateway.internal.shard_access import ShardAccess
from gateway.requests.context import RequestContext
from gateway.wire.error_names import ERROR_CODES
from gateway.wire.messages.internal.diskless_find_batches import (
    AbortedFound,
    DisklessFindBatchesRequest,
    DisklessFindBatchesResponse,
    FindBatchesPartition,
    FindBatchesPartitionResponse,
    FindBatchesTopicResponse,
    FoundBatch,
)
from ledger.batch.control import MarkerType
from ledger.errors import ErrorName
from ledger.objects.state import Objects
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import is_marker, marker_of
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.requests import Refused

MAX_RUNS: Final = 10_000
"""Of a response."""
MAX_RUNS_OF_A_PARTITION: Final = 2_000
"""Taken in one step."""
MAX_ABORTED: Final = 10_000
"""Aborted transactions of a partition in a response, unless one run has more."""


async def handle(
    access: ShardAccess, context: RequestContext, request: DisklessFindBatchesRequest
) -> DisklessFindBatchesResponse:
    slices = context.slices
    unprepared = await access.ensure_prepared(context.deadline(request.timeout_ms))
    refused: Refused | None = None
    if unprepared is None and await _needs_proof(access, context, request):
        refused = await access.confirm(context.deadline(request.timeout_ms))
    finding = _Finding(access, request, refused, unprepared)
    topics = []
    async for topic in slices.paced(request.topics):
        parts = []
        async for part in slices.paced(topic.partitions):
            found = finding.partition(topic.topic_id, part)
            slices.is_due(len(found.batches))  # the next partition waits for a slice
            slices.keep(found.batches)
            parts.append(found)
        topics.append(FindBatchesTopicResponse(topic.topic_id, slices.keep(parts)))
    return DisklessFindBatchesResponse(topics=slices.keep(topics))


async def _needs_proof(
    access: ShardAccess, context: RequestContext, request: DisklessFindBatchesRequest
) -> bool:
    """Whether an answer would say that something is not there, which a later entry may have brought."""
    async for topic in context.slices.paced(request.topics):
        async for part in context.slices.paced(topic.partitions):
            log = access.partition(topic.topic_id, part.partition_index)
            if isinstance(log, Refused) or part.offset >= log.high_watermark:
                return True
    return False


class _Finding:
    """The partitions of one response."""

    def __init__(
        self,
        access: ShardAccess,
        request: DisklessFindBatchesRequest,
        unproved: Refused | None,
        unprepared: Refused | None,
    ) -> None:
        """`unproved`: why it is not known whether what is not here is nowhere. `unprepared`: why it is not
        known where partitions end for jobs."""
        self._access = access
        self._unprepared = unprepared
        self._unproved = unproved
        self._wants_isolation = request.wants_isolation
        self._runs_left = MAX_RUNS
        self._bytes_left = max(request.fetch_max_bytes, 1)
        self._max_runs = min(max(request.max_batches_per_partition, 1), MAX_RUNS_OF_A_PARTITION)

    def partition(self, topic_id: bytes, part: FindBatchesPartition) -> FindBatchesPartitionResponse:
        log = self._unprepared or self._access.partition(topic_id, part.partition_index)
        if isinstance(log, Refused):
            error = (self._unproved or log).error
            return FindBatchesPartitionResponse(part.partition_index, ERROR_CODES[error])
        end = self._access.readable_end(log)
        response = FindBatchesPartitionResponse(
            part.partition_index,
            log_start_offset=log.log_start,
            high_watermark=end,
            layout_version=log.layout_version,
        )
        if part.offset < log.log_start:
            response.error_code = ERROR_CODES[ErrorName.OFFSET_OUT_OF_RANGE]
        elif part.offset >= log.high_watermark and self._unproved is not None:
            response.error_code = ERROR_CODES[self._unproved.error]
        elif part.offset > log.high_watermark:
            response.error_code = ERROR_CODES[ErrorName.OFFSET_OUT_OF_RANGE]
        elif self._bytes_left > 0 and self._runs_left > 0:
            max_bytes = min(max(part.max_partition_fetch_bytes, 1), self._bytes_left)
            found = log.find(part.offset, max_bytes, min(self._max_runs, self._runs_left))
            runs: Sequence[Run] = [run for run in found if run.base < end]
            if self._wants_isolation:
                runs = self._isolated(log, part.offset, runs, response)
            self._runs_left -= len(runs)
            self._bytes_left -= sum(run.size for run in runs)
            objects = self._access.shard.state.objects
            response.batches = [_found(objects, run) for run in runs]
        return response

    def _isolated(
        self, log: PartitionLog, offset: int, runs: Sequence[Run], response: FindBatchesPartitionResponse
    ) -> Sequence[Run]:
        """Put what was aborted in these runs into the response. Returns as many of them as it is of."""
        response.last_stable_offset = min(log.last_stable, response.high_watermark)
        aborted = _aborted_in(log, offset, runs)
        while len(aborted) > MAX_ABORTED and len(runs) > 1:
            runs = runs[: len(runs) // 2]
            aborted = _aborted_in(log, offset, runs)
        self._runs_left -= len(aborted)
        response.aborted_transactions = aborted
        return runs


def _aborted_in(log: PartitionLog, offset: int, runs: Sequence[Run]) -> list[AbortedFound]:
    if not runs:
        return []
    aborted = log.isolation.aborted_in(offset, runs[-1].last + 1)
    most = None if len(runs) == 1 else MAX_ABORTED + 1
    return [AbortedFound(each.producer_id, each.first, each.last) for each in islice(aborted, most)]


def _found_marker(run: Run) -> FoundBatch:
    """The end of a transaction is in no object."""
    marker = marker_of(run)
    return FoundBatch(
        batch_id=run.base,
        object_key="",
        byte_size=run.size,
        base_offset=run.base,
        last_offset=run.last,
        batch_max_timestamp=run.max_timestamp,
        record_count=1,
        object_kind=ObjectKind.MARKER,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.type is MarkerType.COMMIT,
    )


def _found(objects: Objects, run: Run) -> FoundBatch:
    if is_marker(run):
        return _found_marker(run)
    stored = objects.by_number[run.object_number]
    return FoundBatch(
        batch_id=run.base,
        object_key=stored.locator,
        byte_offset=run.start,
        byte_size=run.size,
        base_offset=run.base,
        last_offset=run.last,
        batch_max_timestamp=run.max_timestamp,
        record_count=run.last - run.base + 1 if run.dense else -1,
        object_kind=stored.kind,
    )
