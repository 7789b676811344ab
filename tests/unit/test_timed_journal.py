"""A journal over no metadata store is measured under the names that a metadata store has."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from adapters.journals.metadata import MetadataJournal
from adapters.metadata.memory import MemoryMetadata
from gateway.telemetry.journal import TimedJournal
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stores import StoreWatch, TimedMetadata
from ledger.errors import StoreUnavailable
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import Appended, AppendOutcome, Journal, Unknown
from ledger.types import DraftBatch
from tests.support.faulty import Fault, Faults, FaultyMetadata

ENTRY = encode_entry(1, 0, bytes(NONCE_BYTES), [])
OPERATIONS = ("get", "scan", "put", "delete")


class Forgetful(MetadataJournal):
    """Cannot find out what became of an append."""

    async def append(self, number: int, entry: bytes, batches: object = ()) -> AppendOutcome:
        return Unknown("for this test")


def counted(registry: CollectorRegistry, what: str) -> dict[str, float]:
    """By operation, where it is not 0."""
    values = {
        op: registry.get_sample_value(f"dragoman_store_{what}", {"store": "metadata", "op": op})
        for op in OPERATIONS
    }
    return {op: value for op, value in values.items() if value}


async def all_calls(journal: Journal) -> None:
    assert isinstance(await journal.append(0, ENTRY), Appended)
    assert await journal.get(0) == ENTRY
    assert (await journal.read(0, 1)).entries
    await journal.raise_start(1)
    assert await journal.start() == 1
    await journal.delete([0])


async def test_its_calls_have_the_names_of_the_calls_of_a_store() -> None:
    over_a_store, alone = Metrics(), Metrics()
    await all_calls(MetadataJournal(TimedMetadata(MemoryMetadata(), StoreWatch(over_a_store)), 0))
    await all_calls(TimedJournal(MetadataJournal(MemoryMetadata(), 0), StoreWatch(alone)))
    names = set(counted(alone.registry, "seconds_count"))
    assert names == set(counted(over_a_store.registry, "seconds_count")) == set(OPERATIONS)


async def test_an_append_that_fails_or_stays_unknown_is_a_failure_of_puts() -> None:
    metrics = Metrics()
    watch = StoreWatch(metrics)
    faulty = FaultyMetadata(MemoryMetadata(), Faults(fail_at=1, fault=Fault.ERROR_BEFORE))
    with pytest.raises(StoreUnavailable):
        await TimedJournal(MetadataJournal(faulty, 0), watch).append(0, ENTRY)
    assert counted(metrics.registry, "errors_total") == {"put": 1}
    await TimedJournal(Forgetful(MemoryMetadata(), 0), watch).append(0, ENTRY)
    assert counted(metrics.registry, "errors_total") == {"put": 2}
    assert list(watch.health.failing()) == ["metadata.put"]


async def test_an_append_that_hangs_shows_while_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.telemetry.stores.STALLED_SECONDS", 1e-9)
    never = asyncio.Event()

    class Hanging(MetadataJournal):
        async def append(self, number: int, entry: bytes, batches: object = ()) -> AppendOutcome:
            await never.wait()
            return Appended(counts=True)

    metrics = Metrics()
    watch = StoreWatch(metrics)
    journal = TimedJournal(Hanging(MemoryMetadata(), 0), watch)
    pending = asyncio.create_task(journal.append(0, ENTRY))
    await asyncio.sleep(0.01)
    assert "no response for" in watch.health.failing()["metadata.put"]
    never.set()
    assert await pending == Appended(counts=True)
    assert watch.health.failing() == {}


async def test_what_it_says_of_drafts_is_what_its_journal_says() -> None:
    inner = MetadataJournal(MemoryMetadata(), 3)
    journal = TimedJournal(inner, StoreWatch(Metrics()))
    batch = list[DraftBatch]()
    assert (journal.shard, journal.exclusive, journal.entry_batches, journal.unknown_entry) == (
        inner.shard,
        inner.exclusive,
        inner.entry_batches,
        "",
    )
    assert journal.read_back is inner.read_back
    assert (journal.takes(1, 1), journal.holds("log/0/x.log"), journal.place(0, batch)) == (
        False,
        False,
        None,
    )
    await journal.begin(1, ENTRY, None)
    assert await journal.start() == 1
    await journal.discard(1)
    assert await journal.start() == 0
