"""What the cache counts is about what it holds, and neither writers nor readers take all of it."""

import os
import tracemalloc

from gateway.fetch.cache import ENTRY_OVERHEAD_BYTES, RunCache

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


ENTRY = bytes(1000 - ENTRY_OVERHEAD_BYTES)
"""An entry of 1,000 bytes."""


def written(cache: RunCache, numbers: range) -> list[int]:
    """Which of these batches are here."""
    return [number for number in numbers if cache.get("wal/0/written", 1000 * number, 1)[1]]


def write(cache: RunCache, numbers: range) -> None:
    for number in numbers:
        cache.put("wal/0/written", 1000 * number, ENTRY)


def test_readers_take_what_writers_leave_and_both_keep_half() -> None:
    cache = RunCache(10_000)
    write(cache, range(10))
    assert written(cache, range(10)) == [*range(10)]
    for number in range(100):
        cache.put_object(f"wal/0/{number}", ENTRY)
    assert written(cache, range(10)) == [5, 6, 7, 8, 9]
    assert [number for number in range(100) if cache.object(f"wal/0/{number}")] == [95, 96, 97, 98, 99]
    write(cache, range(10, 100))
    assert written(cache, range(100)) == [95, 96, 97, 98, 99]
    assert [number for number in range(100) if cache.object(f"wal/0/{number}")] == [95, 96, 97, 98, 99]
    assert cache.held_bytes == 10_000


def test_of_written_batches_the_oldest_goes_and_of_objects_the_one_not_used() -> None:
    cache = RunCache(4_000)
    write(cache, range(4))
    assert written(cache, range(1)) == [0]
    write(cache, range(4, 5))
    assert written(cache, range(5)) == [1, 2, 3, 4]
    cache = RunCache(4_000)
    for name in "abcd":
        cache.put_object(name, ENTRY)
    assert cache.object("a")
    cache.put_object("e", ENTRY)
    assert [name for name in "abcde" if cache.object(name)] == ["a", "c", "d", "e"]


def test_room_for_objects_under_way_is_taken_from_the_cache_and_bounded() -> None:
    cache = RunCache(40_000)
    write(cache, range(40))
    assert cache.reserve(6_000)
    assert cache.held_bytes == 40_000
    assert not cache.reserve(5_000)
    assert not cache.reserve(1_000, is_ahead=True)
    assert cache.reserve(4_000)
    assert written(cache, range(40)) == [*range(10, 40)]
    cache.release(6_000)
    cache.release(4_000)
    assert cache.reserved_bytes == 0
    # In a small cache at least one, unless it takes more than half.
    assert not cache.reserve(20_001)
    assert cache.reserve(20_000)


def test_a_reader_finds_no_range_that_was_evicted() -> None:
    cache = RunCache(3_000)
    for number in range(20):
        cache.put_range("a", 1000 * number, ENTRY)
    found = [number for number in range(20) if cache.get("a", 1000 * number + 1, 1)[1]]
    assert found == [17, 18, 19]
    cache.put_object("b", ENTRY)
    cache.discard_object("b")
    assert cache.object("b") is None
    assert cache.held_bytes == 2_000


def large_batches(cache: RunCache, frame: bytearray, number: int, batches: int = 6) -> list[int]:
    """Puts all batches of a frame; returns their starts."""
    size = len(frame) // batches
    starts = [number * len(frame) + i * size for i in range(batches)]
    for i, start in enumerate(starts):
        cache.put("wal/0/a", start, memoryview(frame)[i * size : (i + 1) * size])
    return starts


def test_large_batches_share_their_frame_until_they_are_read() -> None:
    cache = RunCache(10_000_000)
    frame = bytearray(os.urandom(600_000))
    starts = large_batches(cache, frame, 0)
    assert cache.held_bytes == len(frame) + 6 * ENTRY_OVERHEAD_BYTES
    (view,), covered = cache.get("wal/0/a", starts[1], 100_000)
    assert covered == 100_000
    assert view == memoryview(frame)[100_000:200_000]
    assert view.obj is not frame
    assert cache.held_bytes == len(frame) + 100_000 + 6 * ENTRY_OVERHEAD_BYTES
    (again,), _ = cache.get("wal/0/a", starts[1], 100_000)
    assert again.obj is view.obj
    for start in starts:
        cache.get("wal/0/a", start, 100_000)
    assert cache.held_bytes == 6 * (100_000 + ENTRY_OVERHEAD_BYTES)


def test_what_is_counted_of_frames_is_what_they_hold() -> None:
    cache = RunCache(10_000_000)
    tracemalloc.start()
    try:
        for number in range(60):
            starts = large_batches(cache, bytearray(600_000), number)
            if number % 3 == 0:
                cache.get("wal/0/a", starts[number % 6], 100_000)
            if number % 5 == 0:
                cache.discard_written("wal/0/a", starts[2])
            assert cache.held_bytes <= cache.max_bytes
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert abs(held - cache.held_bytes) < 0.05 * cache.held_bytes
    assert len(cache) > 60
    for start in range(0, 60 * 600_000, 100_000):
        cache.discard_written("wal/0/a", start)
    assert (len(cache), cache.held_bytes) == (0, 0)


def test_a_frame_that_is_too_large_for_the_cache_is_not_kept_for_a_batch() -> None:
    cache = RunCache(4_000_000)
    frame = bytearray(600_000)
    cache.put("wal/0/a", 0, memoryview(frame)[:100_000])
    assert cache.held_bytes == 100_000 + ENTRY_OVERHEAD_BYTES
