"""A replica: entries are applied in order, of any writer, and callers that wait for them continue."""

import asyncio

import pytest

from gateway.coordination.replica import Replica
from ledger.image import all_rows
from ledger.partitions.requests import CommitFile
from ledger.rows import digest
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id

WAIT_S = 20.0


def journal(entries: int) -> JournalledLedger:
    """The owner's entry, a topic, then commits of a record each."""
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    for number in range(entries - 2):
        ledger.submit(CommitFile(locator(number, ledger.now_ms), 100, [commit_batch(topic_id(1), 0, 0)]))
    return ledger


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


def replica() -> Replica:
    return Replica(0, LedgerState(), lambda: 0)


async def test_applying_the_entries_of_an_owner_gives_its_state() -> None:
    written, follower = journal(5), replica()
    for entry in written.entries:
        await follower.apply(entry)
    assert digest(all_rows(follower.state)) == digest(all_rows(written.state))
    assert follower.last_nonce == (5).to_bytes(16, "big")
    assert follower.journal_bytes == sum(map(len, written.entries))


async def test_a_barrier_returns_when_its_entries_are_applied_and_not_before() -> None:
    written, follower = journal(5), replica()
    early, late = (asyncio.create_task(follower.barrier(entries, deadline())) for entries in (3, 5))
    for number, entry in enumerate(written.entries, 1):
        await asyncio.sleep(0)
        assert (early.done(), late.done()) == (number > 3, False)
        await follower.apply(entry)
    await asyncio.gather(early, late)
    await follower.barrier(5, deadline())


async def test_a_barrier_ends_at_its_deadline_and_leaves_nothing_behind() -> None:
    written, follower = journal(3), replica()
    with pytest.raises(TimeoutError):
        await follower.barrier(1, asyncio.get_running_loop().time() + 0.01)
    for entry in written.entries:
        await follower.apply(entry)


async def test_subscribers_get_the_partitions_of_an_entry_until_they_end_it() -> None:
    written, follower = journal(4), replica()
    touched: list[int] = []
    undo = follower.subscribe(lambda partitions: touched.append(len(partitions)))
    for entry in written.entries[:3]:
        await follower.apply(entry)
    undo()
    await follower.apply(written.entries[3])
    assert touched == [1]


async def test_a_deletion_is_applied_to_its_end_although_a_subscriber_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ledger.topics.apply.SLICE_PARTITIONS", 2)
    written, follower = JournalledLedger(), replica()
    written.submit(CreateTopic("t", topic_id(1), 9, {}))
    batches = [commit_batch(topic_id(1), index, 100 * index) for index in range(9)]
    written.submit(CommitFile(locator(1, written.now_ms), 900, batches))
    written.submit(DeleteTopic(topic_id(1)))
    for entry in written.entries[:-1]:
        await follower.apply(entry)

    def fail(partitions: object) -> None:
        raise ZeroDivisionError

    follower.subscribe(fail)
    with pytest.raises(ZeroDivisionError):
        await follower.apply(written.entries[-1])
    assert not follower.state.leaving and len(follower.state.draining) == 9
    assert digest(all_rows(follower.state)) == digest(all_rows(written.state))
