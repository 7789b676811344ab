"""The cases of the pipeline: what it costs to merge runs into segments, what that gains, and what producers
and consumers notice of it.

A job is a process as `dragoman compact segments` starts it. What it costs to start one (Spark's Java) is
measured by a second job that finds nothing to merge, and is counted apart from what a GB costs.
"""

import random
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from adapters.open import IMAGE_FILE
from bench.case import GB, MB, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import Measured, measure
from bench.merge_jobs import merging_beside, run_job
from bench.servers import BenchGateway, stored_records
from bench.stats import percentile
from gateway.internal.listener import SOCKET_FILE
from ledger.partitions.rows import CHUNK
from pipeline.links import UnixLink
from pipeline.peer import PeerClient
from tests.support.s3_servers import BUCKET, ENVIRONMENT, SEAWEEDFS, S3Server
from tests.support.weed import Weed

RECORD_BYTES: Final = 1_010
TAIL_S: Final = 11.0
"""Younger runs are left alone."""
READY_S: Final = 60.0
FINDS: Final = 300
BY_HAND: Final = ("--set", "housekeeping.merge_runs=0")
WINDOWS: Final = 2
"""Without a job and with one, in turn."""
RATE: Final = 1_000
BACKLOG_BYTES_S: Final = 12_000_000
"""More than a job merges beside other load."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How producers have left the records: batches of some records, one for each partition in a request."""

    partitions: int
    batch_records: int
    share: float
    """Of the bytes that the scale says."""


LARGE: Final = Shape(6, 64, 1.0)
SMALL: Final = Shape(20, 1, 0.125)
"""A flush that brings each partition one record: nothing is more work a byte."""


@dataclass(frozen=True, slots=True)
class MergeCase:
    engine: str
    shape: Shape
    is_far: bool = False


MERGES: Final[Mapping[str, MergeCase]] = {
    "pipeline_local": MergeCase("local", LARGE),
    "pipeline_local_small": MergeCase("local", SMALL),
    "pipeline_local_s3": MergeCase("local", replace(LARGE, share=0.25), is_far=True),
    "pipeline_spark": MergeCase("spark", LARGE),
    "pipeline_spark_small": MergeCase("spark", SMALL),
    "pipeline_spark_s3": MergeCase("spark", replace(LARGE, share=0.25), is_far=True),
}
NAMES: Final = (*MERGES, "pipeline_latency")


def measure_pipeline(name: str, scale: Scale, noise: Noise, directory: Path) -> Figures:
    """Errors: RuntimeError where a job fails, or records are not all there."""
    if name == "pipeline_latency":
        return _latency(scale, noise, directory / name)
    return _merge(MERGES[name], scale, noise, directory / name)


def _merge(case: MergeCase, scale: Scale, noise: Noise, directory: Path) -> Figures:
    with _gateway(directory, is_far=case.is_far) as gateway:
        topic, records = fill(gateway, case.shape, int(scale.bytes_1k * case.shape.share))
        time.sleep(TAIL_S)
        # Both times after a start: no record is in memory.
        index_before = index_bytes(gateway)
        before = read_all(gateway, topic, case.shape, records, noise)
        job = run_job(gateway, case.engine)
        idle = run_job(gateway, case.engine)
        index_after = index_bytes(gateway)
        after = read_all(gateway, topic, case.shape, records, noise)
    size = job.summary["run_bytes"]
    if idle.summary["runs"] or job.summary["left_runs"] or size < 0.9 * records * RECORD_BYTES:
        raise RuntimeError(f"the job has not merged what there was: {job.summary}")
    net_s = max(job.summary["took_s"] - idle.summary["took_s"], 0.001)
    figures = {
        "mb_s": size / MB / net_s,
        "cpu_s_gb": max(job.cpu_s - idle.cpu_s, 0.0) / (size / GB),
        "gateway_cpu_s_gb": job.gateway_cpu_s / (size / GB),
        "start_s": idle.summary["took_s"],
        "read_bytes_ratio": job.summary["read_bytes"] / size,
        "written_bytes_ratio": job.summary["written_bytes"] / size,
        "peak_mb": job.summary["max_rss_bytes"] / MB,
        "index_kb_gb_before": index_before / 1_000 / (size / GB),
        "index_kb_gb_after": index_after / 1_000 / (size / GB),
    }
    if case.engine == "spark":
        figures["shuffled_bytes_ratio"] = job.summary["shuffled_bytes"] / size
        figures["peak_java_mb"] = job.summary["java_max_rss_bytes"] / MB
    for when, read in (("before", before), ("after", after)):
        figures |= {f"{name}_{when}": value for name, value in read}
    return figures


