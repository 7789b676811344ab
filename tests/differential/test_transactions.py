"""Transactions with Apache Kafka and with a gateway: the responses are the same, the errors as expected."""

from collections import Counter
from typing import Any

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from tests.differential.conftest import Comparison
from tests.differential.conversation import Answered, Conversation
from tests.differential.exchange import Call, Exchange
from tests.differential.scenarios.transactions_all import BAD_INPUT, SHORT, TRANSACTIONS
from tests.differential.steps import Create
from tests.differential.transaction_steps import Begin, add_all, added, init
from tests.support.gateway import Gateway

TRANSACTION_COUNT = 990


@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param(exchange, id=exchange.name, marks=[] if exchange in SHORT else [pytest.mark.full])
        for exchange in TRANSACTIONS
    ],
)
def test_kafka_and_the_gateway_respond_alike(exchange: Exchange, comparison: Comparison) -> None:
    compared = comparison.of(exchange)
    assert not compared.refused, "\n" + "\n".join(map(str, compared.refused))


@pytest.mark.parametrize("name", BAD_INPUT)
def test_kafka_answers_bad_input_as_the_table_says(name: str, comparison: Comparison) -> None:
    exchange = next(one for one in TRANSACTIONS if one.name == name)
    first, *_ = comparison.of(exchange).kafka
    errors, expected = set(errors_of(first)), BAD_INPUT[name]
    assert expected in errors if expected else not any(errors), first


def test_no_exchange_of_transactions_was_lost() -> None:
    assert len(TRANSACTIONS) == TRANSACTION_COUNT
    assert {one.name for one in TRANSACTIONS} >= BAD_INPUT.keys()
    twice = [name for name, times in Counter(one.name for one in TRANSACTIONS).items() if times > 1]
    assert not twice


def test_no_transaction_to_add_to_gets_a_response_where_kafka_never_responds(
    compared_gateway: Gateway,
) -> None:
    conversation = Conversation(compared_gateway, "no-transaction", 0)
    response = conversation.ask(Call(ApiKey.ADD_PARTITIONS_TO_TXN, 4, add_all()))
    assert isinstance(response, Answered)
    assert response.message.results_by_transaction == []


def test_an_open_transaction_is_aborted_at_once_where_kafka_lets_the_request_be_repeated(
    compared_gateway: Gateway,
) -> None:
    conversation = Conversation(compared_gateway, "at-once", 0)
    for step in (Create(), Begin()):
        step.run(conversation)
    conversation.ask(added())
    response = conversation.ask_once(Call(ApiKey.INIT_PRODUCER_ID, 5, init()))
    assert isinstance(response, Answered)
    assert (response.message.error_code, response.message.producer_epoch) == (ErrorCode.NONE, 2)


def errors_of(value: Any) -> list[ErrorCode]:
    """All error codes of a response as a plain value, at any depth."""
    if isinstance(value, list):
        return [error for item in value for error in errors_of(item)]
    if not isinstance(value, dict):
        return []
    own = [ErrorCode(code) for name, code in value.items() if name.endswith("error_code")]
    return own + [error for item in value.values() for error in errors_of(item)]
