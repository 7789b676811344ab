"""When the gateway starts a merge job, and what it does with one that ends, dies or hangs.

The jobs here are real processes, of a few lines each.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from gateway.coordination.shard import Shard
from gateway.host import Child
from gateway.housekeeping import merging
from gateway.housekeeping.merging import (
    FIRST_PAUSE_S,
    LOOK_S,
    MAX_PAUSE_S,
    MIN_OBJECTS,
    PINS_BYTES,
    SMALL_BYTES,
    SPARSE_LOOK_S,
    MergeOptions,
    Merging,
    Pauses,
    SmallRuns,
    SparseLooks,
    count_small_runs,
)
from gateway.telemetry.metrics import Metrics
from ledger.errors import StoreUnavailable
from ledger.keys import uuid7
from ledger.records import NEWEST_LEVEL
from ledger.requests import Done, LedgerResult, Request
from ledger.state import LedgerState
from ledger.swaps.requests import ReleasePin
from ledger.swaps.state import Pin, Pins

SUMMARY = {"runs": 90, "written_bytes": 4096, "segments": 2}
SAYS_SUMMARY = f"import json, sys; sys.stdin.readline(); print(json.dumps({{'summary': {SUMMARY}}}))"
SAYS_ERROR = 'print(\'{"error": "no such bucket"}\'); import time; time.sleep(60)'
DIES = "import os; print('Boom', flush=True); os.abort()"
HANGS = "import time; time.sleep(60)"
ECHOES = "import json, sys; print(json.dumps({'summary': {'runs': 9, 'was': sys.stdin.readline()}}))"
WAIT_S = 20.0


class Starts:
    """Starts the processes of these scripts, one after the other, the last one again and again."""

    def __init__(self, *scripts: str) -> None:
        self.scripts = list(scripts)
        self.children: list[Child] = []
        self.descriptors: list[int] = []
        self.started = asyncio.Event()

    async def __call__(self, arguments: Sequence[str], descriptors: Sequence[int]) -> Child:
        assert arguments == ["-m", "pipeline.engines.process"]
        self.descriptors = list(descriptors)
        script = self.scripts[min(len(self.children), len(self.scripts) - 1)]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=descriptors,
        )
        self.children.append(child)
        self.started.set()
        return child


class Job:
    """A shard of 100 small runs, and what merges it: its counts are those of `Metrics`."""

    def __init__(self, starts: Starts, merge_runs: int = 50, sparse: frozenset[str] = frozenset()) -> None:
        self.state = state_of(100)
        self.hindrance = ""
        self.keeps_journal = True
        self.ends: list[socket.socket] = []
        self.metrics = Metrics()
        self.outcomes = asyncio.Queue[str]()
        self.starts = starts
        self.released: list[bytes] = []
        shard = cast(Shard, SimpleNamespace(state=self.state, ask=self.ask))
        self.sparse = sparse
        request = {"far": {"s3_ca": "x"}}
        options = MergeOptions(merge_runs, request, lambda: self.hindrance, beginning, self.find_sparse)
        self.merging = Merging(shard, options, self.connect, starts, self)

    async def ask(self, request: Request, deadline: float) -> LedgerResult:
        assert isinstance(request, ReleasePin)
        # The job has ended before.
        assert self.starts.children[-1].returncode is not None
        self.released.append(request.job)
        is_there = self.state.part(Pins).pop(request.job, None) is not None
        if not self.keeps_journal:
            raise StoreUnavailable("the disk is full")
        return Done(int(is_there))

    async def find_sparse(self) -> frozenset[str]:
        return self.sparse

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.ends.append(ours)
        return theirs

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def counted_small_runs(self, runs: int) -> None:
        self.metrics.counted_small_runs(runs)

    def merge_runs(self, is_running: bool) -> None:
        self.metrics.merge_runs(is_running)

    def merge_ended(self, outcome: str, runs: int, size_bytes: int) -> None:
        self.metrics.merge_ended(outcome, runs, size_bytes)
        self.outcomes.put_nowait(outcome)

    async def until_ended(self, outcome: str) -> None:
        async with asyncio.timeout(WAIT_S):
            assert await self.outcomes.get() == outcome


def beginning(size: int) -> bytes:
    """Of the ids of a job's pins."""
    return b"j" * size


def state_of(runs: int, objects: int = 1, size: int = 1) -> LedgerState:
    state = LedgerState()
    state.feature_level = NEWEST_LEVEL
    for number in range(objects):
        stored = state.objects.register(f"wal/0/{uuid7(1, number.to_bytes(10, 'big'))}")
        stored.live_runs, stored.size = runs, size
    return state


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LOOK_S", 0.05)
    monkeypatch.setattr(merging, "END_S", 0.2)


