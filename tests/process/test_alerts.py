"""The alert rules of deploy/prometheus: each fires when its trouble is caused, and none at a gateway that
works.

One Prometheus scrapes gateways that are in trouble, each in its own way. It has the rules as they are, but
for their durations: what they look at is the last seconds.
"""

import asyncio
import base64
import os
import re
import resource
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.telemetry import loop_lag
from tests.process.test_clock_ahead import TEN_YEARS_MS, write_entry
from tests.support.data_files import files_with_records
from tests.support.etcd import EtcdServer, running_etcd
from tests.support.gateway import Gateway
from tests.support.loop_thread import loop_in_thread
from tests.support.prometheus import Prometheus, promtool, running_prometheus
from tests.support.tcp_proxy import Link
from tests.support.topics import create_topics
from tests.support.versions import ROOT

RULES: Final = ROOT / "deploy/prometheus"
WINDOW_S: Final = 60
READY_S: Final = 90.0
DEADLINE_S: Final = 240.0
HURRIED: Final = (
    (r"\[\d+[mh]\]", f"[{WINDOW_S}s]"),
    (r"\boffset \d+m", "offset 4s"),
    (r"\bfor: \d+[mh]", "for: 1s"),
    (r"(_transaction_seconds) > \d+", r"\1 > 10"),
)
PAUSE_S: Final = 0.3
OF_THE_MACHINE: Final = {"DragomanDiskFillsUp", "DragomanEventLoopSlow", "DragomanProduceSlow"}
"""Alerts of a gateway that works: it shares disk and processors with those in trouble."""
TOPIC: Final = "orders"
NO_JOBS: Final = "import sys\nif 'pipeline.engines' in ' '.join(sys.orig_argv):\n    sys.exit(1)\n"
"""What Python imports before anything else."""
MEGABYTE: Final = 1_000_000
ETCD_QUOTA: Final = 64 * MEGABYTE
BALLAST_BYTES: Final = 32 * 1024 * 1024


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    for command, file in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        assert "SUCCESS" in promtool(["check", command, file], directory=RULES)


def test_each_alert_fires_for_its_series_and_not_before() -> None:
    assert "SUCCESS" in promtool(["test", "rules", "alerts_test.yml"], directory=RULES)
    expected = re.findall(r"alertname=\"(\w+)\"", (RULES / "alerts_test.yml").read_text())
    assert set(expected) == {rule["alert"] for rule in alerts()}


class Trouble:
    """A gateway in trouble: what `begin` and then, again and again, `go_on` do to it."""

    fires: Sequence[str] = ()
    """The alerts that this causes."""
    options: Sequence[str] = ()

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.gateway = Gateway(directory, self.all_options(stack))
        stack.callback(self.gateway.stop)

    @property
    def name(self) -> str:
        return type(self).__name__

    def all_options(self, stack: ExitStack) -> list[str]:
        return [word for option in self.options for word in ("--set", option)]

    def launch(self) -> None:
        self.gateway.launch()

    def begin(self, stack: ExitStack) -> None:
        """Once, when it is ready."""

    def go_on(self, tick: int, fired: set[str]) -> None:
        """Some times a second. `fired`: the alerts of this gateway that have fired."""

    def run(self, fired: Mapping[str, set[str]], ended: threading.Event) -> None:
        """In a thread of its own, until `ended`. `fired` as the function of that name."""
        with ExitStack() as stack:
            self.begin(stack)
            tick = 0
            while not ended.wait(PAUSE_S):
                self.go_on(tick, fired.get(self.name, set()))
                tick += 1

    def producer(self) -> Producer:
        return Producer({**self._client(), "message.timeout.ms": 20_000, "linger.ms": 0})

    def consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self._client(),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def _client(self) -> dict[str, Any]:
        # What it says of gateways in trouble would hide what the test says.
        return {"bootstrap.servers": self.gateway.bootstrap, "log_level": 0}


