"""Several owners of one shard in this process, over a metadata store and blobs that they share."""

import asyncio

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from gateway.housekeeping.checkpoint import Checkpointer, SnapshotRule
from ledger.formats.snapshot import archive_prefix, decode_archive
from ledger.journal import nonce_of
from ledger.partitions.requests import Reserved, ReserveProducerIds
from ledger.ports import Blobs, MetadataStore, PutOutcome, Won
from ledger.requests import LedgerResult, Request
from tests.support.shards import open_shard

WAIT_S = 20.0
NOW_MS = 1_000_000


class JournalledMetadata(MemoryMetadata):
    """Remembers the nonce under which each entry was first put, whatever is pruned later."""

    def __init__(self) -> None:
        super().__init__(exclusive=False)
        self.nonces: dict[int, bytes] = {}

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        outcome = await super().put(key, value, expect)
        if isinstance(outcome, Won) and key.startswith("journal/0/"):
            self.nonces.setdefault(int(key.rpartition("/")[2]), nonce_of(value))
        return outcome


class SharedOwner:
    """A gateway that took the shard over, and its housekeeping."""

    def __init__(self, shard: Shard, blobs: Blobs) -> None:
        self.shard = shard
        self.checkpointer = Checkpointer(shard, None, blobs, SnapshotRule(1), lambda: NOW_MS)

    async def ask(self, request: Request) -> LedgerResult:
        return await self.shard.ask(request, asyncio.get_running_loop().time() + WAIT_S)

    async def grow(self, entries: int, *, snapshot: bool = True) -> None:
        for _ in range(entries):
            assert isinstance(await self.ask(ReserveProducerIds(1)), Reserved)
        if snapshot:
            await self.checkpointer.snapshot()


class SharedShard:
    def __init__(self) -> None:
        self.store = JournalledMetadata()
        self.blobs = MemoryBlobs()
        self._owners: list[SharedOwner] = []

    async def take_over(self, store: MetadataStore | None = None, blobs: Blobs | None = None) -> SharedOwner:
        """The next gateway, through stores of its own if it has any."""
        blobs = blobs or self.blobs
        shard = await open_shard(store or self.store, blobs, None, len(self._owners), lambda: NOW_MS)
        self._owners.append(SharedOwner(shard, blobs))
        return self._owners[-1]

    async def archived(self) -> dict[int, set[bytes]]:
        """The nonces that archives have under each entry's number."""
        found: dict[int, set[bytes]] = {}
        for info in await self.blobs.list(archive_prefix(0)):
            first, entries = decode_archive(await self.blobs.get(info.key), info.key)
            for number, entry in enumerate(entries, first):
                found.setdefault(number, set()).add(nonce_of(entry))
        return found

    async def close(self) -> None:
        for owner in self._owners:
            await owner.shard.close()
