"""A ledger with records in the stores of some settings, and damages that are made in it by hand.

async with built(settings) as ledger:  # two partitions of `orders`, 3 objects with 2 batches each
    await ledger.flip_byte()
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from gateway.coordination import opening
from gateway.coordination.blob_keys import new_snapshot_key
from gateway.coordination.claim import claim_data
from gateway.coordination.recovery import Recovered, recover
from gateway.coordination.shard import Shard
from gateway.settings import Settings
from gateway.store_assembly import Stores, directory_of, opened_stores
from ledger.batch.header import read_header
from ledger.batch.records import Record, build_batch
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.formats.settled import SettledPartition, SettledRun, encode_settled
from ledger.formats.settled_meta import SettledMeta, encode_meta
from ledger.formats.snapshot import Snapshot, encode_snapshot
from ledger.image import all_rows
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.keys import SettledKeys, index_locator, segment_locator, settled_keys
from ledger.objects.requests import RaiseFloor
from ledger.objects.uploads import ObjectKind
from ledger.partitions.records import FileCommitted, RunRow
from ledger.partitions.requests import CommitBatch, CommitFile
from ledger.ports import Appended
from ledger.records import MetadataRecord
from ledger.registry import REGISTRY
from ledger.settled.requests import Named, NameSettled, SettledFiles
from ledger.state import LedgerState
from ledger.swaps.requests import ReleasePin, SegmentFile, SegmentRun, Swapped, SwapSegments, TakePin
from ledger.swaps.state import Pins
from ledger.topics.requests import CreateTopic
from ledger.types import DraftBatch, Placement, Position
from tests.support.journalled import topic_id

NOW_MS: Final = 1_700_000_000_000
RECORDS: Final = 4
"""Of each batch."""
OBJECTS: Final = 3
WAIT_S: Final = 60.0
TOPIC: Final = topic_id(1)


@asynccontextmanager
async def built(settings: Settings) -> AsyncIterator["AuditedLedger"]:
    """Fill empty stores, then open them for damages."""
    async with opened_stores(settings) as stores:
        shard = await _open_shard(stores)
        await claim_data(shard, stores.blobs, is_lasting=True)
        await shard.ask(CreateTopic("orders", TOPIC, 2, {}), _deadline())
        for number in range(OBJECTS):
            await _commit(shard, stores, number)
        await shard.close()
        yield AuditedLedger(stores)


class AuditedLedger:
    """What was built. Each method makes one damage."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores

    async def recovered(self) -> Recovered:
        return await recover(self.stores.journal, None, self.stores.blobs)

    async def locators(self) -> list[str]:
        """Of the objects with records, the oldest first."""
        state = (await self.recovered()).state
        return [known.locator for _, known in sorted(state.objects.by_number.items())]

    async def flip_byte(self, at: int = -20) -> None:
        """Of the second object: by default in the last record of its last batch, which is of partition 1."""
        locator = (await self.locators())[1]
        data = bytearray(await self._bytes_of(locator))
        data[at] ^= 0x40
        await self._replace(locator, bytes(data))

    async def remove_object(self) -> None:
        await self.stores.segments.delete([(await self.locators())[1]])

    async def cut_object(self) -> None:
        """The second object ends within its last batch."""
        locator = (await self.locators())[1]
        await self._replace(locator, (await self._bytes_of(locator))[:-20])

    async def strayed(self) -> str:
        """An object below the floor that no entry names."""
        placed = await self.stores.segments.write(_draft(9), NOW_MS)
        await self.stores.segments.abandon(placed.locator)
        shard = await _open_shard(self.stores, NOW_MS + 60_000)
        await shard.ask(RaiseFloor(NOW_MS + 60_000), _deadline())
        await shard.close()
        return placed.locator

    async def commit_lying(self, base_change: int = 0, last_change: int = 0) -> None:
        """One more object of partition 0, whose entry says other offsets than those it should have."""
        state = (await self.recovered()).state
        draft = _draft(7)[:1]
        placed = await self.stores.segments.write(draft, NOW_MS + 1, state.feature_level)
        log = state.topics.by_name["orders"].partitions[0]
        base = log.high_watermark + base_change
        header = read_header(draft[0].data)
        row: RunRow = (
            log.number,
            placed.starts[0],
            header.size_bytes,
            base,
            base + RECORDS - 1 + last_change,
            header.max_timestamp,
            1,
        )
        batch = (header.size_bytes, RECORDS, header.max_timestamp, -1, -1, -1, 0)
        await self.append([FileCommitted(placed.locator, placed.object_bytes, [row], [batch])])

    async def append(self, records: Sequence[MetadataRecord], epoch: int | None = None) -> None:
        """An entry as an owner of this epoch writes it."""
        state = (await self.recovered()).state
        encoded = REGISTRY.encode_records(records, state.feature_level)
        time_ms = max(state.entry_time_ms, NOW_MS + 1)
        data = encode_entry(
            state.epoch if epoch is None else epoch, time_ms, os.urandom(NONCE_BYTES), encoded
        )
        assert isinstance(await self.stores.journal.append(state.applied, data), Appended)

    async def put_snapshot(self, recovered: Recovered) -> str:
        """Of a state that may be a lie."""
        state = recovered.state
        key = new_snapshot_key(0, state.applied, NOW_MS)
        snapshot = Snapshot(state.applied, recovered.nonce, list(all_rows(state)))
        await self.stores.blobs.put(key, [encode_snapshot(snapshot)])
        return key

    async def write_image(self, state: LedgerState, nonce: bytes) -> None:
        assert self.stores.image is not None
        await self.stores.image.clear()
        await self.stores.image.write(list(all_rows(state)), nonce)

    async def merge(self) -> str:
        """All runs of partition 0 become a segment, whose locator this returns."""
        shard = await _open_shard(self.stores)
        state = shard.state
        log = state.topics.by_name["orders"].partitions[0]
        runs = list(log.runs())
        where = [Position(state.objects.locator(run.object_number), run.start, run.size) for run in runs]
        found = [data for data in await self.stores.segments.read(where) if data is not None]
        batches = [SegmentBatch(run.base, data) for run, data in zip(runs, found, strict=True)]
        made = encode_segment(batches, 0, NOW_MS + 1, interval=RECORDS)
        locator = segment_locator(TOPIC, 0, 0, NOW_MS + 1, os.urandom(10))
        await self.stores.blobs.put(index_locator(locator), [made.index])
        await self.stores.blobs.put(locator, made.buffers)
        job = b"j" * 16
        swap = SwapSegments(
            job,
            0,
            TOPIC,
            0,
            0,
            runs[-1].last,
            log.layout_version,
            [SegmentFile(locator, made.size)],
            [SegmentRun(0, run.start, run.size, run.base, run.last, run.max_timestamp) for run in made.runs],
        )
        await shard.ask(TakePin(job), _deadline())
        assert isinstance(await shard.ask(swap, _deadline()), Swapped)
        await shard.ask(ReleasePin(job), _deadline())
        await shard.close()
        return locator

    async def settle(self) -> SettledKeys:
        """Partition 0 gets a settled ledger, whose keys this returns."""
        shard = await _open_shard(self.stores)
        state = shard.state
        log = state.topics.by_name["orders"].partitions[0]
        locator, kind = state.objects.locator, ObjectKind.WAL
        runs = [
            SettledRun(locator(run.object_number), kind, run.start, run.size, run.base, run.last)
            for run in log.runs()
        ]
        keys = settled_keys(TOPIC, 0, NOW_MS + 1, os.urandom(10))
        made = encode_settled(SettledPartition(TOPIC, 0, NOW_MS + 1, log.high_watermark), runs)
        places = keys.log_key, made.log_bytes, keys.index_key, len(made.index), made.runs, made.objects
        about = state.cluster_id, TOPIC.hex(), "orders", 0, state.applied, NOW_MS, 0, 0, log.high_watermark
        meta = encode_meta(SettledMeta(*about, NOW_MS + 1, *places))
        data = meta, made.index, b"".join(made.log)
        for key, part in zip((keys.meta_key, keys.index_key, keys.log_key), data, strict=True):
            await self.stores.blobs.put(key, [part])
        job = b"s" * 16
        await shard.ask(TakePin(job), _deadline())
        files = SettledFiles(keys.log_key, made.log_bytes, len(made.index), len(meta))
        entry = state.part(Pins)[job].entry
        named = NameSettled(job, 0, TOPIC, 0, files, entry, log.high_watermark, log.layout_version)
        assert isinstance(await shard.ask(named, _deadline()), Named)
        await shard.ask(ReleasePin(job), _deadline())
        await shard.close()
        return keys

    async def cut_index(self) -> str:
        """The index of a segment lacks its last byte."""
        key = index_locator(await self.merge())
        data = await self.stores.blobs.get(key)
        await self.stores.blobs.delete([key])
        await self.stores.blobs.put(key, [data[:-1]])
        return key

    async def _bytes_of(self, locator: str) -> bytes:
        path = self._path(locator)
        return path.read_bytes() if path is not None else await self.stores.blobs.get(locator)

    async def _replace(self, locator: str, data: bytes) -> None:
        path = self._path(locator)
        if path is not None:
            path.write_bytes(data)
        else:
            await self.stores.blobs.delete([locator])
            await self.stores.blobs.put(locator, [data])

    def _path(self, locator: str) -> Path | None:
        root = directory_of(self.stores.urls.segments)
        return root / locator if root is not None else None


