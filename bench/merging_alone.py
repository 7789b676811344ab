"""The index of one producer that flushes 200 times a second for days, merged and not, on virtual time.

`python -m bench.merging_alone FLUSHES [BATCH_BYTES]` prints a JSON line for each tenth of the way: runs,
objects, memory of the process beyond its beginning, bytes merged for each byte produced, CPU seconds of
planning and swapping. 121,000,000 flushes are seven days. `unmerged` as a third argument leaves the merges
out. Runs as a process of its own for its memory.
"""

import ctypes
import gc
import json
import os
import sys
import time

from bench import proc
from gateway.cli.process import relax_collector, tune_collector
from tests.support.merged_ledger import MergedLedger, live

FLUSH_MS = 5
JOB_MS = 60_000
BATCH_BYTES = 1_024
LINES = 10


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
    for line in range(1, LINES + 1):
        upto = flushes * line // LINES
        counted = live(ledger, upto - done, FLUSH_MS, batch_bytes, JOB_MS)
        done, most = upto, max([most, *counted])
        figures = {
            "flushes": done,
            "runs": ledger.runs(),
            "most_runs": most,
            "objects": len(ledger.state.objects.by_number),
            "index_mb": (_resident() - before) / 1e6,
            "merged_a_byte": ledger.merged.bytes / ledger.produced,
            "merge_s": ledger.merge_s,
            "swaps": ledger.merged.tasks,
            "refused": ledger.merged.refused,
        }
        sys.stdout.write(json.dumps(figures) + "\n")
        sys.stdout.flush()


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return proc.resident_bytes(os.getpid())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else BATCH_BYTES, "unmerged" not in sys.argv)
