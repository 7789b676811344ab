"""A data directory whose journal is in a local log, and one that goes on there after SQLite."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.journals.metadata import MetadataJournal
from adapters.log_directory import METADATA_FILE, LogDirectory
from adapters.metadata.sqlite import SqliteMetadata
from adapters.open import open_log, open_segments
from gateway.coordination.inline_limits import InlineLimits
from ledger.errors import StoreDamaged, StoreError, StoreUnavailable
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import SCAN_BYTES, Appended, Journal
from ledger.types import DraftBatch, Position, TopicId

DRAFT = [DraftBatch(TopicId(bytes(16)), 0, b"a batch", 1)]


def entry(number: int, life: int = 0) -> bytes:
    return encode_entry(1, life, (number + 1).to_bytes(NONCE_BYTES, "big"), [])


async def append(journal: Journal, numbers: Sequence[int], life: int = 0) -> None:
    for number in numbers:
        assert await journal.append(number, entry(number, life)) == Appended(counts=True)


async def numbers_in(journal: Journal) -> list[int]:
    found: list[int] = []
    first, more = 0, True
    while more:
        page = await journal.read(first, SCAN_BYTES)
        found += [stored.number for stored in page.entries]
        first, more = page.next, page.more
    return found


async def in_sqlite(directory: Path, count: int, start: int = 0) -> None:
    """A journal of a directory of format 1."""
    store = SqliteMetadata(directory / METADATA_FILE)
    journal = MetadataJournal(store, 0)
    await append(journal, range(count))
    if start:
        await journal.raise_start(start)
        await journal.delete(range(start))
    await store.close()


async def opened(directory: Path, *, takes_batches: bool = True) -> LogDirectory:
    return await open_log(directory, takes_batches=takes_batches)


async def test_a_new_directory_has_its_journal_in_the_log_alone(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    assert await numbers_in(log.journal) == []
    await append(log.journal, range(3))
    await log.close()
    log = await opened(tmp_path)
    assert await numbers_in(log.journal) == [0, 1, 2]
    await append(log.journal, [3])
    await log.close()
    assert not (tmp_path / METADATA_FILE).exists()


async def test_a_journal_in_sqlite_goes_on_in_the_log_and_reads_as_one(tmp_path: Path) -> None:
    await in_sqlite(tmp_path, 5)
    for life in range(3):
        log = await opened(tmp_path)
        assert await numbers_in(log.journal) == list(range(5 + life))
        assert await log.journal.get(4) == entry(4)
        await append(log.journal, [5 + life], life)
        await log.close()
    log = await opened(tmp_path)
    assert await log.journal.get(7) == entry(7, 2)
    await log.close()


async def test_batches_inside_of_older_entries_are_read(tmp_path: Path) -> None:
    """With `storage.inline_bytes` set they may be in SQLite too."""
    store = SqliteMetadata(tmp_path / METADATA_FILE)
    journal = MetadataJournal(store, 0)
    journal.rule = InlineLimits(1000, 1 << 30, lambda: 0.0, held_bytes=lambda: 0, quota_share=lambda: 0.0)
    placed = journal.place(0, DRAFT)
    assert placed is not None
    assert await journal.append(0, entry(0), DRAFT) == Appended(counts=True)
    await store.close()
    where = [Position(placed.locator, placed.starts[0], len(DRAFT[0].data))]
    for life in range(2):
        log = await opened(tmp_path)
        await append(log.journal, [1 + life])
        others = open_segments("memory:")
        segments = log.with_older_batches(others)
        assert [bytes(found or b"") for found in await segments.read(where)] == [DRAFT[0].data]
        await segments.close()
        await log.close()


async def test_a_directory_that_was_opened_without_an_append_goes_on_all_the_same(tmp_path: Path) -> None:
    await in_sqlite(tmp_path, 2)
    for _ in range(3):
        log = await opened(tmp_path)
        assert await numbers_in(log.journal) == [0, 1]
        await log.close()
    log = await opened(tmp_path)
    await append(log.journal, [2])
    await log.close()


async def test_sqlite_is_not_written_any_more_and_refused_to_everyone_else(tmp_path: Path) -> None:
    await in_sqlite(tmp_path, 3)
    log = await opened(tmp_path)
    await append(log.journal, [3, 4])
    await log.journal.raise_start(2)
    await log.journal.delete([0, 1])
    await log.close()
    with sqlite3.connect(tmp_path / METADATA_FILE) as db:
        keys = [key for (key,) in db.execute("SELECT key FROM entry ORDER BY key")]
    db.close()
    assert keys == [f"journal/0/{number:020d}" for number in range(3)]
    with pytest.raises(StoreUnavailable, match="goes on in the local log"):
        SqliteMetadata(tmp_path / METADATA_FILE)


async def test_the_older_part_goes_once_a_prune_has_passed_all_of_it(tmp_path: Path) -> None:
    await in_sqlite(tmp_path, 4, start=2)
    log = await opened(tmp_path)
    assert await log.journal.start() == 2
    await append(log.journal, range(4, 8))
    await log.journal.raise_start(3)
    await log.close()
    log = await opened(tmp_path)
    assert (tmp_path / METADATA_FILE).exists()
    assert await numbers_in(log.journal) == list(range(2, 8))
    await log.journal.raise_start(4)
    await log.close()
    log = await opened(tmp_path)
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(METADATA_FILE)) == []
    assert (await log.journal.start(), await numbers_in(log.journal)) == (4, [4, 5, 6, 7])
    await append(log.journal, [8])
    await log.close()


async def test_what_a_removal_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{METADATA_FILE}-wal").write_bytes(b"left")
    log = await opened(tmp_path)
    await log.close()
    assert not (tmp_path / f"{METADATA_FILE}-wal").exists()


async def test_a_log_of_another_journal_is_refused(tmp_path: Path) -> None:
    """Such as one next to which an older copy of metadata.db was put."""
    log = await opened(tmp_path)
    await append(log.journal, range(3))
    await log.close()
    await in_sqlite(tmp_path, 5)
    with pytest.raises(StoreDamaged, match="not of one journal"):
        await opened(tmp_path)


async def test_where_records_are_elsewhere_entries_alone_go_into_the_log(tmp_path: Path) -> None:
    log = await opened(tmp_path, takes_batches=False)
    assert not log.journal.takes(1, 10) and log.journal.place(0, DRAFT) is None
    with pytest.raises(ValueError, match="takes no batches"):
        await log.journal.append(0, entry(0), DRAFT)
    await append(log.journal, [0])
    await log.close()
    log = await opened(tmp_path)
    assert log.journal.takes(1, 10) and log.journal.place(1, DRAFT) is not None
    await log.close()


async def test_a_journal_begins_in_an_empty_directory_and_not_behind_an_older_part(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await log.journal.begin(7, entry(7), entry(6))
    await log.close()
    log = await opened(tmp_path)
    assert (await log.journal.start(), await numbers_in(log.journal)) == (6, [6, 7])
    await log.close()
    other = tmp_path / "other"
    other.mkdir()
    await in_sqlite(other, 3)
    log = await opened(other)
    with pytest.raises(StoreError):
        await log.journal.begin(7, entry(7), entry(6))
    await log.close()


async def test_the_files_of_the_log_and_of_a_replaced_one_are_objects(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    placed = log.journal.place(0, DRAFT)
    assert placed is not None
    assert await log.journal.append(0, entry(0), DRAFT) == Appended(counts=True)
    assert placed.locator in [stored.locator for stored in await log.files.objects()]
    await log.close()
    (tmp_path / "replaced").mkdir()
    (tmp_path / "log").rename(tmp_path / "replaced" / "log")
    log = await opened(tmp_path)
    assert await numbers_in(log.journal) == []
    assert placed.locator in [stored.locator for stored in await log.files.objects()]
    await log.close()


@pytest.mark.parametrize(
    "ids", [(b"", b"c" * 16), (b"c" * 16, b""), (b"", b"")], ids=["later", "lost", "never"]
)
async def test_a_cluster_whose_name_was_not_known_at_first_is_the_same(
    tmp_path: Path, ids: tuple[bytes, bytes]
) -> None:
    """A process that died in its first start has claimed nothing."""
    await in_sqlite(tmp_path, 2)
    for number, cluster_id in enumerate(ids, 2):
        log = await open_log(tmp_path, cluster_id=cluster_id)
        await append(log.journal, [number])
        await log.close()


async def test_a_log_after_another_entry_or_of_another_cluster_is_refused(tmp_path: Path) -> None:
    await in_sqlite(tmp_path, 2)
    log = await open_log(tmp_path, cluster_id=b"c" * 16)
    await append(log.journal, [2])
    await log.close()
    with pytest.raises(StoreDamaged, match="other entries"):
        await open_log(tmp_path, cluster_id=b"d" * 16)
    with sqlite3.connect(tmp_path / METADATA_FILE) as db:
        db.execute(
            "UPDATE entry SET value = ? WHERE key LIKE '%1'", [entry(1)[:20] + b"x" * 16 + entry(1)[36:]]
        )
    db.close()
    with pytest.raises(StoreDamaged, match="other entries"):
        await open_log(tmp_path, cluster_id=b"c" * 16)
