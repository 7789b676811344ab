"""Starts the merge job when the ledger has too many small runs: one child process at a time, which ends with
the gateway."""

import asyncio
import json
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import structlog

from gateway.coordination.shard import Shard
from gateway.host import Child, RandomBytes, StartChild
from gateway.storage_settings import Storage
from ledger.errors import StoreError
from ledger.objects.state import ObjectState
from ledger.objects.uploads import ObjectKind
from ledger.records import LEVEL_WITH_SEGMENTS
from ledger.state import LedgerState
from ledger.swaps.requests import JOB_BYTES, ReleasePin
from ledger.swaps.state import Pins

log = structlog.get_logger(__name__)

MEMORY: Final = "memory:"
"""The end of the URL of a store that no other process can reach."""
JOB_MODULE: Final = "pipeline.engines.process"
"""The module of jobs, by default the merge job with the local engine: its docstring has the lines that go to
it and come from it."""
LOOK_S: Final = 5.0
"""How often it is looked whether there is something to merge, and while a job runs, whether it may go on."""
SPARSE_LOOK_S: Final = 300.0
"""How often it is looked which log files are sparse."""
SILENT_S: Final = 300.0
"""A job that says nothing for so long hangs: each of its calls has a shorter deadline."""
END_S: Final = 5.0
PINS_BYTES: Final = 12
"""What the ids of a job's pins begin with is given to it. It numbers them in the others."""
TAIL_BYTES: Final = 2_000
"""Of what a job wrote that is no line of its own: where it failed."""

SMALL_BYTES: Final = 4 * 1024 * 1024
SMALL_SHARE: Final = 0.8
MIN_OBJECTS: Final = 1_000
"""With fewer objects their size does not matter."""
SLICE_OBJECTS: Final = 5_000
MAX_COUNTED: Final = 1_000_000

FIRST_PAUSE_S: Final = 60.0
MAX_PAUSE_S: Final = 3600.0
WORTH: Final = 4
"""A job that merged at least one part of so many of the small runs may be followed by the next at once."""

Connect: TypeAlias = Callable[[], socket.socket]
"""One end of a new connection to the internal APIs of this gateway; the other is served."""


