"""Keys of snapshots and archives in the blobs.

`snapshot/{shard}/{entries applied}-{uuidv7}` and `archive/{shard}/{first entry}-{last entry}-{uuidv7}`, with
numbers of 20 digits, so that keys sort by entry. The UUID makes each key new.
"""

import re
import uuid
from typing import Final

from gateway.host import RandomBytes, random_bytes
from ledger.formats.snapshot import archive_prefix, snapshot_prefix
from ledger.keys import RANDOM_BYTES, uuid7

ARCHIVE_BYTES: Final = 8 * 1024 * 1024
"""Journal bytes after which an archive is put."""
_SNAPSHOT_NAME: Final = re.compile(r"[0-9]{20}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_snapshot_key(shard: int, applied: int, created_ms: int, random: RandomBytes = random_bytes) -> str:
    """Of a snapshot of the first `applied` entries."""
    return f"{snapshot_prefix(shard)}{applied:020d}-{_name(created_ms, random)}"


def new_archive_key(
    shard: int, first: int, count: int, created_ms: int, random: RandomBytes = random_bytes
) -> str:
    """Of an archive of `count` entries from number `first` on."""
    return f"{archive_prefix(shard)}{first:020d}-{first + count - 1:020d}-{_name(created_ms, random)}"


def is_snapshot_key(key: str) -> bool:
    return _SNAPSHOT_NAME.fullmatch(key.rpartition("/")[2]) is not None


def applied_of(snapshot_key: str) -> int:
    """How many entries a snapshot holds."""
    return int(snapshot_key.rpartition("/")[2].split("-", 1)[0])


def entries_of(archive_key: str) -> range:
    """Numbers of the entries that an archive holds."""
    first, last, _ = archive_key.rpartition("/")[2].split("-", 2)
    return range(int(first), int(last) + 1)


def _name(created_ms: int, random: RandomBytes) -> uuid.UUID:
    return uuid7(created_ms, random(RANDOM_BYTES))
