"""Streams over runs, the sparse offset index, the cache and the budget, each by itself."""

import asyncio

import pytest

from gateway.fetch.budget import FetchBudget
from gateway.fetch.cache import ENTRY_OVERHEAD_BYTES, RunCache
from gateway.fetch.offset_index import Point, SparseOffsetIndex
from gateway.fetch.stream import LAST_SEEK_BYTES, BatchStream, Damaged, open_stream
from ledger.batch.records import Record, build_batch
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import TopicId
from tests.support.reading import batch_of, take


def segment_batch(base: int, *deltas: int) -> bytes:
    """As log compaction leaves it: some records gone, base and last offset kept."""
    return build_batch([Record(delta, 0, None, b"v") for delta in deltas], base_offset=base)


def read_all(stream: BatchStream, data: bytes, want: int = 10**9) -> list[tuple[int, int]]:
    """Give it the ranges that it names; base and last offsets of its batches."""
    while not stream.at_end:
        for byte_range in stream.ranges(want):
            take(stream, byte_range, [data[byte_range.start : byte_range.start + byte_range.size]])
    return [(batch.base_offset, batch.last_offset) for batch in stream.batches]


# Offsets 10-12, a gap, 20-25 with holes inside, 26.
SEGMENT = segment_batch(10, 0, 1, 2) + segment_batch(20, 1, 3, 5) + segment_batch(26, 0)
SEGMENT_RUN = Run(10, 26, 1, 0, len(SEGMENT), 0, dense=False)


@pytest.mark.parametrize("want", [1, 100, 10**9])
@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (10, [(10, 12), (20, 25), (26, 26)]),
        (12, [(10, 12), (20, 25), (26, 26)]),
        (15, [(20, 25), (26, 26)]),
        (24, [(20, 25), (26, 26)]),
        (26, [(26, 26)]),
    ],
)
def test_a_segments_offsets_come_from_its_headers_and_gaps_are_skipped(
    offset: int, expected: list[tuple[int, int]], want: int
) -> None:
    offset_index = SparseOffsetIndex()
    for _ in range(2):
        stream = BatchStream([SEGMENT_RUN], offset, 27, offset_index)
        assert read_all(stream, SEGMENT, want) == expected
        assert stream.available == sum(len(batch.data) for batch in stream.batches)


def test_no_batch_that_begins_at_the_bound_or_after_it_is_served() -> None:
    stream = BatchStream([SEGMENT_RUN], 10, 26, SparseOffsetIndex())
    assert read_all(stream, SEGMENT) == [(10, 12), (20, 25)]


def test_all_of_a_run_is_whole_wherever_the_next_run_is() -> None:
    data = batch_of(b"a")
    runs = [Run(0, 0, 1, 500, len(data), 0), Run(1, 1, 2, 520, len(data), 0)]
    stream = BatchStream(runs, 0, 2, SparseOffsetIndex())
    assert [take(stream, byte_range, [data]) for byte_range in stream.ranges(10**6)] == [len(data)] * 2


def test_a_large_batch_before_the_offset_is_checked_in_pieces_and_once() -> None:
    large, small = batch_of(b"x" * 20_000_000), batch_of(b"a")
    data = large + small
    offset_index = SparseOffsetIndex()
    stream = BatchStream([Run(0, 1, 1, 0, len(data), 0)], 1, 2, offset_index)
    pieces, whole = [], 0
    while not stream.at_end:
        for byte_range in stream.ranges(100):
            pieces.append(byte_range.size)
            whole += take(stream, byte_range, [data[byte_range.start : byte_range.start + byte_range.size]])
    assert [(batch.base_offset, bytes(batch.data)) for batch in stream.batches] == [(1, small)]
    assert stream.available == len(small)
    assert max(pieces) <= LAST_SEEK_BYTES and sum(pieces) <= len(data)
    # Pieces of it are nothing for a cache of whole batches.
    assert whole <= len(small)
    again = BatchStream([Run(0, 1, 1, 0, len(data), 0)], 1, 2, offset_index)
    assert [byte_range.start for byte_range in again.ranges(100)] == [len(large)]


