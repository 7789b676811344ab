"""A settled ledger is one object of three files, for jobs and for the gateway, in every backend."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.segment_blobs import SegmentBlobs
from ledger.errors import StoreUnavailable
from ledger.keys import SettledKeys, segment_locator, settled_keys, settled_keys_of
from ledger.ports import JobSegments, SegmentStore
from ledger.types import Buffer, Position, TopicId
from tests.contract.backends import blobs_url
from tests.contract.test_job_segments_contract import BACKENDS, Stores, opened, wal_object
from tests.support.faulty import Fault, Faults, FaultyBlobs

NOW_MS = 1_700_000_000_000
TOPIC = TopicId(bytes(range(16)))
LOG: list[Buffer] = [b"head", bytearray(b"blocks " * 500), memoryview(b"xendx")[1:4]]
WHOLE = b"".join(LOG)


@pytest.fixture(params=BACKENDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    stores = opened(blobs_url(request, tmp_path))
    yield stores
    await stores.close()


def new_keys(partition: int = 0, created_ms: int = NOW_MS) -> SettledKeys:
    return settled_keys(TOPIC, partition, created_ms, os.urandom(10))


async def written(stores: Stores, keys: SettledKeys | None = None) -> SettledKeys:
    keys = keys or new_keys()
    await stores.job.write_settled(keys.log_key, LOG, b"the index", b"{}")
    return keys


async def found(store: SegmentStore | JobSegments, *positions: Position) -> Sequence[bytes | None]:
    return [None if data is None else bytes(data) for data in await store.read(positions)]


async def listed(stores: Stores, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
    both = [await store.objects(after, limit) for store in (stores.gateway, stores.job)]
    assert both[0] == both[1] and all(each.created_ms == NOW_MS for each in both[0])
    return [(each.locator, each.size) for each in both[0]]


async def test_all_three_files_are_read_by_their_keys(stores: Stores) -> None:
    log, index, meta = await written(stores)
    (wal,) = await wal_object(stores, b"wal")
    for store in (stores.gateway, stores.job):
        positions = [Position(log, 4, 6), wal, Position(index, 4, 5), Position(meta, 0, 2)]
        assert await found(store, *positions) == [b"blocks", b"wal", b"index", b"{}"]
        assert await found(store, Position(log, 0, len(WHOLE))) == [WHOLE]
        beyond = [Position(log, 0, len(WHOLE) + 1), Position(meta, 0, 3), Position(new_keys().log_key, 0, 1)]
        assert await found(store, *beyond) == [None, None, None]


async def test_it_is_listed_once_between_segments_and_wal_objects(stores: Stores) -> None:
    keys = sorted([(await written(stores, new_keys(partition))).log_key for partition in (0, 1, 10, 0)])
    segment = segment_locator(TOPIC, 0, 0, NOW_MS, os.urandom(10))
    await stores.job.write_segment(segment, [b"kfs"], b"index")
    (wal,) = await wal_object(stores, b"x")
    everything = [segment, *keys, wal.locator]
    assert [locator for locator, _ in await listed(stores)] == everything
    assert {size for locator, size in await listed(stores) if locator in keys} == {len(WHOLE)}
    for limit in (1, 2, 3):
        paged: list[str] = []
        while page := await listed(stores, paged[-1] if paged else "", limit):
            assert len(page) <= limit
            paged += [locator for locator, _ in page]
        assert paged == everything
    assert [locator for locator, _ in await listed(stores, "settled0")] == [wal.locator]


@pytest.mark.parametrize("part", [1, 2])
async def test_files_without_their_log_are_an_object_without_bytes(stores: Stores, part: int) -> None:
    """As a job leaves them that dies, or a deletion that was interrupted."""
    before, lone, after = sorted(new_keys() for _ in range(3))
    await written(stores, before)
    await stores.blobs.put(lone[part], [b"part"])
    await written(stores, after)
    assert [size for _, size in await listed(stores)] == [len(WHOLE), 0, len(WHOLE)]
    assert (await listed(stores))[1][0] == lone.log_key
    await stores.gateway.delete([lone.log_key])
    assert [locator for locator, _ in await listed(stores)] == [before.log_key, after.log_key]


async def test_it_is_deleted_with_all_of_its_files_and_nothing_else(stores: Stores) -> None:
    gone, kept = await written(stores), await written(stores)
    assert await found(stores.gateway, Position(gone.log_key, 0, 4)) == [b"head"]
    foreign = ["settled/x", kept.index_key, kept.meta_key, f"settled/{TOPIC.hex()}/0/x.log"]
    await stores.gateway.delete([gone.log_key, new_keys().log_key, *foreign])
    await stores.gateway.delete([gone.log_key])
    assert await found(stores.gateway, *[Position(key, 0, 1) for key in gone]) == [None] * 3
    keys = [info.key for info in await stores.blobs.list("settled/")]
    assert keys == sorted(kept)


async def test_no_key_is_written_twice(stores: Stores) -> None:
    keys = await written(stores)
    with pytest.raises(StoreUnavailable, match="another key"):
        await stores.job.write_settled(keys.log_key, [b"other"], b"the index", b"{}")
    assert await found(stores.job, Position(keys.log_key, 0, 4)) == [b"head"]


async def test_only_keys_of_settled_ledgers_are_written(stores: Stores) -> None:
    keys = new_keys()
    for key in (keys.index_key, "settled/x.log", keys.log_key.upper(), "wal/0/x", ""):
        with pytest.raises(ValueError):
            await stores.job.write_settled(key, LOG, b"index", b"{}")
    assert await listed(stores) == []


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ANSWER_LOST, Fault.NEVER_SENT])
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_a_reader_that_finds_the_json_finds_the_others(fault: Fault, call: int) -> None:
    blobs = MemoryBlobs()
    segments = SegmentBlobs(FaultyBlobs(blobs, Faults(call, fault, only=["put"])))
    keys = new_keys()
    with pytest.raises(StoreUnavailable):
        await segments.write_settled(keys.log_key, LOG, b"index", b"{}")
    there = {info.key for info in await blobs.list("")}
    assert keys.meta_key not in there or there == set(keys)
    assert keys.log_key not in there or keys.index_key in there


def test_keys_of_one_settled_ledger_share_a_stem() -> None:
    keys = new_keys()
    assert settled_keys_of(keys.log_key) == keys
    assert {key.rpartition(".")[0] for key in keys} == {keys.log_key.removesuffix(".log")}
