"""The image over a disk that hangs: every call ends, and the queue of its thread stays bounded."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.images import sqlite
from adapters.images.sqlite import MAX_WAITING, ImageFile, SqliteImage
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.threads import NewThreads, StoreThreads
from gateway.coordination.shard import Shard
from gateway.housekeeping import checkpoint
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.rows import META, Row
from ledger.state import LedgerState
from tests.support.deadlines import Patience

WAIT_S = 60.0
"""For what comes at once, on a busy machine too."""
ROWS = [Row(META, b"k", b"v")]


class HungFile(ImageFile):
    """A write blocks until `disk` is set, like a system call that does not return."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.disk = threading.Event()
        self.begun = threading.Event()
        self.writes = 0

    def write(self, rows: Sequence[Row], nonce: bytes) -> None:
        self.writes += 1
        self.begun.set()
        assert self.disk.wait(60)
        super().write(rows, nonce)


class HungImage(SqliteImage):
    """An image over a HungFile."""

    def __init__(self, path: Path, deadline_s: float, threads: NewThreads = StoreThreads) -> None:
        super().__init__(path, deadline_s, threads)
        self._file: HungFile = HungFile(path)

    @property
    def disk(self) -> threading.Event:
        return self._file.disk

    @property
    def begun(self) -> threading.Event:
        return self._file.begun

    @property
    def writes(self) -> int:
        return self._file.writes


async def test_a_write_to_a_disk_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    patience = Patience()
    image = HungImage(tmp_path / "image", WAIT_S, patience.threads)
    with patience.lost(), pytest.raises(OutcomeUnknown, match=r"not answer within 0\.1 s"):
        await image.write(ROWS, b"1")
    # The checkpointer logs such an error and continues.
    assert issubclass(OutcomeUnknown, StoreError)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="not yet"):
            await image.write(ROWS, b"2")
    assert image.writes == 1
    image.disk.set()
    await _until_free(image)
    await image.write(ROWS, b"3")
    assert await image.load() == (ROWS, b"3")
    await image.close()


async def test_closing_over_a_disk_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CLOSE_DEADLINE_S", 0.05)
    image = HungImage(tmp_path / "image", deadline_s=30)
    writing = asyncio.create_task(image.write(ROWS, b"1"))
    await asyncio.sleep(0.02)
    await asyncio.wait_for(image.close(), WAIT_S)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("the image")]
    assert threads
    assert all(thread.daemon for thread in threads)
    image.disk.set()
    await asyncio.wait_for(writing, WAIT_S)


async def test_the_last_image_does_not_keep_a_gateway_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "LAST_IMAGE_S", 0.05)
    image = HungImage(tmp_path / "image", deadline_s=30)
    shard = Shard(MetadataJournal(MemoryMetadata(), 0), LedgerState(), lambda: 1)
    await shard.start(1, "cluster", asyncio.get_running_loop().time() + 5)
    checkpointer = Checkpointer(shard, image, MemoryBlobs(), SnapshotRule(1 << 30), lambda: 1)
    await asyncio.wait_for(checkpointer.write_last_image(), WAIT_S)
    assert (checkpointer.imaged, image.writes) == (None, 1)
    image.disk.set()
    # What was not written is written again.
    await checkpointer.write_image()
    assert checkpointer.imaged == shard.state.applied
    await image.close()
    await shard.close()


async def test_a_call_after_one_that_was_cancelled_waits_for_the_thread(tmp_path: Path) -> None:
    image = HungImage(tmp_path / "image", deadline_s=30)
    writing = asyncio.create_task(image.write(ROWS, b"1"))
    await asyncio.sleep(0.02)
    writing.cancel()
    later = asyncio.create_task(image.write(ROWS, b"2"))
    await asyncio.sleep(0.02)
    image.disk.set()
    await asyncio.wait_for(later, WAIT_S)
    assert await image.load() == (ROWS, b"2")
    await image.close()
    await image.close()


async def test_calls_that_are_cancelled_over_a_disk_that_hangs_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CLOSE_DEADLINE_S", 0.05)
    image = HungImage(tmp_path / "image", deadline_s=30)
    first = asyncio.create_task(image.write(ROWS, b"1"))
    assert await asyncio.to_thread(image.begun.wait, 10)
    first.cancel()
    refused = 0
    for _ in range(MAX_WAITING + 10):
        writing = asyncio.create_task(image.write(ROWS, b"1"))
        await asyncio.sleep(0.001)
        writing.cancel()
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        refused += isinstance(outcome, StoreUnavailable)
    assert refused == 10
    await asyncio.wait_for(image.close(), WAIT_S)
    image.disk.set()


async def _until_free(image: HungImage) -> None:
    for _ in range(1000):
        try:
            await image.rows()
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("the thread did not end its call")
