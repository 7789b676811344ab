"""Segments as objects: how ranges of them are read."""

import asyncio

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import MAX_GAP_BYTES, READS_AT_ONCE, ObjectSegments
from ledger.types import DraftBatch, Placement, Position, TopicId
from tests.support.slow_blobs import SlowBlobs, constant
from tests.support.virtual_time import run_virtually

NOW_MS = 1_700_000_000_000
SIZE = 64 * 1024


async def written(store: ObjectSegments, count: int) -> tuple[Placement, list[bytes]]:
    datas = [bytes([number]) * SIZE for number in range(count)]
    batches = [DraftBatch(TopicId(bytes(16)), number, data, 1) for number, data in enumerate(datas)]
    return await store.write(batches, NOW_MS), datas


async def test_ranges_with_small_gaps_are_one_get_and_keep_no_gap_in_memory() -> None:
    blobs = SlowBlobs(MemoryBlobs())
    store = ObjectSegments(blobs)
    placement, datas = await written(store, 12)
    wanted = [0, 2, 3, 5, 11]
    found = await store.read([Position(placement.locator, placement.starts[i], SIZE) for i in wanted])
    assert found == [datas[i] for i in wanted]
    assert 5 * SIZE > MAX_GAP_BYTES
    first, last = placement.starts[0], placement.starts[11]
    assert blobs.gets == [(placement.locator, first, 6 * SIZE), (placement.locator, last, SIZE)]
    wholes = [data.obj if isinstance(data, memoryview) else data for data in found]
    assert [len(whole) for whole in wholes if isinstance(whole, bytes)] == [SIZE] * 5


def test_many_objects_are_read_at_once_within_a_bound() -> None:
    async def main() -> float:
        blobs = SlowBlobs(MemoryBlobs(), get=constant(0.1))
        store = ObjectSegments(blobs)
        placements = [(await written(store, 1))[0] for _ in range(READS_AT_ONCE + 1)]
        began = asyncio.get_running_loop().time()
        positions = [Position(placement.locator, placement.starts[0], SIZE) for placement in placements]
        assert all(await store.read(positions))
        assert blobs.most_under_way["get"] == READS_AT_ONCE == 128
        return asyncio.get_running_loop().time() - began

    assert abs(run_virtually(main) - 0.2) < 0.01
