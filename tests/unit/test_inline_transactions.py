"""Transactions whose batches are inside of entries: markers, which are in no object, stay between the runs
that are moved."""

from collections.abc import AsyncIterator

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.segments.objects import ObjectSegments
from gateway.coordination.recovery import recover
from gateway.offline.backup import read_backup, restore_backup, write_backup
from ledger.batch.header import TRANSACTIONAL_BIT, check_batches
from ledger.batch.records import Producer, Record, build_batch
from ledger.inline.plan import readable_end
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import is_marker
from ledger.partitions.requests import ProducerTransaction
from ledger.transactions.requests import EndTransaction, InitTransactionalId, ProducerEpoch
from tests.support.completions import AwaitedProduce
from tests.support.inline_world import BEGUN_MS, POLICY, InlineHost, far_metadata

NAME = "a"


@pytest.fixture
async def host() -> AsyncIterator[InlineHost]:
    made = await InlineHost(far_metadata(), MemoryBlobs()).open()
    yield made
    await made.close()


async def send(host: InlineHost, producer: ProducerEpoch, sequence: int, partition: int = 0) -> int:
    """One batch of the transaction. Returns its offset."""
    ids = Producer(producer.producer_id, producer.epoch, sequence)
    data = build_batch([Record(value=b"v")], base_timestamp=BEGUN_MS, producer=ids, flags=TRANSACTIONAL_BIT)
    completion = AwaitedProduce()
    completion.transaction = ProducerTransaction(NAME, adds=True, is_abortable=True)
    checked = check_batches(memoryview(data), 1 << 20)
    pending = host.service.add(host.log(partition), checked, completion, POLICY)
    await completion.completed
    assert not pending.error
    return pending.base_offset


async def transaction(host: InlineHost, is_commit: bool, batches: int = 2) -> ProducerEpoch:
    """Into partition 0, from its beginning to its end."""
    producer = await host.ask(InitTransactionalId(NAME, 60_000))
    assert isinstance(producer, ProducerEpoch)
    for sequence in range(batches):
        await send(host, producer, sequence)
    ended = await host.ask(EndTransaction(NAME, producer.producer_id, producer.epoch, is_commit, bumps=True))
    assert isinstance(ended, ProducerEpoch)
    return ended


def shape(host: InlineHost) -> list[tuple[int, int, str]]:
    """(base, last, what) of the runs of partition 0."""
    objects = host.shard.state.objects.by_number
    return [
        (run.base, run.last, "marker" if is_marker(run) else ObjectKind(objects[run.object_number].kind).name)
        for run in host.log().runs()
    ]


async def test_runs_between_markers_are_moved_and_markers_stay(host: InlineHost) -> None:
    await transaction(host, is_commit=True)
    await transaction(host, is_commit=False)
    assert await host.send(b"after") == 6
    before = shape(host)
    assert [what for _, _, what in before].count("marker") == 2
    assert host.inline_entries and readable_end(host.shard.state, host.log()) == 0
    await host.mover.move()
    assert not host.inline_entries and not host.mover.failure
    assert shape(host) == [
        (0, 1, "WAL"),
        (2, 2, "marker"),
        (3, 4, "WAL"),
        (5, 5, "marker"),
        (6, 6, "WAL"),
    ]
    assert readable_end(host.shard.state, host.log()) == 7
    assert host.log().last_stable == 7


async def test_a_marker_before_and_after_what_is_inside_of_entries(host: InlineHost) -> None:
    await transaction(host, is_commit=True)
    await host.mover.move()
    # The partition begins to have such runs again right behind a marker, and ends with one.
    await transaction(host, is_commit=True, batches=1)
    assert [what for _, _, what in shape(host)] == ["WAL", "marker", "INLINE", "marker"]
    assert readable_end(host.shard.state, host.log()) == 3
    await host.mover.move()
    assert [what for _, _, what in shape(host)] == ["WAL", "marker", "WAL", "marker"]
    assert not host.shard.state.objects.inline_runs


async def test_an_open_transaction_is_moved_and_ended_later(host: InlineHost) -> None:
    producer = await host.ask(InitTransactionalId(NAME, 60_000))
    assert isinstance(producer, ProducerEpoch)
    await send(host, producer, 0)
    await host.mover.move()
    assert host.log().last_stable == 0
    await send(host, producer, 1)
    await host.ask(EndTransaction(NAME, producer.producer_id, producer.epoch, True, bumps=True))
    await host.mover.move()
    assert shape(host) == [(0, 0, "WAL"), (1, 1, "WAL"), (2, 2, "marker")]
    assert host.log().last_stable == 3


@pytest.mark.parametrize("moves", [False, True])
async def test_a_restart_and_a_restore_have_the_same_runs(host: InlineHost, moves: bool) -> None:
    await transaction(host, is_commit=True)
    await transaction(host, is_commit=False)
    if moves:
        await host.mover.move()
        await transaction(host, is_commit=True)
    await host.checkpoint()
    await transaction(host, is_commit=True)
    before, target = shape(host), MemoryBlobs()
    await write_backup(host.journal, await recover(host.journal, None, host.blobs), target, BEGUN_MS + 1)
    again = await InlineHost(host.metadata, host.blobs).open()
    assert shape(again) == before
    await again.mover.move()
    assert not again.inline_entries
    await again.close()

    metadata = far_metadata()
    segments = ObjectSegments(host.blobs)
    found = await read_backup(target)
    assert found.inline
    restored = await restore_backup(
        found, MetadataJournal(metadata, 0), host.blobs, None, segments, BEGUN_MS + 2
    )
    assert restored.missing == []
    last = await InlineHost(metadata, host.blobs).open()
    spans = [(base, end, what) for base, end, what in shape(last) if what == "marker"]
    assert spans == [(base, end, what) for base, end, what in before if what == "marker"]
    assert not last.inline_entries and last.log().last_stable == before[-1][1] + 1
    await last.close()
