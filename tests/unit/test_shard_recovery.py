"""A restart from image, snapshot or journal: always the same state, or one sentence that says what to do."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.images.sqlite import ImageFile, SqliteImage
from adapters.journals.metadata import MetadataJournal, entry_key, entry_prefix
from adapters.metadata.sqlite import SqliteMetadata
from gateway.coordination.recovery import recover, snapshot_keys
from gateway.coordination.shard import Shard
from gateway.housekeeping import checkpoint
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.cluster.records import OwnerChanged
from ledger.cut import take_dirty_rows
from ledger.errors import StoreDamaged, StoreTooNew
from ledger.formats.snapshot import archive_prefix, decode_archive
from ledger.image import FORMAT_VERSION, all_rows
from ledger.journal import decode_entry
from ledger.partitions.requests import CommitFile, Committed, DeleteRecords, DrainRuns, FileCommit
from ledger.ports import Blobs, ImageStore, MetadataStore, Won
from ledger.rows import META, Row, digest
from ledger.topics.requests import CreateTopic
from tests.support.faulty import Fault, FaultyBlobs, FaultyMetadata
from tests.support.held_stores import Death, Deaths
from tests.support.image_rows import resealed, rewrite_image
from tests.support.journalled import commit_batch, locator, topic_id
from tests.support.shards import journal_of, open_shard

WAIT_S = 20.0
NOW_MS = 1_000_000


class Host:
    """One data directory, and what is open in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.metadata: MetadataStore
        self.blobs: Blobs
        self.image: ImageStore
        self.shard: Shard
        self.checkpointer: Checkpointer
        self.end = 0

    @property
    def image_path(self) -> Path:
        return self.root / "image"

    @asynccontextmanager
    async def stores(self) -> AsyncIterator[None]:
        metadata, blobs = SqliteMetadata(self.root / "metadata"), FileBlobs(self.root / "blobs")
        self.metadata, self.blobs, self.image = metadata, blobs, SqliteImage(self.image_path)
        try:
            yield
        finally:
            await self.image.close()
            await metadata.close()
            await blobs.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.stores():
            self.shard = await open_shard(self.metadata, self.blobs, self.image, 1, lambda: NOW_MS)
            self.checkpointer = self.new_checkpointer(self.metadata, self.blobs)
            try:
                yield
            finally:
                await self.shard.close()

    def new_checkpointer(self, metadata: MetadataStore, blobs: Blobs) -> Checkpointer:
        journal_of(self.shard).store = metadata
        return Checkpointer(self.shard, self.image, blobs, SnapshotRule(1), lambda: NOW_MS)

    async def work(self, commits: int = 5) -> None:
        """Some entries: commits of three records each, and now and then a deletion."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        if not self.shard.state.topics.by_name:
            await self.shard.ask(CreateTopic("t", topic_id(1), 2, {"a": "b"}), deadline)
        for _ in range(commits):
            batch = commit_batch(topic_id(1), 0, 0, records=3, producer=(1, 0, self.end))
            where = locator(self.end, NOW_MS)
            result = await self.shard.ask(CommitFile(where, 100, [batch]), deadline)
            assert result == FileCommit([Committed(self.end, max(0, self.end - 10))])
            self.end += 3
            await self.shard.ask(DeleteRecords(topic_id(1), 0, max(0, self.end - 10)), deadline)
            await self.shard.ask(DrainRuns(10), deadline)

    async def recovered(self) -> str:
        """Where a start would begin; its state is that of the last one that ran."""
        async with self.stores():
            found = await recover(MetadataJournal(self.metadata, 0), self.image, self.blobs)
        assert digest(all_rows(found.state)) == digest(all_rows(self.shard.state))
        assert found.nonce == self.shard.replica.last_nonce
        return "snapshot" if found.source.startswith("snapshot/") else found.source

    async def checkpoint(self) -> None:
        await self.checkpointer.snapshot()
        await self.checkpointer.prune()

    def lose_image(self) -> None:
        for path in self.root.glob("image*"):
            path.unlink()

    def lose_snapshots(self) -> None:
        shutil.rmtree(self.root / "blobs" / "snapshot")

    def snapshots(self) -> list[Path]:
        return sorted((self.root / "blobs" / "snapshot").rglob("*-*"))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
async def pruned(host: Host) -> Host:
    """Two snapshots and an image, the journal pruned to the older of the two."""
    async with host.running():
        await host.work()
        await host.checkpoint()
        await host.work()
        await host.checkpoint()
        await host.work()
        await host.checkpointer.write_image()
        await host.work(1)
        assert await host.shard.journal.start() >= 10
    return host


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


async def test_a_restart_reads_the_journal_when_there_is_nothing_else(host: Host) -> None:
    async with host.running():
        await host.work()
    assert await host.recovered() == "journal"


async def test_a_restart_begins_with_the_image(host: Host) -> None:
    async with host.running():
        await host.work()
        await host.checkpointer.write_image()
        await host.work()
    assert await host.recovered() == "image"


async def test_a_restart_begins_with_the_snapshot_when_the_image_is_gone(pruned: Host) -> None:
    assert await pruned.recovered() == "image"
    pruned.lose_image()
    assert await pruned.recovered() == "snapshot"
    # It wrote no image; the next start with one begins there again.
    async with pruned.running():
        await pruned.checkpointer.write_image()
    assert await pruned.recovered() == "image"


async def test_a_restart_needs_no_snapshot_where_there_is_an_image(pruned: Host) -> None:
    pruned.lose_snapshots()
    assert await pruned.recovered() == "image"
    async with pruned.running():
        await pruned.work()


@pytest.mark.parametrize("data", [b"", b"not a database at all", bytes(8192)], ids=["empty", "text", "zeros"])
async def test_a_damaged_image_is_put_aside(pruned: Host, data: bytes) -> None:
    pruned.lose_image()
    pruned.image_path.write_bytes(data)
    assert await pruned.recovered() == "snapshot"


async def test_an_image_of_which_a_page_was_overwritten_is_put_aside_or_right(pruned: Host) -> None:
    """SQLite notices pages that are no pages; the tests of rows show what else is noticed."""
    good = pruned.image_path.read_bytes()
    for at in range(0, len(good), 4096):
        pruned.image_path.write_bytes(good[:at] + bytes(4096) + good[at + 4096 :])
        assert await pruned.recovered() in ("image", "snapshot")
        pruned.lose_image()


async def test_an_image_with_a_row_missing_is_put_aside(pruned: Host) -> None:
    with sqlite3.connect(pruned.image_path) as db:
        assert db.execute("DELETE FROM rows WHERE section = ?", (META,)).rowcount == 1
    db.close()
    assert await pruned.recovered() == "snapshot"


@pytest.mark.parametrize("section", range(6))
async def test_an_image_with_a_row_of_another_type_is_put_aside(pruned: Host, section: int) -> None:
    with sqlite3.connect(pruned.image_path) as db:
        assert db.execute("UPDATE rows SET value = 7 WHERE section = ?", (section,)).rowcount
    db.close()
    assert await pruned.recovered() == "snapshot"


def of_a_later_format(path: Path) -> None:
    later = (FORMAT_VERSION + 1).to_bytes(2, "big")
    rewrite_image(
        path,
        lambda rows: [
            resealed(row, lambda body: later + body[2:]) if row.section == META else row for row in rows
        ],
    )


async def test_an_image_of_a_later_format_is_put_aside_where_snapshots_and_journal_say_all(
    pruned: Host,
) -> None:
    of_a_later_format(pruned.image_path)
    assert await pruned.recovered() == "snapshot"


async def test_an_image_of_a_later_format_is_not_overwritten_where_it_is_needed(pruned: Host) -> None:
    of_a_later_format(pruned.image_path)
    pruned.lose_snapshots()
    before = pruned.image_path.read_bytes()
    with pytest.raises(StoreTooNew):
        await pruned.recovered()
    assert pruned.image_path.read_bytes() == before


async def test_an_image_of_another_journal_is_put_aside(pruned: Host, tmp_path: Path) -> None:
    other = Host(tmp_path / "other")
    other.root.mkdir()
    async with other.running():
        await other.work(12)
        deadline = asyncio.get_running_loop().time() + WAIT_S
        await other.shard.ask(CreateTopic("other", topic_id(9), 3, {}), deadline)
        await other.checkpointer.write_image()
    pruned.lose_image()
    shutil.copy(other.image_path, pruned.image_path)
    assert await pruned.recovered() == "snapshot"
    shutil.copy(other.image_path, pruned.image_path)
    async with pruned.running():
        await pruned.work(1)
        await pruned.checkpointer.write_image()
    # Nothing of the other journal is left in it.
    assert await pruned.recovered() == "image"


@pytest.mark.parametrize("known", ["image", "snapshot"])
async def test_an_older_copy_of_the_metadata_store_is_refused(host: Host, known: str) -> None:
    async with host.running():
        await host.work(12)
    copy = host.root / "copy"
    shutil.copy(host.root / "metadata", copy)
    async with host.running():
        await host.work(3)
        await (host.checkpointer.write_image() if known == "image" else host.checkpoint())
    if known == "snapshot":
        host.lose_image()
    for suffix in ("-wal", "-shm"):
        (host.root / f"metadata{suffix}").unlink(missing_ok=True)
    newest = (host.root / "metadata").rename(host.root / "newest")
    shutil.copy(copy, host.root / "metadata")
    for _ in range(2):  # the refusal changes nothing that a second start would need
        with pytest.raises(StoreDamaged, match=f"but the {known} was made after .* ledger restore"):
            await host.recovered()
    shutil.copy(newest, host.root / "metadata")
    await host.recovered()


async def test_an_image_older_than_the_journals_start_is_put_aside(host: Host) -> None:
    async with host.running():
        await host.work(1)
        await host.checkpointer.write_image()
    shutil.copy(host.image_path, host.root / "kept")
    async with host.running():
        for _ in range(3):
            await host.work()
            await host.checkpoint()
    host.lose_image()
    shutil.copy(host.root / "kept", host.image_path)
    assert await host.recovered() == "snapshot"


async def test_the_older_snapshot_serves_when_the_newer_is_damaged(pruned: Host) -> None:
    pruned.lose_image()
    newer = pruned.snapshots()[-1]
    damage(newer, 200)
    assert await pruned.recovered() == "snapshot"
    async with pruned.running():
        await pruned.work(1)


async def test_a_pruned_journal_without_image_and_snapshot_cannot_be_read_and_says_so(pruned: Host) -> None:
    pruned.lose_image()
    pruned.lose_snapshots()
    with pytest.raises(StoreDamaged, match="put back the image file or the snapshot"):
        await pruned.recovered()


async def test_a_missing_entry_is_named(host: Host) -> None:
    async with host.running():
        await host.work()
    async with host.stores():
        await host.metadata.delete([entry_key(0, 4)])
    with pytest.raises(StoreDamaged, match="entry 4 of the journal of shard 0 is missing, although"):
        await host.recovered()


async def test_a_damaged_entry_is_named(host: Host) -> None:
    async with host.running():
        await host.work()
    async with host.stores():
        found = await host.metadata.get(entry_key(0, 4))
        assert found is not None
        bad = found.value[:-1] + bytes([found.value[-1] ^ 1])
        assert isinstance(await host.metadata.put(entry_key(0, 4), bad, found.version), Won)
    with pytest.raises(StoreDamaged, match=entry_key(0, 4)):
        await host.recovered()


async def test_damage_below_the_image_does_not_matter(host: Host) -> None:
    async with host.running():
        await host.work()
        await host.checkpointer.write_image()
        await host.work(1)
    async with host.stores():
        await host.metadata.delete([entry_key(0, 4)])
    assert await host.recovered() == "image"


# Image, snapshot, archive and pruning, step by step


async def test_pruning_archives_every_entry_that_it_lets_go(pruned: Host) -> None:
    async with pruned.stores():
        start = await MetadataJournal(pruned.metadata, 0).start()
        archived: list[bytes] = []
        for info in await pruned.blobs.list(archive_prefix(0)):
            first, entries = decode_archive(await pruned.blobs.get(info.key), info.key)
            assert first == len(archived)
            archived += entries
        assert len(archived) == start
        assert [decode_entry(data, "archived").epoch for data in archived] == [0] + [1] * (start - 1)
        kept = await pruned.metadata.scan(entry_prefix(0))
    # The first entry of every epoch stays.
    assert [key for key, _ in kept][:2] == [entry_key(0, 0), entry_key(0, start)]
    assert any(isinstance(r, OwnerChanged) for r in decode_entry(kept[0][1].value, "kept").records)


async def test_two_snapshots_stay(pruned: Host) -> None:
    async with pruned.running():
        for _ in range(3):
            await pruned.work(1)
            await pruned.checkpoint()
        assert len(await snapshot_keys(pruned.blobs, 0)) == 2


async def test_with_one_snapshot_nothing_is_pruned(host: Host) -> None:
    async with host.running():
        await host.work()
        await host.checkpoint()
        assert await host.shard.journal.start() == 0
        assert len(await host.metadata.scan(entry_prefix(0))) == host.shard.state.applied


async def test_a_snapshot_is_taken_of_the_state_itself_when_the_image_cannot_be_written(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.running():
        await host.work()
        with monkeypatch.context() as patch:
            patch.setattr(ImageFile, "_update", failing_update)
            await host.checkpointer.snapshot()
        await host.checkpointer.write_image()
    assert await host.recovered() == "image"
    host.lose_image()
    assert await host.recovered() == "snapshot"


def failing_update(file: ImageFile, db: sqlite3.Connection, rows: Sequence[Row], nonce: bytes) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_rows_of_an_image_whose_writing_was_cut_short_are_not_forgotten(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway stops while the image is being written, and that very write fails."""
    async with host.running():
        await host.checkpointer.write_image()
        await host.work()
        with monkeypatch.context() as patch:
            patch.setattr(ImageFile, "_update", failing_update)
            writing = asyncio.create_task(host.checkpointer.write_image())
            await asyncio.sleep(0)
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
        await host.work(1)
        await host.checkpointer.write_image()
    assert await host.recovered() == "image"


