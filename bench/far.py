"""The cases of far stores: a gateway over a bucket whose requests take tens of milliseconds, and its journal.

Requests are counted by the bucket. All is in one process on this machine but for the clients, so a throughput
is that of gateway, bucket and clients together.
"""

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from bench.case import GB, MB, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import measure
from bench.far_stores import Far, FarStores
from bench.servers import BenchGateway, Server, stored_records
from bench.stats import percentile
from bench.synthetic import commit, new_locator, topic_id
from gateway.cli.process import relax_collector, tune_allocator, tune_collector
from gateway.coordination.opening import open_shard
from ledger.ports import Journal
from ledger.topics.requests import CreateTopic
from tests.support.versions import ROOT

READY_S: Final = 60.0
GIB: Final = 1 << 30
USD_A_PUT, USD_A_GET = 0.005 / 1000, 0.0004 / 1000
"""Published prices of S3 Standard (us-east-1): PUT and LIST, and GET."""
READERS: Final = 3
PARTITIONS: Final = 6
RATE: Final = 250
"""Records a second, a request each: a connection has 100 requests unanswered at most, and an
acknowledgement may take 0.3 s."""
PAYLOAD: Final = 1024
COST_PAYLOAD: Final = 100_000
LATENCIES: Final[Mapping[str, Far]] = {
    "far_etcd_30": Far(30),
    "far_etcd_100": Far(100),
    "far_bucket_30": Far(30, with_etcd=False),
    "far_bucket_100": Far(100, with_etcd=False),
    "far_tail": Far(30, has_tail=True, inline=False),
    "far_etcd_30_objects": Far(30, inline=False),
    "far_bucket_30_objects": Far(30, with_etcd=False, inline=False),
}
NAMES: Final = (*LATENCIES, "far_produce", "far_cpu", "far_journal_etcd", "far_journal_bucket", "far_cost")
DEFAULT_PRODUCER: Final = {"enable.idempotence": False}
JOURNAL_BATCHES: Final = 1_000
"""Of a file, each of another partition."""
JOURNAL_FILES, JOURNAL_WARM = 300, 50
JOURNAL_WAITING: Final = 12
"""Files that wait for the journal at any time."""
JOURNAL_TIMEOUT_S: Final = 120.0


class FarGateway:
    """`bench.far_gateway` as a process."""

    name = "far"
    host = "127.0.0.1"

    def __init__(self, far: Far) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.far_gateway", json.dumps(asdict(far))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.port = int(self._said()["port"])

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def counted(self) -> dict[str, int]:
        """Requests by operation and kind of key, bytes of record batches, and entries of the journal."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self._said()

    def start(self) -> None:
        """It runs from the beginning."""

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(READY_S)
        self._process.stdout.close()

    def remove(self) -> None:
        self.stop()

    def _said(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the gateway over far stores has ended")
        said: dict[str, Any] = json.loads(line)
        return said


@contextmanager
def far_gateway(far: Far) -> Iterator[FarGateway]:
    gateway = FarGateway(far)
    try:
        yield gateway
    finally:
        gateway.stop()


def measure_far(name: str, scale: Scale, noise: Noise, directory: Path) -> Figures:
    if name in LATENCIES:
        return _latency(LATENCIES[name], scale, noise)
    match name:
        case "far_produce":
            return _produce(scale, noise)
        case "far_cpu":
            return _cpu(scale, noise, directory)
        case "far_cost":
            return _cost(scale, noise)
    words = [sys.executable, "-m", "bench.far", name]
    done = subprocess.run(words, cwd=ROOT, check=True, timeout=JOURNAL_TIMEOUT_S, stdout=subprocess.PIPE)
    figures: Figures = json.loads(done.stdout)
    return figures


def _latency(far: Far, scale: Scale, noise: Noise) -> Figures:
    with far_gateway(far) as gateway:
        topic = new_topic(gateway, "latency", PARTITIONS)
        # A percentile of the bucket's requests is known after the first fifty.
        warm = 8 * RATE
        spec = servers_spec(
            gateway,
            topic,
            partitions=PARTITIONS,
            payload_bytes=PAYLOAD,
            rate=RATE,
            warm_records=warm,
            records=warm + RATE * scale.paced_seconds,
            # An idempotent one has five requests under way, and waits for them itself.
            config=DEFAULT_PRODUCER,
        )
        before = gateway.counted()
        measured = measure(gateway.pid, [("paced_produce", spec)])
        after = gateway.counted()
        _check(gateway, topic, spec["records"])
        noise(measured.others_percent)
        acks = measured.results[0]["times_ms"]
        p50, p99 = percentile(acks, 50), percentile(acks, 99)
        figures = {"ack_p50_ms": p50, "ack_p99_ms": p99, "ack_p99_p50": p99 / p50}
        puts = after.get("put wal", 0) - before.get("put wal", 0)
        figures["cpu_us_request"] = 1e6 * measured.cpu_s / (RATE * scale.paced_seconds + warm)
        figures["puts_s"] = puts / measured.wall_s
        figures["entries_s"] = (after["entries"] - before["entries"]) / measured.wall_s
        return figures


def _produce(scale: Scale, noise: Noise) -> Figures:
    """One producer with librdkafka's defaults."""
    with far_gateway(Far(50)) as gateway:
        load = _load(gateway, scale.bytes_1k, noise, DEFAULT_PRODUCER)
        return {"mb_s": load["mb_s"]}


