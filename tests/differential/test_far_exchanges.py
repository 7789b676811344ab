"""Exchanges held with Apache Kafka, and with a gateway that keeps everything in etcd and S3."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.differential.comparing import Allowed, Kind, read_allowed
from tests.differential.conftest import ALLOWED, GATEWAY_OPTIONS, Comparison
from tests.differential.exchange import Exchange
from tests.differential.random_calls import RandomCalls
from tests.differential.scenarios.all import EVERY_EXCHANGE
from tests.differential.test_random_sequences import compare_sequences
from tests.support.far_stores import ETCD_S3, far_gateway, far_place

EVERY: Final = 40
"""Of so many exchanges one is held in each run."""
OF_FAR_STORES: Final = tuple(
    Allowed("DESCRIBE_LOG_DIRS", f"results[].{field}", Kind.UNKNOWN_SIZE, "A bucket has no end.")
    for field in ("total_bytes", "usable_bytes")
)
"""Differences that are allowed besides."""
LATER_MS: Final = 1
"""Topic names have the time of the comparison: those of the other gateway are others."""


@pytest.fixture(scope="session")
def far_comparison(
    request: pytest.FixtureRequest, comparison: Comparison, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Comparison]:
    place = far_place(request, ETCD_S3)
    with far_gateway(place, tmp_path_factory.mktemp("far"), GATEWAY_OPTIONS) as gateway:
        allowed = [*read_allowed(ALLOWED), *OF_FAR_STORES]
        yield Comparison(comparison.kafka, gateway, allowed, comparison.started_ms + LATER_MS)


@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param(exchange, id=exchange.name, marks=[pytest.mark.full] if number % EVERY else [])
        for number, exchange in enumerate(EVERY_EXCHANGE)
    ],
)
def test_kafka_and_a_gateway_with_nothing_local_respond_alike(
    exchange: Exchange, far_comparison: Comparison
) -> None:
    compared = far_comparison.of(exchange)
    assert not compared.refused, "\n" + "\n".join(map(str, compared.refused))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))])
def test_a_random_sequence_gets_the_same_responses_from_far_stores(
    seed: int, far_comparison: Comparison
) -> None:
    compare_sequences(RandomCalls, seed, far_comparison)
