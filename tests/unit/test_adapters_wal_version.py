"""Which WAL files a build refuses to continue from."""

import struct
from pathlib import Path

import pytest

from adapters.segments.wal import WalSegments
from ledger.errors import StoreTooNew
from ledger.formats.wal import VERSION
from ledger.types import DraftBatch, TopicId

NOW_MS = 1_700_000_000_000


async def written(root: Path, now_ms: int) -> Path:
    """A WAL file of this version."""
    store = WalSegments(root)
    placement = await store.write([DraftBatch(TopicId(bytes(16)), 0, b"batch", 1)], now_ms)
    await store.close()
    return root / placement.locator


def make_newer(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:4] + struct.pack(">H", VERSION + 1) + data[6:])


async def test_a_directory_whose_newest_file_is_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await written(tmp_path, NOW_MS)
    newest = await written(tmp_path, NOW_MS + 5)
    make_newer(newest)
    with pytest.raises(StoreTooNew, match=f"{newest.name} has format version {VERSION + 1}"):
        WalSegments(tmp_path)


@pytest.mark.parametrize(
    "left", [b"", b"DWA", b"what a crash left"], ids=["nothing", "too little", "no frame"]
)
async def test_a_file_without_a_frame_says_nothing_about_the_version(tmp_path: Path, left: bytes) -> None:
    newest = await written(tmp_path, NOW_MS)
    (await written(tmp_path, NOW_MS + 5)).write_bytes(left)
    await WalSegments(tmp_path).close()
    make_newer(newest)
    with pytest.raises(StoreTooNew, match=newest.name):
        WalSegments(tmp_path)


async def test_files_before_the_newest_one_are_not_opened(tmp_path: Path) -> None:
    oldest = await written(tmp_path, NOW_MS)
    await written(tmp_path, NOW_MS + 5)
    make_newer(oldest)
    await WalSegments(tmp_path).close()
