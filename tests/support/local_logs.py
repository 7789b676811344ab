"""A local log in a directory: entries with batches are appended, and all that it has is read back."""

import shutil
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adapters.local_log.opening import LocalLog, open_local_log
from ledger.formats.local_log import HEADER_BYTES, NO_BOOT, encode_header, read_header
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import SCAN_BYTES, Appended
from ledger.types import DraftBatch, Position, TopicId

NOW_MS = 1_700_000_000_000
ROLL_BYTES = 4 * 1024 * 1024
TOPIC = TopicId(b"t" * 16)


def entry(number: int, size: int = 0, life: int = 0) -> bytes:
    """`life` makes entries of different processes differ."""
    nonce = (life << 64 | number).to_bytes(NONCE_BYTES, "big")
    return encode_entry(1, 0, nonce, []) + bytes(size)


def draft(number: int, *sizes: int) -> list[DraftBatch]:
    """Batches whose bytes say which they are."""
    return [
        DraftBatch(TOPIC, partition, (f"{number}.{partition} " * size)[:size].encode(), 1)
        for partition, size in enumerate(sizes)
    ]


@dataclass
class Written:
    """What was acknowledged: bytes by position, entries by number."""

    entries: dict[int, bytes] = field(default_factory=dict)
    batches: dict[Position, bytes] = field(default_factory=dict)

    async def append(self, log: LocalLog, number: int, *sizes: int, life: int = 0, padding: int = 0) -> None:
        """An entry with batches of these sizes, or without."""
        batches: Sequence[DraftBatch] = draft(number, *sizes)
        positions: list[Position] = []
        if batches:
            placement = log.journal.place(number, batches)
            assert placement is not None
            for batch, start in zip(batches, placement.starts, strict=True):
                positions.append(Position(placement.locator, start, len(batch.data)))
        data = entry(number, padding, life)
        assert await log.journal.append(number, data, batches) == Appended(counts=True)
        self.entries[number] = data
        self.batches |= {at: bytes(batch.data) for at, batch in zip(positions, batches, strict=True)}

    async def verify(self, log: LocalLog) -> None:
        """Entries are there from `start` on without a gap, and all batches."""
        await self.verify_entries(log)
        await self.verify_batches(log)

    async def verify_entries(self, log: LocalLog) -> None:
        start = await log.journal.start()
        found = await entries_of(log, start)
        wanted = {number: data for number, data in self.entries.items() if number >= start}
        assert found == wanted

    async def verify_batches(self, log: LocalLog) -> None:
        data = await log.wal.read(list(self.batches))
        assert [None if one is None else bytes(one) for one in data] == list(self.batches.values())


async def entries_of(log: LocalLog, first: int = 0) -> dict[int, bytes]:
    """All entries from `first` on; fails at a gap."""
    found: dict[int, bytes] = {}
    while True:
        page = await log.journal.read(first, SCAN_BYTES)
        assert page.gap is None, page.gap
        found |= {stored.number: stored.data for stored in page.entries}
        first = page.next
        if not page.more:
            return found


@asynccontextmanager
async def opened_log(directory: Path, **more: Any) -> AsyncIterator[LocalLog]:
    """Of a host of which it is not known whether it has lost power, unless `boot` says so."""
    of_tests: dict[str, Any] = {"roll_bytes": ROLL_BYTES, "boot": NO_BOOT, "clock": lambda: NOW_MS}
    log = open_local_log(directory, **(of_tests | more))
    try:
        yield log
    finally:
        await log.close()


def killed(directory: Path) -> Path:
    """A copy of the directory as it would be left now by a process that is killed."""
    copy = directory.with_name(f"{directory.name}-killed-{uuid.uuid4().hex}")
    shutil.copytree(directory, copy)
    return copy


def forget_boot(directory: Path) -> None:
    """The files were written before the host lost power."""
    for path in (directory / "log/0").glob("*.log"):
        data = path.read_bytes()
        header = read_header(data, "")
        if header is not None:
            path.write_bytes(encode_header(replace(header, boot=NO_BOOT)) + data[HEADER_BYTES:])


def log_files(directory: Path) -> list[Path]:
    """Oldest first."""
    headers = [(read_header(path.read_bytes(), ""), path) for path in (directory / "log/0").glob("*.log")]
    begun = [(header.sequence, path) for header, path in headers if header is not None]
    return [path for _, path in sorted(begun)]
