"""Merge jobs that the bench starts, as `dragoman compact segments` does, and what they cost."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from bench import proc
from bench.servers import BenchGateway
from gateway.internal.listener import SOCKET_FILE
from tests.support.versions import ROOT

ALL: Final = MappingProxyType({"due_runs": 1})
"""A policy that leaves nothing but the tail, so that all of what was produced is merged."""
END_S: Final = 60.0
JOB_S: Final = 600.0
SAMPLE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class JobCost:
    """A job that has ended: its own summary, and what it took of this machine."""

    summary: Mapping[str, Any]
    cpu_s: float
    gateway_cpu_s: float


def run_job(gateway: BenchGateway, engine: str, policy: Mapping[str, int] = ALL) -> JobCost:
    """Run one merge job to its end. Errors: RuntimeError with what it says."""
    before = proc.cpu_seconds(gateway.pid)
    with _job_process(gateway, engine, policy) as job:
        costs = _CpuOfFamily(job.pid)
        summary = _summary(job)
        cpu_s = costs.ended()
    return JobCost(summary, cpu_s, proc.cpu_seconds(gateway.pid) - before)


@contextmanager
def _job_process(
    gateway: BenchGateway, engine: str, policy: Mapping[str, int]
) -> Iterator[subprocess.Popen[str]]:
    peer = {"path": str(gateway.data_dir / SOCKET_FILE)}
    request = {"peer": peer, "engine": engine, "policy": dict(policy)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.engines.process"],
        cwd=ROOT,
        env={**os.environ, **gateway.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _summary(job: subprocess.Popen[str]) -> Mapping[str, Any]:
    assert job.stdout is not None
    for line in job.stdout:
        with suppress(ValueError):
            said = json.loads(line)
            if "error" in said:
                raise RuntimeError(f"a job failed: {said['error']}")
            if "summary" in said:
                summary: Mapping[str, Any] = said["summary"]
                return summary
    raise RuntimeError(f"a job ended with {job.wait(END_S)} and without a summary")


class _CpuOfFamily:
    """CPU seconds of a process and all that it starts, also of what it does not wait for at its end, as
    Python does not for Spark's Java."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seconds: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ended(self) -> float:
        self._look()
        self._over.set()
        self._thread.join()
        return sum(self._seconds.values())

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        for pid in proc.family(self._pid):
            with suppress(OSError, ValueError, IndexError):
                self._seconds[pid] = max(proc.alone_cpu_seconds(pid), self._seconds.get(pid, 0.0))


class Jobs:
    """Jobs one after the other, in a thread."""

    def __init__(self, gateway: BenchGateway) -> None:
        self.busy_s = 0.0
        """Until the first that found nothing."""
        self.bytes = 0
        self.failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=partial(self._run, gateway), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(JOB_S)
        if self.failure is not None:
            raise self.failure

    def _run(self, gateway: BenchGateway) -> None:
        started = time.monotonic()
        try:
            while not self._over.is_set():
                with _job_process(gateway, "local", {}) as job:
                    summary = _summary(job)
                self.bytes += summary["run_bytes"]
                self.busy_s = time.monotonic() - started
                if not summary["runs"]:
                    return
        except (OSError, RuntimeError) as error:
            self.failure = error


@contextmanager
def merging_beside(gateway: BenchGateway) -> Iterator[Jobs]:
    """Errors: RuntimeError at the end, if a job failed."""
    jobs = Jobs(gateway)
    try:
        yield jobs
    finally:
        jobs.end()
