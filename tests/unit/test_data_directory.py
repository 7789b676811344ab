"""The format version of a data directory: what is written, raised, and refused."""

import os
from pathlib import Path

import pytest

from gateway.datadir import FORMAT_VERSION, VERSION_WITH_LOG, DataDirectory, check_format, format_of
from ledger.errors import StoreDamaged, StoreLocked, StoreTooNew, StoreUnavailable


def opened(path: Path, *, has_log: bool = False) -> int | None:
    directory = DataDirectory(path, has_log=has_log)
    directory.close()
    return format_of(path)


def test_a_directory_without_a_log_has_the_first_version_that_older_builds_open(tmp_path: Path) -> None:
    assert format_of(tmp_path) is None
    assert opened(tmp_path / "data") == 1


def test_a_log_raises_the_version_once_and_for_ever(tmp_path: Path) -> None:
    assert opened(tmp_path) == 1
    assert opened(tmp_path, has_log=True) == VERSION_WITH_LOG == 2
    assert opened(tmp_path) == VERSION_WITH_LOG
    assert sorted(os.listdir(tmp_path)) == ["format", "lock"]


def test_a_newer_version_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "format").write_text(f"{FORMAT_VERSION + 1}\n")
    for has_log in (False, True):
        with pytest.raises(StoreTooNew, match=f"version {FORMAT_VERSION + 1}, this build knows up to"):
            opened(tmp_path, has_log=has_log)
    assert format_of(tmp_path) == FORMAT_VERSION + 1


def test_a_version_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("one\n")
    with pytest.raises(StoreDamaged, match="does not hold a format version"):
        opened(tmp_path, has_log=True)


def test_an_empty_file_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "format").touch()
    assert opened(tmp_path, has_log=True) == VERSION_WITH_LOG


def test_a_directory_that_was_refused_is_not_locked(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("9\n")
    with pytest.raises(StoreTooNew):
        opened(tmp_path)
    (tmp_path / "format").write_text("1\n")
    held = DataDirectory(tmp_path, has_log=True)
    with pytest.raises(StoreLocked):
        opened(tmp_path)
    held.close()


def test_a_version_is_durable_before_the_log_even_if_another_process_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed between the rename and the sync leaves a name that power may take back."""
    check_format(tmp_path, VERSION_WITH_LOG)

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        check_format(tmp_path, VERSION_WITH_LOG)
    check_format(tmp_path)
