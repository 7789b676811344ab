"""Whether this build knows the format of the newest frames in a WAL directory."""

import os
from pathlib import Path
from typing import Final

from adapters.segments.locators import WAL_PREFIX, wal_created_ms
from ledger.errors import StoreTooNew
from ledger.formats.wal import BEGIN_BYTES, VERSION, version_of

LOOKED_AT: Final = 100
"""How many files without a frame are passed over: a process that died before its first write leaves one."""


def check_newest(root: Path, shard: int, ending: str) -> None:
    """StoreTooNew if the newest file that holds a frame was written by a newer version. A file is written
    by one process, so its first frame has the version of all. Raises OSError."""
    directory = root / WAL_PREFIX / str(shard)
    names = sorted(
        name
        for name in os.listdir(directory)
        if wal_created_ms(f"{WAL_PREFIX}{shard}/{name}", ending) is not None
    )
    for name in names[: -LOOKED_AT - 1 : -1]:
        version = _version(directory / name)
        if version is None:
            continue
        if version > VERSION:
            raise StoreTooNew(
                f"the WAL file {directory / name} has format version {version}, this build knows up to "
                f"{VERSION}; start it with the version of Dragoman that wrote it"
            )
        return


def _version(path: Path) -> int | None:
    with path.open("rb") as file:
        return version_of(file.read(BEGIN_BYTES))