async def ended(job: Job) -> None:
    """All of its processes have ended, within a while."""
    async with asyncio.timeout(WAIT_S):
        for child in job.starts.children:
            await child.wait()


async def test_a_job_is_started_for_small_runs_and_its_summary_is_counted_and_logged() -> None:
    job = Job(Starts(SAYS_SUMMARY, HANGS))
    with capture_logs() as lines:
        await job.merging.begin_epoch()
        await job.until_ended("merged")
        await job.merging.end_epoch()
    await ended(job)
    assert job.count("dragoman_small_runs") == 100
    assert job.count("dragoman_merged_runs_total") == 90
    assert job.count("dragoman_merged_bytes_total") == 4096
    assert [line["event"] for line in lines][:2] == ["merging.started", "merging.ended"]
    assert lines[0]["reason"] == "100 small runs, more than housekeeping.merge_runs"
    assert lines[1]["segments"] == 2


async def test_a_job_gets_one_end_of_a_connection_and_what_it_needs_on_stdin() -> None:
    job = Job(Starts(ECHOES, HANGS))
    with capture_logs() as lines:
        await job.merging.begin_epoch()
        await job.until_ended("merged")
        await job.merging.end_epoch()
    (was,) = (line["was"] for line in lines if line["event"] == "merging.ended")
    request = json.loads(was)
    assert request["far"] == {"s3_ca": "x"}
    assert isinstance(request["peer"]["fd"], int)
    assert request["pins"] == beginning(PINS_BYTES).hex()
    # No copy of the job's end is left open here, so the other one ends with the job.
    job.ends[0].settimeout(WAIT_S)
    assert job.ends[0].recv(1) == b""


@pytest.mark.parametrize(
    ("script", "says"), [(SAYS_ERROR, "no such bucket"), (DIES, "the job ended with -6: Boom")]
)
async def test_a_job_that_fails_is_one_line_and_is_not_repeated_at_once(script: str, says: str) -> None:
    job = Job(Starts(script))
    with capture_logs() as lines:
        await job.merging.begin_epoch()
        await job.until_ended("failed")
        await asyncio.sleep(0.5)
        await job.merging.end_epoch()
    failed = [line for line in lines if line["event"] == "merging.failed"]
    assert [line["error"] for line in failed] == [says]
    assert len(job.starts.children) == 1
    await ended(job)


async def test_a_job_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SILENT_S", 0.3)
    job = Job(Starts(HANGS))
    with capture_logs() as lines:
        await job.merging.begin_epoch()
        await job.until_ended("failed")
        await job.merging.end_epoch()
    assert any("silent" in str(line.get("error")) for line in lines)
    assert [child.returncode for child in job.starts.children] == [-9]


async def test_a_job_ends_with_the_epoch() -> None:
    job = Job(Starts(HANGS))
    await job.merging.begin_epoch()
    async with asyncio.timeout(WAIT_S):
        await job.starts.started.wait()
    assert job.count("dragoman_merge_running") == 1
    await job.merging.end_epoch()
    assert job.starts.children[0].returncode == -9
    assert job.count("dragoman_merge_running") == 0
    await job.merging.end_epoch()


async def test_a_job_is_ended_when_the_disk_becomes_full_and_none_is_started_then() -> None:
    job = Job(Starts(HANGS))
    await job.merging.begin_epoch()
    async with asyncio.timeout(WAIT_S):
        await job.starts.started.wait()
    job.hindrance = "the disk is full"
    await job.until_ended("failed")
    await ended(job)
    await asyncio.sleep(0.3)
    await job.merging.end_epoch()
    assert len(job.starts.children) == 1


@pytest.mark.parametrize("keeps_journal", [True, False], ids=["journaled", "not journaled"])
async def test_the_pins_of_a_job_that_is_ended_are_released(keeps_journal: bool) -> None:
    job, other = Job(Starts(HANGS)), b"other" + bytes(11)
    job.keeps_journal = keeps_journal
    pins = job.state.part(Pins)
    await job.merging.begin_epoch()
    async with asyncio.timeout(WAIT_S):
        await job.starts.started.wait()
    numbered = [beginning(PINS_BYTES) + number.to_bytes(4, "big") for number in range(2)]
    # Its first pin was lost, and the second may be on its way into the journal.
    pins |= {numbered[1]: Pin(7, 1_000), other: Pin(8, 2_000)}
    job.hindrance = "the disk is full"
    await job.until_ended("failed")
    await job.merging.end_epoch()
    assert sorted(job.released) == numbered
    assert list(pins) == [other]


