"""Damaged stored bytes: no batch is ever served at another offset than its own, and all that can be are."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal import WalSegments
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.fetch.frame_tables import FrameTables
from gateway.fetch.offset_index import SparseOffsetIndex
from gateway.fetch.stream import BatchStream, Damaged
from gateway.wire.errors import ErrorCode
from ledger.batch.header import HEADER_BYTES, LAST_OFFSET_DELTA_AT, MAGIC_AT, verify_crc
from ledger.formats.wal import ENTRY_BYTES, TableBatch, batches_of_run, encode_frame
from ledger.formats.wal import HEADER_BYTES as FRAME_HEADER_BYTES
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import DraftBatch, TopicId
from tests.support.local_logs import entry, opened_log
from tests.support.reading import batch_of, reading_world, records_of, take, with_base

COUNTS = (3, 1, 4, 1, 5, 9, 2, 6)
LAST = sum(COUNTS) - 1
TOPIC = TopicId(bytes(range(16)))
LOG = PartitionLog(0, TOPIC, 1)
BATCHES = [batch_of(*[b"%d" % i] * count) for i, count in enumerate(COUNTS)]
OTHER = batch_of(b"of another partition")


def draft(partition: int, data: bytes, records: int) -> DraftBatch:
    return DraftBatch(TOPIC, partition, data, records, -1, -1, -1)


FRAME = encode_frame(
    [
        draft(0, OTHER, 1),
        *(draft(1, data, count) for data, count in zip(BATCHES, COUNTS, strict=True)),
        draft(2, OTHER, 1),
    ]
)
OBJECT = b"".join(bytes(buffer) for buffer in FRAME.buffers)
RUN = Run(0, LAST, 1, FRAME.starts[1], sum(map(len, BATCHES)), 0)
TABLE = memoryview(OBJECT)[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + ENTRY_BYTES * len(FRAME.starts)]
WHERE = (RUN.start, RUN.size, LAST + 1)


def bases() -> Iterator[tuple[int, int, int]]:
    """(first offset, last offset, number) of each batch."""
    base = 0
    for number, count in enumerate(COUNTS):
        yield base, base + count - 1, number
        base += count


TRUE = {(base, last): BATCHES[number][MAGIC_AT:] for base, last, number in bases()}
NUMBER_OF = {offset: number for base, last, number in bases() for offset in range(base, last + 1)}


def served(
    stored: bytes,
    offset: int,
    want: int,
    table: Sequence[TableBatch] | None,
    offset_index: SparseOffsetIndex | None = None,
) -> tuple[dict[tuple[int, int], bytes], bool]:
    """What a fetch from `offset` on gets of the run, and whether it ended at damage."""
    stream = BatchStream([RUN], offset, LAST + 1, offset_index or SparseOffsetIndex(), LOG)
    is_damaged = False
    while not stream.at_end:
        try:
            for byte_range in stream.ranges(want):
                take(
                    stream,
                    byte_range,
                    [memoryview(stored)[byte_range.start : byte_range.start + byte_range.size]],
                )
        except Damaged:
            if not stream.batches and table is not None and stream.skip_damaged(table):
                continue
            is_damaged = True
            break
    for batch in stream.batches:
        assert verify_crc(batch.data)
    return {(b.base_offset, b.last_offset): bytes(b.data[MAGIC_AT:]) for b in stream.batches}, is_damaged


def flipped(data: bytes, at: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def check_flip(at: int, bit: int, offset: int, want: int, seek_bytes: int) -> None:
    """One bit of the object is flipped: what is read from `offset` on, with the frame's table and without."""
    stored = flipped(OBJECT, at, bit)
    table = batches_of_run(
        memoryview(stored)[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + len(TABLE)], 0, TOPIC, 1, WHERE
    )
    hit = next((n for n in range(8) if 0 <= at - FRAME.starts[n + 1] < len(BATCHES[n])), None)
    in_batch = at - FRAME.starts[hit + 1] if hit is not None else 0
    # Base offset and leader epoch are not in the CRC, and are written again for each response.
    is_harmless = hit is None or in_batch < 8 or 12 <= in_batch < 16
    for known in (None, table):
        got, is_damaged = served(stored, offset, want, known)
        assert got.items() <= TRUE.items(), (at, bit, offset)
        if is_harmless:
            assert not is_damaged and len(got) == len(COUNTS) - NUMBER_OF[offset]
        elif known is not None:
            here = NUMBER_OF[offset]
            assert hit is not None
            assert len(got) == (hit - here if here <= hit else len(COUNTS) - here), (at, bit, offset)


