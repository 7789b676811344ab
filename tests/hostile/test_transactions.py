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
from gateway.wire.messages.generated.end_txn import EndTxnRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from ledger.transactions.requests import MAX_PARTITIONS
from tests.hostile.arena import MIB, Arena, Bounds
from tests.hostile.speaking import ask, exchange, message, read
from tests.hostile.test_answers import create

CODES: Final = {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def init(arena: Arena, transactional_id: str) -> int:
    """The producer id."""
    begun = ask(arena, ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id, 60_000))
    assert begun.error_code == ErrorCode.NONE
    return int(begun.producer_id)


def adding(name: str, producer_id: int, partitions: int) -> bytes:
    topics = [AddPartitionsToTxnTopic("marked", list(range(partitions)))]
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
