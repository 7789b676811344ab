"""Both endpoints, and the memory of their responses."""

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.find_coordinator import FindCoordinatorRequest
from gateway.wire.messages.generated.init_producer_id import InitProducerIdRequest
from gateway.wire.messages.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.differential.comparing import Allowed, Difference, differences, read_allowed
from tests.differential.conversation import Answered, Conversation, Endpoint, error_codes
from tests.differential.exchange import Call, Exchange
from tests.differential.holding import hold
from tests.differential.scenarios.all import EVERY_EXCHANGE
from tests.differential.steps import wait_until
from tests.support.gateway import Gateway, running_gateway
from tests.support.kafka import KafkaServer

ALLOWED = Path(__file__).with_name("allowed_differences.toml")
COMPARISON = re.compile(r"d(\d+)-")
"""How names of an exchange begin: with the time of their comparison."""
GATEWAY_OPTIONS = ("--node-id", "1", "--set", "groups.group.initial.rebalance.delay.ms=0")


@dataclass(frozen=True, slots=True)
class Compared:
    """Of one exchange: the response, and where that differs although it may not."""

    kafka: Sequence[dict[str, Any]]
    gateway: Sequence[dict[str, Any]]
    refused: Sequence[Difference]


@dataclass(slots=True)
class Comparison:
    """Holds exchanges with both, each once a run."""

    kafka: Endpoint
    gateway: Gateway
    allowed: Sequence[Allowed]
    started_ms: int
    known: dict[str, Compared] = field(default_factory=dict)
    used: set[Allowed] = field(default_factory=set)

    def of(self, exchange: Exchange) -> Compared:
        if exchange.name not in self.known:
            self.known[exchange.name] = self._hold(exchange)
        return self.known[exchange.name]

    def _hold(self, exchange: Exchange) -> Compared:
        prefix = f"d{self.started_ms % 10**8}-{EVERY_EXCHANGE.index(exchange)}"
        with ThreadPoolExecutor(2) as pool:
            held = [
                pool.submit(hold, endpoint, exchange, prefix, self.started_ms)
                for endpoint in (self.kafka, self.gateway)
            ]
        kafka, gateway = (self._own(future.result()) for future in held)
        apis = [exchange.api, *(call.api for call in exchange.after)]
        found = differences(exchange.name, apis, kafka, gateway)
        return Compared(kafka, gateway, [one for one in found if not self._is_allowed(one)])

    def _own(self, responses: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without the quotas of another comparison with the same Kafka, whose gateway was another."""
        return [
            {**response, "entries": [entry for entry in response["entries"] if not self._is_foreign(entry)]}
            if isinstance(response.get("entries"), list)
            else response
            for response in responses
        ]

    def _is_foreign(self, entry: Any) -> bool:
        parts = entry.get("entity") or () if isinstance(entry, dict) else ()
        prefixes = [COMPARISON.match(part.get("entity_name") or "") for part in parts]
        return any(found is not None and int(found[1]) != self.started_ms % 10**8 for found in prefixes)

    def _is_allowed(self, difference: Difference) -> bool:
        entry = next((entry for entry in self.allowed if entry.covers(difference)), None)
        if entry is not None:
            self.used.add(entry)
        return entry is not None


@pytest.fixture(scope="session")
def compared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With the node id of the Kafka that it is compared with."""
    with running_gateway(tmp_path_factory.mktemp("differential"), GATEWAY_OPTIONS) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def comparison(kafka_oracle: KafkaServer, compared_gateway: Gateway) -> Comparison:
    # A Kafka that has just started requests producer ids of its controller only when a client needs the
    # first.
    wait_until(lambda: gives_producer_ids(kafka_oracle))
    wait_until(lambda: coordinates_groups(kafka_oracle))
    wait_until(lambda: coordinates_transactions(kafka_oracle))
    return Comparison(kafka_oracle, compared_gateway, read_allowed(ALLOWED), int(time.time() * 1000))


def coordinates_groups(kafka: Endpoint) -> bool:
    """Kafka makes the topic of offsets when a client first looks for a coordinator."""
    conversation = Conversation(kafka, "first", 0)
    found = conversation.ask(Call(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest("first")))
    requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("first", topics=None)])
    fetched = conversation.ask(Call(ApiKey.OFFSET_FETCH, 8, requested))
    return all(
        isinstance(response, Answered) and not any(error_codes(response.message))
        for response in (found, fetched)
    )


def coordinates_transactions(kafka: Endpoint) -> bool:
    """Kafka makes the topic of transactional ids when a client first looks for a coordinator."""
    conversation = Conversation(kafka, "first", 0)
    found = conversation.ask(Call(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest("first", 1)))
    begun = conversation.ask(Call(ApiKey.INIT_PRODUCER_ID, 5, InitProducerIdRequest("first", 60_000)))
    return all(
        isinstance(response, Answered) and not any(error_codes(response.message))
        for response in (found, begun)
    )


def gives_producer_ids(kafka: Endpoint) -> bool:
    call = Call(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(None))
    response = Conversation(kafka, "first", 0).ask(call)
    return isinstance(response, Answered) and response.message.error_code == 0
