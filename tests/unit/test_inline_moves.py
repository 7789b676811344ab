"""Small drafts inside of entries: written, read, moved into objects, and pruned with their entries."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.inline_limits import HELD_BYTES, InlineLimits
from gateway.housekeeping import inline_moves
from gateway.housekeeping.inline_moves import MOVE_AGE_MS, MOVE_BYTES
from ledger.batch.records import Record, build_batch
from ledger.errors import StoreUnavailable
from ledger.inline.plan import InlineRange, batches_of
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.types import Buffer
from tests.support.inline_world import (
    GRACE_MS,
    MAX_DRAFT_BYTES,
    WAIT_S,
    InlineHost,
    all_inline,
    far_metadata,
    stored_values,
    wal_objects,
)
from tests.support.journalled import topic_id


class Stores:
    def __init__(self) -> None:
        self.metadata: MemoryMetadata = far_metadata()
        self.blobs = MemoryBlobs()

    async def host(self, **options: float) -> InlineHost:
        return await InlineHost(self.metadata, self.blobs, **options).open()  # type: ignore[arg-type]


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    yield Stores()


async def fill(host: InlineHost, count: int, size: int = 100) -> list[bytes]:
    """So many records in each partition. Returns their values."""
    values = [bytes([65 + number % 26]) * size for number in range(count)]
    for value in values:
        sent = [host.send(value, partition) for partition in range(host.partitions)]
        assert all(isinstance(offset, int) for offset in await asyncio.gather(*sent))
    return values


async def check(host: InlineHost, values: Sequence[bytes], partition: int = 0) -> None:
    found = b"".join(await stored_values(host.shard, host.metadata, host.blobs, partition))
    at = 0
    for value in values:
        at = found.find(value, at) + 1
        assert at, value
    assert host.log(partition).high_watermark - host.log(partition).log_start == len(values)


async def test_a_small_draft_needs_no_object(stores: Stores) -> None:
    host = await stores.host()
    values = await fill(host, 20)
    assert await wal_objects(stores.blobs) == 0 and all_inline(host)
    for partition in range(3):
        await check(host, values, partition)
    assert host.limits.total_drafts == len(host.inline_entries) <= 60
    await host.close()


async def test_what_is_inside_of_entries_counts_as_journal(stores: Stores) -> None:
    host = await stores.host()
    before = host.shard.replica.journal_bytes
    await host.send(b"x" * 10_000)
    assert host.shard.replica.journal_bytes > before + 10_000
    await host.close()
    again = await stores.host()
    assert again.shard.replica.journal_bytes > before + 10_000
    await again.close()


async def test_a_draft_beyond_the_limit_goes_into_an_object(stores: Stores) -> None:
    host = await stores.host()
    assert await host.send(b"x" * MAX_DRAFT_BYTES) == 0
    assert await wal_objects(stores.blobs) == 1 and not host.inline_entries
    assert await host.send(b"y") == 1
    assert await wal_objects(stores.blobs) == 1 and len(host.inline_entries) == 1
    await host.close()


async def test_moved_batches_are_in_one_object_of_all_partitions(stores: Stores) -> None:
    host = await stores.host()
    values = await fill(host, 30)
    before = [await stored_values(host.shard, host.metadata, host.blobs, n) for n in range(3)]
    await host.mover.move()
    assert await wal_objects(stores.blobs) == 1 and not host.inline_entries and not host.mover.failure
    after = [await stored_values(host.shard, host.metadata, host.blobs, n) for n in range(3)]
    # Adjacent runs are one now, byte for byte.
    assert [b"".join(runs) for runs in after] == [b"".join(runs) for runs in before]
    assert [len(runs) for runs in after] == [1, 1, 1]
    assert [host.log(n).high_watermark for n in range(3)] == [len(values)] * 3
    await host.mover.move()
    assert await wal_objects(stores.blobs) == 1
    await host.close()


async def test_many_runs_are_moved_into_several_objects(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_moves, "OBJECT_RUNS", 40)
    host = await stores.host()
    values = await fill(host, 30)
    await host.mover.move()
    assert not host.inline_entries and not host.mover.failure
    assert await wal_objects(stores.blobs) == 3
    for partition in range(3):
        await check(host, values, partition)
    await host.close()


async def test_moving_goes_on_while_records_are_produced(stores: Stores) -> None:
    host = await stores.host()
    producing = asyncio.create_task(fill(host, 300))
    while not producing.done():
        await host.mover.move()
        assert not host.mover.failure
        await asyncio.sleep(0)
    await check(host, await producing)
    await host.mover.move()
    assert not host.inline_entries
    await check(host, await producing)
    await host.close()


@pytest.mark.parametrize("reason", ["age", "bytes", "quota"])
async def test_a_move_is_due_by_age_by_bytes_and_when_the_quota_is_short(stores: Stores, reason: str) -> None:
    host = await stores.host()
    assert not host.mover.is_due()
    size = MAX_DRAFT_BYTES - 200
    await host.send(b"x" * size)
    assert not host.mover.is_due()
    match reason:
        case "age":
            host.now_ms += MOVE_AGE_MS
        case "bytes":
            for _ in range(MOVE_BYTES // size):
                await host.send(b"x" * size)
        case "quota":
            host.quota_share = 0.41
    assert host.mover.is_due()
    await host.mover.move_if_due()
    assert not host.inline_entries and not host.mover.is_due()
    await host.close()


async def test_the_journal_is_pruned_to_the_lowest_entry_with_a_live_batch(stores: Stores) -> None:
    host = await stores.host()
    await fill(host, 5)
    await host.checkpoint()
    await fill(host, 5)
    await host.checkpoint()
    # Everything was moved before each snapshot.
    assert await host.journal.start() > 0 and not host.inline_entries
    await host.send(b"kept")
    number = host.shard.state.objects.first_inline_entry()
    assert number is not None
    for _ in range(3):
        await host.checkpointer.snapshot()
        await fill(host, 1)
    await host.checkpointer.prune()
    assert await host.journal.start() == number
    assert await stores.metadata.get(entry_key(0, number)) is not None
    await host.mover.move()
    await host.checkpointer.prune()
    assert await host.journal.start() > number
    assert await stores.metadata.get(entry_key(0, number)) is None
    await host.close()


async def test_an_entry_that_retention_has_emptied_stays_until_it_is_pruned(stores: Stores) -> None:
    host = await stores.host()
    await fill(host, 3)
    emptied = host.shard.state.objects.first_inline_entry()
    assert emptied is not None
    for partition in range(3):
        await host.delete_before(2, partition)
    host.now_ms += 100 * GRACE_MS
    await host.send(b"time goes on", 0)
    loop_time = asyncio.get_running_loop().time
    for _ in range(2):
        swept = await host.garbage.sweep(loop_time)
        assert (swept.objects, swept.orphans) == (0, 0)
    assert await stores.metadata.get(entry_key(0, emptied)) is not None
    await host.close()
    again = await stores.host()
    assert again.log().high_watermark == 4 and again.log().log_start == 2
    await stored_values(again.shard, stores.metadata, stores.blobs)
    await again.close()


class Failing(MemoryBlobs):
    fails = False

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.fails:
            raise StoreUnavailable("on purpose")
        await super().put(key, parts)


async def test_while_nothing_can_be_moved_the_journal_stays_and_growth_is_refused(stores: Stores) -> None:
    stores.blobs = failing = Failing()
    host = await stores.host()
    values = await fill(host, 5)
    await host.checkpoint()
    values += await fill(host, 5)
    number = host.shard.state.objects.first_inline_entry()
    failing.fails = True
    with pytest.raises(StoreUnavailable):
        await host.mover.move()
    assert host.mover.failure and not host.mover.refusal()
    host.quota_share = 0.61
    assert "storage.inline_bytes" in host.mover.refusal()
    # A draft goes into an object, which fails: it is not hidden in an entry.
    assert await host.send(b"x") == "KAFKA_STORAGE_ERROR"
    await host.checkpointer.prune()
    assert host.shard.state.objects.first_inline_entry() == number
    failing.fails = False
    await host.mover.move()
    assert not host.mover.refusal() and not host.inline_entries
    await check(host, values)
    await host.close()


async def test_a_missing_entry_is_an_alarm_and_the_others_are_moved(stores: Stores) -> None:
    host = await stores.host()
    await fill(host, 3)
    await host.close()
    gone = host.shard.state.objects.first_inline_entry()
    assert gone is not None
    host = await stores.host()
    found = await stores.metadata.get(entry_key(0, gone))
    assert found is not None
    await host.journal.delete([gone])
    await host.mover.move()
    assert host.alarms and set(host.alarms) == {"inline.missing"}
    assert "missing" in host.mover.failure and host.shard.state.objects.first_inline_entry() == gone
    assert len(host.inline_entries) == 1
    await stores.metadata.put(entry_key(0, gone), found.value, None)
    await host.mover.move()
    assert not host.inline_entries and not host.mover.failure
    await host.close()


async def host_without_entries(stores: Stores) -> tuple[InlineHost, list[str]]:
    """A gateway whose metadata store has lost some of partition 0, and the locators of these."""
    host = await stores.host()
    for number in range(4):
        await host.send(b"%d" % number)
    gone = host.inline_entries
    await host.send(b"there", 1)
    await host.close()
    host = await stores.host()
    await host.journal.delete([int(name.rpartition("/")[2][:20]) for name in gone])
    return host, gone


async def test_missing_entries_leave_room_for_others(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_moves, "OBJECT_RUNS", 3)
    host, gone = await host_without_entries(stores)
    await host.mover.move()
    assert host.inline_entries == gone
    assert f"{len(gone)} journal entries are missing" in host.mover.failure
    await host.close()


async def test_with_missing_entries_a_move_ends_while_records_are_produced(stores: Stores) -> None:
    host, gone = await host_without_entries(stores)
    moving = asyncio.create_task(host.mover.move())
    async with asyncio.timeout(WAIT_S):
        while not moving.done():
            await host.send(b"more", 1)
    assert "missing" in host.mover.failure and host.inline_entries[: len(gone)] == gone
    await host.close()


def test_of_a_damaged_run_the_rest_is_moved_as_it_is() -> None:
    log = PartitionLog(0, topic_id(1), 0)
    whole = [bytes(build_batch([Record(value=b"a" * 50)])), bytes(build_batch([Record(value=b"b")]))]
    run = Run(10, 11, 1, 0, sum(map(len, whole)), 5)
    found = InlineRange(log, [run])
    assert [(bytes(each.data), each.record_count) for each in batches_of(found, run, b"".join(whole))] == [
        (data, 1) for data in whole
    ]
    damaged = bytearray(b"".join(whole))
    damaged[len(whole[0]) + 8] = 0x7F
    parts = list(batches_of(found, run, damaged))
    assert [bytes(each.data) for each in parts] == [whole[0], bytes(damaged[len(whole[0]) :])]
    damaged[8] = 0x7F
    (all_of_it,) = batches_of(found, run, damaged)
    assert (bytes(all_of_it.data), all_of_it.record_count) == (bytes(damaged), 2)


class Limits:
    """With a clock of the test."""

    def __init__(self, rate: int = 1_000) -> None:
        self.now = 0.0
        self.held = 0
        self.share = 0.0
        self.rule = InlineLimits(
            500, rate, lambda: self.now, held_bytes=lambda: self.held, quota_share=lambda: self.share
        )


def test_small_drafts_are_taken_and_their_tables_count() -> None:
    limits = Limits()
    assert limits.rule.takes(1, 454) and not limits.rule.takes(1, 455) and not limits.rule.takes(2, 454)


def test_beyond_the_rate_nothing_is_taken_until_time_has_passed() -> None:
    limits = Limits()
    for _ in range(2):
        assert limits.rule.takes(1, 400)
        limits.rule.appended(446)
    assert limits.rule.takes(1, 50) and not limits.rule.takes(1, 400)
    # Then nothing is taken until half of what a second allows may be appended.
    assert not limits.rule.takes(1, 50)
    limits.now = 0.38
    assert not limits.rule.takes(1, 400) and not limits.rule.takes(1, 50)
    limits.now = 0.4
    assert limits.rule.takes(1, 400)
    # What was not used for long is not saved up.
    limits.now = 100.0
    for _ in range(2):
        assert limits.rule.takes(1, 400)
        limits.rule.appended(446)
    assert not limits.rule.takes(1, 400)
    assert (limits.rule.total_drafts, limits.rule.total_bytes) == (4, 4 * 446)


def test_with_much_of_the_quota_used_or_much_to_be_moved_nothing_is_taken() -> None:
    limits = Limits()
    limits.share = 0.39
    assert limits.rule.takes(1, 100)
    limits.share = 0.4
    assert not limits.rule.takes(1, 100)
    limits.share, limits.held = 0.0, HELD_BYTES - 100
    assert not limits.rule.takes(1, 100) and limits.rule.takes(1, 10)


async def test_with_a_limit_of_nothing_no_draft_is_taken(stores: Stores) -> None:
    host = await stores.host()
    host.journal.rule = InlineLimits(0, 1 << 20, lambda: 0.0, held_bytes=lambda: 0, quota_share=lambda: 0.0)
    assert not host.journal.takes(1, 1)
    await fill(host, 1)
    assert not host.inline_entries
    await host.close()
