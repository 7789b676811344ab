"""Gives files that a command of root has created to the user of the gateway."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.settings import Storage
from gateway.store_assembly import directory_of, log_directory_of, urls_of

ROOT = 0


def hand_over(storage: Storage) -> None:
    """Give root's files below the data directory, and below the directory of `file:` data, to the owner of
    that directory, so that the gateway can open them. Does nothing unless root runs this."""
    if os.geteuid() != ROOT:
        return
    urls = urls_of(storage)
    for directory in {urls.directory, directory_of(urls.segments), log_directory_of(urls.metadata)}:
        if directory is not None and directory.is_dir():
            owner = directory.stat()
            for path in _below(directory):
                _give(path, owner)


def _give(path: Path, owner: os.stat_result) -> None:
    there = path.lstat()
    # A symbolic link may name a file elsewhere, whose owner must not change.
    is_its_own = stat.S_ISDIR(there.st_mode) or there.st_nlink == 1
    if there.st_uid == ROOT != owner.st_uid and is_its_own:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _below(directory: Path) -> Iterator[Path]:
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            yield Path(path, name)
