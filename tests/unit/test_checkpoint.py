"""Image, snapshot, archive and prune: what each may rely on when another fails or rots."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.images.sqlite import SqliteImage
from adapters.journals.metadata import MetadataJournal, entry_key, entry_prefix
from gateway.coordination.recovery import recover, snapshot_keys
from gateway.housekeeping import checkpoint
from gateway.housekeeping.checkpoint import StateNotWhole
from ledger.errors import StoreError, StoreUnavailable
from ledger.formats.snapshot import decode_snapshot
from ledger.image import all_rows, restore
from ledger.partitions.rows import PARTITION
from ledger.rows import Row, digest
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.embedded import Client, Clock, Embedded
from tests.support.faulty import Fault, Faults
from tests.support.image_rows import flipped, rewrite_image, with_any_bit_flipped
from tests.support.journalled import topic_id

STARTS = 60
SEED = 20_261_122
HIGH_WATERMARK_BIT = 35 * 8 + 6
"""Of the value of a partition's row."""


async def work(host: Embedded, batches: int = 5) -> None:
    if "t" not in host.shard.state.topics.by_name:
        await host.ask(CreateTopic("t", topic_id(1), 2, {}))
    client = Client()
    for _ in range(batches):
        await host.send("t", 0, client.batch("t", 0))


# The order of archive and prune


async def test_without_an_archive_the_journal_keeps_its_start_and_every_entry(tmp_path: Path) -> None:
    # The puts of two snapshots go well, that of the archive does not.
    faults = Faults(3, Fault.ERROR_BEFORE, only=["blobs.put"])
    async with Embedded(tmp_path, Clock(), faults) as host:
        for _ in range(2):
            await work(host)
            await host.checkpointer.snapshot()
        with pytest.raises(StoreError, match=r"blobs.put\(archive/"):
            await host.checkpointer.prune()
        assert await host.shard.journal.start() == 0
        entries = [key for key, _ in await host.metadata.scan(entry_prefix(0))]
        assert entries == [entry_key(0, number) for number in range(host.shard.state.applied)]
        # The next one makes up for it.
        await host.checkpointer.prune()
        assert await host.shard.journal.start() > 0


async def test_after_a_prune_a_start_needs_no_more_than_the_older_snapshot(tmp_path: Path) -> None:
    async with Embedded(tmp_path, Clock()) as host:
        for _ in range(3):
            await work(host)
            await host.checkpointer.snapshot()
            await host.checkpointer.prune()
        await work(host)
        older, newer = await snapshot_keys(host.blobs, 0)
        assert await host.shard.journal.start() > 0
        await host.blobs.delete([newer])
        expected = digest(row for row in all_rows(host.shard.state) if row.section)
    for path in tmp_path.glob("image*"):
        path.unlink()
    async with Embedded(tmp_path, Clock()) as host:
        assert digest(row for row in all_rows(host.shard.state) if row.section) == expected
        assert await snapshot_keys(host.blobs, 0) == [older]


# The image


