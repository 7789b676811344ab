"""The local log: entries and their batches in files that roll, are left, used again and opened again."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.local_log.files import FILL_AHEAD_BYTES, ActiveFile
from adapters.local_log.objects import LogFilesRead
from adapters.local_log.opening import open_local_log
from ledger.errors import StoreDamaged, StoreLocked, StoreUnavailable
from ledger.formats.local_log import HEADER_BYTES, LogFrame, encode_frame, read_frames, read_header
from ledger.formats.local_log_chain import LogBeginning
from ledger.keys import log_file_id
from ledger.ports import SCAN_BYTES, Appended, Lost
from ledger.types import Position
from tests.support.deadlines import Patience
from tests.support.held_requests import until
from tests.support.local_logs import (
    NOW_MS,
    ROLL_BYTES,
    Written,
    draft,
    entries_of,
    entry,
    killed,
    log_files,
    opened_log,
)

BIG = 400_000
WAIT_S = 60.0
"""For what comes at once, on a busy machine too."""


async def test_batches_are_where_they_were_placed_and_what_is_read_is_the_same_after_a_restart(
    tmp_path: Path,
) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0)
        await written.append(log, 1, 100, 5, 130_000)
        await written.append(log, 2, 7)
        await written.verify(log)
    async with opened_log(tmp_path) as log:
        await written.verify(log)
        await written.append(log, 3, 9)
        await written.verify(log)
    assert len(log_files(tmp_path)) == 2


async def test_no_process_writes_into_a_file_of_an_earlier_one(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 10)
    (first,) = log_files(tmp_path)
    before = first.read_bytes()
    async with opened_log(tmp_path) as log:
        await written.append(log, 1, 10)
    assert first.read_bytes() == before


async def test_opening_alone_begins_no_file(tmp_path: Path) -> None:
    for _ in range(3):
        async with opened_log(tmp_path) as log:
            assert await entries_of(log) == {}
    assert log_files(tmp_path) == []


async def test_a_file_that_is_full_is_followed_by_another_one(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        for number in range(20):
            await written.append(log, number, BIG)
        await written.verify(log)
        assert all(path.stat().st_size <= ROLL_BYTES for path in log_files(tmp_path))
        assert len(log_files(tmp_path)) >= 20 * BIG // ROLL_BYTES
    async with opened_log(tmp_path) as log:
        await written.verify(log)


async def test_a_file_has_the_size_of_its_frames_when_it_was_left_before_it_was_full(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 1000)
        await written.append(log, 1, 1000)
        (path,) = log_files(tmp_path)
        ahead = path.stat().st_size
    size = path.stat().st_size
    assert HEADER_BYTES + 2000 < size < HEADER_BYTES + 2500 < ahead


async def test_a_draft_that_is_too_large_for_a_file_is_not_taken(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as log:
        assert log.journal.takes(1, ROLL_BYTES // 5)
        assert not log.journal.takes(1, ROLL_BYTES // 2)
        assert log.journal.place(0, draft(0, ROLL_BYTES // 2)) is None
        assert log.journal.place(0, []) is None
        assert log.journal.place(1, draft(1, 1)) is None


async def test_batches_are_appended_with_the_entry_that_they_were_placed_with_alone(tmp_path: Path) -> None:
    async with opened_log(tmp_path) as log:
        batches = draft(0, 10)
        with pytest.raises(ValueError):
            await log.journal.append(0, entry(0), batches)
        assert log.journal.place(0, batches) is not None
        with pytest.raises(ValueError):
            await log.journal.append(0, entry(0), draft(0, 10))
        # An entry without them takes the place.
        assert await log.journal.append(0, entry(0)) == Appended(counts=True)
        with pytest.raises(ValueError):
            await log.journal.append(1, entry(1), batches)


async def test_an_append_that_its_owner_did_not_wait_for_is_lost_to_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    pwritev = os.pwritev

    def noted(*arguments: Any) -> int:
        loop.call_soon_threadsafe(begun.set)
        return pwritev(*arguments)

    # Else they may be what is noted.
    monkeypatch.setattr(ActiveFile, "wants_zeros", False)
    async with opened_log(tmp_path) as log:
        monkeypatch.setattr(os, "pwritev", noted)
        appending = asyncio.ensure_future(log.journal.append(0, entry(0)))
        await begun.wait()
        appending.cancel()
        # Of one thread: it is done when this is.
        await log.journal.delete([])
        assert await log.journal.append(0, entry(0, life=1)) == Lost()
        assert await log.journal.append(0, entry(0)) == Appended(counts=True)
        with pytest.raises(ValueError):
            await log.journal.append(2, entry(2))


async def test_an_append_that_takes_longer_than_its_deadline_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither reported as failed nor as unknown while the disk may still write it."""
    monkeypatch.setattr(ActiveFile, "wants_zeros", False)
    pwritev = os.pwritev
    may_go = threading.Event()

    def slow(*arguments: Any) -> int:
        assert may_go.wait(WAIT_S)
        return pwritev(*arguments)

    patience = Patience()
    async with opened_log(tmp_path, threads=patience.threads) as log:
        await log.journal.append(0, entry(0))
        monkeypatch.setattr(os, "pwritev", slow)
        with patience.lost():
            appending = asyncio.ensure_future(log.journal.append(1, entry(1)))
            await asyncio.sleep(0)
        assert log.journal.unknown_entry == ""
        await until(lambda: "entry 1" in log.journal.unknown_entry)
        assert not appending.done()
        may_go.set()
        assert await appending == Appended(counts=True)
        assert list(await entries_of(log)) == [0, 1]


