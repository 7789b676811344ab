"""Copies of the metadata put back where there are newer snapshots: refused, or offsets would be given
again."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapters.blobs.files import FileBlobs
from adapters.images.sqlite import SqliteImage
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.sqlite import SqliteMetadata
from adapters.segments.wal import WalSegments
from gateway.coordination.recovery import recover
from gateway.offline.backup import read_backup, restore_backup, write_backup
from ledger.errors import StoreDamaged
from ledger.topics.requests import CreateTopic
from tests.support.embedded import GRACE_MS, Client, Clock, Embedded
from tests.support.journalled import topic_id

METADATA, IMAGE = "metadata", "image"
PUT_BACK = {"metadata alone": [METADATA], "metadata and image": [METADATA, IMAGE]}


def copy(source: Path, target: Path, names: list[str]) -> None:
    """As an operator copies files: existing files of these names are removed first."""
    target.mkdir(exist_ok=True)
    for name in names:
        for there in target.glob(f"{name}*"):
            there.unlink()
        for found in source.glob(f"{name}*"):
            shutil.copy(found, target / found.name)


async def one_batch(root: Path, clock: Clock) -> int:
    """A topic with two records, and an image of that. Returns the entries."""
    async with Embedded(root, clock) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        assert await host.send("t", 0, Client().batch("t", 0)) == [0]
        await host.checkpointer.write_image()
        return host.shard.state.applied


async def five_more(root: Path, clock: Clock) -> int:
    """Five batches and a snapshot. Returns the entries."""
    async with Embedded(root, clock) as host:
        client, begin = Client(), host.log("t").high_watermark
        for number in range(5):
            clock.now_ms += GRACE_MS // 2
            assert await host.send("t", 0, client.batch("t", 0)) == [begin + 2 * number]
        await host.checkpointer.snapshot()
        return host.shard.state.applied


async def back_up(root: Path, backup: Path, clock: Clock) -> None:
    metadata, blobs = SqliteMetadata(root / METADATA), FileBlobs(backup)
    journal = MetadataJournal(metadata, 0)
    await write_backup(journal, await recover(journal, None, None), blobs, clock())
    await metadata.close()
    await blobs.close()


async def put_back_from_backup(root: Path, backup: Path, clock: Clock) -> None:
    """As `dragoman ledger restore`, after the metadata was moved away."""
    copy(root, root / "moved", [METADATA])
    for path in root.glob(f"{METADATA}*"):
        path.unlink()
    metadata, source, blobs = SqliteMetadata(root / METADATA), FileBlobs(backup), FileBlobs(root / "blobs")
    image, segments = SqliteImage(root / IMAGE), WalSegments(root / "data")
    journal = MetadataJournal(metadata, 0)
    await restore_backup(await read_backup(source), journal, blobs, image, segments, clock())
    await image.close()
    for store in (metadata, source, blobs, segments):
        await store.close()


async def newly_made(root: Path, clock: Clock) -> None:
    return None


async def restored_once(root: Path, clock: Clock) -> None:
    """A ledger that was restored from a backup already, and has gone on since."""
    async with Embedded(root, clock) as host:
        await host.ask(CreateTopic("before", topic_id(7), 1, {}))
    await back_up(root, root / "backup", clock)
    clock.now_ms += 1_000
    await put_back_from_backup(root, root / "backup", clock)


@pytest.mark.parametrize("before", [newly_made, restored_once])
@pytest.mark.parametrize("names", PUT_BACK.values(), ids=PUT_BACK.keys())
async def test_an_older_copy_with_a_newer_snapshot_is_refused(
    tmp_path: Path, names: list[str], before: Callable[[Path, Clock], Awaitable[None]]
) -> None:
    clock = Clock()
    await before(tmp_path, clock)
    old = await one_batch(tmp_path, clock)
    copy(tmp_path, tmp_path / "aside", [METADATA, IMAGE])
    new = await five_more(tmp_path, clock)
    assert before is restored_once or (old, new) == (3, 9)
    newest = tmp_path / "newest"
    copy(tmp_path, newest, [METADATA, IMAGE])
    copy(tmp_path / "aside", tmp_path, names)
    for _ in range(2):  # a refusal changes nothing
        with pytest.raises(
            StoreDamaged, match=f"ends after {old} entries, but the (image|snapshot) was made after {new}"
        ):
            await Embedded(tmp_path, clock).start()
    copy(newest, tmp_path, [METADATA, IMAGE])
    async with Embedded(tmp_path, clock) as host:
        assert host.log("t").high_watermark == 12
        assert await host.send("t", 0, Client().batch("t", 0)) == [12]


async def test_an_older_copy_on_which_a_gateway_has_gone_on_is_refused(tmp_path: Path) -> None:
    """The snapshot, which was away at that time, does not lie ahead any more."""
    clock = Clock()
    await one_batch(tmp_path, clock)
    copy(tmp_path, tmp_path / "aside", [METADATA, IMAGE])
    entries = await five_more(tmp_path, clock)
    copy(tmp_path / "aside", tmp_path, [METADATA, IMAGE])
    (tmp_path / "blobs" / "snapshot").rename(tmp_path / "snapshot")
    async with Embedded(tmp_path, clock) as host:
        for _ in range(entries):
            await host.send("t", 0, Client().batch("t", 0))
        await host.checkpointer.write_image()
    (tmp_path / "snapshot").rename(tmp_path / "blobs" / "snapshot")
    with pytest.raises(
        StoreDamaged, match=f"entry {entries - 1} of the journal .* gone on with an older copy"
    ):
        await Embedded(tmp_path, clock).start()


@pytest.mark.parametrize("behind_ms", [0, 3_600_000], ids=["clock right", "clock behind"])
async def test_a_restore_from_a_backup_starts_with_the_snapshots_of_the_journal_that_it_replaced(
    tmp_path: Path, behind_ms: int
) -> None:
    clock = Clock()
    await one_batch(tmp_path, clock)
    await back_up(tmp_path, tmp_path / "backup", clock)
    replaced = await five_more(tmp_path, clock)
    clock.now_ms += 1_000 - behind_ms
    await put_back_from_backup(tmp_path, tmp_path / "backup", clock)
    for _ in range(2):
        async with Embedded(tmp_path, clock) as host:
            assert host.shard.state.cluster_epoch == 2
            # More entries than the journal had that was replaced, one by one past its end.
            for _ in range(replaced // 2):
                await host.send("t", 0, Client().batch("t", 0))
            await host.checkpointer.write_image()
    async with Embedded(tmp_path, clock) as host:
        assert host.shard.state.applied > replaced
        await host.checkpointer.snapshot()


async def test_after_a_restore_an_older_copy_is_refused_by_the_snapshots_made_since(tmp_path: Path) -> None:
    """Also where the clock has been set back to before the restore."""
    clock = Clock()
    await one_batch(tmp_path, clock)
    await back_up(tmp_path, tmp_path / "backup", clock)
    await five_more(tmp_path, clock)
    await put_back_from_backup(tmp_path, tmp_path / "backup", clock)
    copy(tmp_path, tmp_path / "aside", [METADATA, IMAGE])
    clock.now_ms -= 10 * GRACE_MS
    await five_more(tmp_path, clock)
    copy(tmp_path / "aside", tmp_path, [METADATA, IMAGE])
    with pytest.raises(StoreDamaged, match="the metadata store is an older copy"):
        await Embedded(tmp_path, clock).start()
