"""The cases that run against both servers: each measures one server once and gives its figures.

Whatever a case gives was validated: counts by the high watermarks or the consumer, content and order by a
running checksum a partition.
"""

import time
from collections.abc import Mapping, Sequence

from bench import proc
from bench.case import GB, MB, Case, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import Measured, measure, running_clients
from bench.group_cases import GROUP_CASES
from bench.servers import Server, delete_topic, stored_records
from bench.stats import percentile


def _check_stored(server: Server, topic: str, partitions: int, records: int) -> None:
    stored = stored_records(server, topic, partitions)
    if stored != records:
        raise RuntimeError(f"{server.name} stored {stored} records of {records}")


def stream(payload_bytes: int, partitions: int, share: float = 1.0, catch_up: bool = True) -> Case:
    """Produce a share of what the scale says, then read all of it from the beginning."""
    size = "1k" if payload_bytes == 1024 else f"{payload_bytes}b"
    names = (f"produce_{size}_p{partitions}", f"catchup_{size}_p{partitions}")[: 1 + catch_up]

    def run(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
        whole = scale.bytes_1k if payload_bytes == 1024 else scale.bytes_100b
        total = int(whole * share) // payload_bytes
        topic = new_topic(server, "stream", partitions)
        spec = servers_spec(server, topic, partitions=partitions, records=total, payload_bytes=payload_bytes)
        produced = measure(server.pid, [("produce", spec)])
        _check_stored(server, topic, partitions, total)
        loads = [produced, measure(server.pid, [("consume", spec)])] if catch_up else [produced]
        delete_topic(server, topic)
        for load in loads:
            noise(load.others_percent)
        figures = [_stream_figures(load, total * payload_bytes) for load in loads]
        return dict(zip(names, figures, strict=True))

    return Case(names, f"{payload_bytes} B records, {partitions} partitions", run)


def _stream_figures(measured: Measured, payload: int) -> Figures:
    return {
        "mb_s": payload / MB / measured.results[0]["took_s"],
        "cpu_s_gb": measured.cpu_s / (payload / GB),
        "peak_mb": measured.peak_bytes / MB,
    }


def _latency(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    rate, partitions = 1_000, 6
    topic = new_topic(server, "latency", partitions)
    spec = servers_spec(
        server,
        topic,
        partitions=partitions,
        payload_bytes=1024,
        rate=rate,
        warm_records=rate,
        records=rate * (scale.paced_seconds + 1),
    )
    measured = measure(server.pid, [("paced_consume", spec), ("paced_produce", spec)])
    _check_stored(server, topic, partitions, spec["records"])
    delete_topic(server, topic)
    noise(measured.others_percent)
    end_to_end, acks = (result["times_ms"] for result in measured.results)
    return {
        "latency": {
            "ack_p50_ms": percentile(acks, 50),
            "ack_p99_ms": percentile(acks, 99),
            "end_to_end_p50_ms": percentile(end_to_end, 50),
            "end_to_end_p99_ms": percentile(end_to_end, 99),
            "cpu_percent": 100 * measured.cpu_s / measured.wall_s,
        }
    }


def _single(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    producers = 4
    topic = new_topic(server, "single", producers)
    spec = servers_spec(server, topic, producers=producers, records=scale.single_records, payload_bytes=100)
    measured = measure(server.pid, [("single", spec)])
    _check_stored(server, topic, producers, scale.single_records)
    delete_topic(server, topic)
    noise(measured.others_percent)
    said = measured.results[0]
    if not said["records"] <= said["requests"] <= 1.01 * said["records"]:
        raise RuntimeError(f"{said['requests']} requests for {said['records']} records")
    return {
        "single": {
            "cpu_us_request": 1e6 * measured.cpu_s / said["requests"],
            "requests_s": said["requests"] / said["took_s"],
        }
    }


def _idle(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    spec = {"host": server.host, "port": server.port, "connections": scale.connections}
    with running_clients([("idle", spec)]) as (client,):
        time.sleep(1.0)
        before = proc.resident_bytes(server.pid)
        client.go()
        opened = client.result()["connections"]
        time.sleep(3.0)
        grown = proc.resident_bytes(server.pid) - before
    return {"idle": {"kib_connection": grown / 1024 / opened}}


LOADS = ((6, 1.0), (1, 0.4), (32, 0.4))
CASES: Sequence[Case] = (
    # The goals are for six partitions; the other numbers show that six is no exception.
    *(stream(size, partitions, share) for size in (1024, 100) for partitions, share in LOADS),
    Case(("latency",), "1,000 records of 1 KiB a second, 6 partitions", _latency),
    Case(("single",), "linger.ms=0, one record of 100 B a request, 4 producers", _single),
    Case(("idle",), "2,000 idle connections", _idle),
    *GROUP_CASES,
)


def warm_up(server: Server, seconds: float) -> None:
    """All kinds of load one after the other, for this time."""
    small = Scale(60_000_000, 20_000_000, 2, 8_000, 10, 3, 4_000, 50, 3)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for case in CASES:
            if time.monotonic() < until:
                case.run(server, small, lambda percent: None)
