"""A partition's runs: joined, cut into chunks, dropped from the front, found."""

import tracemalloc
from collections.abc import Iterator

import pytest

from ledger.errors import StoreDamaged
from ledger.journal import apply_entry, decode_entry
from ledger.partitions import state as ledger_partitions
from ledger.partitions.requests import CommitFile
from ledger.partitions.runs import Row, Run, RunChunk, without_timestamp
from ledger.partitions.state import PartitionLog
from ledger.topics.requests import CreateTopic
from ledger.types import TopicId
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

TOPIC = TopicId(bytes(16))
ALL = 1 << 40


@pytest.fixture(autouse=True)
def chunks_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_partitions, "CHUNK_RUNS", 3)


def log_of(*runs: tuple[int, int]) -> PartitionLog:
    """Runs of (records, max timestamp), 100 bytes each, each in an object of its own."""
    log = PartitionLog(1, TOPIC, 0)
    for at, (records, stamp) in enumerate(runs):
        base = log.high_watermark
        assert log.append(at, 0, 100, base, base + records - 1, stamp)
    return log


@pytest.fixture
def log() -> PartitionLog:
    """Offsets 0-1, 2-3, ... 18-19 in ten runs, the timestamps going up and down."""
    return log_of(*[(2, stamp) for stamp in (10, 30, 20, 20, 40, 40, 35, 5, 40, 1)])


def bases(runs: list[Run]) -> list[int]:
    return [run.base for run in runs]


def test_batches_that_adjoin_in_object_and_offset_are_one_run() -> None:
    log = log_of((2, 7))
    assert not log.append(0, 100, 50, 2, 4, 3)
    assert list(log.runs()) == [Run(0, 4, 0, 0, 150, 7)]
    assert not log.append(0, 150, 10, 5, 5, 9)
    assert list(log.runs()) == [Run(0, 5, 0, 0, 160, 9)]
    assert (log.high_watermark, log.size_bytes, log.run_count) == (6, 160, 1)


@pytest.mark.parametrize(
    ("object_number", "start", "base"), [(1, 100, 2), (0, 101, 2), (0, 0, 2), (0, 100, 3), (0, 99, 2)]
)
def test_batches_that_do_not_adjoin_are_two_runs(object_number: int, start: int, base: int) -> None:
    log = log_of((2, 7))
    assert log.append(object_number, start, 50, base, base, 3)
    assert log.run_count == 2


def test_a_chunk_of_an_image_that_is_larger_than_chunks_are_now_gets_no_more_runs() -> None:
    written = RunChunk(4)
    for base in range(5):
        written.append(base, 0, 100, base, base, 7)
    log = PartitionLog(1, TOPIC, 0)
    log.next_serial, log.high_watermark = 5, 5
    log.put_back(written)
    assert log.append(5, 0, 100, 5, 5, 7)
    assert [(chunk.serial, len(chunk)) for chunk in log.chunks] == [(4, 5), (5, 1)]
    assert bases(log.find(0, ALL)) == [0, 1, 2, 3, 4, 5]


def test_a_run_below_the_log_start_is_not_lengthened() -> None:
    log = log_of((2, 7))
    log.log_start = 1
    assert not log.append(0, 100, 50, 2, 2, 3)
    log.log_start = 3
    assert log.append(0, 150, 50, 3, 3, 3)
    assert log.droppable(10) == 1


def test_find_begins_with_the_run_that_holds_the_offset(log: PartitionLog) -> None:
    for offset in range(20):
        assert bases(log.find(offset, ALL)) == list(range(offset - offset % 2, 20, 2))
    assert bases(log.find(0, ALL, 4)) == [0, 2, 4, 6]


def test_find_continues_after_a_gap() -> None:
    log = log_of((2, 0))
    log.append(7, 0, 100, 10, 11, 0)
    assert [bases(log.find(offset, ALL)) for offset in (1, 2, 9, 10, 11, 12)] == [
        [0, 10],
        [10],
        [10],
        [10],
        [10],
        [],
    ]


def test_find_stops_once_there_are_bytes_enough(log: PartitionLog) -> None:
    assert [len(log.find(0, limit)) for limit in (0, 1, 100, 101, 200, 301, 5000)] == [1, 1, 1, 2, 2, 4, 10]


