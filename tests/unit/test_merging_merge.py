"""What comes out of a merge is what went in: every byte, offset and timestamp, once and in order."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.batch.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Codec, read_header
from ledger.batch.records import Producer, Record, build_batch, read_batch
from ledger.formats import segment
from ledger.formats.segment import SegmentBytes, verify
from ledger.keys import segment_name
from ledger.merging.found import FoundMarker, FoundRun
from ledger.merging.merge import JobAttempt, RunDamaged, merge, swap_of
from ledger.merging.plan import MergePolicy, MergeTask
from ledger.objects.uploads import ObjectKind
from ledger.partitions.runs import committed_ms, without_timestamp
from ledger.swaps.requests import SegmentFile, SegmentRun, SwapSegments
from tests.support.journalled import locator
from tests.support.merged_bytes import StoredPartition
from tests.support.merged_partition import TOPIC

NOW_MS = 1_700_000_000_000
ALL = MergePolicy(due_runs=1, tail_ms=0, small_segment_bytes=100, many_segments=2)
AGAIN = MergePolicy(due_runs=1, tail_ms=0, small_segment_bytes=1 << 30, many_segments=2)
MAX_BYTES = 1 << 20


class Sent(NamedTuple):
    """A batch as a producer sends it. `stamp` -1: without timestamps."""

    records: int
    codec: Codec
    stamp: int
    producer: Producer
    flags: int
    value: bytes


class Flush(NamedTuple):
    """Some batches of the partition in one WAL object, after `before` bytes of others."""

    batches: Sequence[Sent]
    before: int
    is_new_object: bool
    after_ms: int
    ends: FoundMarker | None = None
    """How a transaction ends after it."""


PRODUCERS = st.one_of(
    st.just(Producer()),
    st.builds(Producer, st.integers(0, 2**40), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)
SENT = st.builds(
    Sent,
    st.integers(1, 4),
    st.sampled_from(Codec),
    st.sampled_from([-1, 0, 1, 50, NOW_MS, NOW_MS + 10**10]),
    PRODUCERS,
    st.sampled_from([0, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT]),
    st.binary(max_size=60),
)
FLUSH = st.builds(
    Flush,
    st.lists(SENT, min_size=1, max_size=3),
    st.sampled_from([0, 1, 90]),
    st.booleans(),
    st.integers(0, 99),
    st.one_of(
        st.none(),
        st.builds(FoundMarker, st.integers(0, 2**62 - 1), st.integers(0, 2**15 - 1), st.booleans()),
    ),
)


def batch_of(sent: Sent) -> bytes:
    records = [Record(at, at if sent.stamp >= 0 else 0, b"k", sent.value) for at in range(sent.records)]
    return build_batch(
        records, sent.codec, base_timestamp=sent.stamp, producer=sent.producer, flags=sent.flags
    )


def partition_of(flushes: Sequence[Flush], page_runs: int = 1_000) -> StoredPartition:
    partition = StoredPartition(page_runs)
    now_ms, key = NOW_MS, ""
    for number, flush in enumerate(flushes):
        now_ms += flush.after_ms
        if flush.is_new_object or not key:
            key = locator(number, now_ms)
        partition.write(key, [batch_of(sent) for sent in flush.batches], now_ms, flush.before)
        if flush.ends is not None:
            partition.mark(flush.ends, now_ms)
    return partition


def one_run(*batches: bytes, kind: int = ObjectKind.WAL, base: int = 10, stamp: int = 5) -> MergeTask:
    counts = sum(read_header(batch).last_offset_delta + 1 for batch in batches)
    size = sum(map(len, batches))
    run = FoundRun(locator(1, NOW_MS), kind, 500, size, base, base + counts - 1, stamp)
    return MergeTask(TOPIC, 3, 7, [run])


def plain(count: int, base_offset: int = 0, stamp: int = 5) -> bytes:
    records = [Record(at, 0, None, b"v") for at in range(count)]
    return build_batch(records, base_offset=base_offset, base_timestamp=stamp)


@settings(deadline=None)
@given(st.lists(FLUSH, min_size=1, max_size=12), st.integers(1, 30), st.sampled_from([1, 300, 1 << 22]))
def test_invariant_4_whatever_is_merged_is_served_as_before(
    flushes: list[Flush], page_runs: int, run_bytes: int
) -> None:
    partition = partition_of(flushes, page_runs)
    before = list(partition.served())
    with pytest.MonkeyPatch.context() as patched:
        # So that few batches make several runs.
        patched.setattr(segment, "MAX_RUN_BYTES", run_bytes)
        for policy, now_ms in ((ALL, NOW_MS + 10**4), (AGAIN, NOW_MS + 10**8), (ALL, NOW_MS + 10**9)):
            partition.carry_out(partition.plan(policy, now_ms), now_ms)
            assert list(partition.served()) == before
    assert all(run.is_segment for run in partition.runs)
    batches = {batch.base: len(batch.data) for batch in before}
    assert all(run.size <= run_bytes or batches[run.base] == run.size for run in partition.runs)


@settings(deadline=None)
@given(st.lists(FLUSH, min_size=1, max_size=12))
def test_invariant_4_records_keys_producers_and_codecs_stay(flushes: list[Flush]) -> None:
    sent = [batch for flush in flushes for batch in flush.batches]
    partition = partition_of(flushes)
    partition.carry_out(partition.plan(ALL, NOW_MS + 10**4), NOW_MS + 10**4)
    expected, batches = 0, iter(sent)
    for served in partition.served():
        header, records = read_batch(memoryview(served.data), MAX_BYTES)
        if header.is_control:
            assert header.base_offset == expected
            expected += 1
            continue
        batch = next(batches)
        _, before = read_batch(memoryview(batch_of(batch)), MAX_BYTES)
        assert records == before
        assert header.base_offset == expected
        assert header.codec == batch.codec
        assert header.attributes & ~0b111 == batch.flags
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == batch.producer
        assert header.base_timestamp == batch.stamp
        expected += batch.records


@settings(deadline=None)
@given(st.lists(FLUSH, min_size=1, max_size=12))
def test_invariant_7_two_attempts_at_a_task_make_the_same_bytes(flushes: list[Flush]) -> None:
    partition = partition_of(flushes)
    for task in partition.plan(ALL, NOW_MS + 10**4):
        data = [partition.bytes_of(run) for run in task.runs]
        one, other = merge(task, data, NOW_MS), merge(task, [bytes(view) for view in data], NOW_MS)
        assert whole_of(one) == whole_of(other)
        assert (one.runs, one.index) == (other.runs, other.index)


@settings(deadline=None)
@given(st.lists(FLUSH, min_size=1, max_size=12))
def test_invariant_7_a_segment_has_the_batches_of_its_task_and_no_others(flushes: list[Flush]) -> None:
    partition = partition_of(flushes)
    served = list(partition.served())
    for task in partition.plan(ALL, NOW_MS + 10**4):
        merged = merge(task, [partition.bytes_of(run) for run in task.runs], NOW_MS)
        name = segment_name(partition.new_segment(task, NOW_MS))
        verified = verify(whole_of(merged), merged.index, "it", name)
        assert (verified.head.base, verified.last) == (task.first, task.last)
        covered = [batch.data for batch in served if task.first <= batch.base <= task.last]
        assert whole_of(merged)[32:-16] == b"".join(covered)


@settings(deadline=None)
@given(st.lists(FLUSH, min_size=1, max_size=12))
def test_a_merge_never_makes_more_runs_of_what_one_run_has(flushes: list[Flush]) -> None:
    partition = partition_of(flushes)
    live = len(partition.runs)
    partition.carry_out(partition.plan(ALL, NOW_MS + 10**4), NOW_MS + 10**4)
    assert len(partition.runs) <= live


def merged_stamps(*stamps: int, again: bool = False) -> list[int]:
    """The greatest timestamps of the runs that come out, of runs with these."""
    partition = StoredPartition()
    for number, stamp in enumerate(stamps):
        batch = plain(1, stamp=max(stamp, -1))
        created = (committed_ms(stamp) or 0) if stamp < 0 else stamp
        partition.write(locator(number, max(created, 1)), [batch], created)
        partition.runs[-1] = partition.runs[-1]._replace(max_timestamp=stamp)
    for policy in (ALL, AGAIN) if again else (ALL,):
        partition.carry_out(partition.plan(policy, 10**13), 10**13)
    return [run.max_timestamp for run in partition.runs]


def test_runs_keep_the_greatest_timestamp() -> None:
    assert merged_stamps(5, 9, 7) == [9]


@pytest.mark.parametrize("again", [False, True])
def test_runs_without_timestamps_stay_as_old_as_their_latest_commit(again: bool) -> None:
    stamps = [without_timestamp(ms) for ms in (1_000, 3_000, 2_000)]
    assert merged_stamps(*stamps, again=again) == [without_timestamp(3_000)]


def test_what_an_old_journal_says_nothing_of_was_committed_when_its_object_was_created() -> None:
    partition = StoredPartition()
    for number in range(2):
        partition.write(locator(number, 5_000), [plain(1, stamp=-1)], 0, before=1)
        partition.runs[-1] = partition.runs[-1]._replace(max_timestamp=-1)
    partition.carry_out(partition.plan(ALL, 10**13), 10**13)
    assert [run.max_timestamp for run in partition.runs] == [without_timestamp(5_000)]


def test_records_without_timestamps_are_not_joined_with_much_older_ones() -> None:
    """Retention would delete them with those."""
    committed = without_timestamp(10_000_000)
    assert merged_stamps(5, committed, 7) == [5, committed, 7]
    assert merged_stamps(9_999_000, committed, 9_998_000) == [9_999_000]
    assert merged_stamps(20_000_000, committed) == [20_000_000]


def test_batches_with_too_few_records_are_found() -> None:
    task = one_run(plain(3), plain(2))
    data = plain(3) + plain(1)
    short = MergeTask(TOPIC, 3, 7, [task.runs[0]._replace(size=len(data))])
    with pytest.raises(RunDamaged, match="end at offset 13, not at 14"):
        merge(short, [data], NOW_MS)


@settings(deadline=None)
@given(st.data())
def test_a_flipped_bit_is_found_and_named(data: st.DataObject) -> None:
    batches = plain(3) + plain(2)
    task = one_run(plain(3), plain(2))
    at = data.draw(st.integers(0, len(batches) - 1))
    inside = at % len(plain(3)) if at < len(plain(3)) else at - len(plain(3))
    damaged = bytearray(batches)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    if inside < 8 or 12 <= inside < 16:
        # Base offset and leader epoch are outside of the CRC, and taken from nowhere.
        assert whole_of(merge(task, [damaged], NOW_MS)) == whole_of(merge(task, [batches], NOW_MS))
        return
    with pytest.raises(RunDamaged, match=r"at byte 5\d\d .offsets 10 to 14. is damaged") as raised:
        merge(task, [damaged], NOW_MS)
    assert raised.value.run == 0


def test_too_few_bytes_are_found() -> None:
    task = one_run(plain(3))
    with pytest.raises(RunDamaged, match=f"{len(plain(3)) - 1} bytes are there of {len(plain(3))}"):
        merge(task, [plain(3)[:-1]], NOW_MS)


def test_gaps_of_segments_stay_and_belong_to_the_range() -> None:
    data = plain(2, 12) + plain(1, 20)
    run = FoundRun(locator(1, NOW_MS), ObjectKind.SEGMENT, 32, len(data), 10, 25, 5)
    merged = merge(MergeTask(TOPIC, 3, 7, [run]), [data], NOW_MS)
    assert [(each.base, each.last) for each in merged.runs] == [(10, 25)]
    assert whole_of(merged)[32:-16] == data


@pytest.mark.parametrize("offsets", [(9, 20), (12, 13), (12, 26)])
def test_offsets_of_a_segment_that_leave_its_run_or_go_back_are_damage(offsets: tuple[int, int]) -> None:
    data = plain(2, offsets[0]) + plain(1, offsets[1])
    run = FoundRun(locator(1, NOW_MS), ObjectKind.SEGMENT, 32, len(data), 10, 25, 5)
    with pytest.raises(RunDamaged, match="offset"):
        merge(MergeTask(TOPIC, 3, 7, [run]), [data], NOW_MS)


def test_the_request_names_the_range_and_every_run() -> None:
    task = one_run(plain(3), plain(2))
    merged = merge(task, [plain(3) + plain(2)], NOW_MS)
    segment_file = SegmentFile("seg/it", merged.size)
    (run,) = merged.runs
    expected = SwapSegments(
        bytes(16), 2, TOPIC, 3, 10, 14, 7, [segment_file], [SegmentRun(0, 32, run.size, 10, 14, 5)]
    )
    assert swap_of(task, merged.runs, segment_file, JobAttempt(bytes(16), 2)) == expected
    later = swap_of(task, merged.runs, segment_file, JobAttempt(bytes(16), 2), layout_version=9)
    assert later.layout_version == 9


def whole_of(merged: SegmentBytes) -> bytes:
    data = b"".join(merged.buffers)
    assert len(data) == merged.size
    return data
