"""Traces: what a collector of OpenTelemetry gets of a Produce request, and what it costs where it is off."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.process.test_admin_pages import samples
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.otlp import Collector, Span, running_collector
from tests.support.topics import create_topics
from tests.support.versions import ROOT

WAIT_S = 20.0
STAGES = {"draft.wait", "segments.write", "journal.commit"}
STAGES_IN_LOG = {"draft.wait", "journal.append"}
SECRET = "api-key=of-a-collector"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


def traced(factory: GatewayFactory, collector: Collector, *more: str, one_in: int = 1) -> Gateway:
    settings = [f"traces.endpoint={collector.endpoint}", f"traces.one_in={one_in}", *more]
    gateway = factory(
        [word for setting in settings for word in ("--set", setting)],
        env={"OTEL_EXPORTER_OTLP_HEADERS": SECRET, "OTEL_BSP_SCHEDULE_DELAY": "100"},
    )
    gateway.start()
    create_topics(gateway.bootstrap, {"t": 2})
    return gateway


def produce(gateway: Gateway, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "client.id": "billing", "linger.ms": 0})
    for n in range(count):
        producer.produce("t", b"x", partition=n % 2)
        assert producer.flush(WAIT_S) == 0


def wait_for_spans(collector: Collector, count: int) -> list[Span]:
    deadline = time.monotonic() + WAIT_S
    while len(collector.spans) < count:
        assert time.monotonic() < deadline, collector.spans
        time.sleep(0.05)
    return list(collector.spans)


def test_a_trace_leads_from_a_produce_through_store_and_journal_to_its_response(
    gateway_factory: GatewayFactory, collector: Collector, tmp_path: Path
) -> None:
    in_sqlite = f"storage.metadata=sqlite:{tmp_path / 'gateway-0/data/metadata.db'}"
    gateway = traced(gateway_factory, collector, in_sqlite)
    began_ns = time.time_ns()
    produce(gateway)
    ended_ns = time.time_ns()
    spans = wait_for_spans(collector, 1 + len(STAGES))
    (root,) = [span for span in spans if span.name == "Produce"]
    children = {span.name: span for span in spans if span.parent_id == root.span_id}
    assert children.keys() == STAGES and len(spans) == 1 + len(STAGES)
    assert {span.trace_id for span in spans} == {root.trace_id} and not root.parent_id
    waited, written, committed = (
        children[name] for name in ("draft.wait", "segments.write", "journal.commit")
    )
    # One stage after the other, within the request, within the call of the client.
    assert began_ns <= root.began_ns == waited.began_ns <= waited.ended_ns == written.began_ns
    assert written.began_ns < written.ended_ns == committed.began_ns < committed.ended_ns
    assert committed.ended_ns <= root.ended_ns <= ended_ns
    assert root.attributes["kafka.client_id"] == "billing"
    assert root.attributes["dragoman.error"] == committed.attributes["dragoman.error"] == "NONE"
    assert written.attributes["dragoman.draft.batches"] == 1
    assert not any(span.is_error for span in spans)
    assert collector.headers[0]["api-key"] == "of-a-collector"
    assert "of-a-collector" not in gateway.log_tail(1 << 20)


def test_one_write_of_the_journal_that_takes_batches_and_entry_is_one_stage(
    gateway_factory: GatewayFactory, collector: Collector, tmp_path: Path
) -> None:
    gateway = traced(gateway_factory, collector, f"storage.metadata=file:{tmp_path / 'gateway-0/data'}")
    produce(gateway)
    spans = wait_for_spans(collector, 1 + len(STAGES_IN_LOG))
    assert {span.name for span in spans} == {"Produce", *STAGES_IN_LOG}


def test_a_request_that_is_refused_ends_with_its_error(
    gateway_factory: GatewayFactory, collector: Collector
) -> None:
    gateway = traced(gateway_factory, collector, "broker.message.max.bytes=1000")
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "message.max.bytes": 100_000})
    producer.produce("t", bytes(range(256)) * 40)
    producer.flush(WAIT_S)
    (span,) = wait_for_spans(collector, 1)
    assert span.name == "Produce" and span.is_error
    assert span.attributes["dragoman.error"] == "MESSAGE_TOO_LARGE"


def test_one_request_of_so_many_is_traced(gateway_factory: GatewayFactory, collector: Collector) -> None:
    gateway = traced(gateway_factory, collector, one_in=4)
    requests = 200
    produce(gateway, requests)
    gateway.terminate()
    roots = [span for span in collector.spans if span.name == "Produce"]
    # 50 of them, more or less: six standard deviations.
    assert 13 <= len(roots) <= 87
    assert len(collector.spans) == len(roots) * (1 + len(STAGES_IN_LOG))


def test_a_collector_that_hangs_delays_neither_producers_nor_the_end_of_the_gateway(
    gateway_factory: GatewayFactory, collector: Collector
) -> None:
    collector.answers.clear()
    gateway = traced(gateway_factory, collector)
    began = time.monotonic()
    produce(gateway, 50)
    assert time.monotonic() - began < 5
    assert samples(gateway)['dragoman_requests_total{api="PRODUCE",error="NONE"}'] == 50
    began = time.monotonic()
    assert gateway.terminate() == 0
    assert time.monotonic() - began < 15
    assert len(gateway.log_tail(1 << 20).splitlines()) < 30


def test_a_gateway_without_traces_does_not_load_the_sdk() -> None:
    code = "import sys, gateway.cli.serve; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("http://127.0.0.1:1/v1/traces", "pip install 'dragoman[otel]'"),
        ("127.0.0.1:4318", "traces.endpoint is no URL http://HOST:PORT/PATH"),
        ("http://user:secret@127.0.0.1:4318/v1/traces", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_what_cannot_be_traced_is_said_at_the_start(tmp_path: Path, endpoint: str, says: str) -> None:
    # As if the extra were not installed.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry'] = None\n")
    command = [sys.executable, "-m", "gateway.cli.main", "serve", "--listen", "PLAINTEXT://127.0.0.1:0"]
    command += ["--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    finished = subprocess.run(
        [*command, "--set", f"traces.endpoint={endpoint}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    assert says in finished.stderr and "secret" not in finished.stderr
