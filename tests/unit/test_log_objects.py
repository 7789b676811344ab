"""Files of a local log as objects: in blobs where a ledger was moved to, and in a directory where a restored
journal has replaced the log."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.segments.log_objects import LogAndReplaced, LogsInBlobs, ReplacedLogs
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import LogFiles, WalAndSegments
from ledger.keys import segment_locator, uuid7
from ledger.ports import Blobs
from ledger.types import DraftBatch, Position, StoredObject, TopicId

NOW_MS = 1_700_000_000_000
TOPIC = TopicId(bytes(16))
LOGS = [f"log/0/{uuid7(NOW_MS + n, bytes([n]) * 10)}.log" for n in range(3)]
STRANGE = ["log/0/x.log", f"log/0/{uuid7(NOW_MS, bytes(10))}", f"log/a/{uuid7(NOW_MS, bytes(10))}.log"]


async def in_blobs(blobs: Blobs) -> LogFiles:
    for number, locator in enumerate(LOGS):
        await blobs.put(locator, [content(number)])
    return LogsInBlobs(blobs)


def replaced(directory: Path) -> LogFiles:
    for number, locator in enumerate([*LOGS, *STRANGE]):
        path = directory / "replaced" / locator
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number))
    return ReplacedLogs(directory)


def content(number: int) -> bytes:
    return bytes([number]) * (100 + number)


@pytest.fixture(params=["memory", "files", "replaced"])
async def logs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogFiles]:
    match request.param:
        case "memory":
            store = await in_blobs(MemoryBlobs())
        case "files":
            store = await in_blobs(FileBlobs(tmp_path / "blobs"))
        case _:
            store = replaced(tmp_path)
    yield store
    await store.close()


async def test_they_are_listed_with_size_and_age_and_nothing_else_is(logs: LogFiles) -> None:
    listed = [StoredObject(name, NOW_MS + n, 100 + n) for n, name in enumerate(LOGS)]
    assert list(await logs.objects()) == listed
    assert list(await logs.objects(LOGS[0], 1)) == listed[1:2]
    assert list(await logs.objects(limit=0)) == []


async def test_ranges_are_read_and_what_is_not_there_is_none(logs: LogFiles) -> None:
    requested = [Position(LOGS[1], 10, 5), Position(LOGS[0], 99, 2), Position(LOGS[2], 0, 102)]
    found = await logs.read([*requested, Position("log/0/x.log", 0, 1)])
    assert [None if data is None else bytes(data) for data in found] == [
        bytes([1]) * 5,
        None,
        content(2),
        None,
    ]


async def test_deleted_ones_are_gone_however_often_they_are_deleted(logs: LogFiles) -> None:
    assert (await logs.read([Position(LOGS[0], 0, 1)]))[0] is not None
    for _ in range(2):
        await logs.delete([LOGS[0], "log/0/x.log"])
    assert list(await logs.read([Position(LOGS[0], 0, 1)])) == [None]
    assert [stored.locator for stored in await logs.objects()] == LOGS[1:]


async def test_a_directory_without_a_replaced_log_stays_as_it_is(tmp_path: Path) -> None:
    logs = ReplacedLogs(tmp_path)
    assert list(await logs.objects()) == []
    assert list(await logs.read([Position(LOGS[0], 0, 1)])) == [None]
    await logs.delete(LOGS)
    await logs.close()
    assert os.listdir(tmp_path) == []


async def test_a_file_is_looked_for_in_the_log_and_then_in_the_replaced_one(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    await blobs.put(LOGS[1], [b"newer"])
    both = LogAndReplaced(LogsInBlobs(blobs), replaced(tmp_path))
    await both.delete([LOGS[0]])
    found = await both.read([Position(LOGS[1], 0, 5), Position(LOGS[2], 0, 1), Position(LOGS[0], 0, 1)])
    assert [None if data is None else bytes(data) for data in found] == [b"newer", b"\x02", None]
    assert list(await both.read([Position(LOGS[1], 0, 1)])) == [b"n"]
    await both.close()


async def a_store_of_all_kinds() -> tuple[WalAndSegments, list[str]]:
    """And the locators in it, ascending."""
    blobs = MemoryBlobs()
    wal = MemorySegments()
    store = WalAndSegments(wal, SegmentBlobs(blobs), logs=await in_blobs(blobs))
    segments = [segment_locator(TOPIC, n, 0, NOW_MS, bytes(10)) for n in range(2)]
    for locator in segments:
        await store.write_segment(locator, [b"segment"], b"index")
    drafts = [await store.write([DraftBatch(TOPIC, 0, b"draft", 1)], NOW_MS) for _ in range(2)]
    return store, [*LOGS, *segments, *sorted(placement.locator for placement in drafts)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_all_kinds_are_listed_in_one_order_page_by_page(limit: int) -> None:
    store, locators = await a_store_of_all_kinds()
    found: list[str] = []
    while page := await store.objects(found[-1] if found else "", limit):
        assert len(page) <= limit
        found += [stored.locator for stored in page]
    assert found == locators == sorted(locators)


async def test_one_read_finds_all_kinds_in_the_order_of_the_positions() -> None:
    store, locators = await a_store_of_all_kinds()
    order = [locators[at] for at in (6, 0, 3, 2, 5, 4, 1)]
    found = await store.read([Position(locator, 0, 1) for locator in order])
    first = {**{name: bytes([n]) for n, name in enumerate(LOGS)}, **dict.fromkeys(locators[3:5], b"s")}
    assert [bytes(data or b"") for data in found] == [first.get(locator, b"d") for locator in order]


async def test_a_delete_of_all_kinds_leaves_none() -> None:
    store, locators = await a_store_of_all_kinds()
    await store.abandon(LOGS[0])
    await store.delete([locators[5], LOGS[1], locators[3]])
    left = [name for at, name in enumerate(locators) if at not in (5, 1, 3)]
    assert [stored.locator for stored in await store.objects()] == left


async def test_without_a_store_for_them_log_files_are_not_there() -> None:
    store = WalAndSegments(MemorySegments(), SegmentBlobs(MemoryBlobs()))
    assert list(await store.read([Position(LOGS[0], 0, 1)])) == [None]
    await store.delete(LOGS)
    await store.abandon(LOGS[0])
    assert list(await store.objects()) == []
