"""Merge jobs as processes of their own, against a gateway with a data directory."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.gateway import Gateway
from tests.support.processes import kill_group
from tests.support.versions import ROOT

SOCKET: Final = "internal.sock"
JOB_S: Final = 120.0
EAGER: Final[Mapping[str, int]] = {"due_runs": 2, "tail_ms": 0, "task_bytes": 256 * 1024}
"""A policy: merge whatever can be merged, in small tasks, so that there are many swaps."""


class JobEnded(RuntimeError):
    """A job ended without a summary; carries what it said."""


class MergeProcess:
    """One job, of the local engine unless the request names another. What Spark writes goes to `log`."""

    def __init__(
        self,
        data_dir: Path,
        policy: Mapping[str, int] = EAGER,
        log: Path | None = None,
        **request: object,
    ) -> None:
        output = log.open("ab") if log is not None else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.engines.process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The local engine writes nothing but its lines; what Spark's Java says is its own.
            stderr=output or (subprocess.DEVNULL if request.get("engine") == "spark" else subprocess.STDOUT),
            start_new_session=True,
        )
        if output is not None:
            output.close()
        given = {"peer": {"path": str(data_dir / SOCKET)}, "policy": dict(policy), **request}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill9(self) -> None:
        kill_group(self._process)
        self._close()

    def wait(self, timeout_s: float = JOB_S) -> list[dict[str, Any]]:
        """All that it says, to its end. Errors: subprocess.TimeoutExpired."""
        assert self._process.stdout is not None
        # stdin stays open until then: at its end the job ends.
        deadline = time.monotonic() + timeout_s
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            assert time.monotonic() < deadline, f"the job goes on: {lines[-1]!r}"
        self._process.wait(10.0)
        self._close()
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise JobEnded(b"".join(lines).decode(errors="replace")) from None

    def summary(self, timeout_s: float = JOB_S) -> dict[str, Any]:
        """At its end. Errors: JobEnded."""
        said = self.wait(timeout_s)
        if not said or "summary" not in said[-1]:
            raise JobEnded(str(said))
        return dict(said[-1]["summary"])

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def merging(
    gateway: Gateway, policy: Mapping[str, int] = EAGER, log: Path | None = None, **request: object
) -> Iterator[MergeProcess]:
    job = MergeProcess(gateway.data_dir, policy, log, **request)
    try:
        yield job
    finally:
        if job.is_running():
            job.kill9()


def merge(gateway: Gateway, policy: Mapping[str, int] = EAGER, **request: object) -> dict[str, Any]:
    """The summary of one job, to its end. Errors: JobEnded."""
    with merging(gateway, policy, None, **request) as job:
        return job.summary()
