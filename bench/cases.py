"""The cases that run against both servers: each measures one server once and gives its figures.

Whatever a case gives was validated: counts by the high watermarks or the consumer, content and order by a
running checksum a partition.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bench import proc
from bench.case import GB, MB, Case, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import Measured, measure, running_clients
from bench.group_cases import GROUP_CASES
from bench.servers import BenchServer, Server, TlsEndpoint, delete_topic, stored_records
from bench.stats import percentile
from bench.transaction_cases import TRANSACTION_CASES


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
        load = _StreamLoad(partitions, payload_bytes, int(whole * share) // payload_bytes)
        return dict(zip(names, _streamed(server, load, noise, catch_up=catch_up), strict=True))

    # One number of partitions is enough to compare syncs.
    return Case(names, f"{payload_bytes} B records, {partitions} partitions", run, names[: partitions == 6])


@dataclass(frozen=True, slots=True)
class _StreamLoad:
    partitions: int
    payload_bytes: int
    records: int


def _streamed(
    server: Server, load: _StreamLoad, noise: Noise, *, catch_up: bool = True, tls: TlsEndpoint | None = None
) -> list[Figures]:
    """Of producing, and of catching up."""
    topic = new_topic(server, "stream", load.partitions)
    spec = servers_spec(server, topic, tls, **asdict(load))
    measured = [measure(server.pid, [("produce", spec)])]
    _check_stored(server, topic, load.partitions, load.records)
    if catch_up:
        measured.append(measure(server.pid, [("consume", spec)]))
    delete_topic(server, topic)
    for each in measured:
        noise(each.others_percent)
    return [_stream_figures(each, load.records * load.payload_bytes) for each in measured]


def _stream_figures(measured: Measured, payload: int) -> Figures:
    return {
        "mb_s": payload / MB / measured.results[0]["took_s"],
        "cpu_s_gb": measured.cpu_s / (payload / GB),
        "system_cpu_s_gb": measured.system_cpu_s / (payload / GB),
        "peak_mb": measured.peak_bytes / MB,
    }


def _tls(server: BenchServer, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    """The same load in plain text and then with TLS: what encryption costs this server."""
    payload_bytes, partitions = 1024, 6
    load = _StreamLoad(partitions, payload_bytes, scale.bytes_1k // 2 // payload_bytes)
    plain = _streamed(server, load, noise)
    encrypted = _streamed(server, load, noise, tls=server.tls)
    for with_tls, without in zip(encrypted, plain, strict=True):
        # Of little data the clock of the kernel may have seen nothing.
        if without["cpu_s_gb"]:
            with_tls["cpu_to_plain"] = with_tls["cpu_s_gb"] / without["cpu_s_gb"]
    return dict(zip(TLS_NAMES, encrypted, strict=True))


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
            "system_cpu_percent": 100 * measured.system_cpu_s / measured.wall_s,
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
            "system_cpu_us_request": 1e6 * measured.system_cpu_s / said["requests"],
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
TLS_NAMES = ("produce_1k_p6_tls", "catchup_1k_p6_tls")
CASES: Sequence[Case] = (
    # The goals are for six partitions; the other numbers show that six is no exception.
    *(stream(size, partitions, share) for size in (1024, 100) for partitions, share in LOADS),
    Case(TLS_NAMES, "1024 B records, 6 partitions, in plain text and with TLS", _tls),
    Case(("latency",), "1,000 records of 1 KiB a second, 6 partitions", _latency, ("latency",)),
    Case(("single",), "linger.ms=0, one record of 100 B a request, 4 producers", _single, ("single",)),
    Case(("idle",), "2,000 idle connections", _idle),
    *GROUP_CASES,
    *TRANSACTION_CASES,
)


def warm_up(server: BenchServer, seconds: float) -> None:
    """All kinds of load one after the other, for this time."""
    small = Scale(60_000_000, 20_000_000, 2, 8_000, 10, 3, 4_000, 50, 3, 200)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for case in CASES:
            if time.monotonic() < until:
                case.run(server, small, lambda percent: None)
