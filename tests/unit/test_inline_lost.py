"""What was inside of entries that neither the journal nor an archive has: after a restore it is as an object
that is missing. Jobs come past it and say so, and nothing waits for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.segments.objects import ObjectSegments
from gateway.coordination.inline_limits import STUCK_SHARE
from gateway.coordination.recovery import recover
from gateway.housekeeping import inline_moves
from gateway.offline.backup import read_backup, restore_backup, write_backup
from ledger.formats.snapshot import archive_prefix
from ledger.image import all_rows, restore
from ledger.inline.plan import inline_ranges, readable_end
from ledger.objects.uploads import ObjectKind
from ledger.ports import Blobs
from ledger.rows import digest
from pipeline.rounds import JobError
from tests.support.inline_export import Gateway, export
from tests.support.inline_world import BEGUN_MS, InlineHost, far_metadata, stored_values

VALUES: Final = [b"%06d" % number for number in range(12)]
MOVED: Final = 5
"""Of those, in objects at the time of the backup."""
MORE: Final = [b"more %d" % number for number in range(4)]
GROWTH_SHARE: Final = 0.7
assert GROWTH_SHARE > STUCK_SHARE


async def restored_from(target: Blobs, blobs: Blobs) -> InlineHost:
    """Over a new metadata store."""
    found, metadata = await read_backup(target), far_metadata()
    journal, segments = MetadataJournal(metadata, 0), ObjectSegments(blobs)
    await restore_backup(found, journal, blobs, None, segments, BEGUN_MS + 2)
    return await InlineHost(metadata, blobs).open()


async def backed_up(host: InlineHost) -> MemoryBlobs:
    target = MemoryBlobs()
    await write_backup(host.journal, await recover(host.journal, None, host.blobs), target, BEGUN_MS + 1)
    return target


async def archives_of(target: Blobs) -> dict[str, bytes]:
    return {info.key: await target.get(info.key) for info in await target.list(archive_prefix(0))}


class Loss:
    """A ledger that was put back from a snapshot without its archives."""

    def __init__(self, host: InlineHost, archives: dict[str, bytes], lost: Sequence[str]) -> None:
        self.host = host
        self.archives = archives
        """That would have had what is lost."""
        self.lost = lost

    async def go_on(self) -> None:
        for value in MORE:
            sent = [self.host.send(value, partition) for partition in range(self.host.partitions)]
            assert all(isinstance(offset, int) for offset in await asyncio.gather(*sent))


@pytest.fixture
async def loss() -> AsyncIterator[Loss]:
    host = await InlineHost(far_metadata(), MemoryBlobs()).open()
    for number, value in enumerate(VALUES):
        await asyncio.gather(*(host.send(value, partition) for partition in range(host.partitions)))
        if number == MOVED - 1:
            await host.mover.move()
    target, lost = await backed_up(host), host.inline_entries
    await host.close()
    archives = await archives_of(target)
    await target.delete(list(archives))
    again = await restored_from(target, host.blobs)
    assert lost and [each.locator for each in again.shard.state.objects.lost.values()] == lost
    yield Loss(again, archives, lost)
    await again.close()


async def test_jobs_find_all_runs_of_a_partition_that_has_lost_some(loss: Loss) -> None:
    gateway = Gateway(loss.host)
    assert (await gateway.find(0)).high_watermark == len(VALUES)
    await loss.go_on()
    # What is inside of entries now is still not for jobs.
    assert (await gateway.find(0)).high_watermark == len(VALUES)
    await loss.host.mover.move()
    found = await gateway.find(0)
    assert found.high_watermark == loss.host.log().high_watermark == len(VALUES) + len(MORE)
    kinds = [(each.base_offset, each.last_offset, ObjectKind(each.object_kind)) for each in found.batches]
    assert kinds == [
        (0, MOVED - 1, ObjectKind.WAL),
        *((offset, offset, ObjectKind.INLINE) for offset in range(MOVED, len(VALUES))),
        (len(VALUES), len(VALUES) + len(MORE) - 1, ObjectKind.WAL),
    ]


async def test_an_export_names_the_offsets_that_are_lost(loss: Loss) -> None:
    await loss.go_on()
    await loss.host.mover.move()
    elapsed_s = asyncio.get_running_loop().time
    with pytest.raises(JobError, match=f"t-0: offsets {MOVED} to {len(VALUES) - 1} are missing"):
        await asyncio.to_thread(export, Gateway(loss.host), elapsed_s)
    await loss.host.delete_before(len(VALUES))
    totals = await asyncio.to_thread(export, Gateway(loss.host), elapsed_s)
    assert totals.batches == len(MORE)


async def test_what_is_lost_is_neither_moved_nor_counted(loss: Loss) -> None:
    host = loss.host
    host.now_ms += inline_moves.MOVE_AGE_MS
    assert host.mover.held_bytes == 0 and not host.mover.is_due() and not host.inline_entries
    await loss.go_on()
    held = host.mover.held_bytes
    assert 0 < held == sum(stored.size for stored in host.shard.state.objects.inline.values())
    await host.mover.move()
    assert host.mover.failure == "" and host.alarms == [] and host.mover.held_bytes == 0
    assert not host.shard.state.objects.inline_runs
    host.quota_share = GROWTH_SHARE
    assert host.mover.refusal() == "" and not host.mover.is_due()


async def test_what_is_lost_does_not_fill_the_objects_of_moves(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_moves, "OBJECT_RUNS", 2)
    await loss.go_on()
    await loss.host.mover.move()
    assert not loss.host.inline_entries and not loss.host.mover.failure


async def test_after_a_restart_the_same_is_lost(loss: Loss) -> None:
    await loss.go_on()
    state = loss.host.shard.state
    for found in (restore(all_rows(state)), (await recover(loss.host.journal, None, loss.host.blobs)).state):
        assert digest(all_rows(found)) == digest(all_rows(state))
        assert [each.locator for each in found.objects.lost.values()] == loss.lost
        assert list(found.objects.inline) == list(state.objects.inline)
        assert found.objects.inline_bytes == state.objects.inline_bytes
        assert readable_end(found, found.topics.by_name["t"].partitions[0]) == len(VALUES)


async def test_what_is_lost_goes_with_its_last_live_run(loss: Loss) -> None:
    await loss.go_on()
    for partition in range(loss.host.partitions):
        await loss.host.delete_before(len(VALUES), partition)
    objects = loss.host.shard.state.objects
    assert not objects.lost and loss.host.inline_entries
    assert all(each.kind != ObjectKind.INLINE for each in objects.garbage.values())
    assert set(loss.lost).isdisjoint(objects.by_locator)


async def test_another_restore_finds_what_was_lost_if_an_archive_has_it(loss: Loss) -> None:
    await loss.go_on()
    target = await backed_up(loss.host)
    for key, data in loss.archives.items():
        await target.put(key, [data])
    again = await restored_from(target, loss.host.blobs)
    assert not again.shard.state.objects.lost and not again.inline_entries
    data = b"".join(await stored_values(again.shard, again.metadata, again.blobs))
    at = [data.find(value) for value in [*VALUES, *MORE]]
    assert at == sorted(at) and at[0] >= 0
    await again.close()


async def test_another_restore_without_archives_loses_more(loss: Loss) -> None:
    await loss.go_on()
    lost = [*loss.lost, *loss.host.inline_entries]
    target = await backed_up(loss.host)
    await target.delete(list(await archives_of(target)))
    again = await restored_from(target, loss.host.blobs)
    state = again.shard.state
    assert [each.locator for each in state.objects.lost.values()] == lost
    assert not again.inline_entries and state.objects.inline_bytes == 0
    assert not list(inline_ranges(state, again.log()))
    assert readable_end(state, again.log()) == len(VALUES) + len(MORE)
    await again.close()
