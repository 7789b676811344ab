"""Blobs as files: the order of syncs, leftovers of unfinished puts, failing disks."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.blobs import files
from adapters.blobs.files import INCOMING, LEFTOVER_S, Access, FileBlobs
from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from ledger.errors import AlreadyExists, OutcomeUnknown, StoreUnavailable
from ledger.types import DraftBatch, Position, TopicId
from tests.support.faulty import Fault, Faults, FaultyBlobs


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FileBlobs]:
    blobs = FileBlobs(tmp_path / "blobs")
    yield blobs
    await blobs.close()


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written, synced and linked from now on, in order; directories by their name."""
    calls: list[str] = []

    def record(name: str, what: Any) -> None:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            calls.append(f"{name} {what(*args)}")
            return real(*args, **more)

        monkeypatch.setattr(os, name, call)

    def name_of(fd: int, *_: object) -> str:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        return "incoming" if name.startswith(INCOMING) else name

    record("writev", name_of)
    record("fdatasync", name_of)
    record("fsync", name_of)
    record("link", lambda _, path: os.path.basename(path))
    return calls


async def test_a_blob_is_synced_before_it_gets_its_name_and_the_name_before_the_put_returns(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    await blobs.put("d/e/a", [b"x"])
    made = ["fsync blobs", "fsync d"]
    assert calls == [*made, "writev incoming", "fdatasync incoming", "link a", "fsync e"]
    calls.clear()
    await blobs.put("d/e/b", [b"x"])
    assert calls == ["writev incoming", "fdatasync incoming", "link b", "fsync e"]
    calls.clear()
    with pytest.raises(AlreadyExists):
        await blobs.put("d/e/b", [b"x"])
    assert calls == ["writev incoming", "fdatasync incoming", "link b", "fsync e"]
    calls.clear()
    await blobs.delete(["d/e/a", "d/e/b"])
    assert calls == ["fsync e"]


async def test_leftovers_of_unfinished_puts_are_never_listed_and_go_at_opening(tmp_path: Path) -> None:
    (tmp_path / "blobs/d").mkdir(parents=True)
    (tmp_path / "blobs/empty/empty").mkdir(parents=True)
    (tmp_path / "blobs/d/a").write_bytes(b"x")
    blobs = FileBlobs(tmp_path / "blobs")
    (tmp_path / f"blobs/d/{INCOMING}1").write_bytes(b"half")
    assert [info.key for info in await blobs.list("")] == ["d/a"]
    await blobs.close()
    blobs = FileBlobs(tmp_path / "blobs")
    assert [info.key for info in await blobs.list("")] == ["d/a"]
    assert os.listdir(tmp_path / "blobs") == ["d"]
    assert os.listdir(tmp_path / "blobs/d") == ["a"]
    await blobs.close()


@pytest.mark.parametrize("access", list(Access))
async def test_the_leftover_of_a_job_that_was_killed_goes_when_it_was_listed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: Access
) -> None:
    times = [100.0]
    monkeypatch.setattr(files, "monotonic", lambda: times[0])
    (tmp_path / "blobs").mkdir()
    blobs = FileBlobs(tmp_path / "blobs", access=access)
    (tmp_path / "blobs/d").mkdir()
    (tmp_path / "blobs/d/a").write_bytes(b"x")
    leftover, later = (tmp_path / f"blobs/d/{INCOMING}{number}" for number in range(2))
    leftover.write_bytes(b"half")
    there = []
    for passed_s in (0.0, LEFTOVER_S - 1, 1.0):
        times[0] += passed_s
        assert [info.key for info in await blobs.list("")] == ["d/a"]
        there.append(leftover.exists())
        later.write_bytes(b"half")
    assert there == [True, True, access is Access.READ_ONLY]
    assert later.exists()
    await blobs.close()


