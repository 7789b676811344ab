"""The open transactions of any Kafka endpoint: how many there are, and which began first (KIP-664)."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.cli.endpoint import Endpoint, Refusal
from gateway.cli.transactions import ONGOING
from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.describe_transactions import DescribeTransactionsRequest
from gateway.wire.messages.generated.list_transactions import ListTransactionsRequest

LONG_MS: Final = 600_000
"""As the alert DragomanTransactionOpen has it (`deploy/prometheus/alerts.yml`)."""
DESCRIBED_AT_ONCE: Final = 50
"""A response has all partitions of these transactions."""
HOW_TO_LOOK: Final = "dragoman transactions list --state Ongoing"


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """`oldest`: the transactional id of the one that began first, and `oldest_ms` how long ago, by the clock
    of this machine; None if none is open, or the endpoint describes none of them. `long`: how many have been
    open for more than LONG_MS."""

    open: int
    oldest: str | None = None
    oldest_ms: int | None = None
    long: int = 0


def open_transactions(endpoint: Endpoint) -> OpenTransactions:
    """Of all nodes: each coordinates some of them. NotServed, Refusal, ClientError."""
    names = {node: _listed(endpoint, node) for node in endpoint.nodes()}
    started = [each for node, mine in names.items() for each in _started(endpoint, node, mine)]
    now_ms = time.time_ns() // 1_000_000
    count = sum(map(len, names.values()))
    if not started:
        return OpenTransactions(count)
    first_ms, oldest = min(started)
    long = sum(now_ms - started_ms > LONG_MS for started_ms, _ in started)
    return OpenTransactions(count, oldest, max(now_ms - first_ms, 0), long)


def _listed(endpoint: Endpoint, node: int) -> list[str]:
    response: Any = endpoint.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest([ONGOING]), node)
    if response.error_code:
        raise Refusal("transactions cannot be listed", response.error_code)
    return [each.transactional_id for each in response.transaction_states]


def _started(endpoint: Endpoint, node: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """When each began (unix ms) that is still open, and its id."""
    for at in range(0, len(names), DESCRIBED_AT_ONCE):
        request = DescribeTransactionsRequest(list(names[at : at + DESCRIBED_AT_ONCE]))
        response: Any = endpoint.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, node)
        for each in response.transaction_states:
            # An error is that of one which has ended, or that this user may not see.
            if not each.error_code and each.transaction_state == ONGOING:
                yield each.transaction_start_time_ms, each.transactional_id
