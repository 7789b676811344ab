"""Starts client processes, lets them go together, and measures what that cost the server.

A client prints one JSON line a phase and waits for a line before the next: connecting and the start of
its interpreter so lie outside what is measured.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import proc
from tests.support.processes import kill_group
from tests.support.versions import ROOT

READY_TIMEOUT_S = 120.0
PHASE_TIMEOUT_S = 600.0
SETTLE_S = 0.5
"""What a server still does for the load after its last response counts too."""


class ClientFailed(RuntimeError):
    """A client ended or stayed silent; its own words are on standard error."""


class Client:
    """One process of `bench.load.<kind>`."""

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"bench.load.{kind}", json.dumps(spec)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def result(self, timeout_s: float = PHASE_TIMEOUT_S) -> dict[str, Any]:
        """What the client says at the end of its present phase. Errors: ClientFailed."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise ClientFailed(f"{self.kind}: {'ended' if ready else 'said nothing in time'}")
        said: dict[str, Any] = json.loads(line)
        return said

    def go(self) -> None:
        """Begin the next phase."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            kill_group(self.process)
        self.process.stdout.close()


@contextlib.contextmanager
def running_clients(specs: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[list[Client]]:
    """Clients that are ready for their first phase, ended at the end."""
    clients: list[Client] = []
    try:
        for kind, spec in specs:
            clients.append(Client(kind, spec))
        for client in clients:
            client.result(READY_TIMEOUT_S)
        yield clients
    finally:
        for client in clients:
            client.close()


@dataclass(frozen=True, slots=True)
class Measured:
    """One load: what the clients said, and what it cost the server."""

    results: Sequence[dict[str, Any]]
    wall_s: float
    cpu_s: float
    """Of the server's processes."""
    system_cpu_s: float
    """With that of the kernel's threads, until everything that the load has written is on the disk."""
    peak_bytes: int
    others_percent: float


def measure(pid: int, specs: Sequence[tuple[str, Mapping[str, Any]]]) -> Measured:
    """Run the clients' one phase together. Errors: ClientFailed."""
    with running_clients(specs) as clients:
        # The last load's pages shall not be written back during this one.
        os.sync()
        proc.reset_peak(pid)
        pids = [pid, os.getpid(), *(client.process.pid for client in clients)]
        before, machine_before = [proc.cpu_seconds(each) for each in pids], proc.machine_cpu()
        kernel_before = proc.kernel_cpu_seconds()
        started = time.monotonic()
        for client in clients:
            client.go()
        results = [client.result() for client in clients]
        wall_s = time.monotonic() - started
        time.sleep(SETTLE_S)
        after, machine_after = [proc.cpu_seconds(each) for each in pids], proc.machine_cpu()
        used = [late - early for late, early in zip(after, before, strict=True)]
        kernel_s = proc.kernel_seconds_between(kernel_before, proc.kernel_cpu_seconds())
        others = proc.others_percent(machine_before, machine_after, [*used, kernel_s])
        kernel_s += _write_back()
        return Measured(results, wall_s, used[0], used[0] + kernel_s, proc.peak_bytes(pid), others)


def _write_back() -> float:
    """Have everything written that is not on the disk yet. Returns the kernel's CPU seconds for that: of its
    threads, and in this process."""
    kernel, own = proc.kernel_cpu_seconds(), proc.alone_cpu_seconds(os.getpid())
    os.sync()
    own_s = proc.alone_cpu_seconds(os.getpid()) - own
    return own_s + proc.kernel_seconds_between(kernel, proc.kernel_cpu_seconds())