async def test_opening_syncs_every_directory_that_holds_blobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FileBlobs(tmp_path / "blobs")
    await first.put("d/e/a", [b"x"])
    await first.put("f/a", [b"x"])
    await first.close()
    calls = recorded(monkeypatch)
    await FileBlobs(tmp_path / "blobs").close()
    assert {"fsync e", "fsync d", "fsync f", "fsync blobs"} <= set(calls)


@pytest.mark.parametrize(
    ("call", "error"), [("writev", errno.ENOSPC), ("fdatasync", errno.EIO), ("link", errno.EIO)]
)
async def test_a_put_that_fails_before_it_has_its_name_has_no_effect(
    blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(StoreUnavailable, match="--data-dir"):
            await blobs.put("d/a", [b"x"])
    assert os.listdir(tmp_path / "blobs/d") == []
    await blobs.put("d/a", [b"x"])


async def test_a_put_whose_name_cannot_be_synced_is_unknown(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blobs.put("d/a", [b"x"])

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "on purpose")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknown):
            await blobs.put("d/b", [b"x"])
        with pytest.raises(OutcomeUnknown):
            await blobs.delete(["d/a"])


async def test_a_delete_that_fails_after_some_keys_is_unknown_and_what_it_has_deleted_is_synced(
    blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("d/a", "e/b", "f/c"):
        await blobs.put(key, [b"x"])
    calls = recorded(monkeypatch)
    unlink = os.unlink

    def fail(path: str | os.PathLike[str]) -> None:
        if os.path.basename(path) == "b":
            raise OSError(errno.EIO, "on purpose")
        unlink(path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", fail)
        with pytest.raises(StoreUnavailable):
            await blobs.delete(["d/absent", "e/b", "d/a"])
        assert calls == []
        with pytest.raises(OutcomeUnknown, match="1 of 4 were deleted before"):
            await blobs.delete(["d/a", "d/absent", "e/b", "f/c"])
        assert calls == ["fsync d"]
    assert [info.key for info in await blobs.list("")] == ["e/b", "f/c"]
    await blobs.delete(["d/a", "e/b", "f/c"])


async def test_a_key_cannot_be_a_prefix_path_of_another(blobs: FileBlobs) -> None:
    await blobs.put("a/b", [b"x"])
    with pytest.raises(ValueError, match="below another key"):
        await blobs.put("a/b/c", [b"x"])
    with pytest.raises(ValueError, match="above another key"):
        await blobs.put("a", [b"x"])
    assert [info.key for info in await blobs.list("")] == ["a/b"]


def batch(data: bytes) -> DraftBatch:
    return DraftBatch(TopicId(bytes(16)), 0, data, 1)


async def test_objects_recognise_their_own_bytes_in_a_conflict() -> None:
    faulty = FaultyBlobs(MemoryBlobs(), Faults(1, Fault.CONFLICT_AFTER_RETRY))
    segments = ObjectSegments(faulty)
    placement = await segments.write([batch(b"mine")], 1)
    (found,) = await segments.read([Position(placement.locator, placement.starts[0], 4)])
    assert bytes(found or b"") == b"mine"


async def test_objects_do_not_take_foreign_bytes_in_a_conflict_for_their_own() -> None:
    segments = ObjectSegments(MemoryBlobs(), random=bytes)
    await segments.write([batch(b"first")], 1)
    with pytest.raises(StoreUnavailable, match="with other bytes"):
        await segments.write([batch(b"second")], 1)


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ANSWER_LOST, Fault.NEVER_SENT, Fault.LATE])
async def test_objects_call_every_failed_put_unavailable_and_continue_elsewhere(fault: Fault) -> None:
    faults = Faults(1, fault)
    segments = ObjectSegments(FaultyBlobs(MemoryBlobs(), faults))
    with pytest.raises(StoreUnavailable):
        await segments.write([batch(b"lost")], 1)
    placement = await segments.write([batch(b"next")], 1)
    keys = [call.key for call in faults.calls if call.method == "put"]
    assert len(set(keys)) == 2
    assert keys[1] == placement.locator


