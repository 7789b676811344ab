"""What the cache counts is about what it holds."""

import tracemalloc

from gateway.fetch.cache import RunCache

FRAME_BYTES = 1_000_000
BATCH_BYTES = 1_000


def test_a_small_batch_does_not_keep_the_frame_it_came_in() -> None:
    cache = RunCache(10_000_000)
    tracemalloc.start()
    try:
        for number in range(50):
            frame = memoryview(bytearray(FRAME_BYTES))
            cache.put("wal/0/a", number * BATCH_BYTES, frame[:BATCH_BYTES])
            del frame
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * FRAME_BYTES
    assert cache.get("wal/0/a", 0, BATCH_BYTES) == ([memoryview(bytes(BATCH_BYTES))], BATCH_BYTES)


def test_a_batch_that_fills_its_frame_is_not_copied() -> None:
    cache = RunCache(10_000_000)
    frame = bytearray(FRAME_BYTES)
    cache.put("wal/0/a", 0, memoryview(frame)[100:])
    (view,), _ = cache.get("wal/0/a", 0, FRAME_BYTES - 100)
    assert view.obj is frame