class Healthy(Trouble):
    """None: records come in, a group reads them and commits."""

    options = ("metrics.topics=true",)

    def begin(self, stack: ExitStack) -> None:
        create_topics(self.gateway.bootstrap, {TOPIC: 1})
        self._producer, self._consumer = self.producer(), self.consumer("readers")
        stack.callback(self._consumer.close)
        self._consumer.subscribe([TOPIC])

    def go_on(self, tick: int, fired: set[str]) -> None:
        self._producer.produce(TOPIC, b"x")
        self._producer.flush()
        if self._consumer.poll(0.1) is not None:
            self._consumer.commit(asynchronous=False)


class Killed(Trouble):
    """It is restarted again and again, and then killed."""

    fires = "DragomanDown", "DragomanRestarts"

    def go_on(self, tick: int, fired: set[str]) -> None:
        if "DragomanRestarts" not in fired:
            self.gateway.terminate()
            self.gateway.start(READY_S)
        elif self.gateway.is_running():
            self.gateway.kill9()


class FullDisk(Trouble):
    """All the space is its reserve, and other programs take more of it."""

    fires = "DragomanNotReady", "DragomanDiskFull", "DragomanRequestErrors", "DragomanDiskFillsUp"

    def all_options(self, stack: ExitStack) -> list[str]:
        # With less than half of its reserve it would create no topics either.
        reserve = int(shutil.disk_usage(self.directory.parent).free * 1.5)
        return ["--set", f"storage.reserve_bytes={reserve}"]

    def begin(self, stack: ExitStack) -> None:
        create_topics(self.gateway.bootstrap, {TOPIC: 1})
        self._producer = self.producer()
        self._ballast = self.directory / "ballast"
        stack.callback(self._ballast.unlink, missing_ok=True)

    def go_on(self, tick: int, fired: set[str]) -> None:
        self._producer.produce(TOPIC, b"x")
        self._producer.poll(0)
        if "DragomanDiskFillsUp" not in fired:
            with self._ballast.open("ab") as file:
                os.posix_fallocate(file.fileno(), tick * BALLAST_BYTES, BALLAST_BYTES)


class FarStore(Trouble):
    """Its etcd is slow, then hangs, then is gone; and most of its quota is used."""

    fires = "DragomanProduceSlow", "DragomanStoreHangs", "DragomanStoreErrors", "DragomanMetadataFillsUp"

    def all_options(self, stack: ExitStack) -> list[str]:
        self._etcd = etcd = stack.enter_context(running_etcd())
        _, self._call = stack.enter_context(loop_in_thread("proxy of etcd"))
        self._link = self._call(started(etcd.port))
        stack.callback(lambda: self._call(self._link.stop()))
        stores = ["--metadata", etcd.url(self._link.endpoint), "--data", f"file:{self.directory / 'records'}"]
        return [*stores, "--set", f"storage.etcd_quota_bytes={ETCD_QUOTA}"]

    def begin(self, stack: ExitStack) -> None:
        create_topics(self.gateway.bootstrap, {TOPIC: 1})
        # From 80 % on there are no new topics, from 95 % on no records.
        fill(self._etcd, int(0.75 * ETCD_QUOTA))
        self._producer = self.producer()
        self._link.delay_s = 0.7
        self._state = "slow"

    def go_on(self, tick: int, fired: set[str]) -> None:
        for _ in range(3):
            self._producer.produce(TOPIC, b"x")
            self._producer.poll(0)
        if self._state == "slow" and "DragomanProduceSlow" in fired:
            self._call(held(self._link))
            self._state = "hangs"
        elif self._state == "hangs" and "DragomanStoreHangs" in fired:
            self._call(self._link.stop())
            self._state = "gone"


async def started(port: int) -> Link:
    link = Link(port)
    await link.start()
    return link


async def held(link: Link) -> None:
    link.hold_answers()