async def test_the_pins_of_a_job_that_ends_with_the_epoch_are_released() -> None:
    job = Job(Starts(HANGS))
    await job.merging.begin_epoch()
    async with asyncio.timeout(WAIT_S):
        await job.starts.started.wait()
    await job.merging.end_epoch()
    assert job.released == [beginning(PINS_BYTES) + bytes(4)]


@pytest.mark.parametrize(("merge_runs", "level"), [(0, NEWEST_LEVEL), (100, NEWEST_LEVEL), (50, 2)])
async def test_no_job_is_started_without_need(merge_runs: int, level: int) -> None:
    job = Job(Starts(HANGS), merge_runs)
    job.state.feature_level = level
    await job.merging.begin_epoch()
    await asyncio.sleep(0.3)
    await job.merging.end_epoch()
    assert not job.starts.children


async def test_many_small_objects_are_a_reason_too() -> None:
    small, large = state_of(1, MIN_OBJECTS), state_of(1, MIN_OBJECTS, SMALL_BYTES)
    assert "1000 of 1000 objects are small" in (await count_small_runs(small)).reason(10**6)
    assert (await count_small_runs(large)).reason(10**6) == ""
    assert SmallRuns(0, 1_000, 799).reason(10**6) == ""
    assert SmallRuns(0, 999, 999).reason(10**6) == ""


async def test_objects_without_live_runs_do_not_count() -> None:
    state = state_of(0, MIN_OBJECTS)
    assert await count_small_runs(state) == SmallRuns(0, 0, 0)


def test_pauses_grow_while_jobs_fail_or_find_little_and_end_with_one_that_merges() -> None:
    pauses = Pauses()
    waits = [pauses.after(merged, 1_000) for merged in (0, 0, 249, 0, 0, 0, 0, 0)]
    assert waits == [FIRST_PAUSE_S * 2**n for n in range(6)] + [MAX_PAUSE_S] * 2
    assert pauses.after(250, 1_000) == merging.LOOK_S < LOOK_S
    assert pauses.after(0, 1_000) == FIRST_PAUSE_S


async def test_the_child_of_this_host_has_the_packages_of_this_build(tmp_path: Any) -> None:
    from gateway.host import PACKAGES, start_child

    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        child = await start_child(["-c", "import ledger; print(ledger.__file__)"], [])
    finally:
        os.chdir(before)
    said, _ = await child.communicate()
    assert said.decode().strip() == str(PACKAGES / "ledger" / "__init__.py")


async def test_the_child_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.host import start_child

    for name in ("resource", "msgspec", "pipeline"):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.chdir(tmp_path)
    child = await start_child(["-m", merging.JOB_MODULE], [])
    assert child.stdin is not None and child.stdout is not None
    # The job would end at once with its stdin.
    child.stdin.write(b"no request\n")
    said = await child.stdout.read()
    assert (await child.wait(), list(json.loads(said or b"{}"))) == (1, ["error"])


async def test_sparse_files_are_a_reason_and_the_job_is_given_them() -> None:
    job = Job(Starts(ECHOES, HANGS), merge_runs=1_000, sparse=frozenset({"log/0/b", "log/0/a"}))
    with capture_logs() as lines:
        await job.merging.begin_epoch()
        await job.until_ended("merged")
        await job.merging.end_epoch()
    assert lines[0]["reason"] == "little is live in 2 log files"
    (was,) = (line["was"] for line in lines if line["event"] == "merging.ended")
    assert json.loads(was)["options"] == {"sparse": ["log/0/a", "log/0/b"]}
    await ended(job)


async def test_it_is_looked_for_sparse_files_now_and_then_and_later_while_they_stay() -> None:
    found = frozenset({"log/0/a", "log/0/b"})

    async def find() -> frozenset[str]:
        return found

    looks = SparseLooks(find)
    times = [now_s for now_s in range(0, 20_000, 100) if await looks.find(float(now_s))]
    # Each pause is twice the one before, up to an hour.
    assert times[:5] == [0, 300, 900, 2_100, 4_500] and times[5] - times[4] == MAX_PAUSE_S
    found = frozenset({"log/0/b", "log/0/c"})
    assert await looks.find(30_000.0) == found
    assert not await looks.find(30_299.0) and await looks.find(30_300.0) == found


async def test_a_look_that_fails_is_repeated() -> None:
    failures = [StoreUnavailable("no such directory")]

    async def find() -> frozenset[str]:
        if failures:
            raise failures.pop()
        return frozenset({"log/0/a"})

    looks = SparseLooks(find)
    with capture_logs() as lines:
        assert await looks.find(0.0) == frozenset()
    assert [line["event"] for line in lines] == ["merging.sparse_unknown"]
    assert await looks.find(SPARSE_LOOK_S - 1) == frozenset()
    assert await looks.find(SPARSE_LOOK_S) == {"log/0/a"}