async def test_objects_read_adjacent_batches_with_one_get_and_do_not_hide_errors() -> None:
    faults = Faults(fail_at=3, only=["get"])
    segments = ObjectSegments(FaultyBlobs(MemoryBlobs(), faults))
    datas = [b"%d" % number * 100 for number in range(9)]
    placement = await segments.write([batch(data) for data in datas], 1)
    positions = [Position(placement.locator, start, 100) for start in placement.starts]
    assert [bytes(found or b"") for found in await segments.read(positions)] == datas
    assert len(faults.calls) == 1
    await segments.read([positions[0]])
    with pytest.raises(StoreUnavailable):
        await segments.read([positions[0], positions[5]])


async def test_a_put_goes_well_where_another_open_has_removed_the_empty_directory(tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    blobs = FileBlobs(root)
    await blobs.put("wal/0/x0", [b"x"])
    await blobs.delete(["wal/0/x0"])
    await FileBlobs(root).close()
    assert os.listdir(root) == []
    await blobs.put("wal/0/y0", [b"y"])
    assert await blobs.get("wal/0/y0") == b"y"
    await blobs.close()


async def test_an_open_without_the_lock_leaves_puts_under_way_and_empty_directories_alone(
    tmp_path: Path,
) -> None:
    root = tmp_path / "blobs"
    (root / "d").mkdir(parents=True)
    (root / f"d/{INCOMING}1").write_bytes(b"half")
    (root / "empty").mkdir()
    shared = FileBlobs(root, access=Access.SHARED)
    await shared.put("e/a", [b"x"])
    await shared.close()
    assert (root / f"d/{INCOMING}1").exists() and (root / "empty").exists()


async def test_what_is_opened_for_reading_is_not_written_to(tmp_path: Path) -> None:
    absent = FileBlobs(tmp_path / "absent", access=Access.READ_ONLY)
    assert await absent.list("") == []
    await absent.close()
    assert list(tmp_path.iterdir()) == []
    root = tmp_path / "blobs"
    first = FileBlobs(root)
    await first.put("d/a", [b"x"])
    (root / f"d/{INCOMING}1").write_bytes(b"half")
    (root / "empty").mkdir()
    for path in (root / "d", root):
        path.chmod(0o555)
    blobs = FileBlobs(root, access=Access.READ_ONLY)
    assert await blobs.get("d/a") == b"x"
    with pytest.raises(StoreUnavailable, match="only read"):
        await blobs.put("d/b", [b"x"])
    with pytest.raises(StoreUnavailable, match="only read"):
        await blobs.delete(["d/a"])
    await blobs.close()
    await first.close()
    assert (root / f"d/{INCOMING}1").exists() and (root / "empty").exists()


NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for another user")


@only_root
async def test_what_root_puts_into_the_data_of_another_user_belongs_to_that_user(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    os.chown(tmp_path / "blobs", NOBODY, NOBODY)
    blobs = FileBlobs(tmp_path / "blobs", access=Access.SHARED)
    await blobs.put("d/e/a", [b"x"])
    await blobs.close()
    found = [tmp_path / "blobs" / name for name in ("d", "d/e", "d/e/a")]
    assert [(path.stat().st_uid, path.stat().st_gid) for path in found] == [(NOBODY, NOBODY)] * 3


@only_root
async def test_what_root_puts_into_its_own_data_stays_its_own(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    await blobs.put("d/e/a", [b"x"])
    await blobs.close()
    assert {path.stat().st_uid for path in (tmp_path / "blobs").rglob("*")} == {0}


@only_root
async def test_root_that_may_not_give_files_away_puts_them_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "blobs").mkdir()
    os.chown(tmp_path / "blobs", NOBODY, NOBODY)
    monkeypatch.setattr(os, "fchown", refused)
    blobs = FileBlobs(tmp_path / "blobs", access=Access.SHARED)
    await blobs.put("d/e/a", [b"x"])
    assert await blobs.get("d/e/a") == b"x"
    await blobs.close()
    assert (tmp_path / "blobs" / "d").stat().st_uid == 0
