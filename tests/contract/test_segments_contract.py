"""The promises of SegmentStore, kept by every backend."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.names import check_key
from adapters.open import open_segments
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.keys import created_ms
from ledger.ports import SegmentStore
from ledger.types import Buffer, DraftBatch, Placement, Position, TopicId
from tests.contract.killed import killed_writer
from tests.contract.writer import batches_of
from tests.support.faulty import EVERY_FAULT, Fault, Faults, FaultySegments

BACKENDS = ["memory:", "file:{dir}", "objects+memory:", "objects+file:{dir}"]
DURABLE = [url for url in BACKENDS if "memory:" not in url]
NOW_MS = 1_700_000_000_000


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.format(dir=tmp_path))


@pytest.fixture
async def store(url: str) -> AsyncIterator[SegmentStore]:
    store = open_segments(url)
    yield store
    await store.close()


@pytest.fixture(params=DURABLE)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.format(dir=tmp_path))


def draft(*datas: Buffer) -> list[DraftBatch]:
    """Batches of three partitions round-robin, so that a store that groups them must reorder."""
    return [DraftBatch(TopicId(bytes(16)), number % 3, data, 1) for number, data in enumerate(datas)]


def positions(placement: Placement, batches: Sequence[DraftBatch]) -> list[Position]:
    return [
        Position(placement.locator, start, len(batch.data))
        for start, batch in zip(placement.starts, batches, strict=True)
    ]


async def write(store: SegmentStore, *datas: Buffer, now_ms: int = NOW_MS) -> list[Position]:
    batches = draft(*datas)
    return positions(await store.write(batches, now_ms), batches)


async def read(store: SegmentStore, requested: Sequence[Position]) -> list[bytes | None]:
    return [None if found is None else bytes(found) for found in await store.read(requested)]


async def test_batches_are_read_where_the_write_said_in_the_order_given(store: SegmentStore) -> None:
    datas = [b"%d" % number * (number + 1) for number in range(20)]
    requested = await write(store, *datas)
    assert await read(store, requested) == datas
    assert await read(store, [*reversed(requested), requested[3], requested[3]]) == [
        *reversed(datas),
        datas[3],
        datas[3],
    ]
    assert await read(store, []) == []


async def test_every_kind_of_buffer_is_written_as_its_bytes(store: SegmentStore) -> None:
    requested = await write(store, b"one", bytearray(b"two"), memoryview(b"xthreex")[1:6])
    assert await read(store, requested) == [b"one", b"two", b"three"]


async def test_a_draft_is_in_one_object_whose_size_covers_it(store: SegmentStore) -> None:
    batches = draft(b"x" * 10, b"y" * 1000, b"z")
    placement = await store.write(batches, NOW_MS)
    last = max(position.start + position.size for position in positions(placement, batches))
    assert last <= placement.object_bytes
    (stored,) = await store.objects()
    assert (stored.locator, stored.size) == (placement.locator, placement.object_bytes)


async def test_drafts_of_many_or_of_large_batches_come_back_byte_for_byte(store: SegmentStore) -> None:
    many = [os.urandom(70 + number % 5) for number in range(3000)]
    large = [os.urandom(5_000_000), b"x", os.urandom(3_000_001)]
    assert await read(store, await write(store, *many)) == many
    assert await read(store, await write(store, *large)) == large


async def test_writes_at_once_do_not_mix(store: SegmentStore) -> None:
    drafts = [[os.urandom(100 + number + part) for part in range(4)] for number in range(100)]
    requested = await asyncio.gather(*(write(store, *datas) for datas in drafts))
    found = await asyncio.gather(*(read(store, positions) for positions in requested))
    assert found == drafts
    taken = sorted((p.locator, p.start, p.start + p.size) for positions in requested for p in positions)
    for (locator, _, end), (next_locator, next_start, _) in itertools.pairwise(taken):
        assert locator != next_locator or end <= next_start


async def test_missing_ranges_read_as_none_among_present_ones(store: SegmentStore) -> None:
    first, second = await write(store, b"one", b"two")
    missing = [
        Position("wal/0/018bcfe5-6800-7000-8000-000000000000.wal", 0, 1),
        Position("wal/0/018bcfe5-6800-7000-8000-000000000000", 0, 1),
        Position("wal/0/../../metadata.sqlite3", 0, 1),
        Position("", 0, 1),
        Position(first.locator, first.start, 1 << 40),
        Position(first.locator, 1 << 40, 1),
        Position(first.locator, -1, 1),
        Position(first.locator, 0, -1),
    ]
    for position in missing:
        assert await read(store, [first, position, second]) == [b"one", None, b"two"], position


async def test_a_draft_without_batches_is_refused(store: SegmentStore) -> None:
    with pytest.raises(ValueError):
        await store.write([], NOW_MS)


async def test_objects_are_listed_by_age_in_pages(store: SegmentStore) -> None:
    written = []
    for number in range(7):
        (position,) = await write(store, b"x", now_ms=NOW_MS + number)
        await store.abandon(position.locator)
        written.append(position.locator)
    stored = await store.objects()
    assert [one.locator for one in stored] == written
    assert [one.created_ms for one in stored] == [NOW_MS + number for number in range(7)]
    assert [one.locator for one in await store.objects(written[2], 3)] == written[3:6]
    assert await store.objects(written[-1]) == []
    assert await store.objects(limit=0) == []


async def test_a_clock_that_goes_back_makes_no_older_object(store: SegmentStore) -> None:
    (first,) = await write(store, b"x", now_ms=NOW_MS)
    await store.abandon(first.locator)
    await write(store, b"y", now_ms=NOW_MS - 5000)
    assert [stored.created_ms for stored in await store.objects()] == [NOW_MS, NOW_MS]


async def test_an_abandoned_object_stays_readable_and_gets_no_further_draft(store: SegmentStore) -> None:
    (first,) = await write(store, b"one")
    await store.abandon(first.locator)
    await store.abandon(first.locator)
    await store.abandon("wal/0/018bcfe5-6800-7000-8000-000000000000.wal")
    (second,) = await write(store, b"two")
    assert second.locator != first.locator
    assert await read(store, [first, second]) == [b"one", b"two"]


async def test_a_delete_is_idempotent_and_touches_nothing_else(store: SegmentStore) -> None:
    (first,) = await write(store, b"one")
    await store.abandon(first.locator)
    (second,) = await write(store, b"two")
    assert await read(store, [first, second]) == [b"one", b"two"]
    await store.delete([first.locator, "wal/0/018bcfe5-6800-7000-8000-000000000000", "../x", ""])
    await store.delete([first.locator])
    await store.delete([])
    assert await read(store, [first, second]) == [None, b"two"]
    assert [stored.locator for stored in await store.objects()] == [second.locator]


async def test_an_object_deleted_while_it_is_written_gets_no_further_draft(store: SegmentStore) -> None:
    (first,) = await write(store, b"one")
    await store.delete([first.locator])
    (second,) = await write(store, b"two")
    assert second.locator != first.locator
    assert await read(store, [first, second]) == [None, b"two"]


@pytest.mark.parametrize("fault", EVERY_FAULT)
async def test_after_any_failed_write_the_next_one_is_whole_and_elsewhere(
    store: SegmentStore, fault: Fault
) -> None:
    faulty = FaultySegments(store, Faults(2, fault, only=["write"]))
    (first,) = await write(faulty, b"one")
    with pytest.raises(StoreError) as failure:
        await write(faulty, b"lost")
    assert isinstance(failure.value, StoreUnavailable if fault is Fault.ERROR_BEFORE else OutcomeUnknown)
    (third,) = await write(faulty, b"three")
    assert await read(faulty, [first, third]) == [b"one", b"three"]


async def test_a_store_that_cannot_be_reached_does_not_say_that_nothing_is_there(store: SegmentStore) -> None:
    faulty = FaultySegments(store, Faults(1, Fault.ERROR_BEFORE, only=["read"]))
    requested = await write(faulty, b"one")
    with pytest.raises(StoreUnavailable):
        await faulty.read(requested)
    assert await read(faulty, requested) == [b"one"]


async def test_locators_are_keys_that_every_store_takes_with_ids_in_lower_case(store: SegmentStore) -> None:
    for _ in range(5):
        (position,) = await write(store, b"x")
        assert check_key(position.locator) == position.locator.lower()
        await store.abandon(position.locator)
    for stored in await store.objects():
        assert created_ms(stored.locator) == stored.created_ms
        with pytest.raises(ValueError):
            created_ms(stored.locator.upper())


async def test_the_store_says_what_it_promises(store: SegmentStore, url: str) -> None:
    assert store.capabilities.durable_ack == ("memory:" not in url)
    assert store.capabilities.deletes
    assert store.capabilities.atomic == (not url.startswith("file:"))


async def test_what_was_written_is_there_after_opening_again_and_no_old_object_grows(
    durable_url: str,
) -> None:
    first = open_segments(durable_url)
    before = await write(first, b"one", b"two")
    await first.close()
    second = open_segments(durable_url)
    after = await write(second, b"three")
    assert after[0].locator != before[0].locator
    assert await read(second, [*before, *after]) == [b"one", b"two", b"three"]
    assert len(await second.objects()) == 2
    await second.close()


async def test_what_was_written_is_there_after_kill_9(durable_url: str) -> None:
    acknowledged = killed_writer("segments", durable_url, 1000)
    store = open_segments(durable_url)
    for line in acknowledged:
        batches = batches_of(line["number"])
        requested = positions(Placement(line["locator"], line["starts"], 0), batches)
        assert await read(store, requested) == [batch.data for batch in batches], line
    await store.close()
