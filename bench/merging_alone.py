"""The index of one producer that flushes 200 times a second for days, merged and not, on virtual time.

`python -m bench.merging_alone FLUSHES [BATCH_BYTES]` prints a JSON line for each tenth of the way, and for
every five million flushes at least: runs, objects, bytes of the index as the image has it, memory of the
process beyond its beginning and in all, bytes merged for each byte produced, CPU seconds of planning and
swapping, and how long a lookup takes. 121,000,000 flushes are seven days. `unmerged` as a third argument
leaves the merges out. Runs as a process of its own for its memory.
"""

import ctypes
import gc
import json
import os
import random
import sys
import time

from bench import proc
from bench.stats import percentile
from gateway.cli.process import relax_collector, tune_collector
from ledger.image import all_rows
from ledger.objects.rows import OBJECT
from ledger.partitions.rows import CHUNK
from tests.support.merged_ledger import MergedLedger, live

FLUSH_MS = 5
JOB_MS = 100_000 * FLUSH_MS
"""A gateway starts a job when there are more small runs than `housekeeping.merge_runs`."""
BATCH_BYTES = 1_024
LINES = 10
MAX_LINE_FLUSHES = 5_000_000
FINDS = 2_000
FIND_BYTES = 1024 * 1024


class _TimedLedger(MergedLedger):
    """Counts the CPU time of its merges. They can be left out."""

    def __init__(self, merges: bool) -> None:
        super().__init__()
        self.merges = merges
        self.merge_s = 0.0

    def merge(self) -> None:
        start = time.thread_time()
        if self.merges:
            super().merge()
        self.merge_s += time.thread_time() - start


def main(flushes: int, batch_bytes: int, merges: bool) -> None:
    relax_collector()
    tune_collector()
    ledger = _TimedLedger(merges)
    before = _resident()
    done = most = 0
    step = min(-(-flushes // LINES), MAX_LINE_FLUSHES)
    while done < flushes:
        upto = min(done + step, flushes)
        counted = live(ledger, upto - done, FLUSH_MS, batch_bytes, JOB_MS)
        done, most = upto, max([most, *counted])
        resident = _resident()
        figures = {
            "flushes": done,
            "runs": ledger.runs(),
            "most_runs": most,
            "objects": len(ledger.state.objects.by_number),
            "image_mb": _image_bytes(ledger) / 1e6,
            "index_mb": (resident - before) / 1e6,
            "resident_mb": resident / 1e6,
            "merged_a_byte": ledger.merged.bytes / ledger.produced,
            "merge_s": ledger.merge_s,
            "cpu_s": time.process_time(),
            "find_p99_ms": _find_p99_ms(ledger),
            "swaps": ledger.merged.tasks,
            "refused": ledger.merged.refused,
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()


def _image_bytes(ledger: MergedLedger) -> int:
    """Of the rows that say where records are."""
    return sum(len(row.value or b"") for row in all_rows(ledger.state) if row.section in (CHUNK, OBJECT))


def _find_p99_ms(ledger: MergedLedger) -> float:
    """Of lookups at any offset."""
    source = random.Random(1)
    (log,) = ledger.logs()
    taken = []
    for _ in range(FINDS):
        offset = source.randrange(log.high_watermark)
        start = time.thread_time()
        found = log.find(offset, FIND_BYTES)
        taken.append(1e3 * (time.thread_time() - start))
        assert found[0].base <= offset <= found[0].last
    return percentile(taken, 99)


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return proc.resident_bytes(os.getpid())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else BATCH_BYTES, "unmerged" not in sys.argv)
