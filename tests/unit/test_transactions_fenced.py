"""The event of an open transaction that InitProducerId aborts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from gateway.wire.apis import ApiKey
from gateway.wire.messages import codec
from gateway.wire.messages.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from tests.support.caller import Caller
from tests.support.in_memory import InMemoryGateway, in_memory_gateway

INIT: Final = InitProducerIdRequest("tx", 60_000)
VERSION: Final = 4


@pytest.fixture
async def gateway() -> AsyncIterator[InMemoryGateway]:
    async with in_memory_gateway() as running:
        await running.create("orders")
        yield running


async def began(gateway: InMemoryGateway, *, is_open: bool) -> None:
    made = await gateway.ask(ApiKey.INIT_PRODUCER_ID, VERSION, INIT)
    if is_open:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("orders", [0])],
        )
        added = await gateway.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


async def events_of_a_client_that_hangs_up(gateway: InMemoryGateway) -> list[Any]:
    """While its InitProducerId waits for the journal."""
    body = codec.encode_request(ApiKey.INIT_PRODUCER_ID, VERSION, INIT)
    with capture_logs() as events:
        begun = asyncio.create_task(Caller(gateway).answer(ApiKey.INIT_PRODUCER_ID, VERSION, body))
        await asyncio.sleep(0)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
    return [event for event in events if event["event"] == "transactions.fenced"]


async def test_a_client_that_hangs_up_leaves_an_event_of_unknown_outcome(gateway: InMemoryGateway) -> None:
    await began(gateway, is_open=True)
    (event,) = await events_of_a_client_that_hangs_up(gateway)
    assert (event["transactional_id"], event["outcome"]) == ("tx", "unknown")


async def test_where_no_transaction_is_open_there_is_no_event(gateway: InMemoryGateway) -> None:
    await began(gateway, is_open=False)
    assert await events_of_a_client_that_hangs_up(gateway) == []