async def test_zeros_are_written_ahead_of_small_frames(tmp_path: Path) -> None:
    async with opened_log(tmp_path, roll_bytes=16 * 1024 * 1024) as log:
        written = Written()
        await written.append(log, 0, 100)
        for _ in range(1000):
            if log.ahead_bytes >= FILL_AHEAD_BYTES:
                break
            await asyncio.sleep(0.01)
        (path,) = log_files(tmp_path)
        assert FILL_AHEAD_BYTES <= log.ahead_bytes < path.stat().st_size
        for number in range(1, 200):
            await written.append(log, number, 50_000)
        await written.verify(log)


async def test_a_log_is_open_in_one_process(tmp_path: Path) -> None:
    async with opened_log(tmp_path):
        with pytest.raises(StoreLocked, match="another process"):
            open_local_log(tmp_path)
    async with opened_log(tmp_path):
        pass


async def test_a_log_that_goes_on_after_entries_elsewhere_begins_with_theirs(tmp_path: Path) -> None:
    after = LogBeginning(7, b"n" * 16, b"c" * 16)
    async with opened_log(tmp_path, after=after) as log:
        assert log.first_entry == 7
        with pytest.raises(ValueError):
            await log.journal.append(8, entry(8))
        await log.journal.append(7, entry(7))
        assert list(await entries_of(log, 7)) == [7]
        page = await log.journal.read(0, SCAN_BYTES)
        assert (page.gap, [stored.number for stored in page.entries]) == (0, [7])
    (path,) = log_files(tmp_path)
    header = read_header(path.read_bytes(), "")
    assert header is not None
    assert (header.first_entry, header.previous_nonce, header.cluster_id) == (7, b"n" * 16, b"c" * 16)
    assert header.created_ms == NOW_MS
    with pytest.raises(StoreDamaged, match="other entries"):
        open_local_log(tmp_path, after=after._replace(nonce=bytes(16)))
    for argument in (after, None):
        async with opened_log(tmp_path, after=argument) as log:
            assert log.first_entry == 7
            assert list(await entries_of(log, 7)) == [7]


# Pruning, and files that are used again


async def rolled(directory: Path, written: Written, files: int = 4) -> int:
    """Fill some files; the number of the next entry."""
    number = len(written.entries)
    async with opened_log(directory) as log:
        while len(log_files(directory)) < files:
            await written.append(log, number, BIG)
            number += 1
    return number


