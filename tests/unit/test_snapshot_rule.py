"""When a snapshot is due: by bytes, entries, the time in which a start reads the journal, and a quota."""

import asyncio
from collections.abc import Sequence

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.blob_keys import applied_of
from gateway.coordination.journal import consecutive_entries
from gateway.coordination.recovery import snapshot_keys
from gateway.coordination.store_quota import Quota
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.snapshot_rule import SnapshotRule
from ledger.ports import Journal, Versioned
from ledger.read_back import FULL_PAGE, PAGE_BYTES, PAGE_ENTRIES, ReadBack
from ledger.topics.requests import CreateTopic
from tests.support.journalled import topic_id
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

NOW_MS = 1_700_000_000_000
MIB = 1024 * 1024
S3_S = 0.03
"""A round trip."""
SLOW_S = 0.3
AT_ONCE = 128


@pytest.mark.parametrize(
    ("applied", "journal_bytes", "due"),
    [(10, 99, False), (10, 100, True), (109, 0, False), (110, 0, True)],
)
def test_a_snapshot_is_due_after_a_number_of_bytes_or_entries(
    applied: int, journal_bytes: int, due: bool
) -> None:
    assert SnapshotRule(100, 100, last_applied=10).is_due(applied, journal_bytes, 0.0) is due


def test_a_snapshot_is_not_due_before_the_journal_grew_by_as_much_as_the_last_one() -> None:
    rule = SnapshotRule(100, 1000, last_journal_bytes=5000, last_size=400)
    assert [rule.is_due(10, 5000 + grown, 0.0) for grown in (100, 399, 400)] == [False, False, True]


def test_nor_after_a_restart() -> None:
    rule = SnapshotRule(100, 1000)
    rule.found(10, 400)
    assert [rule.is_due(10, grown, 0.0) for grown in (100, 399, 400)] == [False, False, True]


# What can be read back in 5 s


def over_s3() -> ReadBack:
    """Pages of a bucket with 30 ms a request: a listing, `start`, and 128 objects at once."""
    reads = ReadBack()
    reads.observe(1, 3 * S3_S)
    reads.observe(PAGE_ENTRIES, (2 + PAGE_ENTRIES / AT_ONCE) * S3_S)
    return reads


def test_a_journal_that_is_far_is_due_when_a_start_would_read_it_for_five_seconds() -> None:
    rule = SnapshotRule(64 * MIB, read_back=over_s3())
    due = first_due(rule, entry_bytes=500)
    assert 10_000 < due < 25_000
    assert 4.9 < over_s3().estimated_s(due, due * 500) < 5.1


def test_a_journal_on_a_local_disk_is_due_by_its_bytes_and_entries() -> None:
    reads = ReadBack()
    reads.observe(1, 0.001)
    reads.observe(PAGE_ENTRIES, 0.01)
    rule = SnapshotRule(64 * MIB, read_back=reads)
    assert first_due(rule, entry_bytes=1_000) == pytest.approx(64 * MIB / 1_000, abs=1)


def test_until_a_full_page_was_read_little_is_expected_of_a_far_store() -> None:
    reads = ReadBack()
    reads.observe(1, 0.09)
    assert 1_000 < first_due(SnapshotRule(64 * MIB, read_back=reads), 500) < 10_000


def test_a_connection_that_is_made_by_the_first_read_does_not_count_for_long() -> None:
    reads = ReadBack()
    reads.observe(1, 2.0)
    reads.observe(2, 0.09)
    assert reads.estimated_s(1, 1) == pytest.approx(0.09, rel=0.1)


def test_large_entries_count_by_the_pages_that_they_fill() -> None:
    reads = ReadBack()
    reads.observe(1, 0.1)
    assert reads.estimated_s(10, 10 * PAGE_BYTES) > 10 * 0.1


def first_due(rule: SnapshotRule, entry_bytes: int) -> int:
    low, high = 0, 1_000_000
    while low < high:
        middle = (low + high) // 2
        if rule.is_due(middle, middle * entry_bytes, 0.0):
            high = middle
        else:
            low = middle + 1
    return low