async def test_an_entry_applied_while_the_image_is_encoded_does_not_make_it_useless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nonce that is written is that of the last entry that the rows have."""
    monkeypatch.setattr(checkpoint, "ENCODE_S", 0.0)
    monkeypatch.setattr(checkpoint, "PAUSE_S", 0.3)
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        writing = asyncio.create_task(host.checkpointer.write_image())
        await asyncio.sleep(0)
        before = host.shard.state.applied
        await work(host, 1)
        assert not writing.done()
        await writing
        assert host.checkpointer.imaged == before < host.shard.state.applied
        found = await recover(MetadataJournal(host.metadata, 0), host.image, host.blobs)
        assert found.source == "image"
        assert digest(all_rows(found.state)) == digest(all_rows(host.shard.state))


async def test_a_snapshot_is_never_made_of_rows_that_the_disk_has_changed(tmp_path: Path) -> None:
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        await host.checkpointer.write_image()
        rewrite_image(
            tmp_path / "image",
            lambda rows: [
                flipped(row, 8 * len(row.key) + HIGH_WATERMARK_BIT) if row.section == PARTITION else row
                for row in rows
            ],
        )
        key = await host.checkpointer.snapshot()
        expected = digest(all_rows(host.shard.state))
        assert digest(decode_snapshot(await host.blobs.get(key), key).rows) == expected
        # Nor is the image left like that.
        await work(host, 1)
        await host.checkpointer.write_image()
        found = await recover(MetadataJournal(host.metadata, 0), host.image, host.blobs)
        assert found.source == "image" and found.state.applied == host.shard.state.applied


async def test_an_image_of_which_a_row_is_gone_is_written_again_before_a_snapshot(tmp_path: Path) -> None:
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        await host.checkpointer.write_image()
        rewrite_image(tmp_path / "image", lambda rows: [row for row in rows if row.section != PARTITION])
        key = await host.checkpointer.snapshot()
        snapshot = decode_snapshot(await host.blobs.get(key), key)
        assert digest(snapshot.rows) == digest(all_rows(host.shard.state))


async def test_a_snapshot_has_the_number_of_its_rows_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    """The image is written by a task of its own, also while a snapshot is made of it."""
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        read = host.image.rows

        async def overtaken() -> tuple[Sequence[Row], bytes]:
            found = await read()
            await work(host, 2)
            await host.checkpointer.write_image()
            return found

        host.image.rows = overtaken  # type: ignore[method-assign]
        key = await host.checkpointer.snapshot()
        snapshot = decode_snapshot(await host.blobs.get(key), key)
        assert snapshot.applied == restore(snapshot.rows).applied < host.shard.state.applied
    async with Embedded(tmp_path, Clock()) as host:
        assert host.shard.state.topics.by_name


async def test_a_damaged_image_that_cannot_be_cleared_is_cleared_before_it_is_written_again(
    tmp_path: Path,
) -> None:
    """A whole image over the old one would leave what is gone by now."""
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        await host.ask(CreateTopic("gone", topic_id(2), 1, {}))
        await host.checkpointer.write_image()
        clear, rows = host.image.clear, host.image.rows

        async def fails() -> tuple[Sequence[Row], bytes]:
            raise StoreUnavailable("on purpose")

        host.image.rows = host.image.clear = fails  # type: ignore[method-assign, assignment]
        await host.checkpointer.snapshot()
        await host.ask(DeleteTopic(topic_id(2)))
        await host.checkpointer.write_image()
        assert host.checkpointer.imaged is None
        host.image.clear, host.image.rows = clear, rows  # type: ignore[method-assign]
        await host.checkpointer.write_image()
        found = await recover(MetadataJournal(host.metadata, 0), host.image, host.blobs)
        assert found.source == "image" and list(found.state.topics.by_name) == ["t"]


async def test_no_image_or_snapshot_is_made_of_a_state_that_is_not_whole(tmp_path: Path) -> None:
    async with Embedded(tmp_path, Clock()) as host:
        await work(host)
        host.shard.state.is_whole = False
        await host.checkpointer.write_image()
        assert host.checkpointer.imaged is None
        with pytest.raises(StateNotWhole):
            await host.checkpointer.snapshot()
        assert await snapshot_keys(host.blobs, 0) == []


@pytest.mark.parametrize("starts", [STARTS, pytest.param(20_000, marks=pytest.mark.full)])
@pytest.mark.timeout(1800)
async def test_a_start_recovers_from_the_journal_whichever_bit_of_the_image_is_flipped(
    tmp_path: Path, starts: int
) -> None:
    async with Embedded(tmp_path, Clock()) as host:
        await work(host, 30)
        await host.checkpointer.write_image()
        right = digest(all_rows(host.shard.state))
        image = tmp_path / "image"
        await host.image.close()
        good, dice = shutil.copy(image, tmp_path / "good"), random.Random(SEED)
        for _ in range(starts):
            for path in tmp_path.glob("image*"):
                path.unlink()
            shutil.copy(good, image)
            rewrite_image(image, lambda rows: with_any_bit_flipped(rows, dice))
            host.image = SqliteImage(image)
            found = await recover(MetadataJournal(host.metadata, 0), host.image, host.blobs)
            await host.image.close()
            assert found.source == "journal"
            assert digest(all_rows(found.state)) == right