async def test_a_file_is_held_while_it_has_entries_that_are_not_pruned(tmp_path: Path) -> None:
    written = Written()
    await rolled(tmp_path, written)
    locators = [f"log/0/{path.name}" for path in log_files(tmp_path)]
    async with opened_log(tmp_path) as log:
        assert all(log.journal.holds(locator) for locator in locators)
        for locator in locators:
            with pytest.raises(StoreUnavailable, match="not pruned"):
                await log.wal.delete([locator])
        first_of_second = min(
            number for number, at in enumerate(written.batches) if at.locator == locators[1]
        )
        await log.journal.raise_start(first_of_second)
        # Raised, and nothing deleted: the first file still has entries.
        assert log.journal.holds(locators[0])
        await log.journal.delete(range(first_of_second))
        assert [log.journal.holds(locator) for locator in locators] == [False, True, True, True]
        # Its batches stay until the ledger deletes it.
        await written.verify_batches(log)
        await log.wal.delete([locators[0]])
        assert not (tmp_path / locators[0]).exists()
        found = await log.wal.read(list(written.batches))
        assert [one is None for one in found] == [at.locator == locators[0] for at in written.batches]
    async with opened_log(tmp_path) as log:
        assert [log.journal.holds(locator) for locator in locators] == [False, True, True, True]
        assert await log.journal.start() == first_of_second == log.first_entry
        await written.verify_entries(log)


async def test_the_first_entries_of_epochs_stay_when_their_file_does_not(tmp_path: Path) -> None:
    written = Written()
    end = await rolled(tmp_path, written)
    async with opened_log(tmp_path) as log:
        await written.append(log, end)
        await log.journal.raise_start(end)
        await log.journal.delete([number for number in range(end) if number not in (0, 5)])
        for path in log_files(tmp_path)[:-1]:
            await log.wal.delete([f"log/0/{path.name}"])
        assert len(log_files(tmp_path)) == 1
    for _ in range(2):
        async with opened_log(tmp_path) as log:
            assert [await log.journal.get(number) for number in (0, 1, 5)] == [entry(0), None, entry(5)]
            page = await log.journal.read(0, SCAN_BYTES)
            assert [stored.number for stored in page.entries] == [0, 5, end]
            assert page.gap == 1
    async with opened_log(tmp_path) as log:
        await log.journal.delete([5])
        page = await log.journal.read(0, SCAN_BYTES)
        assert [stored.number for stored in page.entries] == [0, end]


async def test_a_file_that_never_had_batches_is_freed_with_its_entries(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0)
    async with opened_log(tmp_path) as log:
        await written.append(log, 1)
        await log.journal.raise_start(1)
        await log.journal.delete([0])
        assert len(log_files(tmp_path)) == 1
        await written.verify(log)


