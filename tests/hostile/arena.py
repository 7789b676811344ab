"""Where an attack is run and measured: a gateway, and a well-behaved client that uses it.

arena.withstands("header", attack, Bounds(cpu_s=0.05))

Wall-clock bounds have the slack of CI in the short form, where other work disturbs; in the full form the
attack is run five times, and the median of each figure must keep to the bound itself.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from tests.support.gateway import Gateway
from tests.support.versions import ROOT

MIB = 1024 * 1024
SLACK = 5.0
"""How much longer than its bound a wait may be in the short form."""
CPU_SLACK = 1.5
"""The same for CPU seconds, which grow while other processes share the caches."""
ROUNDS = 5
QUIET_S = 1.0
TICKS_A_SECOND = 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one attack; None: not bounded."""

    ack_s: float = 1.0
    ping_s: float = 1.0
    end_to_end_s: float = 2.0
    memory_bytes: int | None = 64 * MIB
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """`memory_bytes` is the highest above before, `cpu_s` that of the gateway's process beyond what it takes
    without an attack."""

    ack_s: float
    ping_s: float
    end_to_end_s: float
    memory_bytes: float
    cpu_s: float
    seconds: float

    def beyond(self, bounds: Bounds) -> list[str]:
        """The figures that are not within their bounds."""
        pairs = [
            (field.name, getattr(self, field.name), getattr(bounds, field.name)) for field in fields(bounds)
        ]
        return [
            f"{name} {value:.3g}, allowed {bound:.3g}"
            for name, value, bound in pairs
            if bound is not None and value > bound
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A line of the table at the end."""

    attack: str
    figures: Figures
    bounds: Bounds
    verdict: str


OUTCOMES: list[Outcome] = []


class Beside:
    """The well-behaved client, while it runs."""

    def __init__(self, gateway: Gateway) -> None:
        command = [sys.executable, "-m", "tests.hostile.good_client", gateway.host, str(gateway.port)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._wait_until_well()

    def begin(self) -> None:
        self._ask("begin")

    def end(self) -> dict[str, Any]:
        return self._ask("end")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30.0)
        self._process.stdout.close()

    def _ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        response: dict[str, Any] = json.loads(self._process.stdout.readline())
        return response

    def _wait_until_well(self) -> None:
        deadline = time.monotonic() + 30.0
        while True:
            self.begin()
            time.sleep(0.3)
            figures = self.end()
            if figures["records"] and figures["pings"] and figures["end_to_end_s"] < 0.5:
                return
            assert time.monotonic() < deadline, f"the well-behaved client does not get on: {figures}"


class Arena:
    """A ready gateway, and its well-behaved client; `rounds` is how often an attack is run."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.rounds = 1
        self.prepared: dict[str, Any] = {}
        """What tests have laid out in this gateway, by a name of theirs."""
        self._beside = Beside(gateway)
        self._idle_cpu_a_second = self._measure_idle()

    def __enter__(self) -> "Arena":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beside.close()
        self.gateway.stop()

    def once(self, name: str, prepare: Callable[[], Any]) -> Any:
        """Lay something out in this gateway, if no test has before."""
        if name not in self.prepared:
            self.prepared[name] = prepare()
        return self.prepared[name]

    def withstands(self, attack: str, run: Callable[[], None], bounds: Bounds | None = None) -> Figures:
        """Run the attack, note its figures, and fail if they are beyond the bounds."""
        wanted = bounds or Bounds()
        failures: list[AssertionError] = []

        def run_on() -> None:
            # The figures are wanted all the same.
            try:
                run()
            except AssertionError as error:
                failures.append(error)

        figures = self.measured(run_on)
        allowed = wanted if self.rounds > 1 else with_slack(wanted)
        beyond = figures.beyond(allowed) if self.gateway.is_running() else ["the gateway is dead"]
        verdict = [*beyond, *(["the attack itself went otherwise"] if failures else [])]
        OUTCOMES.append(Outcome(attack, figures, wanted, "; ".join(verdict)))
        if failures:
            raise failures[0]
        assert not beyond, f"{attack}: {'; '.join(beyond)} ({figures})\n{self.gateway.log_tail()}"
        return figures

    def measured(self, run: Callable[[], None]) -> Figures:
        """Of one run, or the median of several."""
        rounds = [self._measured_once(run) for _ in range(self.rounds)]
        return Figures(*(median(getattr(one, field.name) for one in rounds) for field in fields(Figures)))

    def _measured_once(self, run: Callable[[], None]) -> Figures:
        pid = self.gateway.pid
        self._beside.begin()
        before_bytes, before_s, began = memory_bytes(pid), cpu_seconds(pid), time.monotonic()
        forget_peak(pid)
        run()
        beside = self._beside.end()
        took_s = time.monotonic() - began
        figures = Figures(beside["ack_s"], beside["ping_s"], beside["end_to_end_s"], 0.0, 0.0, took_s)
        if not self.gateway.is_running():
            return figures
        assert not beside["failures"], beside
        spent_s = cpu_seconds(pid) - before_s - took_s * self._idle_cpu_a_second
        return replace(figures, memory_bytes=peak_bytes(pid) - before_bytes, cpu_s=max(0.0, spent_s))

    def _measure_idle(self) -> float:
        before = cpu_seconds(self.gateway.pid)
        time.sleep(QUIET_S)
        return (cpu_seconds(self.gateway.pid) - before) / QUIET_S


def with_slack(bounds: Bounds) -> Bounds:
    cpu_s = None if bounds.cpu_s is None else bounds.cpu_s * CPU_SLACK
    waits = bounds.ack_s * SLACK, bounds.ping_s * SLACK, bounds.end_to_end_s * SLACK
    return Bounds(*waits, memory_bytes=bounds.memory_bytes, cpu_s=cpu_s)


def memory_bytes(pid: int) -> int:
    return _status(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most since `forget_peak`."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Of all threads, in user and kernel mode."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_A_SECOND


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