class MergeMetrics(Protocol):
    """What is counted of jobs, as `gateway.telemetry.metrics.Metrics` has it."""

    def counted_small_runs(self, runs: int) -> None: ...

    def merge_runs(self, is_running: bool) -> None: ...

    def merge_ended(self, outcome: str, runs: int, size_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class SmallRuns:
    """What a merge could make fewer."""

    runs: int
    """In WAL objects."""
    objects: int
    """That hold live runs."""
    small_objects: int
    """WAL objects of less than SMALL_BYTES among them."""

    def reason(self, merge_runs: int) -> str:
        """Why a job is due; empty if none is. `merge_runs` as the setting has it."""
        if self.runs > merge_runs:
            return f"{self.runs} small runs, more than housekeeping.merge_runs"
        if self.objects >= MIN_OBJECTS and self.small_objects >= SMALL_SHARE * self.objects:
            return f"{self.small_objects} of {self.objects} objects are small"
        return ""


async def count_small_runs(state: LedgerState) -> SmallRuns:
    """In slices: other tasks run after each few thousand objects. Of more than a million the first ones."""
    runs = objects = small = 0
    known = list(islice(state.objects.by_number.values(), MAX_COUNTED))
    for at in range(0, len(known), SLICE_OBJECTS):
        part = [stored for stored in known[at : at + SLICE_OBJECTS] if stored.live_runs]
        wal = [stored for stored in part if stored.kind == ObjectKind.WAL]
        objects += len(part)
        runs += sum(stored.live_runs for stored in wal)
        small += sum(map(_is_small, wal))
        await asyncio.sleep(0)
    return SmallRuns(runs, objects, small)


class Pauses:
    """How long to wait between two jobs (sans-I/O). One that failed, or found little to do, is not repeated
    at once, but later and later."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def after(self, merged_runs: int, small_runs: int) -> float:
        """`merged_runs` is 0 after a failure. `small_runs` there were before."""
        if merged_runs and merged_runs * WORTH >= small_runs:
            self._next_s = FIRST_PAUSE_S
            return LOOK_S
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, MAX_PAUSE_S)
        return pause_s


FindSparse: TypeAlias = Callable[[], Awaitable[frozenset[str]]]
"""Locators of log files that a merge would set free. StoreUnavailable."""


async def none_sparse() -> frozenset[str]:
    """Where there is no local log."""
    return frozenset()


class SparseLooks:
    """When it is looked which log files are sparse: now and then, and later and later while a job frees none
    of those that it was given, as some of their runs cannot be read."""

    def __init__(self, find: FindSparse) -> None:
        self._find = find
        self._at_s = -math.inf
        """Loop time of the next look."""
        self._pause_s = SPARSE_LOOK_S
        self._found = frozenset[str]()

    async def find(self, now_s: float) -> frozenset[str]:
        """Empty if no look is due, or the store cannot be listed."""
        if now_s < self._at_s:
            return frozenset()
        try:
            found = await self._find()
        except StoreError as error:
            log.info("merging.sparse_unknown", error=str(error))
            found = frozenset()
        is_again = bool(found) and found <= self._found
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S) if is_again else SPARSE_LOOK_S
        self._found, self._at_s = found, now_s + self._pause_s
        return found


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """When and how jobs run."""

    merge_runs: int
    """As the setting `housekeeping.merge_runs`; 0 = never."""
    request: Mapping[str, object]
    """What the engine needs besides the connection."""
    hindrance: Callable[[], str]
    """Why nothing may be merged now, such as a full disk; empty if it may."""
    random_bytes: RandomBytes
    sparse: FindSparse = none_sparse
    """As `gateway/housekeeping/sparse_logs.py` finds them."""


class JobHost(Protocol):
    """As `gateway.world.World`."""

    @property
    def start_child(self) -> StartChild | None:
        """None: no process can be started."""
        ...

    @property
    def random_bytes(self) -> RandomBytes: ...


class JobStart(NamedTuple):
    """How a job is started."""

    connect: Connect
    host: JobHost


class Merging:
    """The part of the owner that merges. A job that dies or hangs changes nothing that is visible, and the
    next one merges what it left."""

    def __init__(
        self,
        shard: Shard,
        options: MergeOptions,
        connect: Connect,
        start: StartChild,
        metrics: MergeMetrics,
    ) -> None:
        self._shard = shard
        self._options = options
        self._connect = connect
        self._start = start
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._sparse = SparseLooks(options.sparse)

    async def begin_epoch(self) -> None:
        self._sparse = SparseLooks(self._options.sparse)
        if self._options.merge_runs:
            self._task = asyncio.create_task(self._run(), name="merging")

    async def end_epoch(self) -> None:
        """The job under way is ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        pauses, pause_s = Pauses(), LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_S
            if self._shard.state.feature_level < LEVEL_WITH_SEGMENTS or self._options.hindrance():
                continue
            small = await count_small_runs(self._shard.state)
            self._metrics.counted_small_runs(small.runs)
            sparse = await self._sparse.find(asyncio.get_running_loop().time())
            if reason := small.reason(self._options.merge_runs):
                pause_s = pauses.after(await self._merge(reason, sparse), small.runs)
            elif sparse:
                await self._merge(f"little is live in {len(sparse)} log files", sparse)

    async def _merge(self, reason: str, sparse: frozenset[str]) -> int:
        """How many runs were merged; 0 after a failure."""
        log.info("merging.started", reason=reason)
        self._metrics.merge_runs(True)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            summary = await self._job(sparse)
        except (OSError, JobFailed) as error:
            self._metrics.merge_ended("failed", 0, 0)
            log.warning("merging.failed", error=str(error), took_s=round(loop.time() - began_s, 1))
            return 0
        finally:
            self._metrics.merge_runs(False)
        runs, size_bytes = int(summary.get("runs", 0)), int(summary.get("written_bytes", 0))
        self._metrics.merge_ended("merged" if runs else "idle", runs, size_bytes)
        log.info("merging.ended", **summary)
        return runs

    async def _job(self, sparse: frozenset[str]) -> Mapping[str, Any]:
        """The summary of one job. Errors: JobFailed; OSError if it cannot be started."""
        pins = self._options.random_bytes(PINS_BYTES)
        options = {"pins": pins.hex(), "options": {"sparse": sorted(sparse)}}
        request = {**self._options.request, **options}
        ours = self._connect()
        try:
            given = json.dumps({**request, "peer": {"fd": ours.fileno()}})
            child = await self._start(["-m", JOB_MODULE], [ours.fileno()])
        finally:
            ours.close()
        try:
            return await _Supervised(child, self._options.hindrance).run(given)
        finally:
            try:
                await _end(child)
            finally:
                await self._release(pins)

    async def _release(self, pins: bytes) -> None:
        """The pins of a job that has ended, if it could not do that itself: else they would keep all garbage
        until they expire, and a job is ended because a disk is full. `pins`: what their ids begin with."""
        # Its first one perhaps is on its way into the journal: then it is there before it is released.
        first = pins + bytes(JOB_BYTES - PINS_BYTES)
        known = [job for job in self._shard.state.part(Pins) if job.startswith(pins)]
        deadline = asyncio.get_running_loop().time() + END_S
        for job in {first, *known}:
            # A pin that is left expires.
            with suppress(StoreError, TimeoutError):
                await self._shard.ask(ReleasePin(job), deadline)


class JobFailed(Exception):
    """A job ended without a summary. The message says why."""


class _Supervised:
    """Reads what a job says until it ends."""

    def __init__(self, child: Child, hindrance: Callable[[], str]) -> None:
        assert child.stdin is not None and child.stdout is not None
        self._child = child
        self._stdin, self._stdout = child.stdin, child.stdout
        self._hindrance = hindrance
        self._tail = b""

    async def run(self, given: str) -> Mapping[str, Any]:
        """The summary. Errors: JobFailed."""
        with suppress(OSError):
            # stdin stays open: the job ends when it is closed, and so with the gateway.
            self._stdin.write(given.encode() + b"\n")
            await self._stdin.drain()
        heard_s = (loop := asyncio.get_running_loop()).time()
        while True:
            if reason := self._hindrance():
                raise JobFailed(f"the job was ended: {reason}")
            if loop.time() - heard_s > SILENT_S:
                raise JobFailed(f"the job was silent for {SILENT_S:.0f} s and was ended")
            line = await self._line()
            if line == b"":
                raise JobFailed(await self._death())
            if line is not None:
                heard_s = loop.time()
                if (summary := self._said(line)) is not None:
                    return summary

    async def _line(self) -> bytes | None:
        """None: there was none for a while; empty: there will be none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                try:
                    return await self._stdout.readline()
                except ValueError:
                    return b"a line without an end"
        return None

    def _said(self, line: bytes) -> Mapping[str, Any] | None:
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self._tail = (self._tail + line)[-TAIL_BYTES:]
            return None
        if "error" in said:
            raise JobFailed(str(said["error"]))
        summary = said.get("summary")
        return summary if isinstance(summary, dict) else None

    async def _death(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._child.wait()
        tail = self._tail.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the job ended with {self._child.returncode}" + (f": {tail}" if tail else "")


def job_options(storage: Storage) -> dict[str, object] | None:
    """What a job needs to reach the records besides their URL; None if it cannot, as they are in memory. No
    secrets: these come from the environment, which it has too."""
    if storage.data.endswith(MEMORY):
        return None
    styles = {"true": True, "false": False}
    return {
        "s3_ca": storage.s3_ca,
        "s3_path_style": styles.get(storage.s3_path_style),
        "s3_kms_key": storage.s3_kms_key,
    }


async def _end(child: Child) -> None:
    """End the process, if it has not ended by itself within a while."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await child.wait()
    except (TimeoutError, asyncio.CancelledError) as error:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        if isinstance(error, asyncio.CancelledError):
            raise


def _is_small(stored: ObjectState) -> bool:
    return stored.size < SMALL_BYTES
