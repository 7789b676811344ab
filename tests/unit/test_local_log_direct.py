"""Large frames that are written past the page cache: whole blocks, and what is before them stays."""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.disk import BLOCK_BYTES
from adapters.local_log.direct import PIECE_BYTES, DirectWrites
from adapters.local_log.files import DIRECT_BYTES, ActiveFile
from ledger.errors import StoreUnavailable
from tests.support.local_logs import Written, killed, opened_log

ROLL_BYTES: Final = 64 * 1024 * 1024
DIRECT_FLAG: Final = getattr(os, "O_DIRECT", 0)

pytestmark = pytest.mark.skipif(not DIRECT_FLAG, reason="this system has no direct I/O")


class Disk:
    """Notes the direct writes of frames, and can refuse or fail them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directs: list[tuple[int, int, int]] = []
        """Position, bytes and flags of each."""
        self.buffered: list[int] = []
        """Positions."""
        self.errors: list[int] = []
        """Of the next direct writes; 0 for one that succeeds."""
        self.opens_direct = True
        self.open_error = errno.EINVAL
        """Of a file that is opened for direct writes while it does not."""
        self.longest = PIECE_BYTES
        self._fds: set[int] = set()
        self._open, self._pwritev = os.open, os.pwritev
        monkeypatch.setattr(os, "open", self._opened)
        monkeypatch.setattr(os, "pwritev", self._written)

    def _opened(self, path: Any, flags: int, *more: Any) -> int:
        if flags & DIRECT_FLAG and not self.opens_direct:
            raise OSError(self.open_error, os.strerror(self.open_error))
        # Not as such a file: not every file system has them.
        fd = self._open(path, flags & ~DIRECT_FLAG, *more)
        self._fds.discard(fd)
        if flags & DIRECT_FLAG:
            self._fds.add(fd)
        return fd

    def _written(self, fd: int, buffers: Sequence[Any], at: int, flags: int = 0) -> int:
        if fd not in self._fds:
            self.buffered.append(at)
            return self._pwritev(fd, buffers, at, flags)
        if error := self.errors.pop(0) if self.errors else 0:
            raise OSError(error, os.strerror(error))
        (buffer,) = buffers
        assert at + len(buffer) <= os.fstat(fd).st_size, "there is no space for it yet"
        self.directs.append((at, len(buffer), flags))
        return self._pwritev(fd, [buffer[: self.longest]], at, flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_frames_of_all_sizes_follow_each_other_and_all_is_there(tmp_path: Path) -> None:
    dice = random.Random(7)
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        for number in range(60):
            large = DIRECT_BYTES + dice.randrange(3 * BLOCK_BYTES)
            sizes = dice.choice([(), (dice.randrange(1, 9_000),), (large,), (1, large, 5), (large,)])
            await written.append(log, number, *sizes)
            await log.journal.filled()
            if number == 30:
                copy = killed(tmp_path)
                before = Written(dict(written.entries), dict(written.batches))
        await written.verify(log)
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.verify(log)
    async with opened_log(copy, roll_bytes=ROLL_BYTES) as log:
        await before.verify(log)


async def test_direct_writes_are_whole_blocks_and_each_is_durable(tmp_path: Path, disk: Disk) -> None:
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, 300)
        await written.append(log, 1, DIRECT_BYTES)
        await written.append(log, 2, 2 * PIECE_BYTES)
        await written.verify(log)
    assert len(disk.directs) > 3
    for at, size, flags in disk.directs:
        assert (at % BLOCK_BYTES, size % BLOCK_BYTES, flags) == (0, 0, os.RWF_DSYNC)
    ends = [at + size for at, size, _ in disk.directs]
    # A frame begins within the block in which the one before has ended, and its pieces follow each other.
    starts = [at for at, _, _ in disk.directs]
    assert [end - start for end, start in zip(ends, starts[1:], strict=False)][:1] == [BLOCK_BYTES]
    assert all(end - start == 0 for end, start in zip(ends[1:], starts[2:], strict=False))


async def test_only_large_frames_pass_the_page_cache_by(tmp_path: Path, disk: Disk) -> None:
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, DIRECT_BYTES // 2)
        assert not disk.directs
        await written.append(log, 1, DIRECT_BYTES)
        assert len(disk.directs) == 1
        await written.append(log, 2, DIRECT_BYTES // 2)
        await written.verify(log)
    assert len(disk.directs) == 1


async def test_without_direct_writes_of_the_file_system_frames_go_through_the_page_cache(
    tmp_path: Path, disk: Disk
) -> None:
    disk.opens_direct = False
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        for number in range(3):
            await written.append(log, number, DIRECT_BYTES)
        await written.verify(log)
    assert not disk.directs


async def test_with_too_many_open_files_a_frame_goes_through_the_page_cache_and_a_later_one_past_it(
    tmp_path: Path, disk: Disk
) -> None:
    """Nothing was written yet, so nothing is unknown: the file that is there takes the frame."""
    disk.opens_direct, disk.open_error = False, errno.EMFILE
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, DIRECT_BYTES)
        files = sorted(tmp_path.rglob("*.log"))
        assert not disk.directs
        disk.opens_direct = True
        await written.append(log, 1, DIRECT_BYTES)
        assert len(disk.directs) == 1
        assert sorted(tmp_path.rglob("*.log")) == files
        await written.verify(log)


@pytest.mark.parametrize("pieces_before", [0, 1])
async def test_a_frame_whose_direct_write_is_not_taken_is_written_whole_through_the_page_cache(
    tmp_path: Path, disk: Disk, pieces_before: int
) -> None:
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        disk.errors = [0] * pieces_before + [errno.EINVAL]
        await written.append(log, 0, PIECE_BYTES + DIRECT_BYTES)
        await written.append(log, 1, DIRECT_BYTES)
        await written.verify(log)
    assert len(disk.directs) == pieces_before, "it was tried again"
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.verify(log)


@pytest.mark.parametrize("pieces_before", [0, 1])
async def test_after_a_direct_write_that_fails_the_log_goes_on_in_another_file(
    tmp_path: Path, disk: Disk, pieces_before: int
) -> None:
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, DIRECT_BYTES)
        disk.errors = [0] * pieces_before + [errno.EIO]
        with pytest.raises(StoreUnavailable, match="I/O error"):
            await written.append(log, 1, PIECE_BYTES + DIRECT_BYTES)
        await written.append(log, 1, DIRECT_BYTES)
        await written.verify(log)
    assert len({position.locator for position in written.batches}) == 2
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.verify(log)


async def test_a_direct_write_that_the_system_cuts_short_goes_on(tmp_path: Path, disk: Disk) -> None:
    disk.longest = 5 * BLOCK_BYTES
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, 700)
        await written.append(log, 1, DIRECT_BYTES)
        await written.append(log, 2, DIRECT_BYTES)
        await written.verify(log)


async def test_no_zeros_are_written_during_a_direct_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system makes pages invalid then, and reports an error where these are being written."""
    filled: list[bool] = []
    write = DirectWrites.write

    def write_and_fill(direct: DirectWrites, *arguments: Any) -> bytes | None:
        thread = threading.Thread(target=lambda: filled.append(files[0].fill(ROLL_BYTES)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and not filled
        threads.append(thread)
        return write(direct, *arguments)

    files: list[ActiveFile] = []
    threads: list[threading.Thread] = []
    write_frame = ActiveFile.write

    def note_and_write(file: ActiveFile, *arguments: Any) -> None:
        files.append(file)
        write_frame(file, *arguments)

    monkeypatch.setattr(ActiveFile, "write", note_and_write)
    monkeypatch.setattr(DirectWrites, "write", write_and_fill)
    written = Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        await written.append(log, 0, DIRECT_BYTES)
        threads[0].join()
        await written.verify(log)


async def test_readers_through_the_page_cache_see_what_was_just_written_past_it(tmp_path: Path) -> None:
    """The block in which a frame ends is read, and so cached, before the next frame is written into it."""
    dice = random.Random(11)
    written, recent = Written(), Written()
    async with opened_log(tmp_path, roll_bytes=ROLL_BYTES) as log:
        for number in range(80):
            appending = asyncio.create_task(
                written.append(log, number, dice.randrange(1, 3_000), DIRECT_BYTES + dice.randrange(9_000))
            )
            while not appending.done():
                await recent.verify_batches(log)
                await asyncio.sleep(0)
            await appending
            recent = Written(batches=dict(list(written.batches.items())[-4:]))
            await recent.verify_batches(log)
        await written.verify(log)
