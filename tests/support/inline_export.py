"""An export of partition 0 of an InlineHost, from requests to a gateway to files in a target."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from gateway.internal import find_batches
from gateway.internal.shard_access import ShardAccess
from gateway.scheduling.slices import Owner, Slices, SliceScheduler
from gateway.wire.messages.internal.diskless_find_batches import (
    DisklessFindBatchesRequest,
    FindBatchesPartition,
    FindBatchesPartitionResponse,
    FindBatchesTopic,
)
from ledger.errors import ErrorName
from ledger.merging.reads import FAR
from ledger.objects.uploads import ObjectKind
from ledger.swaps.requests import Pinned
from ledger.types import Buffer, Position, TopicId
from pipeline.exporting import Export, ExportTotals, Target
from pipeline.messages import Failure, FoundRun, FoundRuns
from pipeline.pins import Pin
from pipeline.planning import Place
from tests.support.inline_world import BEGUN_MS, WAIT_S, InlineHost
from tests.support.journalled import topic_id

T: Final = TopicId(topic_id(1))
Result = TypeVar("Result")


class Gateway:
    """As an export speaks to it from a thread of its own, over an InlineHost; and its segment store."""

    def __init__(self, host: InlineHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.access = ShardAccess(host.shard, "memory:", SimpleNamespace(), host.mover)  # type: ignore[arg-type]

    async def find(self, offset: int) -> FindBatchesPartitionResponse:
        part = FindBatchesPartition(0, offset, 1 << 30)
        request = DisklessFindBatchesRequest(1 << 30, 2_000, [FindBatchesTopic(T, [part])])
        request.wants_isolation = True
        deadline = self._loop.time() + WAIT_S
        slices = Slices(SliceScheduler(), Owner(1, ""), deadline, WAIT_S)
        context: Any = SimpleNamespace(slices=slices, deadline=lambda _: deadline)
        response = await find_batches.handle(self.access, context, request)
        return response.topics[0].partitions[0]

    def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        found = self._wait(self.find(max(offset, self._host.log().log_start)))
        runs = [
            FoundRun(
                each.object_key,
                ObjectKind(each.object_kind),
                each.byte_offset,
                each.byte_size,
                each.base_offset,
                each.last_offset,
                each.batch_max_timestamp,
            )
            for each in found.batches
        ]
        known = found.layout_version, found.log_start_offset, found.high_watermark, runs
        return FoundRuns(Failure(ErrorName.NONE), *known, last_stable=found.last_stable_offset)

    def pin(self, job: bytes) -> Pinned:
        return Pinned(1, BEGUN_MS + 3_600_000)

    def release(self, job: bytes) -> None:
        pass

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """As a job, which does not know the metadata store."""
        return self._wait(ObjectSegments(self._host.blobs).read(positions))

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        raise AssertionError("an export writes no segment of the ledger")

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


def export(gateway: Gateway, elapsed_s: Callable[[], float]) -> ExportTotals:
    totals = ExportTotals()
    with asyncio.Runner() as runner:
        target = Target(MemoryBlobs(), runner, totals)
        pin = Pin(gateway, os.urandom, elapsed_s)
        Export(gateway, gateway, target, pin, totals, namespace="default", rule=FAR).partition(
            Place(T, "t", 0)
        )
    return totals