def _latency(scale: Scale, noise: Noise, directory: Path) -> Figures:
    """The same paced load without a job and beside one, in turn."""
    acks: dict[str, list[float]] = {"alone": [], "merging": []}
    ends: dict[str, list[float]] = {"alone": [], "merging": []}
    merged_bytes = jobs_s = merging_s = window_s = 0.0
    with _gateway(directory, is_far=False) as gateway:
        for _ in range(WINDOWS):
            fill(gateway, SMALL, BACKLOG_BYTES_S * (scale.paced_seconds + 1))
            time.sleep(TAIL_S)
            alone = _paced(gateway, scale)
            with merging_beside(gateway) as jobs:
                merging = _paced(gateway, scale)
            window_s += merging.wall_s
            jobs_s += jobs.busy_s
            merging_s += min(jobs.busy_s, merging.wall_s)
            merged_bytes += jobs.bytes
            for name, measured in (("alone", alone), ("merging", merging)):
                noise(measured.others_percent)
                ends[name] += measured.results[0]["times_ms"]
                acks[name] += measured.results[1]["times_ms"]
    figures = {}
    for kind, times in (("ack", acks), ("end_to_end", ends)):
        for name, taken in times.items():
            figures[f"{kind}_p50_{name}_ms"] = percentile(taken, 50)
            figures[f"{kind}_p99_{name}_ms"] = percentile(taken, 99)
        figures[f"{kind}_p99_ratio"] = figures[f"{kind}_p99_merging_ms"] / figures[f"{kind}_p99_alone_ms"]
    return figures | {"merging_share": merging_s / window_s, "mb_s": merged_bytes / MB / jobs_s}


def _paced(gateway: BenchGateway, scale: Scale) -> Measured:
    partitions = 6
    topic = new_topic(gateway, "paced", partitions)
    spec = servers_spec(
        gateway,
        topic,
        partitions=partitions,
        payload_bytes=1024,
        rate=RATE,
        warm_records=RATE,
        records=RATE * (scale.paced_seconds + 1),
    )
    measured = measure(gateway.pid, [("paced_consume", spec), ("paced_produce", spec)])
    _check_stored(gateway, topic, partitions, spec["records"])
    return measured


@contextmanager
def _gateway(directory: Path, *, is_far: bool) -> Iterator[BenchGateway]:
    """One that merges nothing by itself; its batches are in local files, or in SeaweedFS."""
    with ExitStack() as stack:
        gateway = BenchGateway(directory, BY_HAND)
        if is_far:
            directory.mkdir(parents=True, exist_ok=True)
            weed = Weed(_made(directory / "weed"))
            weed.start()
            stack.callback(weed.kill9)
            server = S3Server(SEAWEEDFS, weed.s3_endpoint)
            server.boto3_client().create_bucket(Bucket=BUCKET)
            gateway.options += ["--data", server.url()]
            gateway.env = ENVIRONMENT
        stack.callback(gateway.remove)
        gateway.start(READY_S)
        yield gateway


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def fill(gateway: BenchGateway, shape: Shape, size: int) -> tuple[str, int]:
    """A new topic with so many bytes, and how many records it has."""
    topic = new_topic(gateway, "runs", shape.partitions)
    spec = servers_spec(
        gateway,
        topic,
        partitions=shape.partitions,
        per_request=shape.partitions,
        requests=size // (shape.partitions * shape.batch_records * RECORD_BYTES),
        record_bytes=RECORD_BYTES,
        batch_records=shape.batch_records,
        in_flight=5,
    )
    records = int(measure(gateway.pid, [("frames", spec)]).results[0]["topic_records"])
    _check_stored(gateway, topic, shape.partitions, records)
    return topic, records


def _check_stored(gateway: BenchGateway, topic: str, partitions: int, records: int) -> None:
    stored = stored_records(gateway, topic, partitions)
    if stored != records:
        raise RuntimeError(f"{stored} records are stored of {records}")


def read_all(
    gateway: BenchGateway, topic: str, shape: Shape, records: int, noise: Noise
) -> Sequence[tuple[str, float]]:
    """What it costs to read a topic from its beginning, and to look runs up anywhere."""
    spec = servers_spec(
        gateway, topic, partitions=shape.partitions, records=records, payload_bytes=RECORD_BYTES
    )
    measured = measure(gateway.pid, [("drain", spec)])
    noise(measured.others_percent)
    return [
        ("catchup_cpu_s_gb", measured.cpu_s / (records * RECORD_BYTES / GB)),
        ("find_p99_ms", find_p99_ms(gateway, topic, records // shape.partitions)),
    ]


def find_p99_ms(gateway: BenchGateway, topic: str, records: int) -> float:
    """Of requests for the runs of the next MiB."""
    source = random.Random(1)
    taken = []
    with PeerClient(UnixLink(gateway.data_dir / SOCKET_FILE)) as peer:
        described = next(each for each in peer.topics() if each.name == topic)
        for _ in range(FINDS):
            offset, partition = source.randrange(records), source.randrange(described.partitions)
            started = time.monotonic()
            found = peer.find_batches(described.topic_id, partition, offset, max_batches=100)
            taken.append(1e3 * (time.monotonic() - started))
            if not found.runs or found.failure:
                raise RuntimeError(f"offset {offset} was not found: {found.failure}")
    return percentile(taken, 99)


def index_bytes(gateway: BenchGateway) -> int:
    """Of the runs, as the image has them: the gateway is started again for that."""
    gateway.terminate()
    with sqlite3.connect(gateway.data_dir / IMAGE_FILE) as image:
        (size,) = image.execute(
            "SELECT sum(length(value)) FROM rows WHERE section = ?", (int(CHUNK),)
        ).fetchone()
    gateway.start(READY_S)
    return int(size)
