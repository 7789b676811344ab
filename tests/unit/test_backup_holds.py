"""What a backup names stays for as long as its hold, and a restore from it finds everything."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.holds import WRITING_MS, hold_everything, hold_of, hold_prefix, holds_in, place_of
from gateway.housekeeping.garbage import GarbageCollector
from gateway.housekeeping.holds import MAX_COPY_MS, BackupHolds, BackupOpen
from gateway.offline.backup import read_backup, restore_backup
from gateway.offline.held_backup import BackupPlaces, HeldBackup, write_held_backup
from ledger.errors import StoreDamaged, StoreUnavailable
from ledger.ports import Blobs
from ledger.swaps.requests import ReleasePin, Swapped, TakePin
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch
from tests.support.embedded import GRACE_MS, WAIT_S, Client, Clock, Embedded
from tests.support.journalled import topic_id
from tests.support.shards import journal_of
from tests.support.swapping import JOB, swap_of

HOUR_MS = 3_600_000
HOLD_MS = 48 * HOUR_MS


class Drill:
    """A gateway's housekeeping, and the commands of an operator."""

    def __init__(self, host: Embedded) -> None:
        self.host = host
        self.backup = MemoryBlobs()
        self.is_disk_full = False
        self.open = BackupOpen(host.root / "backup-open", host.clock)
        self.holds = BackupHolds(host.blobs, 0, host.clock)
        self.garbage = GarbageCollector(
            host.shard,
            host.segments,
            GRACE_MS,
            host.clock,
            WAIT_S,
            is_disk_full=lambda: self.is_disk_full,
            holds=self.holds,
            is_being_copied=self.open.is_open,
        )
        self.client = Client()

    async def send(self) -> str:
        """One batch in an object of its own."""
        before = await self.host.objects()
        await self.host.send("t", 0, self.client.batch("t", 0))
        (made,) = await self.host.objects() - before
        await self.host.segments.abandon(made)
        return made

    async def back_up(self, hold_ms: int = HOLD_MS) -> HeldBackup:
        host = self.host
        places = BackupPlaces(host.blobs, self.backup, "/mnt/backup")
        made, _ = await write_held_backup(journal_of(host.shard), None, places, hold_ms, host.clock)
        return made

    async def merge(self) -> None:
        """All runs, by a segment that has no bytes."""
        host = self.host
        await host.ask(TakePin(JOB))
        log = host.log("t")
        assert isinstance(await host.ask(swap_of(log, list(log.runs()), host.shard.now_ms())), Swapped)
        await host.ask(ReleasePin(JOB))

    async def sweep_after(self, passed_ms: int) -> int:
        self.host.clock.now_ms += passed_ms
        await self.garbage.drain(self.host.loop_time)
        return (await self.garbage.sweep(self.host.loop_time)).objects

    async def missing_after_a_restore(self) -> list[str]:
        journal, blobs = MetadataJournal(MemoryMetadata(), 0), MemoryBlobs()
        now_ms, found = self.host.clock(), await read_backup(self.backup)
        return (await restore_backup(found, journal, blobs, None, self.host.segments, now_ms)).missing


@pytest.fixture
async def drill(tmp_path: Path) -> AsyncIterator[Drill]:
    async with Embedded(tmp_path, Clock()) as host:
        await host.ask(CreateTopic("t", topic_id(1), 1, {}))
        yield Drill(host)


async def test_a_merged_object_stays_until_the_hold_is_over(drill: Drill) -> None:
    held = await drill.send()
    made = await drill.back_up()
    assert made.held_until_ms == drill.host.clock() + HOLD_MS
    await drill.merge()
    assert await drill.sweep_after(10 * GRACE_MS) == 0
    assert (drill.holds.kept_objects, drill.holds.kept_bytes > 0) == (1, True)
    assert await drill.missing_after_a_restore() == []
    assert await drill.sweep_after(HOLD_MS - 10 * GRACE_MS - 1) == 0
    assert await drill.sweep_after(1) == 1
    assert held not in await drill.host.objects()
    assert not await holds_in(drill.host.blobs, 0) and drill.holds.kept_objects == 0


async def test_without_a_hold_the_backup_ages_with_the_first_merge(drill: Drill) -> None:
    gone = await drill.send()
    made = await drill.back_up(hold_ms=0)
    assert (made.hold, made.held_until_ms) == ("", 0)
    await drill.merge()
    assert await drill.sweep_after(10 * GRACE_MS) == 1
    assert await drill.missing_after_a_restore() == [gone]