def test_bytes_that_lengthen_a_run_are_counted_from_where_the_last_reader_stopped() -> None:
    offset_index = SparseOffsetIndex()
    log = PartitionLog(0, TopicId(bytes(16)), 0)
    data = batch_of(*[b"x"] * 10)
    log.append(1, 0, len(data), 0, 9, 0)
    first = open_stream(log, 0, 10, 10**6, offset_index)
    read_all(first, data)
    first.note_end(first.batches[-1])
    log.append(1, len(data), 70, 10, 10, 0)
    assert len(log.find(10, 1)) == log.run_count == 1
    stream = open_stream(log, 10, 11, 10**6, offset_index)
    assert (stream.found, stream.available) == (True, 70)
    assert open_stream(log, 9, 11, 10**6, offset_index).found is False


WRITTEN = [batch_of(*values) for values in ([b"a"], [b"b" * 40] * 3, [b"c" * 900], [b"d"] * 7)]
WRITTEN_RUN = Run(100, 111, 1, 500, sum(map(len, WRITTEN)), 0)


def written_at(*indexes: int) -> dict[int, memoryview]:
    """Some of the batches, by where they are in the object."""
    starts = [500 + sum(map(len, WRITTEN[:index])) for index in range(len(WRITTEN))]
    return {starts[index]: memoryview(WRITTEN[index]) for index in indexes}


@pytest.mark.parametrize("wanted", [1, 200, 10**9])
@pytest.mark.parametrize("first", range(4))
def test_what_was_written_lately_is_taken_as_what_is_read(first: int, wanted: int) -> None:
    offset_index, data = SparseOffsetIndex(), bytes(500) + b"".join(WRITTEN)
    offset, position = [(100, 500), (101, 500 + len(WRITTEN[0])), *list_of_later()][first]
    offset_index.note(WRITTEN_RUN, Point(offset, offset, position))
    read, taken = (BatchStream([WRITTEN_RUN], offset, 112, offset_index) for _ in range(2))
    written, all_written = written_at(*range(4)), []
    read_all(read, data)
    while not taken.at_end:
        before = len(taken.batches)
        assert taken.take_written(written.get, wanted)
        all_written.append(len(taken.batches) - before)
    assert taken.batches == read.batches
    assert taken.available == read.available == len(data) - position
    assert all_written == ([4 - first] if wanted == 10**9 else all_written)
    assert wanted > 1 or all_written == [1] * (4 - first)


def list_of_later() -> list[tuple[int, int]]:
    """Offset and position of the third batch and of the fourth."""
    third = 500 + len(WRITTEN[0]) + len(WRITTEN[1])
    return [(104, third), (105, third + len(WRITTEN[2]))]


def test_a_stream_goes_on_with_the_store_where_nothing_was_written_lately() -> None:
    data = bytes(500) + b"".join(WRITTEN)
    stream = BatchStream([WRITTEN_RUN], 100, 112, SparseOffsetIndex())
    assert not stream.take_written(written_at(0, 2, 3).get, 10**9)
    assert not stream.batches
    assert stream.take_written(written_at(0, 2, 3).get, 1)
    assert not stream.take_written(written_at(0, 2, 3).get, 1)
    assert read_all(stream, data) == [(100, 100), (101, 103), (104, 104), (105, 111)]


def test_only_batches_of_the_last_run_whose_offsets_follow_are_taken_without_a_read() -> None:
    written = written_at(*range(4))

    def takes(runs: list[Run], offset: int, bound: int) -> bool:
        return BatchStream(runs, offset, bound, SparseOffsetIndex()).take_written(written.get, 10**9)

    assert takes([WRITTEN_RUN], 100, 112)
    # The place of the offset is to be found; the bound is inside; one of two runs is before it.
    assert not takes([WRITTEN_RUN], 101, 112)
    assert not takes([WRITTEN_RUN], 100, 111)
    assert not takes([Run(90, 99, 1, 0, 500, 0), WRITTEN_RUN], 90, 112)
    # The batches have other offsets than the run: of a segment, too few, too many.
    assert not takes([WRITTEN_RUN._replace(dense=False)], 100, 112)
    assert not takes([WRITTEN_RUN._replace(last=112)], 100, 113)
    assert not takes([WRITTEN_RUN._replace(last=110)], 100, 111)
    assert not takes([WRITTEN_RUN._replace(size=WRITTEN_RUN.size - 1)], 100, 112)


def test_no_range_is_too_short_for_a_batch_header() -> None:
    size = len(batch_of(b"a"))
    runs = [Run(i, i, i, 0, size, 0) for i in range(3)]
    for want in range(3 * size):
        ranges = BatchStream(runs, 0, 3, SparseOffsetIndex()).ranges(want)
        assert all(byte_range.size >= 61 for byte_range in ranges)


