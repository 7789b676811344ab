"""What `doctor` says of a ledger that it could not lock a gateway out of."""

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from adapters.segments.memory import MemorySegments
from adapters.segments.segment_blobs import SegmentBlobs
from adapters.segments.wal_and_segments import WalAndSegments
from gateway.coordination.recovery import recover
from gateway.offline.doctor import Diagnosis, check_no_gateway_writes, check_versions, note_transactions
from ledger.batch.records import Record, build_batch
from ledger.formats.segment import SegmentBatch, encode_segment
from ledger.keys import index_locator, segment_locator
from ledger.topics.requests import CreateTopic
from ledger.transactions.requests import (
    AddToTransaction,
    InitTransactionalId,
    ProducerEpoch,
    TopicPartition,
)
from ledger.types import TopicId
from tests.support.journalled import JournalledLedger, topic_id
from tests.support.shards import open_shard

NOW_MS = 1_700_000_000_000


async def begin_epoch(store: MemoryMetadata) -> None:
    """One more entry."""
    shard = await open_shard(store, None, None, 1, lambda: NOW_MS)
    await shard.close()


async def test_a_gateway_that_has_written_meanwhile_is_noted() -> None:
    store = MemoryMetadata()
    await begin_epoch(store)
    journal = MetadataJournal(store, 0)
    state = (await recover(journal, None, None)).state
    diagnosis = Diagnosis()
    await check_no_gateway_writes(journal, state, diagnosis)
    assert diagnosis.notes == []
    await begin_epoch(store)
    await check_no_gateway_writes(journal, state, diagnosis)
    (note,) = diagnosis.notes
    assert note.startswith("journal: a gateway has written meanwhile")
    assert diagnosis.findings == []


async def test_segments_of_a_newer_version_and_what_is_no_segment_are_named() -> None:
    blobs = MemoryBlobs()
    store = WalAndSegments(MemorySegments(), SegmentBlobs(blobs))
    right, newer, odd, lone = (segment_locator(TopicId(bytes(16)), n, 0, 1, bytes(10)) for n in range(4))
    encoded = encode_segment([SegmentBatch(0, build_batch([Record(0, 0, None, b"v")]))], 0, 1)
    kfs = b"".join(encoded.buffers)
    await store.write_segment(right, [kfs], encoded.index)
    await blobs.put(index_locator(lone), [encoded.index])
    diagnosis = Diagnosis()
    await check_versions(store, diagnosis)
    assert diagnosis.findings == []
    await store.write_segment(newer, [kfs[:5], b"\2", kfs[6:]], encoded.index)
    await store.write_segment(odd, [b"DWAL", kfs[4:]], encoded.index)
    await check_versions(store, diagnosis)
    (finding,) = diagnosis.findings
    assert f"{newer} begins with a segment of version 2; {odd} begins with no segment" in finding
    assert "2 objects are" in finding and right not in finding


def test_open_transactions_are_a_note_and_no_finding() -> None:
    ledger, diagnosis = JournalledLedger(), Diagnosis()
    ledger.submit(CreateTopic("t", topic_id(1), 1, {}))
    ledger.submit(InitTransactionalId("idle", 60_000))
    note_transactions(ledger.state, diagnosis)
    assert diagnosis.notes == []
    for name in ("older", "a young one"):
        ledger.now_ms += 60_000
        (producer,) = ledger.submit(InitTransactionalId(name, 60_000))
        assert isinstance(producer, ProducerEpoch)
        place = [TopicPartition(topic_id(1), 0)]
        ledger.submit(AddToTransaction(name, producer.producer_id, producer.epoch, place))
    note_transactions(ledger.state, diagnosis)
    (note,) = diagnosis.notes
    assert note.startswith("transactions: 2 are open, the oldest (older) since 1970-01-01T00:17:40Z; ")
    assert diagnosis.findings == []
