"""Batches that are copied out of their frames when they are read: other requests go on meanwhile."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from adapters.segments.memory import MemorySegments
from gateway.fetch.cache import RunCache
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.reader import ReadRequest, RunReader
from gateway.fetch.stream import BatchStream
from gateway.fetch.turns import TURN_BYTES
from ledger.partitions.runs import Run
from tests.support.reading import batch_of

BATCHES, PARTITIONS = 24, 6


class Place(NamedTuple):
    locator: str
    size: int


async def read_all(cache: RunCache, size: int) -> tuple[list[list[int]], int]:
    """The offsets that were read of each partition, and in how many iterations of the event loop."""
    reader = RunReader(MemorySegments(), cache, lambda _: Place("wal/0/a", 0), lambda _: None)
    index = SparseOffsetIndex()
    streams = [
        BatchStream([Run(0, 0, 1, i * size, size, 0)], 0, 1, index) for i in range(BATCHES * PARTITIONS)
    ]
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    failures: Sequence[object] = await reader.read([ReadRequest(s, size) for s in streams], 1 << 30)
    counting.cancel()
    assert not any(failures)
    return [[batch.base_offset for batch in stream.batches] for stream in streams], iterations


def test_copies_of_many_batches_leave_the_event_loop_to_others() -> None:
    cache = RunCache(1 << 30)
    batch = batch_of(bytes(200_000))
    size = len(batch)
    for number in range(BATCHES):
        frame = bytearray(batch * PARTITIONS)
        for i in range(PARTITIONS):
            part = memoryview(frame)[i * size : (i + 1) * size]
            cache.put("wal/0/a", (number * PARTITIONS + i) * size, part)
    total = BATCHES * PARTITIONS * size
    offsets, iterations = asyncio.run(read_all(cache, size))
    assert offsets == [[0]] * (BATCHES * PARTITIONS)
    assert cache.copied_bytes == total
    # Once for the copies, and once more as a far store's batches are checked.
    assert iterations >= 2 * (total // TURN_BYTES) - 2
    # What was copied once is not copied again.
    asyncio.run(read_all(cache, size))
    assert cache.copied_bytes == total
