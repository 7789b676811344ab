"""A ledger with records to move to other stores: made by a real shard over files, then kept in memory."""

import copy
from dataclasses import dataclass
from pathlib import Path

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.objects import ObjectSegments
from gateway.coordination.claim import claim_data, verify_data, verify_place
from gateway.coordination.recovery import Recovered, recover
from gateway.offline.move import Place
from ledger.errors import StoreDamaged
from ledger.groups.requests import CommitOffsets, StoreGroup
from ledger.groups.state import Group, OffsetRow
from ledger.ports import Blobs, MetadataStore
from ledger.settings.requests import QuotaChange, SetClientQuotas
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.embedded import Client, Clock, Embedded
from tests.support.journalled import topic_id


@dataclass
class InMemory:
    """The stores of one ledger, which may be copied as they are at any moment."""

    metadata: MemoryMetadata
    blobs: MemoryBlobs

    def clone(self) -> "InMemory":
        return copy.deepcopy(self)

    def place(self) -> Place:
        return place_over(self.metadata, self.blobs)

    async def recovered(self) -> Recovered:
        """As a gateway that starts finds it. StoreDamaged if none may start."""
        place = self.place()
        await verify_place(place.journal, place.blobs)
        recovered = await recover(place.journal, None, place.blobs)
        await verify_data(place.journal, place.blobs, recovered.state)
        return recovered

    async def holds_the_ledger(self) -> bool:
        """Whether a gateway may start here, and has the records."""
        try:
            return "t" in (await self.recovered()).state.topics.by_name
        except StoreDamaged:
            return False


def place_over(metadata: MetadataStore, blobs: Blobs) -> Place:
    return Place(MetadataJournal(metadata, 0), ObjectSegments(blobs), blobs, None)


def empty_target() -> InMemory:
    """It promises no more than S3 does."""
    return InMemory(MemoryMetadata(exclusive=False, unique_versions=False), MemoryBlobs())


async def ledger_with_records(root: Path, batches: int = 3, producer_id: int = 7) -> InMemory:
    """Topics (one of them deleted), several WAL files, an idempotent producer, a group, offsets, a quota."""
    clock, client = Clock(), Client(producer_id)
    for life in range(2):
        async with Embedded(root, clock) as host:
            if life == 0:
                await _settings_of(host)
            for _ in range(batches):
                for partition in range(2):
                    await host.send("t", partition, client.batch("t", partition))
                await host.send("gone", 0, client.batch("gone", 0))
            await claim_data(host.shard, host.blobs, is_lasting=True)
        clock.now_ms += 1000
    async with Embedded(root, clock) as host:
        await host.ask(DeleteTopic(topic_id(2)))
        await claim_data(host.shard, host.blobs, is_lasting=True)
        return await _in_memory(host)


async def _settings_of(host: Embedded) -> None:
    await host.ask(CreateTopic("t", topic_id(1), 2, {"retention.ms": "-1"}))
    await host.ask(CreateTopic("gone", topic_id(2), 1, {}))
    await host.ask(StoreGroup(Group("g", "consumer", 3, "range", None, (), synced=True)))
    await host.ask(CommitOffsets("g", [OffsetRow(topic_id(1), 0, 2, metadata="m")]))
    await host.ask(SetClientQuotas([QuotaChange((("user", "u"),), {"producer_byte_rate": 10.0})]))


async def _in_memory(host: Embedded) -> InMemory:
    metadata, blobs = MemoryMetadata(), MemoryBlobs()
    for key, found in await host.metadata.scan(""):
        await metadata.put(key, found.value, None)
    for info in await host.blobs.list(""):
        await blobs.put(info.key, [await host.blobs.get(info.key)])
    for stored in await host.segments.objects():
        data = (host.root / "data" / stored.locator).read_bytes()
        await blobs.put(stored.locator, [data])
    return InMemory(metadata, blobs)