@pytest.mark.parametrize("dropped", range(11))
def test_find_gives_the_same_as_a_walk_over_all_runs_wherever_it_begins(
    log: PartitionLog, dropped: int
) -> None:
    log.log_start = 2 * dropped
    log.drop(dropped)
    for offset in range(20):
        assert log.find(offset, ALL) == [run for run in log.runs() if run.last >= offset], offset
    assert log.find(0, ALL) == list(log.runs())


def test_nothing_is_found_at_or_above_the_high_watermark(log: PartitionLog) -> None:
    assert log.high_watermark == log.last_stable == 20
    assert log.find(19, ALL) and not log.find(20, ALL) and not log.find(1 << 60, ALL)
    assert not PartitionLog(1, TOPIC, 0).find(0, ALL)


def test_bytes_from_counts_whole_runs_and_stops_at_the_limit(log: PartitionLog) -> None:
    assert [log.bytes_from(offset, ALL) for offset in (0, 1, 2, 19, 20, 99)] == [1000, 1000, 900, 100, 0, 0]
    assert [log.bytes_from(0, limit) for limit in (1, 100, 101, 450)] == [100, 100, 200, 500]


def test_bytes_from_looks_at_the_runs_of_the_first_and_of_the_last_chunks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, looked, rows = log_of(*[(2, 7)] * 30), list[int](), RunChunk.rows

    def counting(chunk: RunChunk, first: int) -> Iterator[Row]:
        looked.append(chunk.serial)
        return rows(chunk, first)

    monkeypatch.setattr(RunChunk, "rows", counting)
    assert log.bytes_from(3, 2_350) == 2_400
    assert looked == [0, 8]
    assert log.bytes_from(0, ALL) == 3_000
    assert looked == [0, 8, 9]
    assert log.bytes_from(0, ALL, 10) == 500
    assert looked == [0, 8, 9, 1]


def test_the_shape_of_a_partition_is_the_same_while_runs_are_only_appended(log: PartitionLog) -> None:
    before, size_bytes = log.shape, log.size_bytes
    log.append(20, 0, 70, 20, 20, 7)
    assert not log.append(20, 70, 80, 21, 21, 7)
    for number in range(21, 30):
        log.append(number, 0, 100, number + 1, number + 1, 7)
    assert (log.shape, log.size_bytes) == (before, size_bytes + 70 + 80 + 9 * 100)
    shapes = [before]
    for _ in range(7):
        log.drop(1)
        shapes.append(log.shape)
    log.drop(log.run_count)
    shapes.append(log.shape)
    assert len(set(shapes)) == 9


