"""Several owners of one shard over a store that they share: one wins each entry, the loser finds out."""

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from adapters.journals.metadata import encode_start, entry_key, entry_prefix, start_key
from adapters.metadata.memory import MemoryMetadata
from gateway.coordination.shard import Shard
from ledger.cluster.records import OwnerChanged
from ledger.errors import ErrorName, OutcomeUnknown, StoreUnavailable
from ledger.image import all_rows
from ledger.journal import decode_entry
from ledger.partitions.requests import CommitFile, FileCommit, Reserved, ReserveProducerIds
from ledger.ports import MetadataStore, Versioned, Won
from ledger.requests import LedgerResult, Refused, Request
from ledger.rows import digest
from ledger.topics.records import TopicCreated
from ledger.topics.requests import Created, CreateTopic, DeleteTopic
from tests.support.faulty import Fault, Faults, FaultyMetadata
from tests.support.held_stores import HeldMetadata
from tests.support.journalled import commit_batch, locator, topic_id
from tests.support.shards import journal_of, open_shard

WAIT_S = 20.0


class Gateways:
    """Gateways over one store; each recovers and takes the shard when it is opened."""

    def __init__(self) -> None:
        self.store = MemoryMetadata(exclusive=False, unique_versions=False)
        self.shards: list[Shard] = []

    async def open(self, store: MetadataStore | None = None) -> Shard:
        shard = await open_shard(store or self.store, None, None, len(self.shards), lambda: 1_000)
        self.shards.append(shard)
        return shard

    async def topics_in_journal(self) -> list[str]:
        found = await self.store.scan(entry_prefix(0))
        records = [record for key, value in found for record in decode_entry(value.value, key).records]
        return [record.name for record in records if isinstance(record, TopicCreated)]


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    made = Gateways()
    yield made
    for shard in made.shards:
        await shard.close()


def deadline() -> float:
    return asyncio.get_running_loop().time() + WAIT_S


def create(name: str) -> CreateTopic:
    return CreateTopic(name, topic_id(zlib.crc32(name.encode())), 1, {})


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_owner_that_another_gateway_has_replaced_fails_for_certain_all_that_waited(
    gateways: Gateways,
) -> None:
    held = HeldMetadata(gateways.store)
    old = await gateways.open(held)
    before = digest(all_rows(old.state))
    held.hold()
    futures = [old.submit(create("first"))]
    await turns()
    futures += [old.submit(create(f"waits{number}")) for number in range(10)]
    new = await gateways.open()
    assert isinstance(await new.ask(create("new"), deadline()), Created)
    held.release()
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 11
    assert old.lost.is_set() and old.broken is not None
    assert "written by another gateway" in str(old.broken)
    assert digest(all_rows(old.state)) == before
    assert await gateways.topics_in_journal() == ["new"]
    assert not new.lost.is_set()


async def test_an_owner_that_lost_the_shard_accepts_nothing_more(gateways: Gateways) -> None:
    old, _ = await gateways.open(), await gateways.open()
    with pytest.raises(StoreUnavailable):
        await old.ask(create("a"), deadline())
    for _ in range(2):
        refused = old.submit(create("b"))
        assert refused.done() and isinstance(refused.exception(), StoreUnavailable)
        with pytest.raises(StoreUnavailable):
            await old.barrier(deadline())
    assert await gateways.topics_in_journal() == []


async def test_each_owner_begins_an_epoch_of_its_own(gateways: Gateways) -> None:
    for _ in range(3):
        await gateways.open()
    found = await gateways.store.scan(entry_prefix(0))
    entries = [decode_entry(value.value, key) for key, value in found]
    owners = [record for entry in entries for record in entry.records if isinstance(record, OwnerChanged)]
    assert [(owner.epoch, owner.gateway) for owner in owners] == [(1, 0), (2, 1), (3, 2)]
    assert len({owner.incarnation for owner in owners}) == 3
    assert len({shard.state.cluster_id for shard in gateways.shards}) == 1


async def test_of_gateways_that_begin_at_once_one_wins_each_entry(gateways: Gateways) -> None:
    opened = await asyncio.gather(*[gateways.open() for _ in range(4)], return_exceptions=True)
    shards = [shard for shard in opened if isinstance(shard, Shard)]
    assert shards and all(isinstance(shard, (Shard, StoreUnavailable)) for shard in opened)

    async def work(shard: Shard, name: str) -> list[str]:
        made: list[str] = []
        for number in range(20):
            try:
                result = await shard.ask(create(f"{name}-{number}"), deadline())
            except StoreUnavailable:
                break
            assert isinstance(result, Created)
            made.append(f"{name}-{number}")
        return made

    late = asyncio.create_task(gateways.open())
    made = await asyncio.gather(*[work(shard, f"g{at}") for at, shard in enumerate(shards)])
    await asyncio.gather(late, return_exceptions=True)
    in_journal = await gateways.topics_in_journal()
    assert sorted(in_journal) == sorted(name for names in made for name in names)
    assert sum(not shard.lost.is_set() for shard in gateways.shards) <= 1


