"""Other requests are served while a gateway reads and takes over the newest state of its shard."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination import recovery
from gateway.coordination.journal import ENTRY_BYTES, SLICE_BYTES
from gateway.coordination.recovery import recover
from gateway.coordination.replica import NOTIFIED_AT_ONCE, Replica
from ledger.image import all_rows
from ledger.journal import apply_entry
from ledger.partitions.requests import CommitFile
from ledger.partitions.state import PartitionLog
from ledger.rows import digest
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.shared_shard import SharedShard

WAIT_S = 20.0
ENTRIES = 60
"""Fewer than a page has."""
MANY = 2 * NOTIFIED_AT_ONCE + 500


def small_entries() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    for number in range(ENTRIES - 2):
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [commit_batch(topic_id(1), 0, 0)]))
    return ledger


def large_entries() -> JournalledLedger:
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    for number in range(8):
        batches = [commit_batch(topic_id(1), 0, at * 100, producer=(at, 0, number)) for at in range(2_500)]
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 250_000, batches))
    assert len(ledger.entries[-1]) > SLICE_BYTES
    return ledger


async def journal_of(ledger: JournalledLedger) -> MetadataJournal:
    store = MemoryMetadata(exclusive=False)
    for number, entry in enumerate(ledger.entries):
        await store.put(entry_key(0, number), entry, None)
    return MetadataJournal(store, 0)


@asynccontextmanager
async def noting(progress: Callable[[], int]) -> AsyncIterator[list[int]]:
    """What another task sees of it in each iteration of the event loop."""
    seen = [progress()]

    async def note() -> None:
        while True:
            seen.append(progress())
            await asyncio.sleep(0)

    noted = asyncio.create_task(note())
    try:
        yield seen
    finally:
        noted.cancel()
        seen.append(progress())


def longest_step(seen: Sequence[int]) -> int:
    return max(after - before for before, after in pairwise(seen))


LEDGERS = pytest.mark.parametrize(
    ("made", "at_once"),
    [(small_entries, SLICE_BYTES // ENTRY_BYTES), (large_entries, 2)],
    ids=["small entries", "large entries"],
)
"""And how many entries may be applied at once. The first large one comes after small ones."""


@LEDGERS
async def test_other_tasks_run_while_a_replica_follows_the_journal(
    made: Callable[[], JournalledLedger], at_once: int
) -> None:
    written, follower = made(), Replica(0, LedgerState(), lambda: 0)
    journal = await journal_of(written)
    async with noting(lambda: follower.state.applied) as seen:
        await follower.follow(journal)
    assert 0 < longest_step(seen[2:]) <= at_once and longest_step(seen) <= at_once + 2
    assert digest(all_rows(follower.state)) == digest(all_rows(written.state))


@LEDGERS
async def test_other_tasks_run_while_the_journal_is_recovered(
    made: Callable[[], JournalledLedger], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, applied = made(), 0
    journal = await journal_of(written)

    def counted(*given: Any) -> Any:
        nonlocal applied
        applied += 1
        return apply_entry(*given)

    monkeypatch.setattr(recovery, "apply_entry", counted)
    async with noting(lambda: applied) as seen:
        recovered = await recover(journal, None, MemoryBlobs())
    assert applied == len(written.entries) and longest_step(seen) <= at_once + 2
    assert digest(all_rows(recovered.state)) == digest(all_rows(written.state))


async def test_a_snapshot_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, int] = {}

    def noted(name: str) -> None:
        called = getattr(recovery, name)

        def call(*given: Any) -> Any:
            threads[name] = threading.get_ident()
            return called(*given)

        monkeypatch.setattr(recovery, name, call)

    shared = SharedShard()
    owner = await shared.take_over()
    await owner.grow(5)
    noted("decode_snapshot")
    noted("restore")
    recovered = await recover(MetadataJournal(shared.store, 0), None, shared.blobs)
    assert recovered.source.startswith("snapshot/")
    assert set(threads) == {"decode_snapshot", "restore"}
    assert threading.get_ident() not in threads.values()
    await shared.close()


# Partitions of a state that is replaced


def of_many_partitions() -> Replica:
    state = LedgerState()
    for number in range(MANY):
        state.logs[number] = PartitionLog(number, topic_id(1), number)
    return Replica(0, state, lambda: 0)


async def test_other_tasks_run_while_all_partitions_of_another_state_are_notified() -> None:
    replica = of_many_partitions()
    before, notified = replica.state, list[int]()
    replica.subscribe(lambda logs: notified.extend(log.number for log in logs))
    async with noting(lambda: len(notified)) as seen:
        replacing = asyncio.create_task(replica.replace(LedgerState(), bytes(16), 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert replica.applying.locked() and 0 < len(notified) < MANY
        # Of a request that still reads the state before.
        before.logs[MANY] = PartitionLog(MANY, topic_id(1), MANY)
        await replacing
    assert longest_step(seen) == NOTIFIED_AT_ONCE
    assert sorted(notified) == list(range(MANY))


async def test_all_partitions_of_another_state_are_notified_although_that_is_cancelled() -> None:
    replica = of_many_partitions()
    notified: list[int] = []
    replica.subscribe(lambda logs: notified.extend(log.number for log in logs))
    later = LedgerState()
    later.applied = 5
    waiting = asyncio.create_task(replica.barrier(5, asyncio.get_running_loop().time() + WAIT_S))
    replacing = asyncio.create_task(replica.replace(later, bytes(16), 0))
    await asyncio.sleep(0)
    assert 0 < len(notified) < MANY
    replacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replacing
    assert sorted(notified) == list(range(MANY)) and not replica.applying.locked()
    await waiting
