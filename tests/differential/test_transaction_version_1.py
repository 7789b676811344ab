"""Clients of transaction version 1 at a Kafka whose cluster has that version, and at a gateway, which serves
both versions: the responses are the same."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.wire.apis import ApiKey
from gateway.wire.messages.generated.api_versions import ApiVersionsRequest
from tests.differential.comparing import read_allowed
from tests.differential.conftest import (
    ALLOWED,
    GATEWAY_OPTIONS,
    Comparison,
    coordinates_groups,
    coordinates_transactions,
    gives_producer_ids,
)
from tests.differential.conversation import Answered, Conversation, Endpoint
from tests.differential.exchange import Call, Exchange
from tests.differential.scenarios.transactions_all import SHORT, TRANSACTIONS
from tests.differential.steps import Done, wait_until
from tests.differential.stories import expected_here
from tests.differential.transaction_play import Play
from tests.differential.transaction_steps import COMMIT_V1, END_V1, PRODUCE_V1
from tests.support.gateway import Gateway, running_gateway
from tests.support.kafka import KafkaServer, running_kafka, why_missing
from tests.support.transcript import read_transcript, write_transcript

STORY: Final = Path(__file__).parent / "transactions" / "version_1" / "old_clients.txt"
OFTEN: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
FEATURE: Final = "transaction.version"
NEWEST: Final = {
    ApiKey.PRODUCE: PRODUCE_V1,
    ApiKey.TXN_OFFSET_COMMIT: COMMIT_V1,
    ApiKey.END_TXN: END_V1,
}
"""By API, the newest version that a client sends when the cluster has transaction version 1."""


def is_ready(kafka: Endpoint) -> bool:
    return gives_producer_ids(kafka) and coordinates_groups(kafka) and coordinates_transactions(kafka)


def played(server: KafkaServer | Gateway, *, settles_later: bool = False) -> str:
    blocks, prefix = read_transcript(STORY.read_text()), f"v1-{time.time_ns() % 10**8}"
    return write_transcript(Play(server, prefix, is_ready, settles_later=settles_later).run(blocks))


def is_of_version_1(exchange: Exchange) -> bool:
    before = [step.call for step in exchange.before if isinstance(step, Done)]
    calls = [exchange.call, *exchange.after, *before]
    return all(call.version <= NEWEST.get(call.api, call.version) for call in calls)


EXCHANGES: Final = [one for one in TRANSACTIONS if is_of_version_1(one)]
COUNT: Final = 368


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    with running_kafka(OFTEN, {FEATURE: 1}) as server:
        wait_until(lambda: is_ready(server))
        yield server


@pytest.fixture(scope="module")
def of_version_1(kafka: KafkaServer, compared_gateway: Gateway) -> Comparison:
    return Comparison(kafka, compared_gateway, read_allowed(ALLOWED), int(time.time() * 1000))


def test_the_cluster_has_transaction_version_1(kafka: KafkaServer) -> None:
    response = Conversation(kafka, "version", 0).ask(
        Call(ApiKey.API_VERSIONS, 4, ApiVersionsRequest("test", "1"))
    )
    assert isinstance(response, Answered)
    levels = {one.name: one.max_version_level for one in response.message.finalized_features}
    assert levels[FEATURE] == 1


@pytest.mark.parametrize(
    "exchange",
    [pytest.param(one, id=one.name, marks=[] if one in SHORT else [pytest.mark.full]) for one in EXCHANGES],
)
def test_a_cluster_of_version_1_and_the_gateway_respond_alike(
    exchange: Exchange, of_version_1: Comparison
) -> None:
    compared = of_version_1.of(exchange)
    assert not compared.refused, "\n" + "\n".join(map(str, compared.refused))


def test_a_cluster_of_version_1_does_what_the_transcript_says(
    kafka: KafkaServer, renew_transcripts: bool
) -> None:
    outcome = played(kafka, settles_later=True)
    if renew_transcripts:
        STORY.write_text(outcome)
    assert outcome == STORY.read_text()


def test_the_gateway_does_what_the_transcript_of_version_1_says(tmp_path: Path) -> None:
    settings = [f"transactions.{name}={value}" for name, value in OFTEN.items()]
    options = (*GATEWAY_OPTIONS, *(word for setting in settings for word in ("--set", setting)))
    with running_gateway(tmp_path, options) as gateway:
        assert played(gateway) == expected_here(STORY)


def test_no_exchange_of_version_1_was_lost() -> None:
    assert len(EXCHANGES) == COUNT
