"""A backup has the batches that are inside of journal entries, and a restore puts them into objects."""

import asyncio

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.objects import ObjectSegments
from gateway.coordination.recovery import recover
from gateway.offline.audit import Findings, StoreAudit
from gateway.offline.backup import read_backup, restore_backup, write_backup
from gateway.offline.doctor import Diagnosis, check_objects
from ledger.errors import StoreUnavailable
from ledger.formats.snapshot import archive_prefix
from tests.support.inline_world import BEGUN_MS, InlineHost, far_metadata, stored_values

VALUES = [b"%06d" % number for number in range(12)]


async def filled() -> InlineHost:
    """With batches in objects and inside of entries."""
    host = await InlineHost(far_metadata(), MemoryBlobs()).open()
    for number, value in enumerate(VALUES):
        sent = [host.send(value, partition) for partition in range(host.partitions)]
        await asyncio.gather(*sent)
        if number == 4:
            await host.mover.move()
    assert host.inline_entries
    return host


async def backed_up(host: InlineHost, target: MemoryBlobs) -> None:
    recovered = await recover(host.journal, None, host.blobs)
    await write_backup(host.journal, recovered, target, BEGUN_MS + 1)


async def check(host: InlineHost) -> None:
    for partition in range(host.partitions):
        data = b"".join(await stored_values(host.shard, host.metadata, host.blobs, partition))
        found = [data.find(value) for value in VALUES]
        assert found == sorted(found) and found[0] >= 0
        assert host.log(partition).high_watermark == len(VALUES)


async def test_a_restore_has_every_record_of_the_backup() -> None:
    host, target = await filled(), MemoryBlobs()
    await backed_up(host, target)
    await host.close()
    # Of the metadata store nothing is left, and of the data what the backup does not have.
    metadata = MemoryMetadata(exclusive=False)
    found = await read_backup(target)
    assert set(found.inline) == set(host.inline_entries)
    journal = MetadataJournal(metadata, 0)
    segments = ObjectSegments(host.blobs)
    restored = await restore_backup(found, journal, host.blobs, None, segments, BEGUN_MS + 2)
    assert restored.missing == []
    again = await InlineHost(metadata, host.blobs).open()
    assert not again.inline_entries
    await check(again)
    assert await again.send(b"goes on") == len(VALUES)
    await again.close()


async def test_a_backup_that_lacks_a_batch_is_none() -> None:
    host, target = await filled(), MemoryBlobs()
    before = await recover(host.journal, None, host.blobs)
    # A gateway goes on, and prunes past what this state needs.
    for _ in range(2):
        await host.checkpoint()
        await host.send(b"more")
    await host.checkpoint()
    with pytest.raises(StoreUnavailable, match="make the backup again"):
        await write_backup(host.journal, before, target, BEGUN_MS + 1)
    await backed_up(host, target)
    assert set((await read_backup(target)).inline) == set(host.inline_entries)
    await host.close()


async def test_what_no_archive_has_is_reported_and_holds_nothing() -> None:
    host, target = await filled(), MemoryBlobs()
    await backed_up(host, target)
    await host.close()
    await target.delete([info.key for info in await target.list(archive_prefix(0))])
    metadata = MemoryMetadata(exclusive=False)
    found = await read_backup(target)
    assert not found.inline
    segments = ObjectSegments(host.blobs)
    restored = await restore_backup(
        found, MetadataJournal(metadata, 0), host.blobs, None, segments, BEGUN_MS + 2
    )
    assert restored.missing == sorted(host.inline_entries)
    again = await InlineHost(metadata, host.blobs).open()
    await again.mover.move()
    # Nothing is left to be moved: tests/unit/test_inline_lost.py has what jobs make of it.
    assert not again.alarms and not again.mover.failure
    # The journal is pruned all the same.
    start = await again.journal.start()
    for _ in range(3):
        await again.send(b"more")
        await again.checkpoint()
    assert await again.journal.start() > start
    await again.close()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_doctor_and_audit_read_what_is_inside_of_entries(is_damaged: bool) -> None:
    host = await filled()
    first = host.shard.state.objects.first_inline_entry()
    assert first is not None
    await host.close()
    if is_damaged:
        await host.journal.delete([first])
    host = await InlineHost(host.metadata, host.blobs).open() if not is_damaged else host
    segments, state = host.segments, host.shard.state
    if is_damaged:
        # As a process that has nothing in memory.
        host.journal.frames.__init__(host.metadata, 0)  # type: ignore[misc]
    diagnosis = Diagnosis()
    await check_objects(state, segments, diagnosis)
    assert bool(diagnosis.findings) == is_damaged
    findings = Findings()
    totals = await StoreAudit(state, segments, findings, 0).run()
    assert bool(findings.damages) == is_damaged
    assert totals.records == 3 * len(VALUES) - 3 * is_damaged
    await host.close()