def fill(etcd: EtcdServer, size: int) -> None:
    """Put megabytes into etcd, past the gateway."""
    value = base64.b64encode(bytes(MEGABYTE)).decode()
    for n in range(size // MEGABYTE):
        etcd.ask("kv/put", {"key": base64.b64encode(b"filler-%d" % n).decode(), "value": value})


class Crowded(Trouble):
    """More clients than it takes, nearly as many files as it may open, and a host that pauses it."""

    fires = "DragomanRefusesConnections", "DragomanFileDescriptors", "DragomanEventLoopSlow"
    options = ("limits.connections=2",)

    def go_on(self, tick: int, fired: set[str]) -> None:
        if tick % 10 == 0 and "DragomanFileDescriptors" not in fired:
            # Again and again: a file more at this moment would let the limit be too high for ever.
            limit = int(len(list(Path(f"/proc/{self.gateway.pid}/fd").iterdir())) * 1.15)
            _, hard = resource.prlimit(self.gateway.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.gateway.pid, resource.RLIMIT_NOFILE, (limit, hard))
        with ExitStack() as connections:
            for _ in range(20):
                address = self.gateway.host, self.gateway.port
                connections.enter_context(socket.create_connection(address))
        os.kill(self.gateway.pid, signal.SIGSTOP)
        # It is late by this less the interval of the measurements, at least.
        time.sleep(0.3 + loop_lag.INTERVAL_S)
        os.kill(self.gateway.pid, signal.SIGCONT)


class Damaged(Trouble):
    """A stored batch is not what it was, the journal is ahead of the clock, and merge jobs cannot start."""

    fires = "DragomanDamage", "DragomanClock", "DragomanMergeFails"
    options = ("cache.run_bytes=0", "housekeeping.merge_runs=1")

    def launch(self) -> None:
        self.directory.mkdir()
        (self.directory / "sitecustomize.py").write_text(NO_JOBS)
        self.gateway.env["PYTHONPATH"] = str(self.directory)
        asyncio.run(write_entry(self.gateway.data_dir, int(time.time() * 1000) + TEN_YEARS_MS))
        super().launch()

    def begin(self, stack: ExitStack) -> None:
        create_topics(self.gateway.bootstrap, {TOPIC: 8})
        producer = self.producer()
        for n in range(80):
            producer.produce(TOPIC, b"to be damaged", partition=n % 8)
            producer.flush()
        for file in files_with_records(self.gateway.data_dir):
            data = file.read_bytes()
            file.write_bytes(data.replace(b"to be damaged", b"is damaged ..", 1))
        self._consumer = self.consumer("never-joined")
        stack.callback(self._consumer.close)
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def go_on(self, tick: int, fired: set[str]) -> None:
        self._consumer.poll(0.05)


class Clients(Trouble):
    """Groups that rebalance, stand still and fall behind, and too many of them for the page; and a producer
    that does not end its transaction."""

    fires = (
        "DragomanGroupRebalances",
        "DragomanGroupStuck",
        "DragomanGroupLag",
        "DragomanSeriesLeftOut",
        "DragomanTransactionOpen",
    )
    options = ("metrics.topics=true", "metrics.series=100", "groups.group.initial.rebalance.delay.ms=0")

    def begin(self, stack: ExitStack) -> None:
        create_topics(self.gateway.bootstrap, {TOPIC: 1, **{f"other-{n}": 1 for n in range(20)}})
        self._producer = self.producer()
        self._produced = 0
        self._leave_open()
        self._produce(2)
        self._stuck = self.consumer("stuck")
        stack.callback(self._stuck.close)
        self._stuck.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        self._stuck.subscribe([TOPIC])

    def go_on(self, tick: int, fired: set[str]) -> None:
        self._stuck.poll(0.05)
        if tick % 10 == 9 and "DragomanGroupLag" not in fired:
            self._produce(12_000 + 2 * self._produced)
        if "DragomanGroupRebalances" not in fired:
            for _ in range(3):
                restless = self.consumer("restless")
                restless.subscribe([TOPIC])
                restless.poll(0.15)
                restless.close()

    def _leave_open(self) -> None:
        enduring = {"transactional.id": "enduring", "transaction.timeout.ms": 600_000}
        self._enduring = Producer({**self._client(), **enduring})
        self._enduring.init_transactions(READY_S)
        self._enduring.begin_transaction()
        self._enduring.produce("other-0", b"x")
        self._enduring.flush()

    def _produce(self, count: int) -> None:
        self._produced += count
        for _ in range(count):
            self._producer.produce(TOPIC, b"x")
            self._producer.poll(0)
        self._producer.flush()


KINDS: Final = (Healthy, Killed, FullDisk, FarStore, Crowded, Damaged, Clients)


@contextmanager
def in_trouble(directory: Path) -> Iterator[list[Trouble]]:
    with ExitStack() as stack:
        troubles: list[Trouble] = [kind(directory / kind.__name__, stack) for kind in KINDS]
        for trouble in troubles:
            trouble.launch()
        for trouble in troubles:
            trouble.gateway.wait_until_ready(READY_S)
        yield troubles


def hurried_rules() -> str:
    text = (RULES / "alerts.yml").read_text()
    for pattern, replacement in HURRIED:
        text, count = re.subn(pattern, replacement, text)
        assert count, pattern
    return text


def config(troubles: Sequence[Trouble]) -> str:
    targets = [
        {"targets": [trouble.gateway.admin.address], "labels": {"instance": trouble.name}}
        for trouble in troubles
    ]
    (job,) = yaml.safe_load((RULES / "prometheus.yml").read_text())["scrape_configs"]
    hurried = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"}
    jobs = [{**job, "static_configs": targets}]
    return str(yaml.safe_dump({"global": hurried, "rule_files": ["alerts.yml"], "scrape_configs": jobs}))


def fired(server: Prometheus) -> Mapping[str, set[str]]:
    """By gateway: the alerts that have fired so far."""
    found: dict[str, set[str]] = {kind.__name__: set() for kind in KINDS}
    for series in server.query('max_over_time(ALERTS{alertstate="firing"}[10m])'):
        found[series["metric"]["instance"]].add(series["metric"]["alertname"])
    return found


@pytest.mark.serial
def test_every_alert_fires_when_its_trouble_is_caused(tmp_path: Path) -> None:
    wanted = {kind.__name__: set(kind.fires) for kind in KINDS}
    assert set().union(*wanted.values()) == {rule["alert"] for rule in alerts()}
    (tmp_path / "alerts.yml").write_text(hurried_rules())
    seen: dict[str, set[str]] = {}
    with in_trouble(tmp_path) as troubles, ThreadPoolExecutor(len(troubles)) as threads:
        ended = threading.Event()
        with running_prometheus(tmp_path, config(troubles)) as server:
            # What increases must have been seen before.
            while len(server.query("up == 1")) < len(KINDS):
                time.sleep(PAUSE_S)
            running = [threads.submit(trouble.run, seen, ended) for trouble in troubles]
            try:
                deadline = time.monotonic() + DEADLINE_S
                while missing_in(seen, wanted) and time.monotonic() < deadline:
                    assert not any(one.done() for one in running), [one.exception(0) for one in running]
                    time.sleep(PAUSE_S)
                    seen.update(fired(server))
            finally:
                ended.set()
        for one in running:
            one.result()
    assert missing_in(seen, wanted) == {}
    assert seen[Healthy.__name__] <= OF_THE_MACHINE


def missing_in(seen: Mapping[str, set[str]], wanted: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found = {name: alerts - seen.get(name, set()) for name, alerts in wanted.items()}
    return {name: alerts for name, alerts in found.items() if alerts}