async def test_a_released_hold_keeps_nothing(drill: Drill) -> None:
    await drill.send()
    made = await drill.back_up()
    await drill.merge()
    assert await drill.sweep_after(10 * GRACE_MS) == 0
    (hold,) = await holds_in(drill.host.blobs, 0)
    assert (hold.name, await place_of(drill.host.blobs, hold)) == (made.hold, "/mnt/backup")
    await drill.host.blobs.delete([hold.key])
    assert await drill.sweep_after(0) == 1


async def test_what_came_after_the_backup_or_was_garbage_before_is_not_held(drill: Drill) -> None:
    before = await drill.send()
    await drill.merge()
    drill.host.clock.now_ms += 1
    held = await drill.send()
    await drill.back_up()
    after = await drill.send()
    await drill.merge()
    assert await drill.sweep_after(10 * GRACE_MS) == 2
    found = await drill.host.objects()
    assert held in found and before not in found and after not in found


async def test_each_of_several_backups_keeps_what_it_names(drill: Drill) -> None:
    await drill.send()
    await drill.back_up(HOUR_MS)
    second = await drill.send()
    await drill.back_up()
    await drill.merge()
    assert await drill.sweep_after(HOUR_MS - 1) == 0
    # The second backup names the first object, too.
    assert await drill.sweep_after(1) == 0
    assert second in await drill.host.objects()
    assert await drill.missing_after_a_restore() == []
    assert await drill.sweep_after(HOLD_MS) == 2


async def test_a_full_disk_ends_no_hold(drill: Drill) -> None:
    """Else the backup would be worth nothing without a word. The log says how to release it."""
    await drill.send()
    await drill.back_up()
    await drill.merge()
    drill.is_disk_full = True
    assert await drill.sweep_after(10 * GRACE_MS) == 0


async def test_while_a_backup_is_being_written_everything_is_held_for_six_hours(drill: Drill) -> None:
    await drill.send()
    await drill.merge()
    await hold_everything(drill.host.blobs, 0, "/mnt/backup", drill.host.clock())
    assert await drill.sweep_after(WRITING_MS - 1) == 0
    assert await drill.sweep_after(1) == 1


class Failing(MemoryBlobs):
    async def put(self, key: str, parts: object) -> None:
        raise StoreUnavailable("the disk of the backup is not there")


async def test_a_backup_that_fails_holds_nothing(drill: Drill) -> None:
    await drill.send()
    failing: Blobs = Failing()
    drill.backup = failing  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await drill.back_up()
    assert not await holds_in(drill.host.blobs, 0)


async def test_a_key_that_is_no_hold_stops_deletions_with_a_sentence(drill: Drill) -> None:
    await drill.send()
    await drill.merge()
    await drill.host.blobs.put(f"{hold_prefix(0)}stray", [b""])
    with pytest.raises(StoreDamaged, match="hold/0/stray is no hold of a backup: remove it"):
        await drill.sweep_after(10 * GRACE_MS)
    with pytest.raises(StoreDamaged):
        hold_of("hold/0/1-2-3-x")


async def test_nothing_is_deleted_while_an_operator_copies_the_data(drill: Drill) -> None:
    """Garbage and orphans, for a day at most; and also on a full disk."""
    host = drill.host
    garbage = await drill.send()
    await drill.merge()
    batch = DraftBatch(topic_id(1), 0, Client().batch("t", 0), 2)
    orphan = (await host.segments.write([batch], host.clock())).locator
    await host.segments.abandon(orphan)
    opened = host.root / "backup-open"
    opened.touch()
    os.utime(opened, (drill.host.clock() / 1000, drill.host.clock() / 1000))
    drill.is_disk_full = True
    assert await drill.sweep_after(MAX_COPY_MS - 1_000) == 0
    assert await host.objects() == {orphan, garbage}
    assert await drill.sweep_after(2_000) == 1
    assert not await host.objects()


async def test_removing_the_file_lets_deletions_go_on(drill: Drill) -> None:
    await drill.send()
    await drill.merge()
    opened = drill.host.root / "backup-open"
    opened.touch()
    os.utime(opened, (drill.host.clock() / 1000, drill.host.clock() / 1000))
    assert await drill.sweep_after(10 * GRACE_MS) == 0
    opened.unlink()
    assert await drill.sweep_after(0) == 1