def test_snapshots_that_take_long_are_not_made_all_the_time_for_a_slow_store() -> None:
    slow = ReadBack()
    slow.observe(1, 10.0)
    rule = SnapshotRule(64 * MIB, read_back=slow)
    rule.taken(1_000, 0, MIB, began=100.0, ended=160.0)
    assert [rule.is_due(2_000, MIB, now) for now in (161.0, 759.0, 761.0)] == [False, False, True]
    # Bytes count as before.
    assert rule.is_due(2_000, 64 * MIB, 161.0)


def test_however_slow_a_store_some_entries_are_cheaper_than_a_snapshot() -> None:
    slow = ReadBack()
    slow.observe(1, 100.0)
    rule = SnapshotRule(64 * MIB, read_back=slow, last_applied=10)
    assert [rule.is_due(10 + entries, 1, 0.0) for entries in (255, 256)] == [False, True]


# The quota of the store


@pytest.mark.parametrize(
    ("is_short", "due"), [(False, [False, False, True]), (True, [False, True, True])], ids=["some", "most"]
)
def test_a_journal_takes_an_eighth_of_a_quota_and_less_when_it_is_short(
    is_short: bool, due: list[bool]
) -> None:
    rule = SnapshotRule(64 * MIB, quota=lambda: Quota(16 * MIB, is_short))
    assert [rule.is_due(300, size, 0.0) for size in (MIB // 8, MIB // 4, 2 * MIB)] == due


# With a shard


class FarMetadata(MemoryMetadata):
    """Each scan lists, and reads 128 values at once; each read is a request."""

    def __init__(self) -> None:
        super().__init__(exclusive=False, unique_versions=False)

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(SLOW_S)
        return await super().get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        found = await super().scan(prefix, start, limit)
        await asyncio.sleep(SLOW_S * (1 + -(-len(found) // AT_ONCE)))
        return found


def test_over_a_slow_store_a_start_reads_the_journal_in_five_seconds_whenever_it_comes() -> None:
    """All entries would take 15 s and more. The snapshots are few all the same."""

    async def scenario() -> tuple[list[float], int]:
        store, blobs, took = FarMetadata(), MemoryBlobs(), []
        shard = await open_shard(store, blobs, None, 1, lambda: NOW_MS)
        checkpointer = Checkpointer(shard, None, blobs, SnapshotRule(64 * MIB), lambda: NOW_MS)
        loop, taken = asyncio.get_running_loop(), set[str]()
        for number in range(5_000):
            await shard.ask(CreateTopic(f"t{number}", topic_id(number), 1, {}), loop.time() + 60)
            if number % 100 == 0:
                await checkpointer.snapshot_if_due()
                taken |= set(await snapshot_keys(blobs, 0))
            if number % 500 == 99:
                newest = sorted(taken)[-1:]
                kept = applied_of(newest[0]) if newest else 0
                began = loop.time()
                assert await end_of(shard.journal, kept) == shard.state.applied
                took.append(loop.time() - began)
        await shard.close()
        return took, len(taken)

    took, taken = run_virtually(scenario)
    assert 3.0 < max(took) < 5.5
    assert 3 <= taken <= 8


async def end_of(journal: Journal, first: int) -> int:
    """Reads it as a start does."""
    numbers = [stored.number async for stored in consecutive_entries(journal, first)]
    return numbers[-1] + 1


def test_a_full_page_is_what_shows_the_cost_of_an_entry() -> None:
    reads = ReadBack()
    reads.observe(1, 0.1)
    before = reads.estimated_s(10_000, 0)
    reads.observe(FULL_PAGE - 1, 0.1)
    assert reads.estimated_s(10_000, 0) == pytest.approx(before)
    reads.observe(FULL_PAGE, 0.1)
    assert reads.estimated_s(10_000, 0) < before
