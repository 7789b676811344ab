"""Copying objects to other stores: several at a time, within a bound of bytes, with progress."""

import asyncio
from collections.abc import Sequence

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.offline.move_plan import LiveRun, MovePlan, PlannedObject, RunColumns, damage_in
from gateway.offline.object_copies import ATTEMPTS, ObjectCopies, Progress
from ledger.batch.records import Record, build_batch
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.keys import index_locator, segment_locator
from ledger.types import Buffer, TopicId
from tests.support.faulty import Fault, Faults, FaultyBlobs

KIB = 1024
SEVERAL = 3
WAIT_S = 20.0


def locator(number: int) -> str:
    return f"wal/0/{number:08x}-0000-7000-8000-{'0' * 12}"


async def stored(sizes: Sequence[int]) -> tuple[MemoryBlobs, MovePlan]:
    """Objects of these sizes without batches that a fetch can reach."""
    blobs, plan = MemoryBlobs(), MovePlan()
    for number, size in enumerate(sizes):
        await blobs.put(locator(number), [bytes([number % 256]) * size])
        plan.objects.append(PlannedObject(locator(number), size, RunColumns()))
    return blobs, plan


class Counting(MemoryBlobs):
    """The first puts end when SEVERAL of them are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[int] = []
        self.peak_bytes = self.peak_puts = 0
        self._several = asyncio.Event()

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        size = sum(map(len, parts))
        self.under_way.append(size)
        self.peak_bytes = max(self.peak_bytes, sum(self.under_way))
        self.peak_puts = max(self.peak_puts, len(self.under_way))
        if len(self.under_way) == SEVERAL:
            self._several.set()
        async with asyncio.timeout(WAIT_S):
            await self._several.wait()
        await asyncio.sleep(0)
        await super().put(key, parts)
        self.under_way.remove(size)


def nothing(_: Progress) -> None:
    return None


async def no_pause(_: float) -> None:
    return None


async def test_several_are_copied_at_once_within_the_bound_and_a_larger_one_alone() -> None:
    sizes = [10 * KIB] * 10 + [100 * KIB] + [10 * KIB] * 10
    source, plan = await stored(sizes)
    target = Counting()
    copies = ObjectCopies(ObjectSegments(source), target, nothing, max_bytes=32 * KIB)
    copied = await copies.copy(plan, {}, damaged_too=False)
    assert (copied.objects, copied.size_bytes) == (21, sum(sizes))
    assert [await target.get(locator(n)) for n in range(21)] == [
        await source.get(locator(n)) for n in range(21)
    ]
    assert target.peak_puts == 3 and target.peak_bytes == 100 * KIB


async def test_what_is_there_is_not_read_and_progress_counts_it() -> None:
    source, plan = await stored([KIB, 2 * KIB, 3 * KIB])
    faults, seen, now_s = Faults(only=["blobs.get"]), list[Progress](), 100.0

    def precise() -> float:
        return now_s

    class Ticking(MemoryBlobs):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            nonlocal now_s
            now_s += sum(map(len, parts)) / KIB
            await super().put(key, parts)

    segments = ObjectSegments(FaultyBlobs(source, faults))
    copies = ObjectCopies(segments, Ticking(), seen.append, precise, max_bytes=1)
    copied = await copies.copy(plan, {locator(0): KIB}, damaged_too=False)
    assert (copied.there, copied.objects) == (1, 2)
    assert [call.key for call in faults.calls] == [locator(1), locator(2)]
    assert [(each.objects, each.size_bytes // KIB, each.seconds_left) for each in seen] == [
        (1, 1, None),
        (2, 3, 3.0),
        (3, 6, 0.0),
    ]
    assert {(each.all_objects, each.all_bytes) for each in seen} == {(3, 6 * KIB)}


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ANSWER_LOST, Fault.NEVER_SENT])
async def test_a_store_that_fails_for_a_while_is_called_again_after_pauses(fault: Fault) -> None:
    source, plan = await stored([KIB])
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    target = MemoryBlobs()
    faults = Faults(1, fault, times=ATTEMPTS - 1, only=["put"])
    copies = ObjectCopies(ObjectSegments(source), FaultyBlobs(target, faults), nothing, pause=pause)
    assert (await copies.copy(plan, {}, damaged_too=False)).objects == 1
    assert await target.get(locator(0)) == await source.get(locator(0))
    expected = [0.5] if fault is Fault.ANSWER_LOST else [0.5, 1.0, 2.0, 4.0]
    assert pauses == expected


async def test_a_store_that_stays_out_of_reach_ends_the_copy() -> None:
    source, plan = await stored([KIB, KIB])
    faults = Faults(1, Fault.ERROR_BEFORE, times=100, only=["put"])
    target = FaultyBlobs(MemoryBlobs(), faults)
    copies = ObjectCopies(ObjectSegments(source), target, nothing, pause=no_pause)
    with pytest.raises((StoreUnavailable, OutcomeUnknown), match="on purpose"):
        await copies.copy(plan, {}, damaged_too=False)


async def test_an_object_that_disappears_ends_the_copy() -> None:
    source, plan = await stored([KIB])
    await source.delete([locator(0)])
    copies = ObjectCopies(ObjectSegments(source), MemoryBlobs(), nothing, pause=no_pause)
    with pytest.raises(StoreUnavailable, match="disappeared"):
        await copies.copy(plan, {}, damaged_too=False)


def batch() -> bytes:
    return build_batch([Record(offset_delta=n, value=b"v" * 50) for n in range(3)])


@pytest.mark.parametrize(
    ("data", "records", "wrong"),
    [
        (batch(), 3, ""),
        (batch(), -1, ""),
        (batch(), 4, "3 of 4 records"),
        (batch()[:-1], 3, "it has"),
        (batch()[:-1] + b"x", 3, "does not match its CRC"),
        (bytes(len(batch())), 3, "at byte 0"),
    ],
)
def test_damage_is_found_by_length_crc_and_count(data: bytes, records: int, wrong: str) -> None:
    runs = RunColumns()
    runs.add(LiveRun(0, len(batch()), records))
    assert len(runs) == 1
    said = damage_in(data, runs)
    assert wrong in said and bool(said) == bool(wrong)


def test_bytes_that_no_run_needs_are_not_looked_at() -> None:
    runs = RunColumns()
    runs.add(LiveRun(10, len(batch()), 3))
    assert damage_in(b"x" * 10 + batch() + b"torn", runs) == ""


async def test_a_segment_is_copied_with_its_index_before_it() -> None:
    clean, without, damaged = (segment_locator(TopicId(bytes(16)), n, 0, 1, bytes(10)) for n in range(3))
    index = encode_segment([SegmentBatch(0, batch())], 0, 1).index
    source, target = MemoryBlobs(), MemoryBlobs()
    for key in (clean, without, damaged):
        await source.put(key, [b"kfs"])
    await source.put(index_locator(clean), [index])
    await source.put(index_locator(damaged), [index[:3]])
    # An earlier attempt has put an index, and no segment after it.
    await target.put(index_locator(clean), [index])
    plan = MovePlan([PlannedObject(key, 3, RunColumns()) for key in (clean, without, damaged)])
    copies = ObjectCopies(
        WalAndSegments(ObjectSegments(source), SegmentBlobs(source)), target, nothing, pause=no_pause
    )
    assert (await copies.copy(plan, {}, damaged_too=False)).objects == 3
    assert {info.key for info in await target.list("")} == {clean, index_locator(clean), without, damaged}
    assert await target.get(index_locator(clean)) == index
