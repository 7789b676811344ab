"""Opens a data directory as a starting gateway does, and reads every record in it, without a gateway."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.config import load_settings
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from gateway.store_assembly import opened_stores
from ledger.batch.header import BatchHeader, verify_crc, walk
from ledger.batch.records import read_batch
from ledger.errors import StoreDamaged
from ledger.partitions.markers import is_marker
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.ports import SegmentStore
from ledger.state import LedgerState
from ledger.types import Position
from tests.faults.load import Found, Place

MAX_BYTES = 1 << 40
MAX_RUNS = 1 << 30


@dataclass(frozen=True, slots=True)
class Opened:
    state: LedgerState
    segments: SegmentStore


@asynccontextmanager
async def opened(data_dir: Path, metadata: str = "") -> AsyncIterator[Opened]:
    """As `owned`, for those who only read."""
    async with owned(data_dir, metadata) as (_, stores):
        yield stores


@asynccontextmanager
async def owned(data_dir: Path, metadata: str = "") -> AsyncIterator[tuple[Shard, Opened]]:
    """Owner of the shard for a moment. `metadata`: where the journal is; empty: as the directory says.
    Errors: StoreError."""
    settings = load_settings({"storage.data_dir": str(data_dir), "storage.metadata": metadata}, {}, None)
    async with opened_stores(settings) as stores:
        shard = await open_shard(
            stores.journal, stores.blobs, stores.image, 1, lambda: time.time_ns() // 1_000_000
        )
        try:
            yield shard, Opened(shard.state, stores.segments)
        finally:
            await shard.close()


async def read_recovered(
    data_dir: Path, metadata: str = ""
) -> tuple[Sequence[str], dict[Place, list[Found]]]:
    """Topic names, and every record. StoreDamaged if bytes that the ledger knows are missing or wrong."""
    async with opened(data_dir, metadata) as stores:
        return list(stores.state.topics.by_name), await records_in(stores)


async def records_in(stores: Opened) -> dict[Place, list[Found]]:
    """Every record. Errors: as `read_recovered`."""
    return {
        (name, partition.index): await _records(stores, partition)
        for name, topic in stores.state.topics.by_name.items()
        for partition in topic.partitions
    }


async def _records(stores: Opened, partition: PartitionLog) -> list[Found]:
    return [found for found, _ in await written_records(stores, partition)]


async def written_records(stores: Opened, partition: PartitionLog) -> list[tuple[Found, BatchHeader]]:
    """Every record but the markers of transactions, with the header of its batch."""
    runs = partition.find(partition.log_start, MAX_BYTES, MAX_RUNS)
    stored = [run for run in runs if not is_marker(run)]
    locators = [stores.state.objects.locator(run.object_number) for run in stored]
    positions = [Position(at, run.start, run.size) for at, run in zip(locators, stored, strict=True)]
    found: list[tuple[Found, BatchHeader]] = []
    for run, position, data in zip(stored, positions, await stores.segments.read(positions), strict=True):
        if data is None:
            raise StoreDamaged(f"no bytes are at {position}")
        found += _records_of(run, memoryview(data))
    markers = len(runs) - len(stored)
    if len(found) + markers != partition.high_watermark - partition.log_start:
        raise StoreDamaged(f"{len(found)} records below the high watermark {partition.high_watermark}")
    return found


def _records_of(run: Run, data: memoryview) -> list[tuple[Found, BatchHeader]]:
    """True offsets are counted from the run's first: a WAL object keeps the producer's base offsets."""
    found: list[tuple[Found, BatchHeader]] = []
    for walked in walk(data):
        batch = data[walked.position : walked.position + walked.size_bytes]
        if not verify_crc(batch):
            raise StoreDamaged(f"a batch of the run at offset {run.base} does not match its CRC")
        header, records = read_batch(batch, MAX_BYTES)
        for record in records:
            value = bytes(record.value) if record.value is not None else b""
            stamp = header.base_timestamp + record.timestamp_delta
            found.append((Found(run.base + len(found), value, stamp), header))
    return found
