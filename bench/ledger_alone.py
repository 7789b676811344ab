"""The ledger without anything around it: time a batch, memory a run, the longest apply, find batches.

`python -m bench.ledger_alone RUNS` prints one JSON line; run as a process of its own for its memory.
"""

import ctypes
import gc
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from statistics import median

from bench import proc
from bench.stats import percentile
from bench.synthetic import BATCHES, commit, new_locator, topic_id
from gateway.cli.process import relax_collector, tune_collector
from gateway.housekeeping.draining import SLICE_RUNS
from ledger.journal import GROUP_COMMIT_BATCHES, NONCE_BYTES, apply_entry, decode_entry, encode_entry
from ledger.objects.requests import RaiseFloor
from ledger.overlay import Overlay
from ledger.partitions.requests import DrainRuns
from ledger.records import NEWEST_LEVEL
from ledger.registry import decide, encode_record
from ledger.requests import Request
from ledger.state import LedgerState
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.versions import ROOT

PARTITIONS = 1_000
DRAFTS_AN_ENTRY = GROUP_COMMIT_BATCHES // BATCHES
DRAFTS_AN_OBJECT = 10
FINDS = 20_000
FIND_BYTES = 1024 * 1024
START_MS = 1_700_000_000_000
TIMEOUT_S = 900.0


def ledger_alone(runs: int) -> dict[str, float]:
    """The figures, measured in a fresh process."""
    words = [sys.executable, "-m", "bench.ledger_alone", str(runs)]
    done = subprocess.run(words, cwd=ROOT, check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@dataclass(slots=True)
class LocalHistogram:
    """Seconds of each step, an entry at a time."""

    decide: list[float] = field(default_factory=list)
    encode: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    apply: list[float] = field(default_factory=list)


class Ledger:
    """Decides, encodes, decodes and applies entries as a shard does, and takes the time of each step."""

    def __init__(self) -> None:
        self.state = LedgerState()
        self.state.feature_level = NEWEST_LEVEL
        self.now_ms = START_MS
        self.times = LocalHistogram()

    def entry(self, requests: list[Request], times: LocalHistogram) -> None:
        self.now_ms += 1
        # CPU time: what others on the machine do is no cost of the ledger.
        clock = time.thread_time
        start = clock()
        overlay = Overlay(self.state)
        decisions = [decide(self.state, overlay, request, self.now_ms) for request in requests]
        decided = clock()
        records = [
            encode_record(record, self.state.feature_level)
            for decision in decisions
            for record in decision.records
        ]
        data = encode_entry(1, self.now_ms, os.urandom(NONCE_BYTES), records)
        encoded = clock()
        entry = decode_entry(data, "bench")
        decoded = clock()
        apply_entry(self.state, entry)
        applied = clock()
        times.decide.append(decided - start)
        times.encode.append(encoded - decided)
        times.decode.append(decoded - encoded)
        times.apply.append(applied - decoded)

    def fill(self, runs: int, partitions: int, topic: int, times: LocalHistogram) -> None:
        """Commit until the topic has `runs` runs."""
        self.entry([CreateTopic(f"t{topic}", topic_id(topic), partitions, {})], LocalHistogram())
        sequences, locator, start = [0] * partitions, "", 0
        requests: list[Request] = []
        for number, first in enumerate(range(0, runs, BATCHES)):
            if number % DRAFTS_AN_OBJECT == 0:
                locator, start = new_locator(self.now_ms, random.randbytes), 0
            request, start = commit(locator, start, first, BATCHES, sequences, self.now_ms, topic)
            requests.append(request)
            if len(requests) == DRAFTS_AN_ENTRY:
                self.entry(requests, times)
                requests = []
        if requests:
            self.entry(requests, times)


def main(runs: int) -> None:
    # As a gateway does: the garbage of a bench's imports is not the ledger's.
    relax_collector()
    tune_collector()
    ledger = Ledger()
    # Interpreter, imports and the first allocations are not the ledger's.
    ledger.fill(3 * BATCHES, 10, 1, LocalHistogram())
    before = _resident()
    ledger.fill(runs, PARTITIONS, 0, ledger.times)
    with_answers = _resident()
    stored = sum(log.run_count for log in ledger.state.topics.by_id[topic_id(0)].partitions)
    assert stored == runs, stored
    figures = _times_a_batch(ledger.times) | _finds(ledger.state)
    figures["bytes_run"] = (with_answers - before) / runs
    floor, drain = LocalHistogram(), LocalHistogram()
    ledger.entry([RaiseFloor(ledger.now_ms + 1)], floor)
    figures["bytes_run_below_floor"] = (_resident() - before) / runs
    ledger.entry([DeleteTopic(topic_id(0))], drain)
    while ledger.state.draining:
        ledger.entry([DrainRuns(SLICE_RUNS)], drain)
    longest = {"commit": max(ledger.times.apply), "floor": max(floor.apply), "delete": max(drain.apply)}
    figures |= {f"apply_longest_{name}_ms": 1e3 * took for name, took in longest.items()}
    figures["apply_longest_ms"] = 1e3 * max(longest.values())
    sys.stdout.write(json.dumps(figures) + "\n")


def _times_a_batch(times: LocalHistogram) -> dict[str, float]:
    batches = BATCHES * DRAFTS_AN_ENTRY
    steps = {"decide": times.decide, "encode": times.encode, "decode": times.decode, "apply": times.apply}
    return {f"{name}_us_batch": 1e6 * median(taken) / batches for name, taken in steps.items()}


def _finds(state: LedgerState) -> dict[str, float]:
    source = random.Random(1)
    logs = state.topics.by_id[topic_id(0)].partitions
    taken = []
    for _ in range(FINDS):
        log = source.choice(logs)
        offset = source.randrange(log.high_watermark)
        start = time.thread_time()
        found = log.find(offset, FIND_BYTES)
        taken.append(1e3 * (time.thread_time() - start))
        assert found[0].base <= offset <= found[0].last
    return {"find_p50_ms": percentile(taken, 50), "find_p99_ms": percentile(taken, 99)}


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return proc.resident_bytes(os.getpid())


if __name__ == "__main__":
    main(int(sys.argv[1]))