async def test_a_barrier_finds_out_that_another_gateway_went_on(gateways: Gateways) -> None:
    old, new = await gateways.open(), await gateways.open()
    with pytest.raises(StoreUnavailable):
        await old.barrier(deadline())
    assert old.lost.is_set()
    await new.barrier(deadline())
    assert not new.lost.is_set()


async def test_barriers_that_wait_share_one_proof(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.read_keys.clear()
    await asyncio.gather(*[shard.barrier(deadline()) for _ in range(50)])
    assert held.read_keys == [entry_key(0, 1)]


async def test_an_append_begun_before_a_barrier_proves_nothing_for_it(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.hold()
    requested = shard.submit(create("a"))
    await turns()
    held.read_keys.clear()
    barrier = asyncio.create_task(shard.barrier(deadline()))
    await turns()
    held.release()
    await requested
    await barrier
    # The append's own check of the start; then a proof that no other gateway wrote the next entry.
    assert held.read_keys == [start_key(0), entry_key(0, 2)]


async def test_an_append_begun_after_a_barrier_proves_it(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.hold()
    held.read_keys.clear()
    barrier = asyncio.create_task(shard.barrier(deadline()))
    requested = asyncio.create_task(shard.ask(create("a"), deadline()))
    await turns()
    assert not barrier.done() and not requested.done()
    held.release()
    await barrier
    await requested
    assert held.read_keys == [start_key(0)]


async def test_a_barrier_that_cannot_read_fails_and_the_shard_continues(gateways: Gateways) -> None:
    faults = Faults(1, Fault.ERROR_BEFORE, only=["get"])
    shard = await gateways.open()
    journal_of(shard).store = FaultyMetadata(gateways.store, faults)
    with pytest.raises(StoreUnavailable):
        await shard.barrier(deadline())
    await shard.barrier(deadline())
    assert await shard.ask(ReserveProducerIds(1), deadline()) == Reserved(0, 1)


async def test_a_barrier_ends_at_its_deadline(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.hold()
    shard.submit(create("a"))
    with pytest.raises(TimeoutError):
        await shard.barrier(asyncio.get_running_loop().time() + 0.02)
    held.release()
    await shard.barrier(deadline())


async def test_where_one_process_alone_can_write_a_barrier_reads_nothing() -> None:
    held = HeldMetadata(MemoryMetadata())
    shard = await open_shard(held, None, None, 1, lambda: 1_000)
    held.read_keys.clear()
    await shard.barrier(deadline())
    assert held.read_keys == []
    await shard.close()


async def test_barriers_beyond_the_bound_are_refused_at_once(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.coordination.owner.MAX_WAITING", 3)
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.hold()
    requested = shard.submit(create("a"))
    await turns()
    waiting = [asyncio.create_task(shard.barrier(deadline())) for _ in range(3)]
    await turns()
    with pytest.raises(StoreUnavailable):
        await shard.barrier(deadline())
    held.release()
    await asyncio.gather(requested, *waiting)


# What needs no entry


def commit(sequence: int) -> CommitFile:
    batch = commit_batch(topic_id(1), 0, 0, producer=(7, 0, sequence))
    return CommitFile(locator(sequence, 1_000), 100, [batch])


def refusal(result: LedgerResult) -> ErrorName:
    (refused,) = result.results if isinstance(result, FileCommit) else [result]
    assert isinstance(refused, Refused), refused
    return refused.error


@pytest.mark.parametrize("request_", [commit(2), commit(0), DeleteTopic(topic_id(9)), create("t")])
async def test_a_gateway_that_was_replaced_refuses_nothing_and_repeats_no_result(
    gateways: Gateways, request_: Request
) -> None:
    """By the journal's end sequence 2 is the next, and topic 9 and no topic `t` are there."""
    old = await gateways.open()
    assert isinstance(await old.ask(CreateTopic("t", topic_id(1), 1, {}), deadline()), Created)
    await old.ask(commit(0), deadline())
    new = await gateways.open()
    await new.ask(commit(1), deadline())
    await new.ask(CreateTopic("other", topic_id(9), 1, {}), deadline())
    with pytest.raises(StoreUnavailable, match="written by another gateway"):
        await old.ask(request_, deadline())
    assert old.lost.is_set()
    assert isinstance(await new.ask(commit(2), deadline()), FileCommit)
    assert not new.lost.is_set()


async def test_refusals_and_barriers_that_wait_share_one_proof(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.read_keys.clear()
    barriers = [asyncio.create_task(shard.barrier(deadline())) for _ in range(50)]
    requested = [shard.submit(DeleteTopic(topic_id(number))) for number in range(50)]
    await asyncio.gather(*barriers)
    assert {refusal(await one) for one in requested} == {ErrorName.UNKNOWN_TOPIC_ID}
    assert held.read_keys == [entry_key(0, 1)]


async def test_a_refusal_in_an_entry_is_proved_by_the_entry(gateways: Gateways) -> None:
    held = HeldMetadata(gateways.store)
    shard = await gateways.open(held)
    held.read_keys.clear()
    refused, created = shard.submit(DeleteTopic(topic_id(9))), shard.submit(create("a"))
    assert refusal(await refused) == ErrorName.UNKNOWN_TOPIC_ID
    assert isinstance(await created, Created)
    assert held.read_keys == [start_key(0)]


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
async def test_a_refusal_that_cannot_be_proved_fails_for_certain_and_the_shard_goes_on(
    gateways: Gateways, fault: Fault
) -> None:
    shard = await gateways.open()

    class Failing(HeldMetadata):
        async def get(self, key: str) -> Versioned | None:
            self.read_keys.append(key)
            raise (StoreUnavailable if fault is Fault.ERROR_BEFORE else OutcomeUnknown)("on purpose")

    journal_of(shard).store = failing = Failing(gateways.store)
    with pytest.raises(StoreUnavailable, match="on purpose"):
        await shard.ask(DeleteTopic(topic_id(9)), deadline())
    assert failing.read_keys == [entry_key(0, 1)]
    journal_of(shard).store = gateways.store
    assert refusal(await shard.ask(DeleteTopic(topic_id(9)), deadline())) == ErrorName.UNKNOWN_TOPIC_ID
    assert not shard.lost.is_set()


async def test_where_one_process_alone_can_write_no_request_reads_the_store() -> None:
    held = HeldMetadata(MemoryMetadata())
    shard = await open_shard(held, None, None, 1, lambda: 1_000)
    held.read_keys.clear()
    requests: list[Request] = [DeleteTopic(topic_id(9)), CreateTopic("t", topic_id(1), 1, {}), create("t")]
    requests += [commit(1), commit(0), commit(0)]
    for request in requests:
        await shard.ask(request, deadline())
    await asyncio.gather(*[shard.submit(request) for request in requests], shard.barrier(deadline()))
    assert held.read_keys == []
    await shard.close()


# The start


async def raise_start(store: MetadataStore, number: int) -> None:
    assert isinstance(await store.put(start_key(0), encode_start(number, bytes(16)), None), Won)


async def test_an_append_below_the_start_has_an_unknown_outcome_and_ends_the_ownership(
    gateways: Gateways,
) -> None:
    """Another gateway pruned past it: a free key proves nothing."""
    shard = await gateways.open()
    await raise_start(gateways.store, 2)
    with pytest.raises(OutcomeUnknown):
        await shard.ask(create("a"), deadline())
    assert shard.lost.is_set()
    assert "a" not in shard.state.topics.by_name


async def test_an_append_at_the_start_counts(gateways: Gateways) -> None:
    shard = await gateways.open()
    await raise_start(gateways.store, 1)
    assert isinstance(await shard.ask(create("a"), deadline()), Created)


async def test_an_append_of_which_the_start_cannot_be_read_waits_until_it_can(gateways: Gateways) -> None:
    shard = await gateways.open()
    faults = Faults(1, Fault.ERROR_BEFORE, times=3, only=["get"])
    journal_of(shard).store = FaultyMetadata(gateways.store, faults)
    assert isinstance(await shard.ask(create("a"), deadline()), Created)
    assert len(faults.failed) == 3 and not shard.lost.is_set()
    assert await gateways.topics_in_journal() == ["a"]


async def test_a_conflict_with_an_entry_of_another_gateway_is_never_taken_for_a_retry(
    gateways: Gateways,
) -> None:
    """An unknown outcome, while another gateway has written the entry meanwhile: lost for certain."""
    shard = await gateways.open()
    faults = Faults(1, Fault.NEVER_SENT, only=["put"])
    journal_of(shard).store = FaultyMetadata(gateways.store, faults)
    await gateways.open()
    with pytest.raises(StoreUnavailable):
        await shard.ask(create("a"), deadline())
    assert shard.lost.is_set() and faults.failed
    assert await gateways.topics_in_journal() == []
