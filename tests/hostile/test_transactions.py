"""Transactions that cost much: very many ids, very many partitions, and ends one after the other."""

from typing import Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.list_transactions import ListTransactionsRequest
from ledger.transactions.requests import MAX_PARTITIONS
from tests.hostile.arena import MIB, Arena, Bounds
from tests.hostile.speaking import ask, exchange
from tests.hostile.test_answers import create
from tests.support.messages import message, read

PIPELINED: Final = 500
"""Requests over one connection."""
CODES: Final = {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def init(arena: Arena, transactional_id: str) -> int:
    """The producer id."""
    begun = ask(arena, ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id, 60_000))
    assert begun.error_code == ErrorCode.NONE
    return int(begun.producer_id)


def adding(name: str, producer_id: int, partitions: int, topic: str = "marked") -> bytes:
    topics = [AddPartitionsToTxnTopic(topic, list(range(partitions)))]
    return message(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
    )


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.full)])
def test_large_transactions_that_end_one_after_the_other(arena: Arena, rounds: int) -> None:
    """Each end is 2,000 markers, although nothing was written."""
    arena.rounds = 1
    create(arena, "marked", MAX_PARTITIONS)
    producers = {f"large-{number}": init(arena, f"large-{number}") for number in range(5)}

    def run() -> None:
        for _ in range(rounds):
            frames = []
            for name, producer_id in producers.items():
                frames.append(adding(name, producer_id, MAX_PARTITIONS))
                frames.append(message(ApiKey.END_TXN, 3, EndTxnRequest(name, producer_id, 0, False)))
            responses = exchange(arena, *frames)
            for response in responses[1::2]:
                assert isinstance(response, bytes)
                assert read(ApiKey.END_TXN, 3, response).error_code == ErrorCode.NONE

    markers = rounds * len(producers) * MAX_PARTITIONS
    bounds = Bounds(memory_bytes=64 * MIB + markers * 512, cpu_s=rounds / 5)
    arena.withstands(f"{markers:,} markers", run, bounds)


def test_one_request_for_very_many_transactions_and_partitions(arena: Arena) -> None:
    arena.rounds = 1
    create(arena, "named", MAX_PARTITIONS)
    producer_id = init(arena, "many")
    few = [AddPartitionsToTxnTopic("named", [0, 1])]
    many = AddPartitionsToTxnRequest(
        [AddPartitionsToTxnTransaction(f"none-{n}", 1, 0, n % 2 == 0, few) for n in range(9_000)]
    )
    beyond = [AddPartitionsToTxnTopic("named", list(range(MAX_PARTITIONS)) * 20)]
    large = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("many", producer_id, 0, False, beyond)])

    def run() -> None:
        response = ask(arena, ApiKey.ADD_PARTITIONS_TO_TXN, 5, many)
        assert len(response.results_by_transaction) == 9_000
        response = ask(arena, ApiKey.ADD_PARTITIONS_TO_TXN, 5, large)
        (result,) = response.results_by_transaction
        assert result.topic_results

    arena.withstands("AddPartitionsToTxn of 9,000 transactions", run, Bounds(cpu_s=10.0))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [3_000, pytest.param(90_000, marks=pytest.mark.full)])
def test_very_many_transactional_ids_of_which_many_are_open(arena: Arena, count: int) -> None:
    """They are begun, opened, listed and described."""
    arena.rounds = 1
    create(arena, "opened", 1)
    names = [f"many-{number}" for number in range(count)]
    is_open = names[: count // 9]

    def run() -> None:
        producer_ids = {}
        for first in range(0, count, PIPELINED):
            some = names[first : first + PIPELINED]
            begun = [
                message(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(name, 60_000)) for name in some
            ]
            for name, response in zip(some, exchange(arena, *begun), strict=True):
                assert isinstance(response, bytes)
                producer_ids[name] = read(ApiKey.INIT_PRODUCER_ID, 4, response).producer_id
        for first in range(0, len(is_open), PIPELINED):
            some = is_open[first : first + PIPELINED]
            exchange(arena, *(adding(name, producer_ids[name], 1, "opened") for name in some))
        listed = ask(arena, ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(["Ongoing"]))
        found = {each.transactional_id for each in listed.transaction_states}
        assert found >= set(is_open) and not found & set(names[len(is_open) :])
        assert (
            len(ask(arena, ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest()).transaction_states)
            >= count
        )
        described = ask(arena, ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(is_open))
        assert {each.transaction_state for each in described.transaction_states} == {"Ongoing"}

    bounds = Bounds(memory_bytes=64 * MIB + count * 2_048, cpu_s=count / 1_000)
    arena.withstands(f"{count:,} transactional ids, {len(is_open):,} of them open", run, bounds)


def test_a_flood_of_long_transactional_ids(arena: Arena) -> None:
    arena.rounds = 1
    count = 1_000
    frames = [
        message(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(f"{number}" + "x" * 30_000, 60_000))
        for number in range(count)
    ]

    def run() -> None:
        for response in exchange(arena, *frames):
            assert isinstance(response, bytes)
            assert read(ApiKey.INIT_PRODUCER_ID, 4, response).error_code in CODES

    bounds = Bounds(memory_bytes=64 * MIB + count * 2 * 30_000, cpu_s=5.0)
    arena.withstands(f"{count:,} transactional ids of 30,000 characters", run, bounds)
