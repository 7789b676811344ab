"""What `dragoman cluster health` says of transactions, at servers of any kind."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gateway.cli.open_transactions import DESCRIBED_AT_ONCE
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated import describe_transactions, list_transactions
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsResponse
from gateway.wire.messages.generated.list_transactions import ListTransactionsResponse
from tests.support.brokers_by_hand import Respond, brokers
from tests.support.command import run_here

MINUTE_MS: Final = 60_000


@dataclass
class At:
    bootstrap: str


def transactions_of(ages_ms: Mapping[int, Mapping[str, int]]) -> dict[ApiKey, Respond]:
    """Of each node the open transactions that it coordinates, and how long ago they began."""

    def listed(node: int, request: Any) -> Any:
        assert request.state_filters == ["Ongoing"]
        found = [list_transactions.TransactionState(name, 7, "Ongoing") for name in ages_ms[node]]
        return ListTransactionsResponse(transaction_states=found)

    def described(node: int, request: Any) -> Any:
        assert len(request.transactional_ids) <= DESCRIBED_AT_ONCE
        return DescribeTransactionsResponse(
            transaction_states=[state_of(name, ages_ms[node][name]) for name in request.transactional_ids]
        )

    return {ApiKey.LIST_TRANSACTIONS: listed, ApiKey.DESCRIBE_TRANSACTIONS: described}


def state_of(name: str, age_ms: int) -> describe_transactions.TransactionState:
    if age_ms < 0:
        return describe_transactions.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    begun_ms = time.time_ns() // 1_000_000 - age_ms
    return describe_transactions.TransactionState(0, name, "Ongoing", 60_000, begun_ms, 7, 0)


def health(responses: Mapping[ApiKey, Respond], nodes: int = 1, as_json: bool = True) -> Any:
    """What it prints, with exit code 0."""
    done = run_health(responses, nodes, as_json)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if as_json else done.stdout


def run_health(
    responses: Mapping[ApiKey, Respond], nodes: int, as_json: bool
) -> subprocess.CompletedProcess[str]:
    with brokers(responses, nodes) as bootstrap:
        return run_here(At(bootstrap), "cluster", "health", *(["--json"] if as_json else []))


def test_the_oldest_of_all_nodes_is_named() -> None:
    ages = {1: {"young": 10, "older": 90_000}, 2: {"oldest": 9 * MINUTE_MS}}
    found = health(transactions_of(ages), nodes=2)
    assert found["is_healthy"] and found["warnings"] == []
    shown = found["transactions"]
    assert (shown["open"], shown["oldest"], shown["long"]) == (3, "oldest", 0)
    assert 9 * MINUTE_MS <= shown["oldest_ms"] < 10 * MINUTE_MS
    lines = health(transactions_of(ages), nodes=2, as_json=False).splitlines()
    assert lines[-1].startswith("ok     open transactions: 3, the oldest (oldest) for 54")
    assert lines[-1].endswith("see `dragoman transactions list --state Ongoing`")


def test_no_open_transaction_is_one_line() -> None:
    none = transactions_of({1: {}})
    assert health(none)["transactions"] == {"open": 0, "oldest": None, "oldest_ms": None, "long": 0}
    assert health(none, as_json=False).splitlines()[-1] == "ok     open transactions: 0"


@pytest.mark.parametrize(
    ("others", "said"), [({}, "1 transaction has"), ({"b": 601_000}, "2 transactions have")]
)
def test_a_transaction_that_is_open_for_more_than_ten_minutes_is_warned_of(
    others: dict[str, int], said: str
) -> None:
    served = transactions_of({1: {"stuck": 11 * MINUTE_MS, "young": 590_000, **others}})
    found = health(served)
    (warning,) = found["warnings"]
    assert warning.startswith(f"{said} been open for more than 10 minutes, the oldest (stuck) for 66")
    assert warning.endswith("see `dragoman transactions list --state Ongoing --longer-than 600000`")
    assert found["is_healthy"] and found["transactions"]["long"] == 1 + len(others)
    lines = health(served, as_json=False).splitlines()
    assert [line[:7] for line in lines] == ["ok     ", "warns  "] and lines[1].endswith(warning[-40:])


def test_many_are_described_a_few_at_a_time_and_those_that_have_ended_meanwhile_are_passed_over() -> None:
    ages = {f"id {number}": number for number in range(3 * DESCRIBED_AT_ONCE)} | {"gone": -1}
    found = health(transactions_of({1: ages}))["transactions"]
    assert (found["open"], found["oldest"]) == (len(ages), f"id {3 * DESCRIBED_AT_ONCE - 1}")


def test_a_server_without_these_apis_is_healthy_and_says_nothing_of_transactions() -> None:
    found = health({})
    assert found["is_healthy"] and found["transactions"] is None and found["warnings"] == []
    assert "transactions" not in health({}, as_json=False)


def test_a_server_that_lists_none_now_is_warned_of() -> None:
    def refuses(_: int, __: Any) -> Any:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    found = health({ApiKey.LIST_TRANSACTIONS: refuses})
    assert found["transactions"] is None and found["is_healthy"]
    (warning,) = found["warnings"]
    assert warning.startswith("open transactions are unknown: ") and "COORDINATOR_LOAD" in warning
