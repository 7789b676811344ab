"""Transactions: what Apache Kafka answers to bad input."""

import time
from collections import Counter
from typing import Any

import pytest

from gateway.wire.errors import ErrorCode
from tests.differential.conftest import Comparison
from tests.differential.holding import hold
from tests.differential.scenarios.transactions_all import BAD_INPUT, TRANSACTIONS

TRANSACTION_COUNT = 995


@pytest.mark.parametrize("name", BAD_INPUT)
def test_kafka_answers_bad_input_as_the_table_says(name: str, comparison: Comparison) -> None:
    number, exchange = next((n, one) for n, one in enumerate(TRANSACTIONS) if one.name == name)
    prefix = f"d{time.time_ns() % 10**8}-{number}"
    first, *_ = hold(comparison.kafka, exchange, prefix, comparison.started_ms)
    errors = set(errors_of(first))
    expected = BAD_INPUT[name]
    assert expected in errors if expected else not any(errors), first


def test_no_exchange_of_transactions_was_lost() -> None:
    assert len(TRANSACTIONS) == TRANSACTION_COUNT
    twice = [name for name, times in Counter(one.name for one in TRANSACTIONS).items() if times > 1]
    assert not twice


def errors_of(value: Any) -> list[ErrorCode]:
    """All error codes of a response as a plain value, at any depth."""
    if isinstance(value, list):
        return [error for item in value for error in errors_of(item)]
    if not isinstance(value, dict):
        return []
    own = [ErrorCode(code) for name, code in value.items() if name.endswith("error_code")]
    return own + [error for item in value.values() for error in errors_of(item)]
