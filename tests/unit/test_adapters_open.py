"""Opening stores by URL, and the one sentence the operator gets when it cannot be done."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.open import UnknownStore, open_blobs, open_metadata, open_segments
from ledger.errors import StoreUnavailable

NOBODY = 65534
OPENERS: dict[str, Callable[[Path], Any]] = {
    "metadata": lambda place: open_metadata(f"sqlite:{place / 'metadata.sqlite3'}"),
    "segments": lambda place: open_segments(f"file:{place}"),
    "blobs": lambda place: open_blobs(f"file:{place}"),
    "objects": lambda place: open_segments(f"objects+file:{place}"),
}
each_opener = pytest.mark.parametrize("opening", OPENERS.values(), ids=OPENERS)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's power to write everywhere, if we have it."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def visible() -> Iterator[Path]:
    """A directory that all users may reach and no other user may write to."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.mark.parametrize(
    "url",
    ["ftp://user:secret@host", "nonsense", "", "sqlite:", "file:", "memory:x", "objects+sqlite:x"],
)
@pytest.mark.parametrize("opening", [open_metadata, open_segments, open_blobs])
def test_a_url_that_names_no_backend_is_refused_with_those_there_are(
    opening: Callable[[str], object], url: str
) -> None:
    with pytest.raises(
        UnknownStore, match=r"^this build has no .* store for .*; it knows memory:, "
    ) as refused:
        opening(url)
    assert "secret" not in str(refused.value)


def test_objects_over_unknown_blobs_are_refused() -> None:
    with pytest.raises(UnknownStore, match=r"objects\+file:DIR"):
        open_segments("objects+ftp://bucket")


async def test_one_directory_holds_all_three_without_mixing_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    segments = open_segments(f"file:{data}")
    blobs = open_blobs(f"file://{data}")
    metadata = open_metadata(f"sqlite:{data / 'metadata.sqlite3'}")
    await blobs.put("a", [b"x"])
    await metadata.put("a", b"x", None)
    assert [info.key for info in await blobs.list("")] == ["a"]
    assert await segments.objects() == []
    for store in (segments, blobs, metadata):
        await store.close()
    assert sorted(os.listdir(data)) == ["blobs", "metadata.sqlite3", "wal"]


@each_opener
def test_a_missing_parent_is_named(opening: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"missing/data.*: its parent directory does not exist; create it"
    ):
        opening(tmp_path / "missing" / "data")


@each_opener
def test_a_file_in_the_place_of_a_directory_is_named(
    opening: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match=r"/data.*: a part of the path is a file, not a directory"):
        opening(tmp_path / "data")


def test_a_directory_in_the_place_of_the_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a directory, not a file"):
        open_metadata(f"sqlite:{tmp_path}")


@each_opener
def test_a_directory_without_permission_is_named(opening: Callable[[Path], object], visible: Path) -> None:
    visible.chmod(0o555)
    with (
        as_nobody(),
        pytest.raises(StoreUnavailable, match="permission is denied; make it writable") as refused,
    ):
        opening(visible)
    assert str(visible) in str(refused.value)
    visible.chmod(0o755)


@pytest.mark.parametrize("name", ["metadata", "segments", "blobs"])
async def test_a_store_made_unwritable_later_is_refused_at_opening(name: str, visible: Path) -> None:
    await OPENERS[name](visible).close()
    for path in [visible, *visible.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with as_nobody(), pytest.raises(StoreUnavailable, match="permission is denied"):
        OPENERS[name](visible)
    for path in [visible, *visible.rglob("*")]:
        path.chmod(0o755)
