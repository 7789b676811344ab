"""Swaps in the midst of all that changes a ledger: no offset is lost, found twice, or has another batch."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.image import all_rows
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.partitions.requests import (
    CommitBatch,
    CommitFile,
    Committed,
    DeleteRecords,
    DrainRuns,
    FileCommit,
)
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.requests import Request
from ledger.rows import digest
from ledger.swaps.requests import ReleasePin, Swapped, SwapSegments, TakePin
from ledger.swaps.state import Pins
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.swapping import swap_of

JOBS = [bytes([number]) * 16 for number in range(2)]
PARTITIONS = 2
Where = tuple[str, int]
"""(locator, start) of a batch."""
REQUESTS = ("commit", "delete", "drain", "swap", "late", "pin", "release", "floor", "forget")
OFTEN = ("commit",) * 6 + ("swap",) * 4 + ("release",) * 2
STEPS = (*OFTEN, *REQUESTS, "plan", "entry", "entry", "recreate", "restart")
IMAGES = ("image", "image steps", "image fails")


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ledger.partitions.state.CHUNK_RUNS", 3)
        yield


class History:
    """A ledger, and where each record was stored at first."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.ledger = JournalledLedger()
        self.topics = 0
        self.objects = 0
        self.ends: dict[str, int] = {}
        self.stored: dict[tuple[bytes, int, int], Where] = {}
        """By (topic id, partition, offset)."""
        self.copied: dict[Where, dict[int, Where]] = {}
        """Of each run of a segment: by offset, where the record was at first."""
        self.planned: list[SwapSegments] = []
        self.swapped = 0
        self.create()

    def create(self) -> None:
        self.topics += 1
        self.topic = topic_id(self.topics)
        self.ledger.submit(CreateTopic(f"t{self.topics}", self.topic, PARTITIONS, {}))

    @property
    def logs(self) -> list[PartitionLog]:
        return self.ledger.state.topics.by_id[self.topic].partitions[:]

    def step(self, name: str) -> None:
        ledger, dice = self.ledger, self.dice
        ledger.now_ms += dice.randrange(3)
        if name == "recreate":
            ledger.submit(DeleteTopic(self.topic))
            self.create()
        elif name == "restart":
            ledger.restart(dice.choice(["image", "snapshot", "journal"]))
        elif name == "image":
            ledger.write_image()
        elif name == "image steps":
            ledger.begin_image()
            ledger.continue_image(dice.randrange(12))
        elif name == "image fails":
            ledger.end_image(fails=True)
        elif name == "plan":
            self.planned += filter(None, [self.swap()])
        elif name == "entry":
            self.submit(*filter(None, [self.request(dice.choice(OFTEN + REQUESTS)) for _ in range(4)]))
        else:
            self.submit(*filter(None, [self.request(name)]))

    def request(self, name: str) -> Request | None:
        dice, ledger = self.dice, self.ledger
        log = dice.choice(self.logs)
        if name == "commit":
            return self.commit()
        if name == "delete":
            return DeleteRecords(self.topic, log.index, dice.randint(log.log_start, log.high_watermark))
        if name == "drain":
            return DrainRuns(dice.randint(1, 5))
        if name == "late":
            return self.planned.pop(dice.randrange(len(self.planned))) if self.planned else None
        if name == "pin":
            return TakePin(dice.choice(JOBS))
        if name == "release":
            return ReleasePin(dice.choice(JOBS))
        if name == "floor":
            return RaiseFloor(ledger.now_ms - dice.randrange(4))
        if name == "forget":
            due = ledger.state.objects.due_garbage(ledger.now_ms, 0)
            return ForgetObjects([stored.number for stored in due])
        return self.swap()

    def commit(self) -> CommitFile:
        dice = self.dice
        self.objects += dice.random() < 0.6
        where = locator(self.objects, 1_000_000 + self.objects)
        at, batches = self.ends.get(where, 0), list[CommitBatch]()
        for _ in range(dice.randint(1, 5)):
            batches.append(
                commit_batch(
                    self.topic, dice.randrange(PARTITIONS), at, records=dice.randint(1, 3), max_timestamp=at
                )
            )
            at += 100
        self.ends[where] = at
        return CommitFile(where, at, batches)

    def swap(self) -> SwapSegments | None:
        log = self.dice.choice(self.logs)
        runs = list(log.runs())
        if not runs:
            return None
        job = self.dice.choice(JOBS)
        if self.dice.random() < 0.9:
            self.ledger.submit(TakePin(job))
        first = self.dice.randrange(len(runs))
        some = runs[first : first + self.dice.randint(1, 9)]
        planned = swap_of(
            log,
            some,
            self.ledger.now_ms,
            join=self.dice.randint(1, 5),
            segments=self.dice.randint(1, 2),
            job=job,
            attempt=self.dice.randrange(2),
        )
        for run in planned.runs:
            self.copied[planned.segments[run.segment].locator, run.start] = {
                offset: self.stored[self.topic, log.index, offset]
                for offset in range(run.base, run.last + 1)
                if (self.topic, log.index, offset) in self.stored
            }
        return planned

    def submit(self, *requests: Request) -> None:
        pinned = set(self.ledger.state.part(Pins))
        results = self.ledger.submit(*requests)
        for request, result in zip(requests, results, strict=True):
            if isinstance(request, TakePin):
                pinned.add(request.job)
            if isinstance(request, ReleasePin):
                pinned.discard(request.job)
            if isinstance(request, SwapSegments) and isinstance(result, Swapped) and not result.duplicate:
                assert request.job in pinned
            if isinstance(request, CommitFile) and isinstance(result, FileCommit):
                for batch, committed in zip(request.batches, result.results, strict=True):
                    if isinstance(committed, Committed) and not committed.duplicate:
                        for at in range(batch.record_count):
                            key = batch.topic_id, batch.partition, committed.base_offset + at
                            assert key not in self.stored
                            self.stored[key] = request.locator, batch.start
            self.swapped += isinstance(result, Swapped) and not result.duplicate

    def check(self) -> None:
        state = self.ledger.state
        live: Counter[int] = Counter()
        for log in state.logs.values():
            runs = list(log.runs())
            live.update(run.object_number for run in runs)
            assert (log.run_count, log.size_bytes) == (len(runs), sum(run.size for run in runs))
            serials = [chunk.serial for chunk in log.chunks]
            assert serials == sorted(set(serials)) and max(serials, default=-1) < log.next_serial
            found = [offset for run in runs for offset in range(run.base, run.last + 1)]
            readable = [offset for offset in found if offset >= log.log_start]
            if not log.deleted:
                assert readable == list(range(log.log_start, log.high_watermark))
                for offset in readable:
                    self.check_record(log, offset)
        objects = state.objects
        assert live == Counter({n: s.live_runs for n, s in objects.by_number.items() if s.live_runs})
        assert set(objects.garbage) == {n for n, s in objects.by_number.items() if not s.live_runs}
        assert objects.floor_ms <= objects.pinned_ms
        assert all(s.closed_ms < objects.pinned_ms for s in objects.due_garbage(self.ledger.now_ms, 0))

    def check_record(self, log: PartitionLog, offset: int) -> None:
        run: Run = log.find(offset, 1)[0]
        assert run.base <= offset <= run.last
        where, start = self.stored[log.topic_id, log.index, offset]
        named = self.ledger.state.objects.locator(run.object_number)
        if run.dense:
            assert named == where and run.start <= start < run.start + run.size
        else:
            assert self.copied[named, run.start][offset] == (where, start)

    def check_bytes(self) -> None:
        """Image, snapshot and journal give the same state."""
        self.ledger.write_image()
        now = digest(all_rows(self.ledger.state))
        for state in (self.ledger.from_journal(), self.ledger.from_image(), self.ledger.from_snapshot()):
            assert digest(all_rows(state)) == now
        assert self.ledger.image == {(row.section, row.key): row.value for row in all_rows(self.ledger.state)}


def lived(seed: int, steps: list[str]) -> History:
    history = History(Random(seed))
    for name in steps:
        history.step(name)
        history.check()
    history.check_bytes()
    return history


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.lists(st.sampled_from(STEPS + IMAGES), min_size=20, max_size=60))
def test_every_offset_is_found_once_and_has_its_batch(seed: int, steps: list[str]) -> None:
    lived(seed, steps)


def test_such_histories_have_many_swaps() -> None:
    swapped = [lived(seed, Random(seed).choices(STEPS + IMAGES, k=80)).swapped for seed in range(5)]
    assert sum(swapped) > 20