async def test_an_image_that_is_begun_while_another_is_encoded_does_not_overtake_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host.running():
        await host.work()
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "ENCODE_S", 0.0)
            patch.setattr(checkpoint, "PAUSE_S", 0.5)
            slow = asyncio.create_task(host.checkpointer.write_image())
            await asyncio.sleep(0)
        await host.work(1)
        await host.checkpointer.write_image()
        await slow
    assert await host.recovered() == "image"


async def checkpoint_until_death(host: Host, deaths: Deaths) -> bool:
    """Snapshot and prune; True if the process died on the way."""
    metadata, blobs = (
        FaultyMetadata(host.metadata, deaths),
        FaultyBlobs(FileBlobs(host.root / "blobs"), deaths),
    )
    checkpointer = host.new_checkpointer(metadata, blobs)
    try:
        await checkpointer.snapshot()
        await checkpointer.prune()
    except Death:
        return True
    finally:
        journal_of(host.shard).store = host.metadata
    return False


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER], ids=["before", "after"])
async def test_a_death_between_any_two_steps_of_a_checkpoint_leaves_a_restart_possible(
    pruned: Host, fault: Fault
) -> None:
    died_in: set[str] = set()
    for fail_at in range(1, 60):
        async with pruned.running():
            await pruned.work(2)
            await pruned.checkpoint()  # so that every checkpoint makes the same calls
            await pruned.work(1)
            deaths = Deaths(fail_at, fault)
            if not await checkpoint_until_death(pruned, deaths):
                break
        died_in.update(f"{call.store}.{call.method}" for call in deaths.failed)
        await every_entry_from_the_start_on_is_there(pruned)
        with_image = shutil.copytree(pruned.root, pruned.root.parent / f"{pruned.root.name}-{fail_at}")
        assert await pruned.recovered() == "image"
        without = Host(with_image)
        without.shard = pruned.shard
        without.lose_image()
        assert await without.recovered() == "snapshot"
    else:
        raise AssertionError("no checkpoint came to its end")
    assert died_in == {
        "blobs.put",
        "blobs.list",
        "blobs.get",
        "blobs.delete",
        "metadata.get",
        "metadata.scan",
        "metadata.put",
        "metadata.delete",
    }


