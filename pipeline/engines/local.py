"""The local engine: a merge job in a process of its own, at the lowest priority and in little memory.

`python -m pipeline.engines.local` reads one line of JSON from stdin, a `JobRequest`, and ends when stdin
ends: so it never outlives the process that has started it. Each line on stdout is a JSON object with one key:

| key      | value                                                                         |
|----------|-------------------------------------------------------------------------------|
| progress | what was done so far (`pipeline.rounds.MergeTotals`): now and then            |
| planned  | of a plan: one topic, and what would be merged of it                          |
| summary  | the end of a job: what was done, how long it took and what it cost            |
| error    | the end of a job that failed: one sentence                                    |

Exit codes: 0 after a summary, 1 after an error.
"""

import asyncio
import dataclasses
import json
import os
import resource
import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.open import FarOptions, FarStores, open_job_segments
from ledger.errors import StoreError
from ledger.merging.plan import MergePolicy
from ledger.merging.reads import FAR, NEAR
from pipeline.costs import dollars
from pipeline.links import InheritedLink, Link, PlainLink, TlsLink, UnixLink
from pipeline.peer import PeerClient, PeerRefused, PeerUnavailable
from pipeline.rounds import MergeTotals, Round
from pipeline.segments import ROUND_BYTES, Engine, Host, JobError, MergeJob, PlannedTopic
from pipeline.stores import BlockingStore

NICENESS: Final = 19
STATUS: Final = Path("/proc/self/status")
MAX_DATA_BYTES: Final = 512 * 1024 * 1024
"""What this process may map for itself, if the system counts that. It uses less than half (a test measures
it); beyond this there is an error in it, and it ends instead of taking the memory of the gateway."""
PROGRESS_S: Final = 1.0


class PeerPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the gateway: an inherited socket (`fd`), a Unix socket (`path`), or `host` and `port`,
    with TLS if there is a `certificate`."""

    fd: int = -1
    path: str = ""
    host: str = ""
    port: int = 0
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def link(self) -> Link:
        if self.fd >= 0:
            return InheritedLink(self.fd)
        if self.path:
            return UnixLink(Path(self.path))
        if self.certificate:
            return TlsLink(self.host, self.port, Path(self.ca), Path(self.certificate), Path(self.key))
        return PlainLink(self.host, self.port)


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the job is to do. `far` has settings `storage.*` of stores elsewhere that the URL does not say,
    and `policy` fields of `ledger.merging.plan.MergePolicy` that are not the default."""

    peer: PeerPlace
    topics: tuple[str, ...] = ()
    dry_run: bool = False
    far: dict[str, Any] = {}
    policy: dict[str, int] = {}


def main() -> int:
    """Run one job. The exit code."""
    with suppress(OSError):
        os.nice(NICENESS)
    # Ctrl-C on a terminal is for the process that has started this one: it closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _bound_memory()
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    try:
        request = msgspec.json.decode(line, type=JobRequest)
        _run(request)
    except (JobError, PeerUnavailable, PeerRefused, StoreError, ValueError, TypeError) as error:
        _say("error", str(error))
        return 1
    except MemoryError:
        _say("error", f"the job needs more than {MAX_DATA_BYTES // 2**20} MiB of memory")
        return 1
    return 0


def _run(request: JobRequest) -> None:
    began_s = time.monotonic()
    with ExitStack() as stack:
        policy = MergePolicy(**{"task_bytes": ROUND_BYTES, **request.policy})
        peer = stack.enter_context(PeerClient(request.peer.link()))
        runner = stack.enter_context(asyncio.Runner())
        url = peer.describe().data_url
        is_far = not url.startswith(("file:", "objects+file:"))
        segments = open_job_segments(url, far=FarStores(FarOptions(**request.far)))
        store = stack.enter_context(BlockingStore(segments, runner))
        engine = Engine(Round(store, os.urandom, FAR if is_far else NEAR))
        job = MergeJob(peer, engine, Host(time.monotonic, os.urandom), policy, _Progress())
        if request.dry_run:
            for planned in job.plan(request.topics):
                _say("planned", _planned(planned))
        else:
            job.run(request.topics)
        totals = dataclasses.asdict(job.totals)
        cost = dollars(url, job.totals.reads, job.totals.writes)
        took_s = round(time.monotonic() - began_s, 3)
        _say("summary", {**totals, "took_s": took_s, "dollars": cost, "max_rss_bytes": _max_rss_bytes()})


class _Progress:
    """Says now and then what was done."""

    def __init__(self) -> None:
        self._said_s = 0.0

    def __call__(self, totals: MergeTotals) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            _say("progress", {**dataclasses.asdict(totals), "damages": []})


def _planned(planned: PlannedTopic) -> dict[str, object]:
    return {"topic": planned.topic, **dataclasses.asdict(planned.look)}


def _say(key: str, value: object) -> None:
    print(json.dumps({key: value}), flush=True)  # noqa: T201 - it is what the caller reads


def _end_with_stdin() -> None:
    """At once: there is nothing to be left in order. What was written in vain is an orphan, and the gateway
    releases the pin."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


def _bound_memory() -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))


def _max_rss_bytes() -> int:
    # On Linux the counter of getrusage begins with the memory of the process that started this one.
    with suppress(OSError, ValueError, IndexError):
        (line,) = (each for each in STATUS.read_text().splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    sys.exit(main())