@pytest.mark.parametrize("step", [1, 0, -1])
def test_find_max_time_looks_at_the_runs_of_two_chunks_at_most(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, looked = log_of(*[(2, 100 + step * number) for number in range(30)]), list[int]()
    rows, find_latest = RunChunk.rows, RunChunk.find_latest

    def counting_rows(chunk: RunChunk, first: int) -> Iterator[Row]:
        looked.append(chunk.serial)
        return rows(chunk, first)

    def counting_find(chunk: RunChunk, first: int) -> tuple[int, int]:
        looked.append(chunk.serial)
        return find_latest(chunk, first)

    monkeypatch.setattr(RunChunk, "rows", counting_rows)
    monkeypatch.setattr(RunChunk, "find_latest", counting_find)
    found = log.find_max_time()
    assert found is not None and found.base == (58 if step == 1 else 0)
    assert len(looked) <= 2


def test_find_max_time_passes_by_a_timestamp_that_only_unreadable_runs_have() -> None:
    log = log_of((2, 90), (2, 10), (2, 20), (2, 20), (2, 15), (2, 20), (2, 5))
    for log_start, base in ((0, 0), (2, 4), (4, 4), (5, 4), (6, 6), (8, 10), (12, 12)):
        log.log_start = log_start
        found = log.find_max_time()
        assert found is not None and found.base == base
    log.log_start = 2
    log.drop(1)
    found = log.find_max_time()
    assert found is not None and found.base == 4
    assert log.find_max_time(14) is None


def test_find_max_time_finds_nothing_where_no_record_has_a_timestamp() -> None:
    assert PartitionLog(1, TOPIC, 0).find_max_time() is None
    assert log_of(*[(2, without_timestamp(7))] * 7).find_max_time() is None
    found = log_of(*[(2, without_timestamp(7))] * 7, (2, 0), (2, -1)).find_max_time()
    assert found is not None and found.base == 14


def test_find_time_gives_the_first_readable_run_that_is_late_enough(log: PartitionLog) -> None:
    def base_of(stamp: int) -> int | None:
        run = log.find_time(stamp)
        return run.base if run is not None else None

    assert [base_of(stamp) for stamp in (0, 10, 11, 31, 40, 41)] == [0, 0, 2, 8, 8, None]
    log.log_start = 9
    assert [base_of(stamp) for stamp in (0, 31, 40)] == [8, 8, 8]
    log.log_start = 10
    assert [base_of(stamp) for stamp in (0, 36, 40)] == [10, 10, 10]


def test_find_max_time_gives_the_first_readable_run_with_the_greatest_timestamp(log: PartitionLog) -> None:
    for log_start, base in [(0, 8), (9, 8), (10, 10), (12, 16), (18, 18)]:
        log.log_start = log_start
        found = log.find_max_time()
        assert found is not None and found.base == base
    log.log_start = 20
    assert log.find_max_time() is None
    assert log_of((1, -1)).find_max_time() is None


def test_dropped_runs_are_found_no_more_and_their_chunks_go_once_empty(log: PartitionLog) -> None:
    assert [len(chunk) for chunk in log.chunks] == [3, 3, 3, 1]
    assert log.first_objects(4) == [0, 1, 2, 3]
    assert log.drop(4) == ([0, 1, 2, 3], [0])
    assert (log.run_count, log.size_bytes, [chunk.head for chunk in log.chunks]) == (6, 600, [1, 0, 0])
    assert bases(log.find(0, ALL)) == bases(list(log.runs())) == [8, 10, 12, 14, 16, 18]
    assert log.bytes_from(0, ALL) == 600
    found = log.find_time(0)
    assert found is not None and found.base == 8
    assert log.first_objects(3) == [4, 5, 6]
    assert log.drop(6) == ([4, 5, 6, 7, 8, 9], [1, 2, 3])
    assert (log.run_count, log.size_bytes, log.chunks, log.high_watermark) == (0, 0, (), 20)


def test_offsets_and_chunk_serials_continue_after_everything_was_dropped(log: PartitionLog) -> None:
    log.drop(10)
    log.append(77, 0, 100, 20, 22, 0)
    assert bases(log.find(0, ALL)) == [20]
    assert [chunk.serial for chunk in log.chunks] == [4]


def test_only_whole_runs_below_the_log_start_can_be_dropped(log: PartitionLog) -> None:
    for log_start, count in [(0, 0), (1, 0), (2, 1), (7, 3), (8, 4), (19, 9), (20, 10)]:
        log.log_start = log_start
        assert log.droppable(100) == count
        assert log.droppable(3) == min(count, 3)
    log.log_start, log.deleted = 0, True
    assert (log.droppable(100), log.droppable(7)) == (10, 7)


def test_rows_of_a_chunk_that_grows_while_they_are_read_leave_none_out() -> None:
    chunk = RunChunk(0)
    for number in range(3):
        chunk.append(number, 0, 100, number, number, 0)
    rows = chunk.rows(0)
    assert next(rows)[3] == 0
    for number in range(3, 40):
        chunk.append(number, 0, 100, number, number, 0)
    assert [row[3] for row in rows] == list(range(1, 40))


def test_an_entry_that_is_applied_twice_raises_and_the_state_is_not_whole_any_more() -> None:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    ledger.submit(CommitFile(locator(1, 1_000_000), 100, [commit_batch(topic_id(1), 0, 0, records=2)]))
    assert ledger.state.is_whole
    with pytest.raises(StoreDamaged, match=r"offsets 0 to 1 of partition number 0 .* second run"):
        apply_entry(ledger.state, decode_entry(ledger.entries[-1], "entry"))
    assert not ledger.state.is_whole
    with pytest.raises(RuntimeError, match="was applied in part"):
        apply_entry(ledger.state, decode_entry(ledger.entries[-1], "entry"))
    assert not ledger.state.is_whole


def test_a_run_takes_its_row_and_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept for further runs of a chunk that is full."""
    monkeypatch.setattr(ledger_partitions, "CHUNK_RUNS", 256)
    runs = 20 * 256
    tracemalloc.start()
    try:
        log = log_of(*[(1, 5)] * runs)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.run_count == runs and held < 42 * runs
