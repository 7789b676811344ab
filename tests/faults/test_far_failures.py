"""A gateway whose stores are slow, fail, lose answers or cannot be reached, under clients of all kinds.

No acknowledged loss, nothing twice, only errors that clients try again, and recovery without a restart;
/readyz, metrics and the log say which store it is and why.
"""

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.addresses import Address
from gateway.cli.client import Client, ClientError
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ledger.batch.records import Record, build_batch
from tests.faults.far_clients import Clients, clients_at, until_all_go_on
from tests.support.etcd import EtcdServer
from tests.support.far_stores import BUCKET_ALONE, ETCD_S3, FarPlace, far_gateway
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server
from tests.support.store_ways import ETCD_TROUBLES, S3_TROUBLES, Store, Trouble, Ways, ways_to
from tests.support.topics import create_topics
from tests.support.weed import Weed

WINDOW_S: Final = 1.5
LONG_WINDOW_S: Final = 20.0
RECOVERY_S: Final = 60.0
POLL_S: Final = 0.1
SENT_EVERY_S: Final = 0.005
"""By each producer."""
GROWTH_BYTES: Final = 160 * 1024 * 1024
"""Of the process, for what the clients have under way: much less than what an unbounded queue would take."""
LINES: Final = 12
"""In the log about stores and journal, of one failure however long: a few operations, each when it begins and
when it ends."""
DEADLINE_MS: Final = 500
ANSWERED_S: Final = 15.0
"""Long after the deadline of a request, and before the gateway gives up calls of its stores."""
RETRIABLE: Final = frozenset(
    {"NONE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER"}
)
"""That clients try again by themselves."""
OPTIONS: Final = (
    *("--set", "groups.group.initial.rebalance.delay.ms=200"),
    # Each draft needs both stores.
    *("--set", "storage.inline_bytes=0"),
)
FLOOD_BUFFER_BYTES: Final = 32 * 1024 * 1024
FLOOD_CLIENTS: Final = 64
FLOOD_PARTITIONS: Final = range(4)
FLOOD_GROWTH_BYTES: Final = 128 * 1024 * 1024
"""Of 256 MB that the clients send at once, and what each copy of them would take."""
CLOSED: Final = "closed"
OF_THE_JOURNAL: Final = ("500-after", "answers-lost", "late", "expired-credentials")
"""Where the outcome of an append to it is not known, or a refusal is certain; the others are like those of
segments."""
STORE_EVENTS: Final = ("store.", "journal.", "produce.storage_failed", "produce.outcome_unknown")
_SAMPLE: Final = re.compile(r"(\w+)\{([^}]*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(slots=True)
class Scene:
    """A gateway, its clients, and the ways to its stores."""

    gateway: Gateway
    clients: Clients
    ways: Ways
    reasons: dict[str, str] = field(default_factory=dict)
    """Why it was not ready, as /readyz said during the last trouble."""

    def live_through(self, trouble: Trouble, seconds: float) -> None:
        self.reasons.clear()
        with self.ways.trouble(trouble):
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                self.reasons |= not_ready(self.gateway)
                time.sleep(POLL_S)
        until_all_go_on(self.clients, RECOVERY_S)

    def produced(self) -> set[str]:
        """What Produce requests were answered with so far."""
        return {
            labels["error"]
            for name, labels, value in samples(self.gateway)
            if name == "dragoman_requests_total" and labels["api"] == "Produce" and value
        }

    def failures_of(self, store: str) -> float:
        """As metrics say."""
        return sum(
            value
            for name, labels, value in samples(self.gateway)
            if name == "dragoman_store_errors_total" and labels["store"] == store
        )

    def logged(self) -> list[dict[str, Any]]:
        """What the log says of the stores."""
        lines = [
            json.loads(line) for line in self.gateway.log_path.read_text().splitlines() if line[:1] == "{"
        ]
        return [line for line in lines if str(line.get("event", "")).startswith(STORE_EVENTS)]


@contextmanager
def scene_over(row: str, weed: Weed, etcd: EtcdServer, directory: Path) -> Iterator[Scene]:
    """At its end the clients have stopped, and all that was acknowledged was there."""
    with ways_to(weed.s3_port, etcd.port) as ways:
        s3 = S3Server("the way to it", ways.s3_endpoint)
        metadata = s3.url() if row == BUCKET_ALONE else etcd.url(ways.etcd_endpoint)
        with far_gateway(FarPlace(row, metadata, s3.url()), directory, OPTIONS) as gateway:
            with clients_at(gateway, SENT_EVERY_S) as clients:
                until_all_go_on(clients, RECOVERY_S)
                yield Scene(gateway, clients, ways)
                clients.stop()
                print(clients.summary())  # noqa: T201
                assert clients.problems(memberships_last=False) == []


def not_ready(gateway: Gateway) -> Mapping[str, str]:
    """Reason to detail, of /readyz."""
    return {one["reason"]: one["detail"] for one in json.loads(page(gateway, "/readyz"))["reasons"]}


def samples(gateway: Gateway) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value, of /metrics."""
    for name, labels, value in _SAMPLE.findall(page(gateway, "/metrics").decode()):
        yield name, dict(_LABEL.findall(labels)), float(value)


def page(gateway: Gateway, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://{gateway.admin.address}{path}", timeout=10) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        return error.read()


def live_through_all(scene: Scene, troubles: Sequence[Trouble], seconds: float) -> None:
    pid, before = scene.gateway.pid, resident_bytes(scene.gateway)
    for trouble in troubles:
        scene.live_through(trouble, seconds)
        assert resident_bytes(scene.gateway) - before < GROWTH_BYTES, trouble
    assert scene.gateway.is_running() and scene.gateway.pid == pid
    assert scene.produced() <= RETRIABLE


@pytest.mark.timeout(240)
def test_every_failure_of_s3_passes_without_loss_or_restart(
    weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(ETCD_S3, weed, etcd, tmp_path) as scene:
        live_through_all(scene, S3_TROUBLES, WINDOW_S)


@pytest.mark.timeout(240)
def test_every_failure_of_etcd_passes_without_loss_or_restart(
    weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(ETCD_S3, weed, etcd, tmp_path) as scene:
        live_through_all(scene, ETCD_TROUBLES, WINDOW_S)


@pytest.mark.timeout(240)
def test_failures_of_a_bucket_that_holds_the_journal_pass_without_loss_or_restart(
    weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(BUCKET_ALONE, weed, etcd, tmp_path) as scene:
        live_through_all(scene, [one for one in S3_TROUBLES if one.name in OF_THE_JOURNAL], WINDOW_S)


@pytest.mark.timeout(120)
def test_a_request_is_answered_when_its_time_is_over_though_a_store_is_silent(
    weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with ways_to(weed.s3_port, etcd.port) as ways:
        place = FarPlace(
            ETCD_S3, etcd.url(ways.etcd_endpoint), S3Server("the way to it", ways.s3_endpoint).url()
        )
        with far_gateway(place, tmp_path, OPTIONS) as gateway:
            create_topics(gateway.bootstrap, {"t": 1})
            assert produced_to(gateway)[0] == "NONE"
            for trouble in (one for one in [*S3_TROUBLES, *ETCD_TROUBLES] if one.is_partition):
                with ways.trouble(trouble):
                    error, seconds = produced_to(gateway)
                    assert error == "REQUEST_TIMED_OUT" and seconds < ANSWERED_S, trouble
            wait_until_ready(gateway)


@pytest.mark.timeout(120)
def test_a_small_draft_is_acknowledged_while_the_store_of_the_data_is_silent(
    weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with ways_to(weed.s3_port) as ways:
        place = FarPlace(ETCD_S3, etcd.url(), S3Server("the way to it", ways.s3_endpoint).url())
        with far_gateway(place, tmp_path, ["--set", "storage.inline_bytes=-1"]) as gateway:
            create_topics(gateway.bootstrap, {"t": 1})
            (trouble,) = (one for one in S3_TROUBLES if one.is_partition)
            with ways.trouble(trouble):
                assert produced_to(gateway)[0] == "NONE"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "trouble", [one for one in [*S3_TROUBLES, *ETCD_TROUBLES] if one.is_partition], ids=str
)
def test_memory_is_bounded_while_a_store_is_silent_and_clients_send(
    trouble: Trouble, weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with ways_to(weed.s3_port, etcd.port) as ways:
        s3 = S3Server("the way to it", ways.s3_endpoint)
        place = FarPlace(ETCD_S3, etcd.url(ways.etcd_endpoint), s3.url())
        options = [*OPTIONS, "--set", f"limits.buffer_bytes={FLOOD_BUFFER_BYTES}"]
        options += ["--set", f"limits.frame_bytes={FLOOD_BUFFER_BYTES // 4}"]
        with far_gateway(place, tmp_path, options) as gateway, ThreadPoolExecutor(FLOOD_CLIENTS) as pool:
            create_topics(gateway.bootstrap, {"t": len(FLOOD_PARTITIONS)})
            assert produced_to(gateway)[0] == "NONE"
            before, most = resident_bytes(gateway), 0
            with ways.trouble(trouble):
                flood = [pool.submit(flooded, gateway) for _ in range(FLOOD_CLIENTS)]
                ends_at = time.monotonic() + LONG_WINDOW_S
                while time.monotonic() < ends_at:
                    most = max(most, resident_bytes(gateway))
                    time.sleep(POLL_S)
            outcomes = Counter(one.result() for one in flood)
            most = max(most, resident_bytes(gateway))
            print(f"{trouble}: {(most - before) >> 20} MiB more, {outcomes}")  # noqa: T201
            assert set(outcomes) <= RETRIABLE | {CLOSED}
            assert most - before < FLOOD_GROWTH_BYTES
            wait_until_ready(gateway)
            assert produced_to(gateway, 10_000)[0] == "NONE"


def flooded(gateway: Gateway) -> str:
    """The first error of one large Produce that may take as long as clients wait."""
    batch = build_batch([Record(0, 0, None, os.urandom(1_000_000))], base_timestamp=1_700_000_000_000)
    partitions = [PartitionProduceData(index, batch) for index in FLOOD_PARTITIONS]
    request = ProduceRequest(None, -1, 30_000, [TopicProduceData("t", partition_data=partitions)])
    try:
        with Client(Address(gateway.host, gateway.port), timeout=2 * RECOVERY_S) as client:
            response = client.ask(ApiKey.PRODUCE, 9, request)
    except ClientError:
        return CLOSED
    return ErrorCode(response.responses[0].partition_responses[0].error_code).name


def resident_bytes(gateway: Gateway) -> int:
    pages = int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1])
    return pages * 4096


def produced_to(gateway: Gateway, timeout_ms: int = DEADLINE_MS) -> tuple[str, float]:
    """The error of a small Produce, and how long it took."""
    batch = build_batch([Record(0, 0, None, b"x")], base_timestamp=time.time_ns() // 1_000_000)
    partitions = [PartitionProduceData(0, batch)]
    request = ProduceRequest(None, -1, timeout_ms, [TopicProduceData("t", partition_data=partitions)])
    begun = time.monotonic()
    with Client(Address(gateway.host, gateway.port), timeout=2 * ANSWERED_S) as client:
        response = client.ask(ApiKey.PRODUCE, 9, request)
    seconds = time.monotonic() - begun
    return ErrorCode(response.responses[0].partition_responses[0].error_code).name, seconds


def wait_until_ready(gateway: Gateway) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while not_ready(gateway):
        assert time.monotonic() < deadline, not_ready(gateway)
        time.sleep(POLL_S)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trouble", [*S3_TROUBLES, *ETCD_TROUBLES], ids=str)
def test_a_long_failure_is_named_by_readiness_metrics_and_few_lines_of_the_log(
    trouble: Trouble, weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(ETCD_S3, weed, etcd, tmp_path) as scene:
        live_through_all(scene, [trouble], LONG_WINDOW_S)
        lines = scene.logged()
        print(trouble, scene.reasons, *lines, sep="\n")  # noqa: T201
        if not trouble.is_harmless:
            store = "segments" if trouble.store is Store.S3 else "metadata"
            assert store in scene.reasons["store"]
            assert any(line["event"] in ("store.failing", "store.slow") for line in lines)
        if not trouble.is_harmless and not trouble.is_partition and not trouble.arrives_late:
            assert scene.failures_of(store) > 0
        assert len(lines) <= LINES


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trouble", S3_TROUBLES, ids=str)
def test_a_long_failure_of_a_bucket_that_holds_the_journal_passes(
    trouble: Trouble, weed: Weed, weed_s3: S3Server, etcd: EtcdServer, tmp_path: Path
) -> None:
    with scene_over(BUCKET_ALONE, weed, etcd, tmp_path) as scene:
        live_through_all(scene, [trouble], LONG_WINDOW_S)
        print(trouble, scene.reasons, *scene.logged(), sep="\n")  # noqa: T201
        assert len(scene.logged()) <= LINES
