"""The servers of the bench: each takes the same load in plain text and over TLS."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from bench.case import Case, Scale
from bench.cases import CASES, TLS_NAMES
from bench.servers import SYNCED, SYNCED_KAFKA, BenchGateway, BenchKafka, BenchServer
from bench.transaction_cases import TRANSACTION_CASES
from tests.support.kafka import why_missing

S = TypeVar("S", bound=BenchServer)
LITTLE = Scale(2_000_000, 1_000_000, 1, 100, 10, 1, 100, 10, 3, 20)
OF_FEW_PARTITIONS, OF_MANY_PARTITIONS = TRANSACTION_CASES[:2], TRANSACTION_CASES[2:]
(TLS_CASE,) = [case for case in CASES if case.names == TLS_NAMES]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[BenchGateway]:
    yield from started(BenchGateway(tmp_path / "gateway"))


@pytest.fixture
def synced_kafka(tmp_path: Path) -> Iterator[BenchKafka]:
    if (reason := why_missing()) is not None:
        pytest.skip(reason)
    yield from started(BenchKafka(tmp_path / "kafka", SYNCED_KAFKA, SYNCED))


def started(server: S) -> Iterator[S]:
    try:
        server.start()
        yield server
    finally:
        server.remove()


def assert_tls_measured(server: BenchServer) -> None:
    figures = TLS_CASE.run(server, LITTLE, lambda percent: None)
    assert list(figures) == list(TLS_NAMES)
    for measured in figures.values():
        assert measured["mb_s"] > 0
        assert measured["system_cpu_s_gb"] >= measured["cpu_s_gb"]


def assert_transactions_measured(server: BenchServer, cases: Sequence[Case]) -> None:
    for case in cases:
        for measured in case.run(server, LITTLE, lambda percent: None).values():
            assert measured["transactions_s"] > 0
            assert measured["end_to_end_p99_ms"] >= measured["end_to_end_p50_ms"] > 0


@pytest.mark.parametrize(
    "cases",
    [OF_FEW_PARTITIONS, pytest.param(OF_MANY_PARTITIONS, marks=pytest.mark.full)],
    ids=["few partitions", "many partitions"],
)
def test_the_gateway_of_the_bench_commits_transactions(gateway: BenchGateway, cases: Sequence[Case]) -> None:
    assert_transactions_measured(gateway, cases)


def test_the_gateway_of_the_bench_serves_a_load_over_tls(gateway: BenchGateway) -> None:
    assert_tls_measured(gateway)


@pytest.mark.full
def test_a_kafka_that_syncs_serves_the_same(synced_kafka: BenchKafka) -> None:
    assert_tls_measured(synced_kafka)
    assert_transactions_measured(synced_kafka, TRANSACTION_CASES)
    assert "log.flush.interval.messages=1" in (synced_kafka.directory / "server.properties").read_text()
