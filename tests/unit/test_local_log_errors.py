"""The local log on disks that fail or are slow, after losses of power, and with records like frames."""

import asyncio
import errno
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.local_log.files import FILL_AHEAD_BYTES, LogDirectory, begin_file
from adapters.local_log.opening import open_local_log
from ledger.errors import StoreDamaged
from ledger.formats.local_log import HEADER_BYTES, LogHeader, encode_frame, read_header
from ledger.formats.local_log_chain import LogBeginning
from ledger.ports import SCAN_BYTES
from ledger.types import DraftBatch
from tests.support.local_logs import (
    NOW_MS,
    TOPIC,
    Written,
    entries_of,
    entry,
    killed,
    log_files,
    opened_log,
)

FILE_ID = b"\x01\x8b\xcf\xe5h\x00\x70\x00\x80" + bytes(7)


async def test_the_error_of_a_frame_is_not_taken_by_the_zeros_that_are_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = LogDirectory(tmp_path, 0)
    directory.open()
    header = LogHeader(bytes(16), FILE_ID, 0, 1, 0, 0, bytes(16), NOW_MS)
    file = begin_file(directory, header, 1000).write_header()
    reported: list[int] = []
    real = os.pwritev

    def failing(fd: int, views: Sequence[Any], position: int, flags: int) -> int:
        """The disk does not take a page of the frame: Linux reports that to each open file once."""
        written = real(fd, views, position, flags)
        if position == file.position:
            assert file.fill(FILL_AHEAD_BYTES) is False
        if fd not in reported:
            reported.append(fd)
            raise OSError(errno.EIO, "the disk did not take a page")
        return written

    def zeros_of(fill: Any) -> Any:
        def filled(limit: int) -> bool:
            try:
                return bool(fill(limit))
            except OSError:
                return False

        return filled

    monkeypatch.setattr(file, "fill", zeros_of(file.fill))
    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(OSError, match="did not take"):
        file.write([bytes(1000)], 1000)
    file.leave()
    directory.close()
    assert len(reported) == 2


@pytest.mark.parametrize("lost", [1, 300])
async def test_a_torn_frame_whose_records_look_like_a_later_frame_is_a_torn_frame(
    tmp_path: Path, lost: int
) -> None:
    """Who may see locators knows the ids of files, and records may have any bytes."""
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 100)
        (path,) = log_files(tmp_path)
        header = read_header(path.read_bytes(), "")
        assert header is not None
        forged = b"".join(bytes(part) for part in encode_frame(header, 7, 0, entry(7)).buffers)
        batches = [DraftBatch(TOPIC, 0, b"a" * 50 + forged + b"b" * 300, 1)]
        assert log.journal.place(1, batches) is not None
        await log.journal.append(1, entry(1), batches)
    os.truncate(path, path.stat().st_size - lost)
    async with opened_log(tmp_path) as log:
        await written.verify(log)
        assert list(await entries_of(log)) == [0]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_file_under_another_name_is_not_thrown_away(tmp_path: Path, which: int) -> None:
    written = Written()
    for number in range(3):
        async with opened_log(tmp_path) as log:
            await written.append(log, number, 100)
    path = log_files(tmp_path)[which]
    renamed = path.with_name(f"{uuid.UUID(bytes=FILE_ID)}.log")
    path.rename(renamed)
    with pytest.raises(StoreDamaged, match=f"{renamed.name} has entries from {which} on.*was .*{path.name}"):
        open_local_log(tmp_path)
    renamed.rename(path)
    async with opened_log(tmp_path) as log:
        await written.verify(log)


async def test_a_log_whose_files_are_gone_is_damaged_also_where_entries_before_it_are_elsewhere(
    tmp_path: Path,
) -> None:
    after = LogBeginning(7, b"n" * 16, b"c" * 16)
    async with opened_log(tmp_path, after=after) as log:
        for number in range(7, 12):
            await log.journal.append(number, entry(number))
        await log.journal.raise_start(9)
    for path in log_files(tmp_path):
        path.unlink()
    with pytest.raises(StoreDamaged, match="gone"):
        open_local_log(tmp_path, after=after)


async def test_a_file_before_one_without_frames_keeps_all_of_its_own(tmp_path: Path) -> None:
    """The process died between the header and the first frame, and nothing was read since."""
    written = Written()
    async with opened_log(tmp_path) as log:
        for number in range(3):
            await written.append(log, number, 100)
    async with opened_log(tmp_path) as log:
        await log.journal.append(3, entry(3))
    os.truncate(log_files(tmp_path)[1], HEADER_BYTES)
    async with opened_log(tmp_path) as log:
        await written.append(log, 3, 100, life=1)
        await written.verify(log)
    async with opened_log(tmp_path) as log:
        await written.verify(log)


async def test_an_append_does_not_wait_until_all_of_many_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 100)
        names = [f"log/0/{uuid.UUID(bytes=FILE_ID[:-1] + bytes([number]))}.log" for number in range(40)]
        for name in names:
            (tmp_path / name).touch()
        real = Path.unlink

        def unlink(path: Path, missing_ok: bool = False) -> None:
            """As of a file of 64 MiB."""
            time.sleep(0.01)
            real(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink)
        deleting = asyncio.create_task(log.wal.delete(names))
        await asyncio.sleep(0.02)
        await written.append(log, 1, 100)
        assert not deleting.done()
        await deleting
        assert [one.locator for one in await log.wal.objects()] == [f"log/0/{log_files(tmp_path)[0].name}"]
        await written.verify(log)


@pytest.mark.parametrize("before", [None, entry(6)])
async def test_of_a_beginning_that_is_cut_short_all_entries_are_there_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    """With the one before alone a gateway would go on after the snapshot, as if nothing was restored."""
    log_at, left = tmp_path / "data", []
    log_at.mkdir()

    def noting(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **more: Any) -> Any:
            left.append(killed(log_at))
            return real(*arguments, **more)

        monkeypatch.setattr(os, name, call)

    async with opened_log(log_at) as log:
        with monkeypatch.context() as monkeypatch:
            for name in ("pwritev", "writev", "rename", "fsync", "fdatasync", "posix_fallocate"):
                noting(name)
            await log.journal.begin(7, entry(7), before)
    wanted = {7: entry(7)} | ({} if before is None else {6: before})
    seen = []
    for directory in [*left, log_at]:
        async with opened_log(directory) as log:
            page = await log.journal.read(0, SCAN_BYTES)
            found = {stored.number: stored.data for stored in page.entries}
            assert found in ({}, wanted)
            seen.append(bool(found))
            await log.journal.begin(7, entry(7), before)
            assert await log.journal.start() == min(wanted)
            assert await entries_of(log, min(wanted)) == wanted
    assert False in seen and True in seen


async def test_files_that_are_older_than_the_start_of_the_log_are_refused(tmp_path: Path) -> None:
    """As a copy that was made while a gateway wrote has them."""
    written = Written()
    async with opened_log(tmp_path) as log:
        await written.append(log, 0, 100)
        copy = killed(tmp_path)
        for number in range(1, 6):
            await written.append(log, number, 100)
        await log.journal.raise_start(4)
    (copy / "log/0/pruned").write_bytes((tmp_path / "log/0/pruned").read_bytes())
    with pytest.raises(StoreDamaged, match="before entry 1, and entries from 4 on were there"):
        open_local_log(copy)
    async with opened_log(tmp_path) as log:
        await written.verify(log)
