"""What a journal does better over a store that compares `start` in the step that creates an entry: etcd."""

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs grpcio: pip install dragoman[etcd]")

from adapters.journals.guarded import GuardedJournal
from adapters.journals.metadata import MetadataJournal, entry_key
from adapters.metadata.etcd import EtcdMetadata
from ledger.journal import NONCE_BYTES, encode_entry
from ledger.ports import Appended, Lost, PutOutcome, Unknown, Versioned
from tests.support.etcd import EtcdServer
from tests.support.rpc_limits import PATIENT

COUNTS, TO_BE_FOUND_OUT = Appended(counts=True), Appended(counts=False)


class Watched(EtcdMetadata):
    """Counts the reads, and can lose the result of a guarded creation."""

    reads = 0
    loses_results = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        return await super().get(key)

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        outcome = await super().create_guarded(key, value, guard, version)
        if self.loses_results:
            self.loses_results -= 1
            return Unknown("lost on purpose")
        return outcome


@pytest.fixture
async def store(etcd: EtcdServer) -> AsyncIterator[Watched]:
    store = await asyncio.to_thread(Watched, etcd.url(), limits=PATIENT)
    yield store
    await store.close()


@pytest.fixture
def journal(store: Watched) -> GuardedJournal:
    return GuardedJournal(store, 0)


def entry(nonce: int) -> bytes:
    return encode_entry(1, 0, nonce.to_bytes(NONCE_BYTES, "big"), [])


async def test_appends_count_without_reading_start_again(store: Watched, journal: GuardedJournal) -> None:
    for number in range(5):
        assert await journal.append(number, entry(number)) == COUNTS
    assert store.reads == 1


async def test_an_append_after_another_gateway_has_pruned_counts_by_the_newer_start(
    store: Watched, journal: GuardedJournal
) -> None:
    for number in range(3):
        assert await journal.append(number, entry(number)) == COUNTS
    await MetadataJournal(store, 0).raise_start(2)
    assert await journal.append(3, entry(3)) == COUNTS
    assert await store.get(entry_key(0, 3)) is not None


async def test_an_append_that_was_pruned_past_does_not_count(store: Watched, journal: GuardedJournal) -> None:
    assert await journal.append(0, entry(0)) == COUNTS
    await MetadataJournal(store, 0).raise_start(5)
    outcome = await journal.append(1, entry(1))
    assert outcome == TO_BE_FOUND_OUT
    assert await journal.start() > 1


async def test_another_gateways_entry_is_lost_to_and_kept(store: Watched, journal: GuardedJournal) -> None:
    assert await MetadataJournal(store, 0).append(0, entry(1)) == TO_BE_FOUND_OUT
    assert await journal.append(0, entry(2)) == Lost()
    assert await journal.get(0) == entry(1)
    assert await journal.append(1, entry(2)) == COUNTS


async def test_an_append_whose_result_is_lost_is_found_and_its_count_left_to_the_caller(
    store: Watched, journal: GuardedJournal
) -> None:
    store.loses_results = 1
    assert await journal.append(0, entry(0)) == TO_BE_FOUND_OUT
    assert await journal.get(0) == entry(0)
    assert await journal.start() == 0
    assert not journal.unknown_entry
    assert await journal.append(1, entry(1)) == COUNTS