async def test_a_full_file_is_used_again_under_another_name_and_its_frames_are_none(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        number = 0
        while len(log_files(tmp_path)) < 2:
            await written.append(log, number, 130_000)
            number += 1
        (old, _) = log_files(tmp_path)
        inode = old.stat().st_ino
        await log.journal.raise_start(number - 1)
        await log.journal.delete(range(number - 1))
        await log.wal.delete([f"log/0/{old.name}"])
        assert [path.stat().st_ino for path in (tmp_path / "log/0").glob("*.spare")] == [inode]
        while len(log_files(tmp_path)) < 2:
            await written.append(log, number, 130_000)
            number += 1
        *_, reused = log_files(tmp_path)
        assert reused.stat().st_ino == inode
        assert not list((tmp_path / "log/0").glob("*.spare"))
        await written.append(log, number, 130_000)
        await written.verify_entries(log)
        left = killed(tmp_path)
    # Old frames behind the last one are there, at the same places, and none of them counts.
    async with opened_log(left) as log:
        await written.verify_entries(log)
        assert await log.journal.get(number + 1) is None


async def test_a_reader_that_was_paused_while_the_file_was_used_again_finds_nothing(tmp_path: Path) -> None:
    """It has the file open under the name that it had."""
    written = Written()
    async with opened_log(tmp_path) as log:
        number = 0
        while len(log_files(tmp_path)) < 2:
            await written.append(log, number, 130_000)
            number += 1
        old = f"log/0/{log_files(tmp_path)[0].name}"
        position = next(at for at in written.batches if at.locator == old)
        job = LogFilesRead(tmp_path)
        assert [bytes(data or b"") for data in await job.read([position])] == [written.batches[position]]
        await log.journal.raise_start(number - 1)
        await log.journal.delete(range(number - 1))
        await log.wal.delete([old])
        # It has not been written over yet.
        assert [bytes(data or b"") for data in await job.read([position])] == [written.batches[position]]
        while len(log_files(tmp_path)) < 2:
            await written.append(log, number, 129_000)
            number += 1
        assert await job.read([position]) == [None]
        assert await job.read([position]) == [None]
        await job.close()


async def test_a_job_reads_the_batches_of_many_small_frames_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame has its entry before its batches, which would make every run a read of its own."""
    written = Written()
    async with opened_log(tmp_path) as log:
        for number in range(100):
            await written.append(log, number, 1_000)
        wanted = list(written.batches)
        reads: list[str] = []
        for name in ("pread", "preadv"):
            monkeypatch.setattr(os, name, noting(reads, name))
        job = LogFilesRead(tmp_path)
        # The second time the file is open, and in memory.
        for most in (5, 5):
            reads.clear()
            found = await job.read(wanted)
            assert [bytes(data or b"") for data in found] == [written.batches[at] for at in wanted]
            assert len(reads) <= most
        await job.close()
        reads.clear()
        await log.wal.read(wanted)
        assert len(reads) >= len(wanted)


async def test_few_files_are_kept_to_be_used_again(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        number = 0
        while len(log_files(tmp_path)) < 6:
            await written.append(log, number, 130_000)
            number += 1
        await log.journal.raise_start(number - 1)
        await log.journal.delete(range(number - 1))
        await log.wal.delete([f"log/0/{path.name}" for path in log_files(tmp_path)[:-1]])
        spares = list((tmp_path / "log/0").glob("*.spare"))
        assert len(spares) == 2 and len(log_files(tmp_path)) == 1
        assert log.ahead_bytes >= sum(path.stat().st_size for path in spares) > ROLL_BYTES


async def test_log_files_are_listed_in_order_with_their_time_and_size(tmp_path: Path) -> None:
    written = Written()
    await rolled(tmp_path, written, 3)
    job = LogFilesRead(tmp_path)
    found = await job.objects()
    assert [one.locator for one in found] == sorted(f"log/0/{path.name}" for path in log_files(tmp_path))
    assert all(one.created_ms == NOW_MS for one in found)
    assert [one.size for one in found] == [(tmp_path / one.locator).stat().st_size for one in found]
    assert await job.objects(found[0].locator, 1) == [found[1]]
    assert await job.read([Position("wal/0/x.wal", 0, 1), Position("log/0/x.log", 0, 1)]) == [None, None]
    await job.close()


async def test_a_file_is_deleted_durably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written()
    await rolled(tmp_path, written, 2)
    async with opened_log(tmp_path) as log:
        await written.append(log, len(written.entries))
        end = len(written.entries)
        await log.journal.raise_start(end - 1)
        await log.journal.delete(range(end - 1))
        calls: list[str] = []
        for name in ("rename", "unlink", "fsync"):
            monkeypatch.setattr(os, name, noting(calls, name))
        await log.wal.delete([f"log/0/{path.name}" for path in log_files(tmp_path)[:-1]])
        assert calls[-1] == "fsync" and len(calls) == 3


def noting(calls: list[str], name: str) -> Callable[..., Any]:
    real = getattr(os, name)

    def call(*arguments: Any, **more: Any) -> Any:
        calls.append(name)
        return real(*arguments, **more)

    return call


# What a crash leaves


async def torn_log(directory: Path, *sizes: int) -> tuple[Path, int, int]:
    """A log whose last entry, 2, has batches of these sizes: its file, and where that frame is."""
    written = Written()
    async with opened_log(directory) as log:
        await written.append(log, 0, 50)
        await written.append(log, 1)
        await written.append(log, 2, *sizes)
    (path,) = log_files(directory)
    data = path.read_bytes()
    header = read_header(data, "")
    assert header is not None
    frames = list(read_frames(header, memoryview(data), ""))
    last = frames[2]
    assert isinstance(last, LogFrame) and last.end == len(data)
    return path, last.position, last.end


@pytest.mark.parametrize("behind", ["nothing", "zeros", "ones"])
async def test_a_frame_that_was_torn_anywhere_is_not_there_and_the_log_goes_on(
    tmp_path: Path, behind: str
) -> None:
    path, begin, end = await torn_log(tmp_path, 20, 30)
    data = path.read_bytes()
    rest = {"nothing": b"", "zeros": bytes(end), "ones": b"\xff" * end}[behind]
    for size in range(begin, end, 2 if behind == "zeros" else 11):
        path.write_bytes((data[:size] + rest)[: max(size, end if rest else 0)])
        async with opened_log(tmp_path) as log:
            assert list(await entries_of(log)) == [0, 1], size
    async with opened_log(tmp_path) as log:
        await log.journal.append(2, entry(2, life=1))
        assert (await entries_of(log))[2] == entry(2, life=1)
    log_files(tmp_path)[1].unlink()
    path.write_bytes(data + rest)
    async with opened_log(tmp_path) as log:
        assert list(await entries_of(log)) == [0, 1, 2]


async def test_a_frame_whose_middle_was_not_written_is_not_there(tmp_path: Path) -> None:
    """Its head and its seal are: a disk writes blocks in any order."""
    path, begin, end = await torn_log(tmp_path, 20_000, 10_000)
    data = path.read_bytes()
    for at in range(begin + 4096, end - 4096, 4096):
        path.write_bytes(data[:at] + bytes(4096) + data[at + 4096 :])
        async with opened_log(tmp_path) as log:
            assert list(await entries_of(log)) == [0, 1]


async def test_a_whole_frame_whose_batches_were_damaged_later_stays_unless_the_host_lost_power(
    tmp_path: Path,
) -> None:
    """What was acknowledged must not vanish without a word: a reader finds the damage."""
    boot, written = b"b" * 16, Written()
    async with opened_log(tmp_path, boot=boot) as log:
        for number in range(3):
            await written.append(log, number, 20_000)
        left = killed(tmp_path)
    (path,) = log_files(left)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"2.0 2.0 ")] ^= 1
    path.write_bytes(data)
    later = killed(left)
    async with opened_log(left, boot=boot) as log:
        await written.verify_entries(log)
        read = await log.wal.read(list(written.batches))
        found = [bytes(batch or b"") for batch in read]
        assert [one == whole for one, whole in zip(found, written.batches.values(), strict=True)] == [
            *(True, True, False)
        ]
    async with opened_log(later, boot=b"c" * 16) as log:
        assert list(await entries_of(log)) == [0, 1]


async def test_in_a_copy_of_the_files_the_last_frame_may_be_torn_as_after_a_loss_of_power(
    tmp_path: Path,
) -> None:
    """Of a disk that was copied while the host ran, blocks may be missing that no process had to sync yet."""
    there, written = tmp_path / "there", Written()
    there.mkdir()
    async with opened_log(there, boot=None) as log:
        for number in range(3):
            await written.append(log, number, 20_000)
        copy = killed(there)
    for directory, numbers in ((there, [0, 1, 2]), (copy, [0, 1])):
        (path,) = log_files(directory)
        data = bytearray(path.read_bytes())
        data[data.rindex(b"2.0 2.0 ")] ^= 1
        path.write_bytes(data)
        async with opened_log(directory, boot=None) as log:
            assert list(await entries_of(log)) == numbers
    moved = there.rename(tmp_path / "moved")
    async with opened_log(moved, boot=None) as log:
        assert list(await entries_of(log)) == [0, 1, 2]


async def test_a_file_in_which_zeros_reach_half_as_far_as_they_should_is_read(tmp_path: Path) -> None:
    path, begin, end = await torn_log(tmp_path, 20)
    for size in (end, end + 100, end + 300_000):
        data = path.read_bytes()[:end]
        path.write_bytes(data + bytes(size - end))
        async with opened_log(tmp_path) as log:
            assert list(await entries_of(log)) == [0, 1, 2]
    assert begin < end


# Damage


async def test_a_file_whose_header_is_damaged_and_that_has_frames_is_no_new_file(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 10)
    (path,) = log_files(tmp_path)
    with path.open("r+b") as file:
        file.seek(50)
        file.write(b"\xff")
    with pytest.raises(StoreDamaged, match="header"):
        open_local_log(tmp_path)
    assert path.exists()


async def test_a_file_that_was_named_but_never_begun_is_none_of_the_log(tmp_path: Path) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 10)
    other = log_file_id("log/0/018bcfe5-6800-7000-8000-000000000001.log")
    assert other is not None
    (tmp_path / "log/0/018bcfe5-6800-7000-8000-000000000001.log").write_bytes(bytes(9000))
    os.link(log_files(tmp_path)[-1], tmp_path / "log/0/018bcfe5-6800-7000-8000-000000000002.log")
    async with opened_log(tmp_path) as log:
        await written.verify(log)
    assert len(log_files(tmp_path)) == 1


@pytest.mark.parametrize("which", [0, 1])
async def test_a_frame_that_is_damaged_before_the_last_one_is_damage(tmp_path: Path, which: int) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        for number in range(3):
            await written.append(log, number, 10)
    if which == 0:
        async with opened_log(tmp_path) as log:
            await written.append(log, 3)
    path = log_files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"missing|follows"):
        async with opened_log(tmp_path) as log:
            await entries_of(log)


async def test_a_file_that_is_gone_is_damage_unless_its_entries_are_pruned(tmp_path: Path) -> None:
    written = Written()
    end = await rolled(tmp_path, written, 3)
    first, second, third = log_files(tmp_path)
    second.rename(tmp_path / "aside")
    with pytest.raises(StoreDamaged, match="missing"):
        async with opened_log(tmp_path) as log:
            await entries_of(log)
    (tmp_path / "aside").rename(second)
    third_first = next(n for n, at in enumerate(written.batches) if at.locator == f"log/0/{third.name}")
    async with opened_log(tmp_path) as log:
        await log.journal.raise_start(third_first)
        await log.journal.delete(range(1, third_first))
    second.unlink()
    async with opened_log(tmp_path) as log:
        await written.verify_entries(log)
        assert await log.journal.get(0) == entry(0)
        assert len(await entries_of(log, third_first)) == end - third_first
    first.unlink()
    third.unlink()
    for path in log_files(tmp_path):
        path.unlink()
    with pytest.raises(StoreDamaged, match="gone"):
        open_local_log(tmp_path)


async def test_a_file_whose_last_entry_is_not_the_one_that_the_next_goes_on_after_is_damage(
    tmp_path: Path,
) -> None:
    """As if files of two copies of a directory, which went on apart, were put together."""
    written = Written()
    for number in range(2):
        async with opened_log(tmp_path) as log:
            await written.append(log, number)
    first, _ = log_files(tmp_path)
    data = first.read_bytes()
    header = read_header(data, "")
    assert header is not None
    other = encode_frame(header, 0, header.previous_seal, entry(0, life=1), None)
    first.write_bytes(data[:HEADER_BYTES] + b"".join(other.buffers))
    with pytest.raises(StoreDamaged, match="does not go on after its entry 0"):
        async with opened_log(tmp_path) as log:
            await entries_of(log)
