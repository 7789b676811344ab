"""The files of a data directory, whether it has its journal in SQLite or in a local log."""

from collections.abc import Iterator
from pathlib import Path

from adapters.log_directory import LOG_DIRECTORY, METADATA_FILE
from adapters.segments.log_objects import REPLACED_DIRECTORY
from gateway.datadir import VERSION_WITH_LOG, format_of
from ledger.formats import local_log
from ledger.formats.wal import TRAILER_BYTES
from tests.support.wal_frames import Frame, scan_frames

IN_LAST_BATCH = 20
"""So far before the end of a WAL frame there are bytes of its last batch."""


def in_sqlite(data_dir: Path) -> list[str]:
    """Options with which a gateway has its journal in SQLite, as earlier versions did."""
    return ["--metadata", f"sqlite:{data_dir / METADATA_FILE}"]


def in_log(data_dir: Path) -> list[str]:
    """The same for a local log."""
    return ["--metadata", f"file:{data_dir}"]


def is_in_log(data_dir: Path) -> bool:
    """Whether the journal is in a local log, or will be at once."""
    is_begun = (data_dir / LOG_DIRECTORY).exists() or not (data_dir / METADATA_FILE).exists()
    return format_of(data_dir) == VERSION_WITH_LOG and is_begun


def files_with_records(data_dir: Path) -> list[Path]:
    """Files with record batches as they were produced, the oldest first."""
    found = [path for path in data_dir.glob("log/*/*.log") if any(wal_frames(path))]
    found += (data_dir / REPLACED_DIRECTORY).glob("log/*/*.log")
    return sorted([*data_dir.glob("wal/*/*.wal"), *found], key=lambda path: path.name)


def object_of(path: Path) -> str:
    """The locator of such a file."""
    return "/".join(path.parts[-3:])


def wal_frames(path: Path) -> Iterator[tuple[int, int]]:
    """Of the WAL frames in such a file: (where, bytes)."""
    data = memoryview(path.read_bytes())
    header = local_log.read_header(data, str(path))
    if header is None:
        frames = (frame for frame in scan_frames(data) if isinstance(frame, Frame))
        yield from ((frame.position, frame.size) for frame in frames)
        return
    at = local_log.HEADER_BYTES
    while True:
        head = data[at : at + local_log.FRAME_HEAD_BYTES]
        extent = local_log.read_frame_extent(header, head, at)
        if isinstance(extent, local_log.Torn):
            return
        if extent.batches_bytes:
            yield extent.batches_at, extent.batches_bytes
        at = extent.end


def damage_last_batch(path: Path) -> None:
    """Flip a bit of the last record that a file has."""
    at, size = list(wal_frames(path))[-1]
    with path.open("r+b") as file:
        file.seek(at + size - TRAILER_BYTES - IN_LAST_BATCH)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def journal_files(data_dir: Path) -> list[Path]:
    """What a directory has its journal in."""
    return [*data_dir.glob(LOG_DIRECTORY), *sorted(data_dir.glob(f"{METADATA_FILE}*"))]


def has_entries(data_dir: Path) -> bool:
    """Whether a journal was begun there."""
    return any(data_dir.glob(f"{METADATA_FILE}*")) or any(data_dir.glob("log/*/*.log"))


def take_journal_away(data_dir: Path) -> None:
    """As an operator does before a restore: the records stay where they can be read."""
    for path in data_dir.glob(f"{METADATA_FILE}*"):
        path.unlink()
    replaced = data_dir / REPLACED_DIRECTORY / "log"
    if (data_dir / LOG_DIRECTORY).exists() and not replaced.exists():
        replaced.parent.mkdir()
        (data_dir / LOG_DIRECTORY).rename(replaced)
    for path in data_dir.glob("log/*/*"):
        # The place has the files of an earlier log already.
        path.rename(replaced / path.parent.name / path.name)
