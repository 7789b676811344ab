"""What many flushes leave of the index of a real gateway that merges by itself, with its local engine.

`python -m bench.merging_real RUNS [MERGE_RUNS]` prints a JSON line for each tenth of the way, to be compared
with those of `bench.merging_alone`: runs in the ledger, memory of the gateway beyond its beginning, and CPU
seconds. The last line is of all that was merged: bytes of the runs in the image, lookups, and what it costs
to read everything. 0 as MERGE_RUNS merges nothing, so that it can be told what merging gains.
"""

import json
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from bench import proc
from bench.clients import measure
from bench.machine import allow_open_files
from bench.pipeline import READY_S, RECORD_BYTES, Shape, index_bytes, read_all
from bench.servers import BenchGateway, create_topic, stored_records

MERGE_RUNS: Final = 100_000
"""The default of `housekeeping.merge_runs`."""
SHAPE: Final = Shape(100, 1, 1.0)
"""A request has one batch for each partition, and the next is sent when that one is acknowledged: so each is
a run. Batches of several requests would join into one."""
LINES: Final = 10
OPEN_FILES: Final = 4_096
QUIET_S: Final = 20.0
MAX_WAIT_S: Final = 600.0
TOPIC: Final = "many-runs"


def main(runs: int, merge_runs: int) -> None:
    allow_open_files(OPEN_FILES)
    with tempfile.TemporaryDirectory(prefix="dragoman-bench-") as directory:
        options = ("--set", f"housekeeping.merge_runs={merge_runs}")
        gateway = BenchGateway(Path(directory) / "gateway", options)
        gateway.start(READY_S)
        try:
            create_topic(gateway, TOPIC, SHAPE.partitions)
            _run(gateway, runs, merge_runs)
        finally:
            gateway.remove()


def _run(gateway: BenchGateway, runs: int, merge_runs: int) -> None:
    before = proc.resident_bytes(gateway.pid)
    records = 0
    for _ in range(LINES):
        records = _flush(gateway, runs // LINES, records)
        _say(gateway, records, {"resident_mb": (proc.resident_bytes(gateway.pid) - before) / 1e6})
    if merge_runs:
        _await_merges(gateway)
    measured = {"image_runs_mb": index_bytes(gateway) / 1e6}
    _say(gateway, records, measured | dict(read_all(gateway, TOPIC, SHAPE, records, lambda _: None)))


def _flush(gateway: BenchGateway, runs: int, records: int) -> int:
    spec: dict[str, Any] = {
        "host": gateway.host,
        "port": gateway.port,
        "topic": TOPIC,
        "partitions": SHAPE.partitions,
        "per_request": SHAPE.partitions,
        "requests": runs // SHAPE.partitions,
        "record_bytes": RECORD_BYTES,
        "batch_records": SHAPE.batch_records,
        "in_flight": 1,
    }
    records += int(measure(gateway.pid, [("frames", spec)]).results[0]["topic_records"])
    stored = stored_records(gateway, TOPIC, SHAPE.partitions)
    if stored != records:
        raise RuntimeError(f"{stored} records are stored of {records}")
    return records


def _await_merges(gateway: BenchGateway) -> None:
    """Until the number of runs has not changed for a while."""
    deadline = time.monotonic() + MAX_WAIT_S
    seen, since = -1.0, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the gateway is still merging after {MAX_WAIT_S:.0f} s")
        if (runs := _live_runs(gateway)) != seen:
            seen, since = runs, time.monotonic()
        time.sleep(1.0)


def _live_runs(gateway: BenchGateway) -> float:
    with urllib.request.urlopen(f"http://{gateway.admin.address}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("dragoman_live_runs "))


def _say(gateway: BenchGateway, records: int, more: dict[str, float]) -> None:
    figures = {"flushes": records, "runs": _live_runs(gateway), "cpu_s": proc.cpu_seconds(gateway.pid)}
    sys.stdout.write(json.dumps(figures | more) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Ended from outside, the gateway is stopped all the same.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MERGE_RUNS)