@pytest.fixture(params=[10**9, 1])
def want(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much is read at once: all, or (also while it is searched) one header after the other."""
    if request.param == 1:
        monkeypatch.setattr("gateway.fetch.stream.FIRST_SEEK_BYTES", HEADER_BYTES)
        monkeypatch.setattr("gateway.fetch.stream.LAST_SEEK_BYTES", HEADER_BYTES)
    return int(request.param)


def bits(first: int, size: int) -> Iterator[tuple[int, int]]:
    return ((at, bit) for at in range(first, first + size) for bit in range(8))


def test_a_flipped_bit_of_a_header_never_moves_a_batch_to_another_offset(want: int) -> None:
    for number in range(len(COUNTS)):
        start = FRAME.starts[number + 1]
        for at in (8, 10, 11, MAGIC_AT, 18, 22, *range(LAST_OFFSET_DELTA_AT, LAST_OFFSET_DELTA_AT + 4)):
            for bit in (0, 1, 3, 7):
                for offset in range(0, LAST + 1, 1 if want > 1 else 3):
                    check_flip(start + at, bit, offset, want, HEADER_BYTES)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_no_flipped_bit_of_a_run_ever_moves_a_batch_to_another_offset(want: int) -> None:
    for at, bit in bits(RUN.start, RUN.size):
        for offset in range(LAST + 1):
            check_flip(at, bit, offset, want, HEADER_BYTES)


def test_a_table_with_a_flipped_bit_is_invalid_or_has_the_same_batches() -> None:
    right = batches_of_run(TABLE, 0, TOPIC, 1, WHERE)
    assert right is not None
    for at, bit in bits(0, len(TABLE)):
        damaged = memoryview(flipped(bytes(TABLE), at, bit))
        assert batches_of_run(damaged, 0, TOPIC, 1, WHERE) in (None, right)
    moved = [replace_count(0, 1), replace_count(2, -1)]
    swapped = bytearray(TABLE)
    for at, data in moved:
        swapped[at : at + 4] = data
    lying = batches_of_run(memoryview(swapped), 0, TOPIC, 1, WHERE)
    assert lying is not None and lying != right
    # Two counts that are wrong and have the right sum: the batches themselves do not agree with that.
    third = flipped(OBJECT, FRAME.starts[3] + LAST_OFFSET_DELTA_AT + 3, 0)
    for offset in range(LAST + 1):
        got, _ = served(third, offset, 10**9, lying)
        assert got.items() <= TRUE.items()


def replace_count(number: int, more: int) -> tuple[int, bytes]:
    """Where in the table the record count of a batch of the run is, and a wrong one."""
    return ENTRY_BYTES * (number + 1) + 28, (COUNTS[number] + more).to_bytes(4, "big")


def test_the_table_of_another_partition_or_another_run_is_invalid() -> None:
    assert batches_of_run(TABLE, 0, TOPIC, 0, WHERE) is None
    assert batches_of_run(TABLE, 0, TopicId(bytes(16)), 1, WHERE) is None
    assert batches_of_run(TABLE, 0, TOPIC, 1, (RUN.start, RUN.size, LAST)) is None
    assert batches_of_run(TABLE, 0, TOPIC, 1, (RUN.start, RUN.size - 1, LAST + 1)) is None
    assert batches_of_run(TABLE, 1, TOPIC, 1, WHERE) is None
    # A run may be a part of what its partition has in the frame.
    shorter = (RUN.start, RUN.size - len(BATCHES[-1]), LAST + 1 - COUNTS[-1])
    assert len(batches_of_run(TABLE, 0, TOPIC, 1, shorter) or ()) == 7


def test_points_noted_before_or_after_the_damage_are_right() -> None:
    offset_index = SparseOffsetIndex()
    stored = flipped(OBJECT, FRAME.starts[3] + LAST_OFFSET_DELTA_AT + 3, 0)
    table = batches_of_run(TABLE, 0, TOPIC, 1, WHERE)
    for known in (None, table, None):
        for offset in range(LAST + 1):
            got, _ = served(stored, offset, 10**9, known, offset_index)
            assert got.items() <= TRUE.items()


@pytest.fixture
async def wal(tmp_path: Path) -> "Iterator[WalSegments]":  # type: ignore[misc]
    store = WalSegments(tmp_path / "wal", roll_bytes=10**9)
    yield store
    await store.close()


@pytest.mark.parametrize("levels", [(1, 1), (2, 2), (1, 2), (2, 1)], ids=str)
async def test_the_frame_of_a_run_is_found_among_others_of_its_file(
    wal: WalSegments, levels: tuple[int, int]
) -> None:
    lure = encode_frame([draft(1, BATCHES[0], 3)])
    frames = [
        [draft(0, b"".join(bytes(buffer) for buffer in lure.buffers), 1)],
        [draft(0, bytes(300_000), 1)],
        *[[draft(0, OTHER, 1)]] * 50,
        [draft(1, data, count) for data, count in zip(BATCHES, COUNTS, strict=True)],
    ]
    for number, frame in enumerate(frames):
        placement = await wal.write(frame, 1, levels[number % 2])
    run = RUN._replace(start=placement.starts[0])
    found = await FrameTables(wal).of(placement.locator, run, LOG)
    assert found is not None
    assert [(b.start, b.record_count) for b in found] == list(zip(placement.starts, COUNTS, strict=True))
    for wrong in (
        run._replace(start=run.start + 1),
        run._replace(last=run.last + 1),
        run._replace(dense=False),
    ):
        assert await FrameTables(wal).of(placement.locator, wrong, LOG) is None
    assert await FrameTables(wal).of("wal/0/nothing", run, LOG) is None


async def test_the_frame_of_a_run_is_found_in_a_file_of_the_local_log(tmp_path: Path) -> None:
    """Between entries without batches, and after one whose records look like a frame."""
    lure = encode_frame([draft(1, BATCHES[0], 3)])
    drafts = [
        [draft(0, b"".join(bytes(buffer) for buffer in lure.buffers), 1)],
        [],
        [draft(0, bytes(300_000), 1)],
        *[[draft(0, OTHER, 1)]] * 30,
        [draft(1, data, count) for data, count in zip(BATCHES, COUNTS, strict=True)],
        [],
    ]
    async with opened_log(tmp_path) as opened:
        journal, segments = opened.journal, SegmentBlobs(MemoryBlobs())
        wal = WalAndSegments(WalSegments(tmp_path), segments, logs=opened.wal)
        for number, batches in enumerate(drafts):
            placed = journal.place(number, batches)
            await journal.append(number, entry(number), batches)
            if len(batches) > 1:
                assert placed is not None
                placement = placed
        run = RUN._replace(start=placement.starts[0])
        found = await FrameTables(wal).of(placement.locator, run, LOG)
        assert found is not None
        assert [(b.start, b.record_count) for b in found] == list(zip(placement.starts, COUNTS, strict=True))
        for wrong in (run._replace(start=run.start + 1), run._replace(start=100), RUN):
            assert await FrameTables(wal).of(placement.locator, wrong, LOG) is None
        await wal.close()


async def test_a_damaged_table_of_version_2_is_never_believed(wal: WalSegments, tmp_path: Path) -> None:
    """Also where it would fit: in version 1 nothing says that it is damaged."""
    frame = [draft(1, data, count) for data, count in zip(BATCHES, COUNTS, strict=True)]
    believed = dict[int, bool]()
    for level in (1, 2):
        placement = await wal.write(frame, 1, level)
        run = RUN._replace(start=placement.starts[0])
        path = tmp_path / "wal" / placement.locator
        # The base sequence of the first batch: what a run is compared with does not have it.
        path.write_bytes(
            flipped(path.read_bytes(), run.start - ENTRY_BYTES * len(BATCHES) + ENTRY_BYTES - 1, 0)
        )
        believed[level] = await FrameTables(wal).of(placement.locator, run, LOG) is not None
        await wal.abandon(placement.locator)
    assert believed == {1: True, 2: False}


async def test_after_a_damaged_batch_a_fetch_gets_every_batch_at_its_own_offset(
    wal: WalSegments, tmp_path: Path
) -> None:
    async with reading_world(cache_bytes=0, segments=wal) as world:
        await world.create()
        await world.produce(*BATCHES)
        run = world.log().find(0, 1)[0]
        path = tmp_path / "wal" / world.shard.state.objects.locator(run.object_number)
        content = path.read_bytes()
        for number, (_, last) in enumerate(TRUE):
            path.write_bytes(flipped(content, content.index(BATCHES[number]) + MAGIC_AT, 0))
            world.fetch_service.offset_index = SparseOffsetIndex()
            for other, (start, _) in enumerate(TRUE):
                part = await world.one("t", 0, start)
                expected = range(other, number) if other < number else range(other, len(BATCHES))
                if other == number:
                    assert part.error_code == ErrorCode.CORRUPT_MESSAGE
                else:
                    whole = b"".join(with_base(BATCHES[n], list(TRUE)[n][0]) for n in expected)
                    assert records_of(part) == whole
            assert (await world.one("t", 0, last)).error_code == ErrorCode.CORRUPT_MESSAGE
            # Both look for the first record of all.
            is_found = ErrorCode.NONE if number else ErrorCode.CORRUPT_MESSAGE
            assert (await world.offset(-3)).error is is_found
            assert (await world.offset(0)).error is is_found
        assert world.alarms


async def test_two_damaged_batches_of_a_run_are_both_skipped(wal: WalSegments, tmp_path: Path) -> None:
    async with reading_world(cache_bytes=0, segments=wal) as world:
        await world.create()
        await world.produce(*BATCHES)
        path = tmp_path / "wal" / world.shard.state.objects.locator(world.log().find(0, 1)[0].object_number)
        content = path.read_bytes()
        for number in (1, 4):
            content = flipped(content, content.index(BATCHES[number]) + HEADER_BYTES, 0)
        path.write_bytes(content)
        for number, (base, _) in enumerate(TRUE):
            part = await world.one("t", 0, base, HEADER_BYTES)
            if number in (1, 4):
                assert part.error_code == ErrorCode.CORRUPT_MESSAGE
            else:
                assert records_of(part) == with_base(BATCHES[number], base)


async def test_batches_just_produced_come_from_the_cache_and_are_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[int] = []
    real: Callable[[memoryview], bool] = verify_crc

    def checking(batch: memoryview) -> bool:
        checked.append(len(batch))
        return real(batch)

    monkeypatch.setattr("gateway.fetch.stream.verify_crc", checking)
    async with reading_world() as world:
        await world.create()
        await world.produce(*BATCHES)
        assert records_of(await world.one("t", 0, 0))
        assert checked == []
    async with reading_world(produce_to_cache=False) as world:
        await world.create()
        await world.produce(*BATCHES)
        for _ in range(3):
            assert records_of(await world.one("t", 0, 0))
        # What was read is in the cache as it came, and is checked each time.
        assert len(checked) == 3 * len(BATCHES)
