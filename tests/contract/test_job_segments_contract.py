"""The promises of JobSegments, and what a gateway's SegmentStore does with the segments of jobs, kept by
every backend. The job has a store of its own, unless no other process can reach the gateway's."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.names import check_key
from adapters.open import Access, UnknownStore, open_blobs, open_job_segments, open_segments
from adapters.segments.memory import MemorySegments
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from ledger.errors import StoreUnavailable
from ledger.keys import created_ms, index_locator, segment_locator
from ledger.ports import Blobs, JobSegments, SegmentStore
from ledger.types import Buffer, DraftBatch, Position, StoredObject, TopicId
from tests.contract.backends import ON_S3, acknowledgements, blobs_url
from tests.contract.killed import killed_writer
from tests.contract.writer import segment_of
from tests.support.faulty import Fault, Faults, FaultyBlobs

BACKENDS = ["memory:", "file:{dir}", "objects+memory:", "objects+file:{dir}", *ON_S3]
DURABLE = [url for url in BACKENDS if "memory:" not in url]
NOW_MS = 1_700_000_000_000
TOPIC = TopicId(bytes(range(16)))
KFS: list[Buffer] = [b"head", bytearray(b"batches " * 1000), memoryview(b"xtrailx")[1:6]]
WHOLE = b"".join(KFS)
INDEX = b"the index"


@dataclass
class Stores:
    """As a gateway and a job see them, and the blobs that the segments are in."""

    gateway: SegmentStore
    job: JobSegments
    blobs: Blobs

    async def close(self) -> None:
        for store in (self.gateway, self.job, self.blobs):
            await store.close()


def opened(url: str) -> Stores:
    if "memory:" in url:
        blobs = MemoryBlobs()
        wal = MemorySegments() if url == "memory:" else ObjectSegments(blobs)
        both = WalAndSegments(wal, SegmentBlobs(blobs))
        assert isinstance(open_segments(url), WalAndSegments)
        return Stores(both, both, blobs)
    shared = open_blobs(url.removeprefix("objects+"), Access.SHARED)
    return Stores(open_segments(url), open_job_segments(url), shared)


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return blobs_url(request, tmp_path)


@pytest.fixture
async def stores(url: str) -> AsyncIterator[Stores]:
    stores = opened(url)
    yield stores
    await stores.close()


@pytest.fixture(params=DURABLE)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return blobs_url(request, tmp_path)


def locator_of(base: int = 0, partition: int = 0, now_ms: int = NOW_MS) -> str:
    return segment_locator(TOPIC, partition, base, now_ms, os.urandom(10))


async def written(stores: Stores, locator: str = "", content: bytes = WHOLE) -> str:
    locator = locator or locator_of()
    await stores.job.write_segment(locator, [content], INDEX)
    return locator


async def wal_object(stores: Stores, *datas: bytes) -> list[Position]:
    drafts = [DraftBatch(TOPIC, 0, data, 1) for data in datas]
    placed = await stores.gateway.write(drafts, NOW_MS)
    await stores.gateway.abandon(placed.locator)
    return [
        Position(placed.locator, start, len(data)) for start, data in zip(placed.starts, datas, strict=True)
    ]


async def found(store: SegmentStore | JobSegments, *positions: Position) -> list[bytes | None]:
    return [None if data is None else bytes(data) for data in await store.read(positions)]


async def test_a_segment_is_read_by_the_gateway_and_by_the_job(stores: Stores) -> None:
    locator = locator_of()
    await stores.job.write_segment(locator, KFS, INDEX)
    for store in (stores.gateway, stores.job):
        ranges = [(0, len(WHOLE)), (4, 8), (len(WHOLE) - 5, 5), (0, 4)]
        assert await found(store, *(Position(locator, *one) for one in ranges)) == [
            WHOLE[start : start + size] for start, size in ranges
        ]
        assert await found(store, Position(index_locator(locator), 4, 5)) == [b"index"]


async def test_positions_of_wal_objects_and_segments_come_back_in_the_order_given(stores: Stores) -> None:
    first, second = await wal_object(stores, b"one", b"two")
    segment = Position(await written(stores), 4, 8)
    other = Position(await written(stores, content=b"other"), 0, 5)
    for store in (stores.gateway, stores.job):
        assert await found(store, segment, first, other, second, segment, first) == [
            b"batches ",
            b"one",
            b"other",
            b"two",
            b"batches ",
            b"one",
        ]


async def test_missing_ranges_of_segments_read_as_none(stores: Stores) -> None:
    locator = await written(stores)
    there = Position(locator, 0, 4)
    missing = [
        Position(locator_of(), 0, 1),
        Position(index_locator(locator_of()), 0, 1),
        Position(locator, 1 << 40, 1),
        Position(locator, 0, 1 << 40),
        Position(locator, -1, 1),
        Position(locator, 0, -1),
        Position("seg/../../metadata.db", 0, 1),
        Position("seg/" + "0" * 32 + "/0/x.kfs", 0, 1),
        Position("seg/", 0, 1),
    ]
    for position in missing:
        assert await found(stores.gateway, there, position, there) == [b"head", None, b"head"], position


async def test_a_segment_is_one_object_with_its_index(stores: Stores) -> None:
    locators = sorted(
        [
            await written(stores, locator_of(base, partition))
            for partition in (0, 1, 10)
            for base in (9, 10, 0)
        ]
    )
    (wal,) = await wal_object(stores, b"x")
    for store in (stores.gateway, stores.job):
        stored = await store.objects()
        assert [one.locator for one in stored] == [*locators, wal.locator]
        assert {one.size for one in stored[:-1]} == {len(WHOLE)}
        assert {one.created_ms for one in stored} == {NOW_MS}


async def test_objects_are_listed_in_pages_of_any_size(stores: Stores) -> None:
    locators = sorted([await written(stores, locator_of(base)) for base in range(5)])
    lone = locator_of(2)
    await lone_index(stores, lone)
    wal = [(await wal_object(stores, b"x"))[0].locator for _ in range(3)]
    everything = [*sorted([*locators, lone]), *sorted(wal)]
    for size in (1, 2, 3, 5, 100):
        listed: list[str] = []
        while page := await stores.gateway.objects(listed[-1] if listed else "", size):
            assert len(page) <= size
            listed += [one.locator for one in page]
        assert listed == everything
    assert await stores.gateway.objects(limit=0) == []
    # Between the two kinds, as a scan of WAL objects alone begins.
    assert [one.locator for one in await stores.gateway.objects("seg0")] == sorted(wal)


async def lone_index(stores: Stores, locator: str) -> None:
    """As a job leaves it that dies before it could write the segment."""
    await stores.blobs.put(index_locator(locator), [INDEX])


async def test_an_index_without_its_segment_is_an_object_without_bytes(stores: Stores) -> None:
    lone = locator_of(5, now_ms=NOW_MS - 1)
    await lone_index(stores, lone)
    (stored,) = await stores.gateway.objects()
    assert (stored.locator, stored.size, stored.created_ms) == (lone, 0, NOW_MS - 1)
    assert created_ms(lone) == NOW_MS - 1
    assert await found(stores.gateway, Position(lone, 0, 1)) == [None]
    await stores.gateway.delete([lone])
    assert await stores.gateway.objects() == []


async def test_a_segment_is_deleted_with_its_index_and_nothing_else(stores: Stores) -> None:
    first, second = await written(stores, locator_of(1)), await written(stores, locator_of(2))
    (wal,) = await wal_object(stores, b"x")
    assert await found(stores.gateway, Position(first, 0, 4)) == [b"head"]
    await stores.gateway.delete([first, locator_of(), index_locator(second), "seg/../x", ""])
    await stores.gateway.delete([first])
    assert await found(stores.gateway, Position(first, 0, 4), Position(index_locator(first), 0, 1)) == [
        None,
        None,
    ]
    kept = [Position(second, 0, 4), Position(index_locator(second), 0, 3), wal]
    assert await found(stores.gateway, *kept) == [b"head", b"the", b"x"]
    await stores.gateway.delete([second, wal.locator])
    assert await stores.gateway.objects() == []


async def test_a_key_is_never_written_twice(stores: Stores) -> None:
    locator = await written(stores)
    with pytest.raises(StoreUnavailable, match="another key"):
        await written(stores, locator, b"something else")
    assert await found(stores.gateway, Position(locator, 0, 4)) == [b"head"]
    # An attempt of a client that lost the answer of its first one.
    await written(stores, locator)


async def test_only_keys_of_segments_are_written(stores: Stores) -> None:
    for key in ("wal/0/x", index_locator(locator_of()), "seg/x", "", locator_of().upper()):
        with pytest.raises(ValueError):
            await stores.job.write_segment(key, KFS, INDEX)
    assert await stores.gateway.objects() == []


async def test_the_keys_are_those_that_every_store_takes() -> None:
    locator = segment_locator(TOPIC, 2**31 - 1, 2**63 - 1, NOW_MS, os.urandom(10))
    assert check_key(locator) == locator and check_key(index_locator(locator)) == index_locator(locator)


async def test_many_segments_at_once_do_not_mix(stores: Stores) -> None:
    contents = {locator_of(base): os.urandom(50_000 + base) for base in range(20)}
    await asyncio.gather(*(written(stores, locator, data) for locator, data in contents.items()))
    positions = [Position(locator, 0, len(data)) for locator, data in contents.items()]
    assert await found(stores.gateway, *positions) == list(contents.values())


async def test_a_large_segment_comes_back_byte_for_byte(stores: Stores) -> None:
    pieces = [os.urandom(1_000_003) for _ in range(9)]
    locator = locator_of()
    await stores.job.write_segment(locator, pieces, INDEX)
    whole = b"".join(pieces)
    parts = [Position(locator, start, 4_000_000) for start in (0, 1_000_000, 5_000_000)]
    assert await found(stores.gateway, *parts) == [whole[p.start : p.start + p.size] for p in parts]
    assert [one.size for one in await stores.gateway.objects()] == [len(whole)]


async def test_a_gateway_that_starts_meanwhile_harms_no_job(durable_url: str) -> None:
    stores = opened(durable_url)
    locators = await asyncio.gather(
        *(written(stores, locator_of(base)) for base in range(10)), opens(durable_url)
    )
    assert [one.locator for one in await stores.gateway.objects()] == sorted(filter(None, locators))
    await stores.close()


async def opens(url: str) -> str:
    """The blobs as a gateway opens them: it removes what unfinished puts have left."""
    for _ in range(5):
        await open_blobs(url.removeprefix("objects+")).close()
        await asyncio.sleep(0)
    return ""


async def test_what_a_job_was_acknowledged_is_there_after_kill_9(durable_url: str) -> None:
    await open_segments(durable_url).close()
    acknowledged = killed_writer("merged", durable_url, acknowledgements(durable_url) // 4)
    store = open_segments(durable_url)
    listed = {one.locator: one.size for one in await all_of(store)}
    for line in acknowledged:
        locator, data = segment_of(line["number"])
        assert await found(store, Position(locator, 0, len(data))) == [data], line
        assert await found(store, Position(index_locator(locator), 0, 32)) == [data[:32]]
        assert listed[locator] == len(data)
    # Those that were not: of a whole segment the index is there too.
    for locator, size in listed.items():
        if size:
            (index,) = await store.read([Position(index_locator(locator), 0, 32)])
            assert index is not None
    await store.close()


async def all_of(store: SegmentStore) -> list[StoredObject]:
    found, after = list[StoredObject](), ""
    while page := await store.objects(after):
        found += page
        after = page[-1].locator
    return found


@pytest.mark.parametrize("url", ["memory:", "objects+memory:"])
def test_no_job_reaches_what_is_in_the_memory_of_a_gateway(url: str) -> None:
    with pytest.raises(UnknownStore, match="no other process"):
        open_job_segments(url)


@pytest.mark.parametrize("scheme", ["file:", "objects+file:"])
def test_a_job_makes_no_store_where_none_is(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"name its storage.data"):
        open_job_segments(f"{scheme}{tmp_path}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ANSWER_LOST, Fault.NEVER_SENT])
@pytest.mark.parametrize("call", [1, 2])
async def test_a_segment_whose_outcome_is_unknown_is_written_under_another_key(
    fault: Fault, call: int
) -> None:
    blobs = MemoryBlobs()
    segments = SegmentBlobs(FaultyBlobs(blobs, Faults(call, fault, only=["put"])))
    locator = locator_of()
    with pytest.raises(StoreUnavailable):
        await segments.write(locator, [b"kfs"], b"index")
    keys = [info.key for info in await blobs.list("")]
    # Never a segment without its index.
    assert locator not in keys or index_locator(locator) in keys
    again = locator_of()
    await segments.write(again, [b"kfs"], b"index")
    assert await segments.read([Position(again, 0, 3)]) == [b"kfs"]


async def test_local_segments_survive_the_removal_of_their_empty_directory(tmp_path: Path) -> None:
    blobs: Blobs = FileBlobs(tmp_path / "blobs")
    segments = SegmentBlobs(blobs)
    first = locator_of()
    await segments.write(first, [b"kfs"], b"index")
    await segments.delete([first])
    await FileBlobs(tmp_path / "blobs").close()
    assert not (tmp_path / "blobs" / "seg").exists()
    await segments.write(locator_of(), [b"kfs"], b"index")
    await segments.close()
