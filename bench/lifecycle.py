"""How long a start takes, and what an idle server holds."""

import shutil
import time
from pathlib import Path

from bench import proc
from bench.case import MB, Figures
from bench.ledger_files import IMAGE, JOURNAL, SNAPSHOT, write_ledger
from bench.servers import BenchGateway, BenchKafka, Server
from tests.support.gateway import READY_TIMEOUT_S
from tests.support.raw import raw_exchange, request

SETTLE_S = 2.0
RUNS = 1_000_000
RUN_PARTITIONS = 1_000
LONG_START_S = 300.0
METADATA = 3
NO_TOPICS = b"\0\0\0\0"


def start_empty(directory: Path) -> dict[str, Figures]:
    """Both servers on fresh storage: time to the first response to a client, and memory then."""
    figures: dict[str, Figures] = {}
    servers: list[Server] = [BenchKafka(directory / "start-kafka"), BenchGateway(directory / "start-gateway")]
    for server in servers:
        try:
            if isinstance(server, BenchKafka):
                # Formatting is done once in a server's life and is not its start.
                server.start()
                server.stop()
            figures[server.name] = {"ready_s": _timed_start(server)}
            time.sleep(SETTLE_S)
            figures[server.name]["idle_mb"] = proc.resident_bytes(server.pid) / MB
        finally:
            server.remove()
    return figures


def start_with_runs(directory: Path) -> Figures:
    """A gateway over a ledger of a million runs: from its image, from a snapshot (and with no image to be
    written), and from its journal alone. The ledger is written to `directory` the first time."""
    figures: Figures = {}
    for source, name in ((IMAGE, "ready_s"), (SNAPSHOT, "snapshot_ready_s"), (JOURNAL, "journal_ready_s")):
        options = ["--set", "storage.image=none"] if source == SNAPSHOT else []
        gateway = BenchGateway(directory / f"runs-{source}", options)
        written = directory / f"ledger-{source}"
        try:
            if not written.exists():
                write_ledger(written, RUNS, RUN_PARTITIONS, source)
            shutil.copytree(written, gateway.data_dir)
            figures[name] = _timed_start(gateway)
            time.sleep(SETTLE_S)
            if source == IMAGE:
                figures["idle_mb"] = proc.resident_bytes(gateway.pid) / MB
        finally:
            gateway.remove()
    return figures


def _timed_start(server: Server) -> float:
    started = time.monotonic()
    if isinstance(server, BenchGateway):
        server.start(max(READY_TIMEOUT_S, LONG_START_S))
    elif isinstance(server, BenchKafka):
        server.restart()
    response = raw_exchange(server.host, server.port, request(METADATA, 1, NO_TOPICS), timeout_s=30.0)
    took_s = time.monotonic() - started
    if not isinstance(response, bytes):
        raise RuntimeError(f"{server.name} is ready but {response.value}")
    return took_s
