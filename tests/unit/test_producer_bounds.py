"""How many producers are remembered, and which of them go for others."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.housekeeping.producers import ProducerRelief
from gateway.produce.validation import MIB, TopicPolicy
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.header import TRANSACTIONAL_BIT, check_batches
from ledger.batch.records import Producer, build_batch
from ledger.errors import ErrorName
from ledger.partitions.producers import SILENT_MS, TOO_MANY_PRODUCERS, ProducerBounds, ProducerState
from ledger.partitions.requests import ForgetProducers, ProducerTransaction
from ledger.requests import Done
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.transactions.requests import AddToTransaction, ProducerEpoch, TopicPartition
from ledger.types import TopicId
from tests.support.completions import AwaitedProduce
from tests.support.embedded import WAIT_S, Client, Clock, Embedded
from tests.support.in_memory import in_memory_gateway, records
from tests.support.journalled import topic_id
from tests.support.loop_time import longest_turn

TOPIC = topic_id(1)
HOUR_MS = 3_600_000


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with Embedded(tmp_path, Clock()) as opened:
        await opened.ask(CreateTopic("t", TOPIC, 3, {}))
        opened.shard.state.producer_bounds = ProducerBounds(10, 6)
        yield opened


def relief_of(host: Embedded) -> ProducerRelief:
    return ProducerRelief(host.shard, host.produce_service.crowded, host.clock, WAIT_S)


async def test_a_new_producer_is_refused_where_there_are_as_many_as_allowed(host: Embedded) -> None:
    known = [Client(i) for i in range(6)]
    for client in known:
        assert await host.send("t", 0, client.batch("t", 0)) != [TOO_MANY_PRODUCERS]
    newcomer = Client(6)
    # The partition is full, another is not; in all there are four left.
    assert await host.send("t", 0, newcomer.batch("t", 0)) == [TOO_MANY_PRODUCERS]
    batches = [Client(20 + i).batch("t", 1) for i in range(5)]
    assert await host.send("t", 1, *batches) == [0, 2, 4, 6, TOO_MANY_PRODUCERS]
    assert await host.send("t", 2, Client(30).batch("t", 2)) == [TOO_MANY_PRODUCERS]
    assert host.produce_service.crowded == {
        log.number for log in host.shard.state.topics.by_name["t"].partitions
    }
    # Known producers continue, and their repeats are recognised.
    batch = known[0].batch("t", 0)
    first = await host.send("t", 0, batch)
    assert await host.send("t", 0, batch) == first
    assert host.shard.state.producer_count == 10


async def test_batches_that_a_refused_producer_sent_right_after_are_refused_too(host: Embedded) -> None:
    await host.send("t", 0, *[Client(i).batch("t", 0) for i in range(6)])
    newcomer = Client(6)
    batches = [newcomer.batch("t", 0) for _ in range(2)]
    assert await host.send("t", 0, *batches) == [TOO_MANY_PRODUCERS, TOO_MANY_PRODUCERS]
    host.shard.state.producer_bounds = ProducerBounds(10, 7)
    assert await host.send("t", 0, batches[1]) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert await host.send("t", 0, *batches) == [12, 14]


async def test_the_longest_silent_producers_are_forgotten_and_none_that_was_lately_active(
    host: Embedded,
) -> None:
    clients = [Client(i) for i in range(6)]
    for client in clients:
        await host.send("t", 0, client.batch("t", 0))
        host.clock.now_ms += 1_000
    assert await host.send("t", 0, Client(6).batch("t", 0)) == [TOO_MANY_PRODUCERS]
    # No producer has been silent for long enough.
    assert await relief_of(host).relieve() == 0
    assert len(host.log("t").producers) == 6
    # The first two have, but one of them has spoken again.
    host.clock.now_ms += SILENT_MS - 5_000
    repeated = clients[0].batch("t", 0)
    (offset,) = await host.send("t", 0, repeated)
    assert await host.send("t", 0, Client(6).batch("t", 0)) == [TOO_MANY_PRODUCERS]
    assert await relief_of(host).relieve() == 1
    assert set(host.log("t").producers) == {0, 2, 3, 4, 5}
    assert await host.send("t", 0, repeated) == [offset]
    newcomer = Client(6)
    assert await host.send("t", 0, newcomer.batch("t", 0)) == [14]
    # One that went may begin again anywhere.
    host.shard.state.producer_bounds = ProducerBounds(10, 8)
    assert await host.send("t", 0, clients[1].batch("t", 0)) == [16]


@pytest.mark.parametrize("adds", [False, True], ids=["AddPartitionsToTxn", "Produce 12"])
async def test_silent_producers_are_forgotten_for_one_with_a_transactional_id(
    host: Embedded, adds: bool
) -> None:
    transactions = TransactionCoordinator(host.shard, 60_000, crowded=host.produce_service.crowded)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    begun = await transactions.init("a", 60_000, None, deadline)
    assert isinstance(begun, ProducerEpoch)
    await host.send("t", 0, *[Client(100 + i).batch("t", 0) for i in range(6)])
    host.clock.now_ms += SILENT_MS
    log = host.log("t")
    adding = AddToTransaction("a", *begun[:2], [TopicPartition(log.topic_id, log.index)])
    batch = build_batch(records(1), producer=Producer(*begun[:2], 0), flags=TRANSACTIONAL_BIT)

    async def added() -> ErrorName | None:
        if not adds:
            refused = await transactions.add(adding, deadline)
            return None if refused is None else refused.error
        completion = AwaitedProduce()
        completion.transaction = ProducerTransaction("a", adds=True, is_abortable=True)
        checked = check_batches(memoryview(batch), MIB)
        pending = host.produce_service.add(log, checked, completion, TopicPolicy(MIB))
        await completion.completed
        return pending.error

    assert await added() is (TOO_MANY_PRODUCERS if adds else ErrorName.COORDINATOR_NOT_AVAILABLE)
    assert await relief_of(host).relieve() > 0
    assert await added() is None


async def test_silent_producers_are_forgotten_for_what_open_transactions_touch(host: Embedded) -> None:
    transactions = TransactionCoordinator(host.shard, 60_000)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    host.shard.state.producer_bounds = ProducerBounds(10, 10)
    await host.send("t", 0, *[Client(100 + i).batch("t", 0) for i in range(8)])
    host.clock.now_ms += SILENT_MS

    async def adding(name: str) -> ErrorName | None:
        begun = await transactions.init(name, 60_000, None, deadline)
        assert isinstance(begun, ProducerEpoch)
        named = [TopicPartition(TOPIC, index) for index in (1, 2)]
        refused = await transactions.add(AddToTransaction(name, *begun[:2], named), deadline)
        return None if refused is None else refused.error

    assert [await adding("a"), await adding("b")] == [None, ErrorName.COORDINATOR_NOT_AVAILABLE]
    assert await relief_of(host).relieve() > 0
    assert await adding("b") is None


async def test_a_gateway_looks_for_silent_producers_where_a_transaction_was_refused() -> None:
    async with in_memory_gateway() as gateway:
        topic_id_ = TopicId(await gateway.create("t"))
        services = gateway.running.services
        services.shard.state.producer_bounds = ProducerBounds(10, 0)
        deadline = asyncio.get_running_loop().time() + WAIT_S
        begun = await services.transactions.init("a", 60_000, None, deadline)
        assert isinstance(begun, ProducerEpoch)
        await gateway.send("t", records(1))
        adding = AddToTransaction("a", *begun[:2], [TopicPartition(topic_id_, 0)])
        assert await services.transactions.add(adding, deadline) is not None
        (log,) = services.shard.state.topics.by_name["t"].partitions
        assert services.produce.crowded == {log.number}


async def relieved(host: Embedded, relief: ProducerRelief) -> int:
    """How many go when another producer finds the partition full."""
    assert await host.send("t", 0, Client(6).batch("t", 0)) == [TOO_MANY_PRODUCERS]
    relief._not_before = 0.0
    return await relief.relieve()


async def test_a_clock_that_is_set_ahead_makes_no_producer_silent(host: Embedded) -> None:
    elapsed_ms = 0

    def pass_ms(ms: int) -> None:
        nonlocal elapsed_ms
        elapsed_ms += ms
        host.clock.now_ms += ms

    relief = ProducerRelief(host.shard, host.produce_service.crowded, host.clock, WAIT_S, lambda: elapsed_ms)
    pass_ms(2 * SILENT_MS)
    assert await relief.relieve() == 0
    clients = [Client(i) for i in range(6)]
    for client in clients:
        await host.send("t", 0, client.batch("t", 0))
    host.clock.now_ms += 20 * HOUR_MS
    gone = [await relieved(host, relief)]
    pass_ms(SILENT_MS - 1)
    await host.send("t", 0, clients[0].batch("t", 0))
    gone.append(await relieved(host, relief))
    pass_ms(1)
    gone.append(await relieved(host, relief))
    assert gone == [0, 0, 2]
    assert 0 in host.log("t").producers


async def test_a_producer_is_not_silent_while_no_gateway_ran(tmp_path: Path) -> None:
    clock = Clock()
    async with Embedded(tmp_path, clock) as host:
        await host.ask(CreateTopic("t", TOPIC, 1, {}))
        await host.send("t", 0, Client(0).batch("t", 0))
        clock.now_ms += SILENT_MS
        await host.send("t", 0, *[Client(i).batch("t", 0) for i in range(1, 6)])
    clock.now_ms += HOUR_MS
    async with Embedded(tmp_path, clock) as host:
        host.shard.state.producer_bounds = ProducerBounds(10, 6)
        relief = ProducerRelief(host.shard, host.produce_service.crowded, host.clock, WAIT_S, lambda: 0)
        assert await relieved(host, relief) == 1
        assert set(host.log("t").producers) == {1, 2, 3, 4, 5}


async def test_a_flood_never_evicts_a_producer_in_use(host: Embedded) -> None:
    host.shard.state.producer_bounds = ProducerBounds(200, 200)
    relief, good = relief_of(host), Client(100_000)
    for flood in range(50):
        await host.send("t", 0, *[Client(100 * flood + i).batch("t", 0) for i in range(100)])
        batch = good.batch("t", 0)
        (offset,) = await host.send("t", 0, batch)
        await relief.relieve()
        assert await host.send("t", 0, batch) == [offset]
        host.clock.now_ms += 60_000
        # It pauses for ten seconds when there was nothing to forget.
        relief._not_before = 0.0
    assert 100_000 in host.log("t").producers
    assert host.shard.state.producer_count == len(host.log("t").producers) <= 200


async def test_the_time_of_the_entry_decides_which_producers_are_forgotten(host: Embedded) -> None:
    await host.send("t", 0, Client(1).batch("t", 0), Client(2).batch("t", 0))
    number = host.log("t").number
    pairs = [(number, 1), (number, 7), (99, 1)]
    host.clock.now_ms += SILENT_MS - 1
    assert await host.ask(ForgetProducers(pairs)) == Done(0)
    host.clock.now_ms += 1
    assert await host.ask(ForgetProducers(pairs)) == Done(1)
    assert await host.ask(ForgetProducers(pairs)) == Done(0)
    assert list(host.log("t").producers) == [2] and host.shard.state.producer_count == 1


async def test_the_count_survives_a_restart_and_deletions(tmp_path: Path) -> None:
    clock = Clock()
    async with Embedded(tmp_path, clock) as host:
        await host.ask(CreateTopic("t", TOPIC, 2, {}))
        await host.ask(CreateTopic("u", topic_id(2), 1, {}))
        await host.send("t", 0, Client(1).batch("t", 0), Client(2).batch("t", 0))
        await host.send("t", 1, Client(1).batch("t", 1))
        await host.send("u", 0, Client(1).batch("u", 0))
        await host.checkpointer.write_image()
        await host.send("u", 0, Client(2).batch("u", 0))
        assert host.shard.state.producer_count == 5
    async with Embedded(tmp_path, clock) as host:
        assert host.shard.state.producer_count == 5
        await host.ask(DeleteTopic(TOPIC))
        assert host.shard.state.producer_count == 2


async def test_a_refused_producer_is_throttled_and_may_try_again() -> None:
    async with in_memory_gateway({"limits.partition_producers": "100"}) as gateway:
        await gateway.create("t")
        for producer_id in range(100):
            await gateway.send("t", records(1), producer=Producer(producer_id, 0, 0))
        batch = build_batch(records(1), producer=Producer(100, 0, 0))
        data = TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(batch))])
        response = await gateway.ask(ApiKey.PRODUCE, 9, ProduceRequest(None, -1, 5000, [data]))
        (partition,) = response.responses[0].partition_responses
        assert partition.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "limits.partition_producers" in partition.error_message
        assert response.throttle_time_ms == 1_000


def remember(host: Embedded, count: int) -> None:
    """This number of further producers in all partitions together, each last heard at another time."""
    state = host.shard.state
    logs = [state.logs[number] for number in list(state.logs.numbers())]
    times = random.Random(7).sample(range(10 * count), count)
    for i, time_ms in enumerate(times):
        producer = ProducerState(0, bytes(80), host.clock.now_ms + time_ms)
        logs[i % len(logs)].put_producer(1_000_000 + i, producer)
    state.producer_count += count
    host.clock.now_ms += 10 * count


async def test_very_many_producers_are_checked_and_forgotten_without_holding_the_loop(
    host: Embedded,
) -> None:
    many, state = 60_000, host.shard.state
    await host.ask(CreateTopic("u", topic_id(2), 60, {}))
    state.producer_bounds = ProducerBounds(many, many)
    remember(host, many)
    times = sorted(producer.last_ms for log in state.logs.values() for producer in log.producers.values())
    host.clock.now_ms += SILENT_MS
    relieving = await longest_turn(relief_of(host).relieve())
    left = sorted(producer.last_ms for log in state.logs.values() for producer in log.producers.values())
    # The longest silent went, to the second.
    assert len(left) == state.producer_count == many * 8 // 10
    assert left[0] // 1000 >= times[many // 5] // 1000 and left[1_000:] == times[many // 5 + 1_000 :]
    loop_time = asyncio.get_running_loop().time
    expiring = await longest_turn(host.garbage.expire_producers(loop_time))
    assert state.producer_count == len(left)
    assert relieving < 0.04
    assert expiring < 0.012


@pytest.mark.serial
async def test_the_search_for_silent_producers_lets_other_requests_in_between(host: Embedded) -> None:
    host.shard.state.producer_bounds = ProducerBounds(5_000, 5_000)
    for start in range(0, 5_000, 100):
        partition = start // 2_000
        clients = [Client(start + i) for i in range(100)]
        await host.send("t", partition, *[client.batch("t", partition) for client in clients])
    host.clock.now_ms += SILENT_MS
    worst, last = 0.0, time.perf_counter()
    relieving = asyncio.create_task(relief_of(host).relieve())
    while not relieving.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        worst, last = max(worst, now - last), now
    assert await relieving == 1_000
    assert worst < 0.5
