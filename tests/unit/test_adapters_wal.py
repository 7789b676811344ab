"""Local WAL files: when they roll, what is synced in which order, and what a failing disk leaves."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.segments.ranges import merge_adjacent
from adapters.segments.wal import WalSegments
from adapters.segments.wal_files import WalReader
from ledger.errors import OutcomeUnknown, StoreUnavailable
from ledger.types import DraftBatch, Position, TopicId
from tests.support.deadlines import Patience
from tests.support.open_files import open_below
from tests.support.wal_frames import Frame, scan_frames

NOW_MS = 1_700_000_000_000
WAIT_S = 60.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WalSegments]:
    store = WalSegments(tmp_path, roll_bytes=10_000, roll_age_ms=60_000)
    yield store
    await store.close()


async def write(store: WalSegments, *datas: bytes, now_ms: int = NOW_MS) -> Position:
    """The position of the first batch."""
    batches = [DraftBatch(TopicId(bytes(16)), 0, data, 1) for data in datas]
    placement = await store.write(batches, now_ms)
    return Position(placement.locator, placement.starts[0], len(datas[0]))


async def read(store: WalSegments, *positions: Position) -> list[bytes | None]:
    return [None if found is None else bytes(found) for found in await store.read(positions)]


def failing(error: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    return fail


def recorded(monkeypatch: pytest.MonkeyPatch, names: Sequence[str]) -> list[str]:
    """The order in which these functions of `os` are called from now on."""
    calls: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            calls.append(name)
            return real(*args, **more)

        monkeypatch.setattr(os, name, call)

    for name in names:
        record(name)
    return calls


async def test_a_file_is_a_sequence_of_whole_frames(store: WalSegments, tmp_path: Path) -> None:
    first = await write(store, b"one", b"two")
    await write(store, b"three")
    frames = list(scan_frames(memoryview((tmp_path / first.locator).read_bytes())))
    assert all(isinstance(frame, Frame) for frame in frames)
    found = [bytes(batch.data) for frame in frames if isinstance(frame, Frame) for batch in frame.batches]
    assert found == [b"one", b"two", b"three"]


async def test_a_write_that_would_make_the_file_too_large_goes_to_a_new_one(
    store: WalSegments, tmp_path: Path
) -> None:
    written = [await write(store, bytes(3000)) for _ in range(7)]
    assert len({position.locator for position in written}) == 3
    assert all((tmp_path / position.locator).stat().st_size <= 10_000 for position in written)


async def test_a_draft_larger_than_a_file_may_be_has_a_file_of_its_own(store: WalSegments) -> None:
    small = await write(store, b"x")
    large = await write(store, bytes(50_000))
    after = await write(store, b"y")
    assert len({small.locator, large.locator, after.locator}) == 3
    assert await read(store, small, large, after) == [b"x", bytes(50_000), b"y"]


async def test_a_file_grows_no_longer_than_its_age_allows(store: WalSegments) -> None:
    first = await write(store, b"x", now_ms=NOW_MS)
    young = await write(store, b"x", now_ms=NOW_MS + 59_999)
    old = await write(store, b"x", now_ms=NOW_MS + 60_000)
    clock_went_back = await write(store, b"x", now_ms=NOW_MS)
    assert first.locator == young.locator
    assert old.locator != first.locator
    assert clock_went_back.locator == old.locator


async def test_a_write_returns_after_its_bytes_and_a_new_files_name_are_synced(
    store: WalSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch, ["fsync", "writev", "fdatasync"])
    await write(store, b"one")
    assert calls == ["fsync", "writev", "fdatasync"]
    calls.clear()
    await write(store, b"two")
    assert calls == ["writev", "fdatasync"]


async def test_opening_makes_its_directories_durable_up_to_their_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    store = WalSegments(tmp_path / "data")
    assert synced == [str(tmp_path), str(tmp_path / "data"), str(tmp_path / "data/wal")]
    await store.close()


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
async def test_after_a_failed_write_or_sync_the_file_is_left_for_good(
    store: WalSegments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = await write(store, b"before")
    with monkeypatch.context() as broken:
        broken.setattr(os, call, failing(errno.EIO))
        with pytest.raises(StoreUnavailable, match="I/O error"):
            await write(store, b"lost")
    size = (tmp_path / before.locator).stat().st_size
    after = await write(store, b"after")
    assert after.locator != before.locator
    assert (tmp_path / before.locator).stat().st_size == size
    assert await read(store, before, after) == [b"before", b"after"]


async def test_a_full_disk_is_one_sentence_and_leaves_no_empty_files(
    store: WalSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os, "writev", failing(errno.ENOSPC))
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"wal/0: no space is left .*--data-dir$"):
                await write(store, b"lost")
    assert await store.objects() == []
    position = await write(store, b"again")
    assert await read(store, position) == [b"again"]


async def test_a_directory_that_cannot_be_synced_is_left_without_empty_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WalSegments(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing(errno.ENOSPC))
        for _ in range(10):
            with pytest.raises(StoreUnavailable, match="no space is left"):
                await write(store, b"lost")
    assert await store.objects() == []
    position = await write(store, b"again")
    assert await read(store, position) == [b"again"]
    await store.close()


@pytest.mark.parametrize(
    ("total", "roll"), [(1 << 40, 64 << 20), (64 << 20, 2 << 20), (24 << 20, 1 << 20), (1 << 20, 1 << 20)]
)
async def test_files_are_small_on_a_small_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, roll: int
) -> None:
    status = SimpleNamespace(f_frsize=4096, f_blocks=total // 4096)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    store = WalSegments(tmp_path)
    assert store._writer._roll_bytes == roll
    await store.close()


async def test_short_writes_are_carried_on(store: WalSegments, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev

    def short(fd: int, parts: Sequence[memoryview]) -> int:
        for part in parts:
            if len(part):
                return real(fd, [part[:7]])
        return 0

    monkeypatch.setattr(os, "writev", short)
    datas = [bytes([number]) * number for number in range(40)]
    batches = [DraftBatch(TopicId(bytes(16)), 0, data, 1) for data in datas]
    placement = await store.write(batches, NOW_MS)
    starts = zip(placement.starts, datas, strict=True)
    positions = [Position(placement.locator, start, len(data)) for start, data in starts]
    assert await read(store, *positions) == datas


async def test_a_disk_that_hangs_is_unavailable_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience()
    store = WalSegments(tmp_path, threads=patience.threads)
    before = await write(store, b"before")
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(fd: int) -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(WAIT_S)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", hang)
        with patience.lost(), pytest.raises(StoreUnavailable, match=r"not answer within 0\.1 s"):
            await write(store, b"slow")
        release.set()
        # The call after the slow one waits for its end.
        await store.abandon("wal/0/none")
    after = await write(store, b"after")
    assert await read(store, before, after) == [b"before", b"after"]
    await store.close()


async def test_a_torn_file_reads_as_far_as_it_goes(store: WalSegments, tmp_path: Path) -> None:
    first = await write(store, bytes(1000))
    second = await write(store, bytes(1000))
    os.truncate(tmp_path / first.locator, second.start + 500)
    assert await read(store, first, second) == [bytes(1000), None]


async def test_files_that_are_no_wal_files_are_not_listed(store: WalSegments, tmp_path: Path) -> None:
    position = await write(store, b"x")
    for name in ("README", "wal/0/README.wal", "wal/0/.hidden", "wal/note"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "wal/other").mkdir()
    assert [stored.locator for stored in await store.objects()] == [position.locator]


async def test_no_more_files_are_kept_open_than_allowed(tmp_path: Path) -> None:
    store = WalSegments(tmp_path, roll_bytes=1)
    written = [await write(store, b"%d" % number) for number in range(20)]
    await store.close()
    reader = WalReader(tmp_path, max_open=4)
    for _ in range(2):
        found = reader.read(written)
        assert [bytes(one or b"") for one in found] == [b"%d" % number for number in range(20)]
        assert len(open_below(tmp_path)) == 4
    reader.close()
    assert not open_below(tmp_path)


async def test_reads_during_deletes_give_the_right_bytes_or_none(tmp_path: Path) -> None:
    store = WalSegments(tmp_path, roll_bytes=1)
    written = [await write(store, b"%04d" % number * 1000) for number in range(150)]

    async def read_all() -> None:
        for number, position in enumerate(written):
            (found,) = await read(store, position)
            assert found in (None, b"%04d" % number * 1000)

    async def delete_all() -> None:
        for position in reversed(written):
            await store.delete([position.locator])

    await asyncio.gather(read_all(), read_all(), delete_all())
    assert await read(store, *written) == [None] * len(written)
    await store.close()


async def test_a_deleted_file_that_was_being_read_frees_its_bytes(store: WalSegments, tmp_path: Path) -> None:
    position = await write(store, b"x")
    await read(store, position)
    await store.delete([position.locator])
    assert not [path for path in open_below(tmp_path) if position.locator in path]


async def test_a_delete_that_fails_after_some_files_is_unknown_and_what_it_has_deleted_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WalSegments(tmp_path, roll_bytes=1)
    locators = [(await write(store, b"x")).locator for _ in range(3)]
    unlink = os.unlink

    def fail(path: str | os.PathLike[str]) -> None:
        if str(path).endswith(locators[1]):
            raise OSError(errno.EIO, "on purpose")
        unlink(path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", fail)
        calls = recorded(broken, ["fsync"])
        with pytest.raises(StoreUnavailable, match="delete the WAL file"):
            await store.delete(locators[1:])
        assert not calls
        with pytest.raises(OutcomeUnknown, match="1 of 3 were deleted before"):
            await store.delete(locators)
        assert calls == ["fsync"]
    assert [stored.locator for stored in await store.objects()] == sorted(locators[1:])
    await store.delete(locators)
    assert not await store.objects()
    await store.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = WalSegments(tmp_path)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await write(store, b"x")


async def test_a_file_forgotten_while_it_is_read_is_closed_by_its_last_reader(
    store: WalSegments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = await write(store, b"x")
    reader = WalReader(tmp_path, max_open=4)
    real = os.pread

    def pread(fd: int, size: int, start: int) -> bytes:
        reader.forget([position.locator])
        return real(fd, size, start)

    before = open_below(tmp_path)
    monkeypatch.setattr(os, "pread", pread)
    assert reader.read([position]) == [b"x"]
    assert open_below(tmp_path) == before


def test_positions_side_by_side_are_one_read_and_a_gap_is_never_read() -> None:
    requested = [
        Position("a", 30, 10),
        Position("a", 0, 10),
        Position("a", 10, 5),
        Position("b", 15, 5),
        Position("a", 15, 5),
        Position("a", 15, 5),
    ]
    merged = merge_adjacent(requested)
    assert [(one.locator, one.start, one.size) for one in merged] == [
        ("a", 0, 20),
        ("a", 30, 10),
        ("b", 15, 5),
    ]
    assert merged[0].pieces == [(1, 0), (2, 10), (4, 15), (5, 15)]
    large = [Position("a", number << 20, 1 << 20) for number in range(9)]
    assert [one.size >> 20 for one in merge_adjacent(large)] == [4, 4, 1]


def test_a_far_store_reads_over_small_gaps_but_never_more_gap_than_is_wanted() -> None:
    def read(*ranges: tuple[int, int]) -> list[tuple[int, int, int]]:
        requested = [Position("a", start, size) for start, size in ranges]
        merged = merge_adjacent(requested, max_gap=50)
        assert sum(len(one.pieces) for one in merged) == len(ranges)
        return [(one.start, one.size, one.gap_bytes) for one in merged]

    assert read((0, 100), (150, 100), (301, 100)) == [(0, 250, 50), (301, 100, 0)]
    assert read((0, 10), (40, 10)) == [(0, 10, 0), (40, 10, 0)]
    assert read((0, 10), (20, 10), (35, 10), (25, 15)) == [(0, 45, 10)]
    assert read((0, 60), (100, 10), (140, 10)) == [(0, 150, 70)]
