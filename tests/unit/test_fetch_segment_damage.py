"""Damaged segments: no batch is ever served at another offset than its own, and all that can be are.

Base offsets are outside of the CRC of a batch, and in a segment they count.
"""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.sound_batches import SoundBatch, SoundBatches
from gateway.fetch.stream import BatchStream, Damaged
from ledger.batch.header import HEADER_BYTES, LAST_OFFSET_DELTA_AT, MAGIC_AT
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.segment import IndexEntry, SegmentBatch, SegmentBytes, encode_segment, read_index
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import TopicId
from tests.support.reading import batch_of, take

COUNTS = (3, 1, 4, 1, 5, 9, 2, 6)
GAPS = (0, 0, 3, 0, 0, 1000, 0, 2)
BASE = 100
LOG = PartitionLog(0, TopicId(bytes(range(16))), 1)
LENGTH = range(8, 12)


class Segment:
    """One segment of a single run, with the offsets of its batches."""

    def __init__(self, gaps: Sequence[int], interval: int) -> None:
        self.batches = [batch_of(*[b"%d" % i] * count) for i, count in enumerate(COUNTS)]
        bases, offset = [], BASE
        for count, gap in zip(COUNTS, gaps, strict=True):
            bases.append(offset + gap)
            offset += gap + count
        made = [SegmentBatch(base, data) for base, data in zip(bases, self.batches, strict=True)]
        encoded: SegmentBytes = encode_segment(made, BASE, 1, interval)
        (row,) = encoded.runs
        self.kfs, self.index = b"".join(encoded.buffers), encoded.index
        self.run = Run(row.base, row.last, 1, row.start, row.size, row.max_timestamp, dense=False)
        self.entries = read_index(encoded.index, "x").entries
        self.spans = [(base, base + count - 1) for base, count in zip(bases, COUNTS, strict=True)]
        self.starts = [row.start + sum(map(len, self.batches[:n])) for n in range(len(COUNTS))]
        self.true = {span: data[MAGIC_AT:] for span, data in zip(self.spans, self.batches, strict=True)}

    def first_at(self, offset: int) -> int:
        """The number of the batch that a fetch from there begins with."""
        return next(n for n, (_, last) in enumerate(self.spans) if last >= offset)

    def batch_at(self, byte: int) -> int:
        return max(n for n, start in enumerate(self.starts) if start <= byte)

    def anchor_after(self, number: int) -> int:
        """The next batch that has an entry in the index."""
        found = (self.starts.index(e.position) for e in self.entries if e.position > self.starts[number])
        return next(found, len(COUNTS))


DENSE_1, DENSE_5 = Segment([0] * 8, 1), Segment([0] * 8, 5)
SPARSE_1, SPARSE_5 = Segment(GAPS, 1), Segment(GAPS, 5)
GAPLESS = [DENSE_1, DENSE_5]
ALL = [*GAPLESS, SPARSE_1, SPARSE_5]
each_segment = pytest.mark.parametrize("segment", ALL, ids=["dense 1", "dense 5", "sparse 1", "sparse 5"])


