"""Batches of transactions on their way into the ledger: what each claims stays with it."""

from collections.abc import AsyncIterator

import pytest

from gateway.coordination import filling
from gateway.produce.accumulator import MAX_TRANSACTIONS_BYTES, PendingBatch
from ledger.batch.header import TRANSACTIONAL_BIT, check_batches
from ledger.batch.records import Producer, Record, build_batch
from ledger.partitions.requests import ProducerTransaction, ReserveProducerIds, transaction_weight
from ledger.transactions.requests import EndTransaction, InitTransactionalId, ProducerEpoch
from tests.support.completions import AwaitedProduce
from tests.support.placing import BEGUN_MS, MOST, POLICY, PlacingWorld, turns


@pytest.fixture(params=["placed", "placed-shared", "stored"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[PlacingWorld]:
    made = await PlacingWorld(exclusive=request.param != "placed-shared").open()
    made.journal.most = 0 if request.param == "stored" else MOST
    yield made
    await made.close()


async def begun(world: PlacingWorld, name: str) -> ProducerEpoch:
    result = await world.shard.submit(InitTransactionalId(name, 60_000))
    assert isinstance(result, ProducerEpoch)
    return result


def send(
    world: PlacingWorld, name: str, producer: ProducerEpoch, sequence: int = 0, partition: int = 0
) -> PendingBatch:
    """One request of one batch, by a client of transaction version 2."""
    ids = Producer(producer.producer_id, producer.epoch, sequence)
    data = build_batch([Record(value=b"v")], base_timestamp=BEGUN_MS, producer=ids, flags=TRANSACTIONAL_BIT)
    completion = AwaitedProduce()
    completion.transaction = ProducerTransaction(name, adds=True, is_abortable=True)
    checked = check_batches(memoryview(data), 1 << 20)
    return world.service.add(world.log(partition), checked, completion, POLICY)


def ended(name: str, producer: ProducerEpoch) -> EndTransaction:
    return EndTransaction(name, producer.producer_id, producer.epoch, True, bumps=True)


async def test_a_stranger_that_names_a_producer_spoils_no_batch_of_it(world: PlacingWorld) -> None:
    producer = await begun(world, "own")
    await begun(world, "stranger")
    world.metadata.may_go.clear()
    first = send(world, "own", producer)
    await turns()
    # These share a draft.
    foreign = [send(world, "stranger", producer, 1), send(world, "none", producer, 1)]
    second = send(world, "own", producer, 1)
    foreign.append(send(world, "stranger", producer, 2))
    await turns()
    world.metadata.may_go.set()
    assert await world.results(first, second) == [0, 1]
    assert await world.results(*foreign) == ["INVALID_PRODUCER_ID_MAPPING"] * 3


async def test_batches_before_and_after_an_end_are_of_the_epochs_that_they_name(world: PlacingWorld) -> None:
    producer = await begun(world, "a")
    before = send(world, "a", producer)
    assert await world.result(before) == 0
    world.metadata.may_go.clear()
    end = world.shard.submit(ended("a", producer))
    await turns()
    late = send(world, "a", producer, 1)
    after = send(world, "a", ProducerEpoch(producer.producer_id, producer.epoch + 1), partition=1)
    await turns()
    world.metadata.may_go.set()
    assert await end == ProducerEpoch(producer.producer_id, producer.epoch + 1)
    assert await world.results(late, after) == ["INVALID_PRODUCER_EPOCH", 0]
    # Its marker has offset 1; the other partition has an open transaction.
    assert (world.log().last_stable, world.log(1).last_stable) == (2, 0)


async def test_drafts_have_few_long_transactional_ids(world: PlacingWorld) -> None:
    """The records with which transactions begin share an entry with those of the batches."""
    name = "x" * 3_000
    one = transaction_weight(ProducerTransaction(name + "00", adds=True, is_abortable=True))
    names = [f"{name}{number:02}" for number in range(3 * MAX_TRANSACTIONS_BYTES // one)]
    producers = [await begun(world, name) for name in names]
    first = send(world, "none", producers[0])
    world.metadata.may_go.clear()
    sent = [send(world, *pair) for pair in zip(names, producers, strict=True)]
    await turns()
    world.metadata.may_go.set()
    await world.result(first)
    assert sorted(offset for offset in await world.results(*sent) if isinstance(offset, int)) == list(
        range(len(names))
    )
    drafts = world.journal.drafts or world.segments.drafts
    # The first one has a batch with a short id, too.
    assert all((len(draft) - 1) * one <= MAX_TRANSACTIONS_BYTES for draft in drafts)


async def test_a_draft_whose_transactions_do_not_fit_into_the_entry_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await PlacingWorld().open()
    name = "x" * 300
    producer = await begun(world, name)
    monkeypatch.setattr(filling, "MAX_ENTRY_BYTES", 1_500)
    world.metadata.may_go.clear()
    first = world.shard.submit(ReserveProducerIds(1))
    await turns()
    # These share an entry.
    second, sent = world.shard.submit(ReserveProducerIds(1)), send(world, name, producer)
    await turns()
    world.metadata.may_go.set()
    await first
    await second
    assert await world.result(sent) == 0
    assert len(world.segments.drafts) == 1 and not world.journal.drafts
    await world.close()
