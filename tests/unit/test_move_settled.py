"""A move takes the settled ledgers along that the journal names, with all of their files."""

import asyncio

import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.segments.objects import ObjectSegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.offline.move_plan import plan_move
from gateway.offline.object_copies import Copied, ObjectCopies
from ledger.keys import SettledKeys, settled_keys_of
from ledger.partitions.requests import CommitFile
from ledger.swaps.requests import TakePin
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.settling import JOB, naming_of


class Moved:
    """A ledger whose partition has been settled twice, and the store of its objects."""

    def __init__(self) -> None:
        self.ledger = JournalledLedger()
        self.ledger.submit(CreateTopic("t", topic_id(1), 1, {}), TakePin(JOB))
        self.blobs, self.target = MemoryBlobs(), MemoryBlobs()
        self.store = WalAndSegments(ObjectSegments(self.blobs), SegmentBlobs(self.blobs))

    async def settle(self, number: int) -> SettledKeys:
        ledger, wal = self.ledger, locator(number, self.ledger.now_ms).removesuffix(".wal")
        ledger.submit(CommitFile(wal, 100, [commit_batch(topic_id(1), 0, 0)]))
        await self.blobs.put(wal, [b"x" * 100])
        log = ledger.state.topics.by_id[topic_id(1)].partitions[0]
        naming = naming_of(ledger.state, log, ledger.now_ms)
        ledger.submit(naming)
        keys = settled_keys_of(naming.files.locator)
        await self.store.write_settled(keys.log_key, [b"l" * 500], b"i" * 50, b"m" * 300)
        return keys

    async def copy(self) -> Copied:
        plan = await plan_move(self.ledger.state, self.store)
        copies = ObjectCopies(self.store, self.target, lambda _: None, pause=asyncio.sleep)
        return await copies.copy(plan, {}, damaged_too=True)

    async def copied_keys(self) -> list[str]:
        return [info.key for info in await self.target.list("settled/")]


async def test_the_newest_one_is_copied_whole_and_garbage_is_left() -> None:
    moved = Moved()
    await moved.settle(1)
    newest = await moved.settle(2)
    await moved.copy()
    assert await moved.copied_keys() == sorted(newest)
    for key in newest:
        assert await moved.target.get(key) == await moved.blobs.get(key)


@pytest.mark.parametrize("part", [1, 2])
async def test_a_file_that_is_gone_is_named(part: int) -> None:
    moved = Moved()
    keys = await moved.settle(1)
    await moved.blobs.delete([keys[part]])
    assert any(f"{keys[part]}: it is missing" in damage for damage in (await moved.copy()).damaged)


async def test_one_that_is_not_there_is_missing_before_anything_is_copied() -> None:
    moved = Moved()
    keys = await moved.settle(1)
    await moved.blobs.delete(keys)
    assert (await plan_move(moved.ledger.state, moved.store)).missing == [keys.log_key]
