"""What the same load costs when more exists: partitions, partitions in use, live runs.

The gateways of one comparison run side by side and are measured alternately, so that a round compares them
under the same conditions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.case import GB, Figures, Noise, Scale
from bench.cases import stream
from bench.clients import measure
from bench.ledger_files import IMAGE, write_ledger
from bench.lifecycle import LONG_START_S, RUN_PARTITIONS
from bench.results import growth
from bench.servers import (
    BenchGateway,
    Server,
    create_topic,
    delete_topic,
    stored_records,
)

EXISTING = (10, 1_000, 10_000)
IN_USE = (6, 60, 600, 6_000)
LIVE_RUNS = (10_000, 100_000, 1_000_000)
LOADED_PARTITIONS = 10
SCATTERED = 10_000
# A gateway with so many runs merges them, in a child whose CPU would count. The cases of the pipeline measure
# that.
NO_MERGING = ("--set", "housekeeping.merge_runs=0")


@dataclass(slots=True)
class Growth:
    """Gateways that differ in one thing only, by its size."""

    directory: Path
    partitions: dict[int, BenchGateway] = field(default_factory=dict)
    runs: dict[int, BenchGateway] = field(default_factory=dict)

    def open_partitions(self, sizes: Sequence[int] = EXISTING) -> None:
        for size in sizes:
            gateway = self.partitions[size] = BenchGateway(self.directory / f"partitions-{size}")
            gateway.start()
            if size > LOADED_PARTITIONS:
                create_topic(gateway, "other", size - LOADED_PARTITIONS)

    def open_runs(self, sizes: Sequence[int] = LIVE_RUNS) -> None:
        for size in sizes:
            gateway = self.runs[size] = BenchGateway(self.directory / f"live-runs-{size}", NO_MERGING)
            write_ledger(gateway.data_dir, size, RUN_PARTITIONS, IMAGE)
            gateway.start(LONG_START_S)

    def close(self) -> None:
        for gateway in (*self.partitions.values(), *self.runs.values()):
            gateway.remove()


def existing_load(gateways: dict[int, BenchGateway], scale: Scale, noise: Noise) -> Figures:
    """Produce 1 KiB records to ten partitions of each gateway, one gateway after the other."""
    case = stream(1024, LOADED_PARTITIONS, share=0.5, catch_up=False)
    costs = {
        size: case.run(gateway, scale, noise)[case.names[0]]["cpu_s_gb"] for size, gateway in gateways.items()
    }
    return {f"cpu_s_gb_{size}": cost for size, cost in costs.items()} | growth(costs)


def in_use(server: Server, scale: Scale, noise: Noise) -> Figures:
    """Requests of six batches of 16 KiB each, going round over more and more partitions."""
    costs = {}
    for partitions in IN_USE:
        topic = f"in-use-{partitions}"
        create_topic(server, topic, partitions)
        spec = {
            **_address(server, topic),
            "partitions": partitions,
            "per_request": 6,
            "requests": max(scale.bytes_1k // (2 * 6 * 16_384), partitions // 6),
            "record_bytes": 1_010,
            "batch_records": 16,
            "in_flight": 5,
        }
        costs[partitions] = _frames(server, topic, partitions, spec, noise, 0)[1]
        delete_topic(server, topic)
    return {f"cpu_s_gb_{size}": cost for size, cost in costs.items()} | growth(costs)


def scattered(server: Server, topic: str, rounds: int, noise: Noise) -> Figures:
    """Batches of one record, over 10,000 partitions of a topic that is there, 1,000 of them a request."""
    spec = {
        **_address(server, topic),
        "partitions": SCATTERED,
        "per_request": 1_000,
        "requests": rounds * SCATTERED // 1_000,
        "record_bytes": 100,
        "batch_records": 1,
        "in_flight": 5,
    }
    before = stored_records(server, topic, SCATTERED)
    cost, _, speed = _frames(server, topic, SCATTERED, spec, noise, before)
    return {"cpu_us_batch": cost, "batches_s": speed}


def _address(server: Server, topic: str) -> dict[str, object]:
    return {"host": server.host, "port": server.port, "topic": topic}


def _frames(
    server: Server, topic: str, partitions: int, spec: dict[str, object], noise: Noise, before: int
) -> tuple[float, float, float]:
    """CPU us a batch, CPU s a GB, batches a second; all batches are in the log."""
    measured = measure(server.pid, [("frames", spec)])
    noise(measured.others_percent)
    said = measured.results[0]
    stored = stored_records(server, topic, partitions)
    if stored != before + said["topic_records"]:
        raise RuntimeError(f"{server.name} stored {stored} records, not {before + said['topic_records']}")
    batches = said["batches"]
    gigabytes = batches * said["batch_bytes"] / GB
    return 1e6 * measured.cpu_s / batches, measured.cpu_s / gigabytes, batches / said["took_s"]