async def every_entry_from_the_start_on_is_there(host: Host) -> None:
    async with host.stores():
        start = await MetadataJournal(host.metadata, 0).start()
        found = await host.metadata.scan(entry_prefix(0), entry_key(0, start))
    assert [key for key, _ in found] == [entry_key(0, start + n) for n in range(len(found))]


async def test_entries_that_a_dead_process_did_not_come_to_delete_are_deleted_later(pruned: Host) -> None:
    async with pruned.running():
        await pruned.work(2)
        deaths = Deaths(1, only=["metadata.delete"])
        assert await checkpoint_until_death(pruned, deaths)
        assert await entries_that_nobody_needs(pruned)
    async with pruned.running():
        await pruned.work(2)
        await pruned.checkpoint()
        assert await entries_that_nobody_needs(pruned) == []


async def entries_that_nobody_needs(host: Host) -> list[str]:
    """Keys of those below the start that do not begin an epoch."""
    start = entry_key(0, await host.shard.journal.start())
    below = [(key, found) for key, found in await host.metadata.scan(entry_prefix(0)) if key < start]
    return [
        key
        for key, found in below
        if not any(isinstance(r, OwnerChanged) for r in decode_entry(found.value, key).records)
    ]


async def test_nothing_is_written_twice_into_an_image_that_is_up_to_date(host: Host) -> None:
    async with host.running():
        await host.work()
        await host.checkpointer.write_image()
        assert [row.section for row in take_dirty_rows(host.shard.state)] == [META]
        before = host.image_path.stat().st_mtime_ns
        await host.checkpointer.write_image()
        assert host.image_path.stat().st_mtime_ns == before
