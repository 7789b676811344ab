"""`dragoman audit` reads segments and their indexes from real stores."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.config import load_settings
from gateway.offline.audit import Findings, StoreAudit
from gateway.store_assembly import Stores, opened_stores
from ledger.auditing.damages import DamageKind
from ledger.batch.control import Marker, MarkerType, build_marker
from ledger.batch.header import TRANSACTIONAL_BIT
from ledger.batch.records import Producer, Record, build_batch
from ledger.formats.segment import SegmentBatch, SegmentBytes, encode_segment
from ledger.keys import index_locator, segment_locator
from ledger.objects.state import DATA_STORE, Origin
from ledger.objects.uploads import ObjectKind
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.runs import Run
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic
from tests.support.journalled import JournalledLedger, topic_id
from tests.support.s3_servers import S3Server

CREATED_MS = 1_700_000_000_000
RECORDS = 5
BATCHES = 40
PRODUCER = 7
LOCATOR = segment_locator(topic_id(1), 0, 0, CREATED_MS, bytes(10))


@dataclass
class Segmented:
    """A ledger whose only object is a segment, and the stores that have it."""

    state: LedgerState
    stores: Stores

    async def audited(self) -> tuple[Findings, StoreAudit]:
        findings = Findings()
        audit = StoreAudit(self.state, self.stores.segments, findings, 0)
        await audit.run()
        return findings, audit

    async def replace(self, key: str, data: bytes) -> None:
        await self.stores.blobs.delete([key])
        await self.stores.blobs.put(key, [data])


@pytest_asyncio.fixture(params=["file", "s3"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Segmented]:
    given: dict[str, object] = {"storage.data_dir": str(tmp_path / "data")}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("moto_s3")
        given["storage.data"] = server.url(f"audit-{uuid.uuid4().hex}")
    async with opened_stores(load_settings(given, {})) as stores:
        yield Segmented(await with_segment(stores), stores)


async def with_segment(stores: Stores) -> LedgerState:
    """Made by hand, since what is looked at are the bytes."""
    records = [Record(offset_delta=n, value=b"value" * 20) for n in range(RECORDS)]
    batches = [SegmentBatch(n * RECORDS, bytes(build_batch(records))) for n in range(BATCHES)]
    return await stored(stores, encode_segment(batches, 0, CREATED_MS, interval=2 * RECORDS))


async def stored(stores: Stores, made: SegmentBytes) -> LedgerState:
    """Its runs are those of a topic."""
    await stores.blobs.put(index_locator(LOCATOR), [made.index])
    await stores.blobs.put(LOCATOR, made.buffers)
    held = JournalledLedger()
    held.submit(CreateTopic("orders", topic_id(1), 1, {}))
    state = held.state
    origin = Origin(ObjectKind.SEGMENT, DATA_STORE, CREATED_MS, None)
    known = state.objects.register(LOCATOR, origin)
    known.size = made.size
    log = state.topics.by_name["orders"].partitions[0]
    for run in made.runs:
        log.enter(Run(run.base, run.last, known.number, run.start, run.size, run.max_timestamp, dense=False))
        known.live_runs += 1
    return state


async def with_marker(stores: Stores, kind: MarkerType) -> LedgerState:
    """A transaction that the ledger has as aborted, with a marker of this kind in a segment."""
    held = [Record(offset_delta=n, value=b"value") for n in range(RECORDS)]
    data = build_batch(held, producer=Producer(PRODUCER, 0), flags=TRANSACTIONAL_BIT)
    marker = build_marker(Marker(kind, PRODUCER, 0, 0, CREATED_MS), RECORDS)
    made = encode_segment([SegmentBatch(0, data), SegmentBatch(RECORDS, marker)], 0, CREATED_MS)
    state = await stored(stores, made)
    log = state.topics.by_name["orders"].partitions[0]
    log.transactional().aborted.append(AbortedTransaction(RECORDS, PRODUCER, 0, RECORDS + 1))
    return state


async def test_a_whole_segment_is_clean(ledger: Segmented) -> None:
    findings, audit = await ledger.audited()
    assert findings.damages == []
    assert (audit.totals.batches, audit.totals.records) == (BATCHES, BATCHES * RECORDS)
    assert audit.totals.objects.live == 1


async def test_a_flipped_byte_of_a_segment_is_named(ledger: Segmented) -> None:
    data = bytearray(await ledger.stores.blobs.get(LOCATOR))
    data[-40] ^= 1
    await ledger.replace(LOCATOR, bytes(data))
    findings, _ = await ledger.audited()
    (damage,) = findings.damages
    assert (damage.kind, damage.topic, damage.object) == (DamageKind.DAMAGED_BATCH, "orders", LOCATOR)
    assert (damage.offset, damage.last_offset) == ((BATCHES - 1) * RECORDS, BATCHES * RECORDS - 1)


@pytest.mark.parametrize("kind", MarkerType)
async def test_the_markers_of_a_segment_are_those_of_the_ledger(ledger: Segmented, kind: MarkerType) -> None:
    await ledger.stores.segments.delete([LOCATOR])
    ledger.state = await with_marker(ledger.stores, kind)
    findings, audit = await ledger.audited()
    assert audit.totals.batches == 2
    if kind is MarkerType.ABORT:
        assert findings.damages == []
        return
    (damage,) = findings.damages
    assert (damage.kind, damage.topic, damage.partition) == (DamageKind.TRANSACTION, "orders", 0)
    assert (damage.object, damage.offset) == (LOCATOR, RECORDS)
    assert "a marker that commits a transaction of producer 7" in damage.what


async def test_a_short_index_is_named(ledger: Segmented) -> None:
    key = index_locator(LOCATOR)
    await ledger.replace(key, (await ledger.stores.blobs.get(key))[:-1])
    findings, _ = await ledger.audited()
    (damage,) = findings.damages
    assert (damage.kind, damage.object) == (DamageKind.DAMAGED_INDEX, key)


async def test_a_segment_that_is_gone_is_named(ledger: Segmented) -> None:
    await ledger.stores.segments.delete([LOCATOR])
    findings, _ = await ledger.audited()
    (damage,) = findings.damages
    assert (damage.kind, damage.object) == (DamageKind.MISSING_OBJECT, LOCATOR)
    assert (damage.offset, damage.last_offset) == (0, BATCHES * RECORDS - 1)


async def test_an_index_without_its_segment_is_not_the_segment(ledger: Segmented) -> None:
    await ledger.stores.blobs.delete([LOCATOR])
    findings, _ = await ledger.audited()
    assert [damage.kind for damage in findings.damages] == [DamageKind.MISSING_OBJECT]