def _cpu(scale: Scale, noise: Noise, directory: Path) -> Figures:
    """The same load over far stores and over local files."""
    with far_gateway(Far(30, keeps=False)) as gateway:
        far = _load(gateway, scale.bytes_1k, noise)["cpu_s_gb"]
    local = BenchGateway(directory / "far-local")
    try:
        local.start()
        near = _load(local, scale.bytes_1k, noise)["cpu_s_gb"]
    finally:
        local.remove()
    return {"cpu_s_gb": far, "local_cpu_s_gb": near, "cpu_ratio": far / near}


def _load(
    server: Server, size: int, noise: Noise, config: Mapping[str, object] | None = None
) -> Mapping[str, float]:
    records = size // PAYLOAD
    topic = new_topic(server, "stream", PARTITIONS)
    more: dict[str, Any] = {"partitions": PARTITIONS, "records": records, "payload_bytes": PAYLOAD}
    measured = measure(server.pid, [("produce", servers_spec(server, topic, **more, config=config or {}))])
    _check(server, topic, records)
    noise(measured.others_percent)
    took_s = measured.results[0]["took_s"]
    return {"mb_s": size / MB / took_s, "cpu_s_gb": measured.cpu_s / (size / GB)}


def _cost(scale: Scale, noise: Noise) -> Figures:
    """Requests at 50 MB/s over a bucket alone, which readers follow. Storage is not counted."""
    rate = int(50 * MB / COST_PAYLOAD)
    with far_gateway(Far(30, with_etcd=False)) as gateway:
        topic = new_topic(gateway, "cost", PARTITIONS)
        spec = servers_spec(
            gateway,
            topic,
            partitions=PARTITIONS,
            payload_bytes=COST_PAYLOAD,
            rate=rate,
            warm_records=rate,
            records=rate * (scale.paced_seconds + 1),
        )
        before = gateway.counted()
        loads = [*[("paced_consume", spec)] * READERS, ("paced_produce", spec)]
        measured = measure(gateway.pid, loads)
        after = gateway.counted()
        _check(gateway, topic, spec["records"])
    noise(measured.others_percent)
    counts = {name: after[name] - before.get(name, 0) for name in after}
    return cost(counts, measured.wall_s)


def cost(counts: Mapping[str, int], took_s: float) -> Figures:
    """`counts`: requests by operation and kind of key, and `wal_bytes`, in this time. What is asked for each
    object costs less a GiB with larger objects; what is asked each second costs less with more GiB a
    second."""
    full_bytes = min(8 << 20, GIB * 5 // 1000)
    puts = counts.get("put wal", 0)
    an_object = USD_A_PUT * puts + USD_A_GET * counts.get("get wal", 0)
    a_second = sum(
        (USD_A_GET if name.startswith("get ") else USD_A_PUT) * number
        for name, number in counts.items()
        if " " in name and not name.endswith(" wal")
    )
    return {
        "usd_gib": an_object / puts * (GIB / full_bytes) + a_second / took_s,
        "object_mb": counts["wal_bytes"] / puts / MB,
    }


async def _journal_alone(*, with_etcd: bool) -> Figures:
    """Batches a second through the owner alone, without bytes of records. The requests are made before."""
    stores = FarStores(Far(30, with_etcd=with_etcd))
    journal: Journal = stores.opener().journal(stores.metadata)
    shard = await open_shard(journal, None, None, 1, lambda: int(time.time() * 1000))
    await shard.submit(CreateTopic("t", topic_id(0), JOURNAL_BATCHES, {}))
    sequences, now_ms = [0] * JOURNAL_BATCHES, int(time.time() * 1000)
    waiting = [
        commit(new_locator(now_ms, random.randbytes), 0, 0, JOURNAL_BATCHES, sequences, now_ms)[0]
        for _ in range(JOURNAL_FILES)
    ][::-1]

    async def submit_to(left: int) -> None:
        while len(waiting) > left:
            await shard.submit(waiting.pop())

    started = cpu_s = 0.0
    for left in (JOURNAL_FILES - JOURNAL_WARM, 0):
        started, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*[submit_to(left) for _ in range(JOURNAL_WAITING)])
    took_s, cpu_s = time.monotonic() - started, time.process_time() - cpu_s
    stored = sum(log.run_count for log in shard.state.topics.by_id[topic_id(0)].partitions)
    if stored != JOURNAL_FILES * JOURNAL_BATCHES:
        raise RuntimeError(f"{stored} runs are in the ledger")
    await shard.close()
    measured = (JOURNAL_FILES - JOURNAL_WARM) * JOURNAL_BATCHES
    return {"batches_s": measured / took_s, "cpu_us_batch": 1e6 * cpu_s / measured}


def _check(server: Server, topic: str, records: int) -> None:
    stored = stored_records(server, topic, PARTITIONS)
    if stored != records:
        raise RuntimeError(f"{server.name} stored {stored} records of {records}")


def main(name: str) -> None:
    """The journal alone, as a process of its own: what the bench holds is no cost of it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    tune_allocator(os.environ)
    relax_collector()
    tune_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(_journal_alone(with_etcd=name == "far_journal_etcd"))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