async def _open_shard(stores: Stores, now_ms: int = NOW_MS) -> Shard:
    return await opening.open_shard(stores.journal, stores.blobs, None, 1, lambda: now_ms)


async def _commit(shard: Shard, stores: Stores, number: int) -> None:
    draft = _draft(number)
    placed = await stores.segments.write(draft, NOW_MS + number, shard.state.feature_level)
    # So that each draft is an object of its own.
    await stores.segments.abandon(placed.locator)
    await shard.ask(CommitFile(placed.locator, placed.object_bytes, _batches(draft, placed)), _deadline())


def _draft(number: int) -> list[DraftBatch]:
    """A batch of each partition."""
    return [DraftBatch(TOPIC, partition, _batch(f"{number}/{partition}"), RECORDS) for partition in range(2)]


def _batch(text: str) -> bytes:
    records = [Record(offset_delta=n, value=f"{text}/{n}".encode() * 10) for n in range(RECORDS)]
    return bytes(build_batch(records, base_timestamp=NOW_MS))


def _batches(draft: Sequence[DraftBatch], placed: Placement) -> list[CommitBatch]:
    return [
        CommitBatch(
            batch.topic_id,
            batch.partition,
            start,
            len(batch.data),
            RECORDS,
            read_header(batch.data).max_timestamp,
            0,
            -1,
            -1,
            -1,
        )
        for batch, start in zip(draft, placed.starts, strict=True)
    ]


def _deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S
