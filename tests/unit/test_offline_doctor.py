"""What `doctor` says of a ledger that it could not lock a gateway out of."""

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.recovery import recover
from gateway.offline.doctor import Diagnosis, check_no_gateway_writes
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