def flipped(data: bytes, at: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def sound(segment: Segment, stored: bytes, entries: Sequence[IndexEntry] | None = None) -> list[SoundBatch]:
    run = segment.run
    view = memoryview(stored)[run.start : run.start + run.size]
    search = SoundBatches(run, view, segment.entries if entries is None else entries)
    for _ in search.steps():
        pass
    return search.found


def served(
    segment: Segment,
    stored: bytes,
    offset: int,
    want: int,
    known: Sequence[SoundBatch] | None,
    offset_index: SparseOffsetIndex | None = None,
) -> tuple[dict[tuple[int, int], bytes], bool]:
    """What a fetch from `offset` on gets, and whether it ended at damage."""
    run = segment.run
    stream = BatchStream([run], offset, run.last + 1, offset_index or SparseOffsetIndex(), LOG)
    is_damaged = False
    for _ in range(200):
        if stream.at_end:
            break
        try:
            for one in stream.ranges(want):
                take(stream, one, [memoryview(stored)[one.start : one.start + one.size]])
        except Damaged:
            if not stream.batches and known is not None and stream.skip_to(known):
                continue
            is_damaged = True
            break
    else:
        raise AssertionError("the stream makes no progress")
    return {(b.base_offset, b.last_offset): bytes(b.data[MAGIC_AT:]) for b in stream.batches}, is_damaged


def expected(segment: Segment, here: int, hit: int, in_batch: int) -> range | None:
    """The numbers of the batches that a fetch gets that begins with batch `here`, while `hit` is damaged.
    None: it depends on what else is known."""
    if here <= hit:
        return range(here, hit)
    # Where the length is wrong, the next batch is found by the index alone.
    if in_batch in LENGTH and here < segment.anchor_after(hit):
        return None
    return range(here, len(COUNTS))


def check_flip(segment: Segment, at: int, bit: int, want: int) -> None:
    stored = flipped(segment.kfs, at, bit)
    hit = segment.batch_at(at)
    in_batch = at - segment.starts[hit]
    found = sound(segment, stored)
    for offset in {base for base, _ in segment.spans} | {last for _, last in segment.spans}:
        here = segment.first_at(offset)
        for known in (None, found):
            got, is_damaged = served(segment, stored, offset, want, known)
            if in_batch < 8 and segment not in GAPLESS:
                continue  # below
            assert got.items() <= segment.true.items(), (at, bit, offset)
            if 12 <= in_batch < 16:
                assert not is_damaged and len(got) == len(COUNTS) - here
            elif known is not None and in_batch >= 8:
                numbers = expected(segment, here, hit, in_batch)
                if numbers is not None:
                    assert list(got) == [segment.spans[n] for n in numbers], (at, bit, offset)


@pytest.fixture(params=[10**9, 1])
def want(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much is read at once: all, or one header after the other."""
    if request.param == 1:
        monkeypatch.setattr("gateway.fetch.stream.FIRST_SEEK_BYTES", HEADER_BYTES)
        monkeypatch.setattr("gateway.fetch.stream.LAST_SEEK_BYTES", HEADER_BYTES)
    return int(request.param)


def sampled(segment: Segment) -> Iterator[int]:
    places = (
        0,
        5,
        6,
        7,
        8,
        10,
        11,
        14,
        MAGIC_AT,
        18,
        22,
        *range(LAST_OFFSET_DELTA_AT, LAST_OFFSET_DELTA_AT + 4),
    )
    for start in segment.starts:
        yield from (start + place for place in (*places, HEADER_BYTES + 3))


@each_segment
def test_a_flipped_bit_never_moves_a_batch_to_another_offset(segment: Segment, want: int) -> None:
    for at in sampled(segment):
        for bit in (0, 1, 3, 7):
            check_flip(segment, at, bit, want)


@pytest.mark.full
@pytest.mark.timeout(900)
@each_segment
def test_no_flipped_bit_of_a_segment_moves_a_batch_to_another_offset(segment: Segment, want: int) -> None:
    for at in range(segment.run.start, segment.run.start + segment.run.size):
        for bit in range(8):
            check_flip(segment, at, bit, want)


@pytest.mark.parametrize("segment", [SPARSE_1, SPARSE_5], ids=["1", "5"])
def test_a_base_offset_within_a_gap_is_all_that_cannot_be_known_to_be_wrong(
    segment: Segment, want: int
) -> None:
    for hit, (base, last) in enumerate(segment.spans):
        before = segment.spans[hit - 1][1] if hit else segment.run.base - 1
        after = segment.spans[hit + 1][0] if hit + 1 < len(COUNTS) else segment.run.last + 1
        for at in range(segment.starts[hit], segment.starts[hit] + 8):
            for bit in range(8):
                stored = flipped(segment.kfs, at, bit)
                wrong = int.from_bytes(stored[segment.starts[hit] :][:8], "big")
                fits = before < wrong and wrong + last - base < after and hit + 1 < len(COUNTS)
                got, _ = served(segment, stored, base, want, None)
                moved = {span: data for span, data in got.items() if segment.true.get(span) != data}
                assert not moved or (fits and list(moved) == [(wrong, wrong + last - base)])


@pytest.mark.parametrize("segment", GAPLESS, ids=["1", "5"])
def test_a_base_offset_that_is_wrong_costs_no_other_batch(segment: Segment) -> None:
    for hit in range(len(COUNTS)):
        stored = flipped(segment.kfs, segment.starts[hit] + 6, 2)
        found = sound(segment, stored)
        assert [batch.start for batch in found] == [s for n, s in enumerate(segment.starts) if n != hit]


def test_a_sound_run_is_all_sound_also_without_its_index() -> None:
    for segment in ALL:
        everything = [SoundBatch(s, base) for s, (base, _) in zip(segment.starts, segment.spans, strict=True)]
        assert sound(segment, segment.kfs) == everything == sound(segment, segment.kfs, ())


def test_two_damaged_batches_are_both_left_out() -> None:
    for segment in ALL:
        stored = segment.kfs
        for hit in (1, 4):
            stored = flipped(stored, segment.starts[hit] + HEADER_BYTES, 0)
        left = [n for n in range(len(COUNTS)) if n not in (1, 4)]
        if segment is DENSE_5 or segment is SPARSE_5:
            # Those between two damaged ones in one interval are not known to begin where they do.
            assert {batch.start for batch in sound(segment, stored)} <= {segment.starts[n] for n in left}
        else:
            assert [batch.start for batch in sound(segment, stored)] == [segment.starts[n] for n in left]


def test_bytes_in_a_record_that_look_like_a_batch_are_never_taken_for_one() -> None:
    lure = batch_of(b"lure", base_offset=1)
    outer = build_batch([Record(0, 0, None, b"x" * 50 + lure)])
    made = [
        SegmentBatch(n, data)
        for n, data in enumerate([batch_of(b"a"), outer, batch_of(b"b"), batch_of(b"c")])
    ]
    encoded = encode_segment(made, 0, 1, 100)
    kfs = b"".join(encoded.buffers)
    run = Run(0, 3, 1, encoded.runs[0].start, encoded.runs[0].size, 0, dense=False)
    start = 32 + len(made[0].data)
    inside = kfs.index(lure[16:]) - 16 - start
    # The length of the batch is such that the next one would be the one inside.
    damaged = kfs[: start + 8] + (inside - 12).to_bytes(4, "big") + kfs[start + 12 :]
    search = SoundBatches(run, memoryview(damaged)[32:-16], read_index(encoded.index, "x").entries)
    for _ in search.steps():
        pass
    assert [batch.base for batch in search.found] == [0]


@settings(deadline=None)
@given(st.data())
def test_with_any_index_only_true_batches_are_sound(data: st.DataObject) -> None:
    segment = data.draw(st.sampled_from(ALL))
    index = flipped(
        segment.index, data.draw(st.integers(0, len(segment.index) - 1)), data.draw(st.integers(0, 7))
    )
    at = data.draw(st.integers(segment.run.start, segment.run.start + segment.run.size - 1))
    stored = flipped(segment.kfs, at, data.draw(st.integers(0, 7)))
    try:
        entries: Sequence[IndexEntry] = read_index(index, "x").entries
    except (StoreDamaged, StoreTooNew):
        entries = ()
    if at - segment.starts[segment.batch_at(at)] < 8 and segment not in GAPLESS:
        return
    found = sound(segment, stored, entries)
    assert {tuple(b) for b in found} <= {
        (s, base) for s, (base, _) in zip(segment.starts, segment.spans, strict=True)
    }


def test_points_noted_before_the_damage_are_right_after_it() -> None:
    for segment in ALL:
        offset_index = SparseOffsetIndex()
        stored = flipped(segment.kfs, segment.starts[3] + HEADER_BYTES, 0)
        for known in (None, sound(segment, stored), None):
            for offset in range(BASE, segment.run.last + 1, 7):
                got, _ = served(segment, stored, offset, 10**9, known, offset_index)
                assert got.items() <= segment.true.items()
