"""How little an acknowledgement can cost on this machine: `python -m bench.floors --rounds 5`.

Beside Kafka, Kafka that syncs each batch, and Dragoman there are servers that keep nothing of a broker but a
synced write: one in C and one in Python, over uvloop (`bench/floor`). They answer with responses that were
recorded from a gateway. What they reach is what a server has that does the same promise; each also runs
without its write, which shows what the write costs. All are loaded in turn, with the bench's clients, to one
partition at a fixed rate and with 20 requests in flight.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.cases import warm_up
from bench.clients import measure
from bench.floor.recorded import Recorded, Recorder
from bench.machine import allow_open_files
from bench.report import spread
from bench.run import GROUPS_AS_KAFKA, OPEN_FILES
from bench.servers import SYNCED, SYNCED_KAFKA, BenchGateway, BenchKafka, BenchServer, create_topic
from bench.stats import percentile, summarize
from tests.support.ports import free_ports
from tests.support.versions import ROOT

TOPIC: Final = "floors"
PARTITIONS: Final = 4
RATE: Final = 1_000
RECORDS: Final = 30_000
START_S: Final = 2.0
SOURCE: Final = ROOT / "bench/floor/in_c.c"
FIGURES: Final = ("requests/s", "CPU of one, us", "ack p50, ms", "p99, ms", "CPU at 1,000/s, %")


@dataclass(frozen=True, slots=True)
class Floor:
    """A server that only writes and answers."""

    name: str
    command: Sequence[str]

    @contextmanager
    def running(self, port: int) -> Iterator[int]:
        """The id of its process."""
        with subprocess.Popen(
            [part.replace("PORT", str(port)) for part in self.command], cwd=ROOT
        ) as process:
            try:
                time.sleep(START_S)  # the file is written first
                if process.poll() is not None:
                    raise RuntimeError(f"{self.name}: ended with exit code {process.returncode}")
                yield process.pid
            finally:
                process.kill()


def single_spec(port: int, records: int = RECORDS) -> Mapping[str, Any]:
    producers = PARTITIONS
    return {
        "bootstrap": f"127.0.0.1:{port}",
        "topic": TOPIC,
        "producers": producers,
        "records": records,
        "payload_bytes": 100,
    }


def paced_spec(port: int, seconds: int) -> Mapping[str, Any]:
    return {
        "bootstrap": f"127.0.0.1:{port}",
        "topic": TOPIC,
        "partitions": 1,
        "payload_bytes": 1024,
        "rate": RATE,
        "warm_records": RATE // 2,
        "records": RATE * seconds,
    }


def record(directory: Path) -> tuple[int, Path]:
    """The port that the responses name, and the file with them."""
    port, tls_port = free_ports(2)
    advertised = ("--advertise", f"127.0.0.1:{port}", "--advertise", f"127.0.0.1:{tls_port}")
    gateway = BenchGateway(directory / "recorded", (*GROUPS_AS_KAFKA, *advertised))
    gateway.start()
    recorded = Recorded(TOPIC)
    try:
        # Its clients know it by the recorder's address.
        with recording(Recorder(port, gateway.host, gateway.port, recorded)):
            create_topic(gateway, TOPIC, PARTITIONS)
            measure(gateway.pid, [("single", single_spec(port, 400))])
            measure(gateway.pid, [("paced_produce", paced_spec(port, 1))])
    finally:
        gateway.remove()
    if len(recorded.produce) != PARTITIONS:
        raise RuntimeError(f"responses for {len(recorded.produce)} of {PARTITIONS} partitions")
    path = directory / "recorded.bin"
    recorded.write(path)
    return port, path


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """In an event loop and a thread of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    task = loop.create_task(recorder.serve(ready))

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        if not ready.wait(timeout=START_S):
            raise RuntimeError("the recorder does not listen")
        yield
    finally:
        # Where it could not listen, its loop is closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


def floors(directory: Path, recorded: Path) -> Sequence[Floor]:
    """That in C only where there is a compiler."""
    found: list[Floor] = []
    servers: dict[str, list[str]] = {}
    if (compiler := shutil.which("cc")) is not None:
        binary = directory / "in_c"
        subprocess.run([compiler, "-O2", "-o", str(binary), str(SOURCE)], check=True)
        servers["in C"] = [str(binary)]
    servers["over uvloop"] = [sys.executable, "-m", "bench.floor.over_uvloop"]
    for name, command in servers.items():
        for synced, how in (("1", "synced"), ("0", "not written")):
            file = directory / f"file-{len(found)}"
            found.append(Floor(f"{name}, {how}", [*command, "PORT", str(recorded), str(file), synced]))
    return found


def measured(pid: int, port: int, seconds: int) -> Sequence[float]:
    """The figures of one round."""
    single = measure(pid, [("single", single_spec(port))])
    said = single.results[0]
    paced = measure(pid, [("paced_produce", paced_spec(port, seconds))])
    times_ms = paced.results[0]["times_ms"]
    return (
        said["requests"] / said["took_s"],
        1e6 * single.cpu_s / said["requests"],
        percentile(times_ms, 50),
        percentile(times_ms, 99),
        100 * paced.cpu_s / paced.wall_s,
    )


def run(directory: Path, rounds: int, seconds: int, console: Console) -> Mapping[str, list[Sequence[float]]]:
    port, recorded = record(directory)
    servers: list[BenchServer] = [
        BenchKafka(directory / "kafka"),
        BenchKafka(directory / "synced", SYNCED_KAFKA, SYNCED),
        BenchGateway(directory / "dragoman", GROUPS_AS_KAFKA),
    ]
    alone = floors(directory, recorded)
    results: dict[str, list[Sequence[float]]] = {}
    try:
        for server in servers:
            server.start()
            create_topic(server, TOPIC, PARTITIONS)
            warm_up(server, 30.0)
        for number in range(rounds):
            for server in servers:
                results.setdefault(server.name, []).append(measured(server.pid, server.port, seconds))
            for floor in alone:
                with floor.running(port) as pid:
                    results.setdefault(floor.name, []).append(measured(pid, port, seconds))
            console.print(f"round {number + 1} of {rounds}")
    finally:
        for server in servers:
            server.remove()
    return results


def table(results: Mapping[str, list[Sequence[float]]]) -> Table:
    shown = Table("server", *FIGURES)
    for name, rounds in results.items():
        columns = list(zip(*rounds, strict=True))
        shown.add_row(name, *(spread(summarize(one)) for one in columns))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of the fixed rate, a round")
    options = parser.parse_args()
    allow_open_files(OPEN_FILES)
    directory = Path(tempfile.mkdtemp(prefix="dragoman-floors-"))
    console = Console()
    try:
        console.print(table(run(directory, options.rounds, options.seconds, console)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
