"""Every exchange, held with Apache Kafka and with a gateway: the responses are the same, field by field."""

from collections import Counter

import pytest

from gateway.router import HANDLERS
from gateway.wire.apis import MINIMUM_SERVED, RANGES, ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from tests.differential.comparing import MAX_ALLOWED, Kind, read_allowed
from tests.differential.conftest import ALLOWED, Comparison
from tests.differential.conversation import Answered, Conversation, Endpoint
from tests.differential.exchange import Call, Exchange
from tests.differential.scenarios.all import EXCHANGES
from tests.differential.scenarios.builders import produce
from tests.differential.scenarios.transactions_all import SHORT
from tests.differential.steps import Create
from tests.support.gateway import Gateway

EXCHANGE_COUNT = 2826
EVERY_RUN = [*EXCHANGES, *SHORT]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_kafka_and_the_gateway_respond_alike(exchange: Exchange, comparison: Comparison) -> None:
    compared = comparison.of(exchange)
    assert not compared.refused, "\n" + "\n".join(map(str, compared.refused))
    if any(response["outcome"] == "closed" for response in compared.gateway):
        assert comparison.gateway.is_running()
        assert rows(comparison.gateway), "the next client is not served"


def test_no_exchange_was_lost() -> None:
    assert len(EXCHANGES) == EXCHANGE_COUNT
    twice = [name for name, times in Counter(exchange.name for exchange in EXCHANGES).items() if times > 1]
    assert not twice


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name.lower())
def test_each_api_is_compared_in_its_lowest_a_middle_and_its_newest_version(key: ApiKey) -> None:
    lowest, newest = RANGES[key]
    lowest = MINIMUM_SERVED.get(key, lowest)
    requested = {exchange.version for exchange in EVERY_RUN if exchange.api is key}
    assert {lowest, newest} <= requested
    between = set(range(lowest + 1, newest))
    assert not between or between & requested


def test_what_is_spoken_is_what_is_served_in_the_versions_of_kafka(comparison: Comparison) -> None:
    ours, theirs = rows(comparison.gateway), rows(comparison.kafka)
    assert ours == {int(key): RANGES[key] for key in HANDLERS}
    assert ours == {key: theirs[key] for key in ours}


def test_null_records_get_an_error_where_kafka_lets_the_producer_wait_for_ever(
    compared_gateway: Gateway,
) -> None:
    # Kafka 4.3.1 runs into a null pointer, and sends no response to this or to any later request.
    conversation = Conversation(compared_gateway, "null-records", 0)
    Create().run(conversation)
    response = conversation.ask(Call(ApiKey.PRODUCE, 9, produce(None)))
    assert isinstance(response, Answered)
    (partition,) = response.message.responses[0].partition_responses
    assert partition.error_code == ErrorCode.INVALID_RECORD


def test_few_differences_are_allowed_and_all_of_them_are_needed(comparison: Comparison) -> None:
    assert len(comparison.allowed) <= MAX_ALLOWED
    for exchange in EVERY_RUN:
        comparison.of(exchange)
    assert not [entry for entry in comparison.allowed if entry not in comparison.used]


def test_no_error_code_and_no_record_may_be_allowed_but_for_one_kind_of_lie() -> None:
    lies = [entry for entry in read_allowed(ALLOWED) if entry.kind is Kind.LIE]
    returned = [exchange.name for exchange in EXCHANGES for lie in lies if lie.concerns(exchange.name)]
    assert len(lies) == 1
    assert all(name.startswith("produce: a lie inside, ") for name in returned)


def rows(endpoint: Endpoint) -> dict[int, tuple[int, int]]:
    """The versions that an endpoint says it serves, to a client of its own."""
    conversation = Conversation(endpoint, "versions", 0)
    response = conversation.ask(Call(ApiKey.API_VERSIONS, 4, ApiVersionsRequest("test", "1")))
    assert isinstance(response, Answered), response
    assert response.message.error_code == 0
    return {row.api_key: (row.min_version, row.max_version) for row in response.message.api_keys}