def test_a_dense_run_that_ends_before_its_last_offset_is_damaged() -> None:
    data = batch_of(b"a", b"b")
    stream = BatchStream([Run(0, 2, 1, 0, len(data), 0)], 0, 3, SparseOffsetIndex())
    with pytest.raises(Damaged):
        read_all(stream, data)


@pytest.mark.parametrize("cut", [1, 60, 61, 70])
def test_a_run_that_ends_within_a_batch_is_damaged(cut: int) -> None:
    data = (batch_of(b"a") * 2)[: -len(batch_of(b"a"))] + batch_of(b"a")[:cut]
    stream = BatchStream([Run(0, 1, 1, 0, len(data), 0)], 0, 2, SparseOffsetIndex())
    if cut < len(batch_of(b"a")):
        with pytest.raises(Damaged):
            read_all(stream, data)


def test_the_offset_index_is_bounded_in_runs_and_in_points_and_keeps_the_newest() -> None:
    offset_index = SparseOffsetIndex(max_runs=2, max_points=8)
    runs = [Run(0, 10**6, number, 0, 10**6, 0) for number in range(3)]
    for run in runs:
        for offset in range(1, 100):
            offset_index.note(run, Point(offset, offset, 10 * offset))
    assert len(offset_index) == 2
    assert offset_index.before(runs[0], 99) == Point(0, 0, 0)
    assert offset_index.before(runs[2], 99) == Point(99, 99, 990)
    assert offset_index.before(runs[2], 500) == Point(99, 99, 990)
    assert 0 < offset_index.before(runs[2], 97).offset <= 97


def test_the_cache_serves_a_range_as_the_entries_it_consists_of() -> None:
    cache = RunCache(10**6)
    cache.put("o", 0, b"aaaa")
    cache.put("o", 4, b"bb")
    cache.put("o", 7, b"dd")
    views, covered = cache.get("o", 0, 100)
    assert ([bytes(view) for view in views], covered) == ([b"aaaa", b"bb"], 6)
    assert cache.get("o", 6, 1) == ([], 0)
    assert cache.get("p", 0, 1) == ([], 0)


def test_a_reader_may_begin_in_the_middle_of_a_range_but_not_of_a_batch() -> None:
    cache = RunCache(10**6)
    cache.put_range("o", 10, b"aaaabb")
    cache.put("o", 30, b"cccc")
    assert [bytes(view) for view in cache.get("o", 14, 2)[0]] == [b"bb"]
    assert cache.get("o", 16, 1) == ([], 0)
    assert cache.get("o", 31, 1) == ([], 0)


def test_the_cache_evicts_the_least_recently_used_and_keeps_to_its_bound() -> None:
    entry = 100
    cache = RunCache(3 * (entry + ENTRY_OVERHEAD_BYTES))
    for start in (0, 100, 200):
        cache.put_range("o", start, bytes(entry))
    cache.get("o", 0, 1)
    cache.put("o", 300, bytes(entry))
    assert [cache.get("o", start, 1)[1] for start in (0, 100, 200, 300)] == [100, 0, 100, 100]
    assert cache.held_bytes == 3 * (entry + ENTRY_OVERHEAD_BYTES)
    cache.put("o", 400, bytes(10**6))
    assert cache.get("o", 400, 1) == ([], 0)


async def test_the_budget_is_granted_in_order_and_never_exceeded() -> None:
    budget = FetchBudget(100)
    loop = asyncio.get_running_loop()
    first = await budget.acquire(80, loop.time() + 5)
    large = asyncio.create_task(budget.acquire(500, loop.time() + 5))
    small = asyncio.create_task(budget.acquire(10, loop.time() + 5))
    await asyncio.sleep(0.01)
    assert not large.done()
    assert not small.done()
    first.release()
    assert (await large).size == 100
    await asyncio.sleep(0)
    assert not small.done()
    (await large).release()
    (await small).release()
    assert budget.held_bytes == 0


async def test_a_wait_for_the_budget_that_is_given_up_does_not_hold_up_the_others() -> None:
    budget = FetchBudget(100)
    loop = asyncio.get_running_loop()
    first = await budget.acquire(60, loop.time() + 5)
    with pytest.raises(TimeoutError):
        await asyncio.gather(budget.acquire(100, loop.time() + 0.02))
    second = await budget.acquire(40, loop.time() + 5)
    assert second.size == 40
    second.release()
    first.release()
    assert budget.held_bytes == 0
