"""Which runs of a partition are merged, and when: planned page by page, so that no plan holds a ledger.

Runs of WAL objects wait until there are many of them, or until the oldest has kept its object alive for long
enough; then they are merged, and what comes out of it is left alone. So each byte is read and written once
more. Only segments that stayed small are merged a second time, when there are very many of them: those of a
partition that gets a few records a minute, or of batches so small that one swap of them makes no large
segment. Each of them is hundreds of times as large afterwards, so that a third time hardly ever comes. Runs
of adopted segments are merged as soon as a job runs, so that an adoption comes to an end.

Ends of transactions (markers) are runs between those of WAL objects, and between segments. They are merged
with what is around them: else the records of a short transaction would stay as small as they were written.

The newest runs stay as they are: consumers read them from memory, and the very last one may still grow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ledger.keys import is_log
from ledger.merging.found import FoundRun, RunPage
from ledger.objects.uploads import ObjectKind
from ledger.swaps.requests import MAX_SWAPPED_RUNS
from ledger.types import TopicId

MAX_TASK_RUNS: Final = MAX_SWAPPED_RUNS - 200
"""A swap takes away and enters no more than that, and a segment of these may have some runs more than it is
made of: it has one for each 4 MiB."""
MAX_TASK_BYTES: Final = 256 * 1024 * 1024
MAX_RUN_BYTES: Final = 1024 * 1024 * 1024
"""A segment has less than 2 GiB."""
MAX_RESTARTS: Final = 10
"""How often one plan begins again because others merge the same partition."""
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """When a merge is worth its reads and writes.

    `due_runs`: runs of WAL objects that are merged at once, however young.
    `age_ms`: or when the oldest of them is in an object of this age, which goes when its last run has gone.
    Files of a local log are not closed by age: there it is the age of the run.
    `tail_ms`: runs younger than this are left alone.
    `small_segment_bytes`, `many_segments`: adjacent segments below this size are merged again if there are so
    many of them.
    `task_bytes`: what one task reads and writes at most, unless one run has more: it is held in memory.
    `sparse`: locators of log files of which little is live: what they have is merged whatever its age, and
    then they go.
    """

    due_runs: int = 500
    age_ms: int = 6 * 60 * _MINUTE_MS
    tail_ms: int = 10_000
    small_segment_bytes: int = 512 * 1024
    many_segments: int = 500
    task_bytes: int = 64 * 1024 * 1024
    sparse: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 1 <= self.due_runs <= MAX_TASK_RUNS or not 2 <= self.many_segments <= MAX_TASK_RUNS:
            raise ValueError(f"merges are due at 1 to {MAX_TASK_RUNS} runs, or at 2 to as many segments")
        if not 1 <= self.task_bytes <= MAX_TASK_BYTES:
            raise ValueError(f"a task has 1 to {MAX_TASK_BYTES} bytes, not {self.task_bytes}")


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Adjacent runs of one partition that one swap replaces by a segment."""

    topic_id: TopicId
    partition: int
    layout_version: int
    """Of the partition when the runs were found. Each swap of the job itself returns the next."""
    runs: Sequence[FoundRun]

    @property
    def first(self) -> int:
        return self.runs[0].base

    @property
    def last(self) -> int:
        return self.runs[-1].last

    @property
    def size(self) -> int:
        return sum([run.size for run in self.runs])

    def without(self, run: int) -> "list[MergeTask]":
        """What is left to do if this one of the runs cannot be read: those before it, and those after it."""
        parts = (self.runs[:run], self.runs[run + 1 :])
        return [MergeTask(self.topic_id, self.partition, self.layout_version, part) for part in parts if part]


class PartitionPlanner:
    """Plans one partition, in slices: `feed` takes a page of its runs from `next_offset` on, until that is
    None. If the log start has passed it, the page begins there.

    Holds twice `MAX_TASK_RUNS` runs at most. If the layout version changes between two pages, the runs that
    are held may be gone: then it asks for them again.
    """

    def __init__(self, topic_id: TopicId, partition: int, policy: MergePolicy, now_ms: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.next_offset: int | None = 0
        self._policy = policy
        self._now_ms = now_ms
        self._old_ms = now_ms - policy.age_ms
        self._young_ms = now_ms - policy.tail_ms
        self._object, self._object_ms = "", 0
        """The object of the last run that was looked at, and its creation time: that of the next, often."""
        self._object_is_sparse = False
        self._layout_version: int | None = None
        self._restarts = 0
        self._last = -1
        """The last offset of the last run that was taken."""
        self._held: list[FoundRun] = []
        """Adjacent runs: either all of WAL objects, or all of segments that are small; and the markers among
        them."""
        self._between: list[FoundRun] = []
        """Markers after the last of the small segments that are held."""
        self._held_bytes = 0
        self._held_segments = 0
        self._held_old = False
        """Whether one of them is in an object that should go."""
        self._segment: list[FoundRun] = []
        """Runs of the segment that is being read. Empty if it is large, as then none of them is merged."""
        self._segment_bytes = 0
        self._segment_locator = ""

    def feed(self, page: RunPage) -> list[MergeTask]:
        """The tasks that this page has made certain, in offset order."""
        if self._layout_version not in (None, page.layout_version):
            self._begin_again(page.layout_version)
            return []
        self._layout_version = page.layout_version
        tasks: list[MergeTask] = []
        is_end = not page.runs
        for run in page.runs:
            if run.last < page.log_start:
                continue
            # One that begins where another one was has grown since: it is the last.
            if run.base <= self._last or self._is_tail(run, page.high_watermark):
                is_end = True
                break
            self._last = run.last
            tasks += self._take(run)
        self.next_offset = self._last + 1
        if is_end or self.next_offset >= page.high_watermark:
            self.next_offset = None
            tasks += self._segment_ends()
            tasks += self._held_ends()
        return tasks

    def _begin_again(self, layout_version: int) -> None:
        if self._held or self._segment:
            self._last = (self._held or self._segment)[0].base - 1
        self.next_offset = self._last + 1 if self._restarts < MAX_RESTARTS else None
        self._restarts += 1
        self._layout_version = layout_version
        self._clear_held()
        self._clear_segment()

    def _is_tail(self, run: FoundRun, high_watermark: int) -> bool:
        if run.is_marker:
            # It never grows.
            return run.max_timestamp > self._young_ms
        if run.kind == ObjectKind.SEGMENT or self._is_old(run):
            return False
        if run.last + 1 >= high_watermark:
            return True
        # As nearly all are: neither its timestamps nor its object are young, whichever of them is right.
        if self._object_ms <= self._young_ms and 0 <= run.max_timestamp <= self._young_ms:
            return False
        return run.seen_ms(self._now_ms) > self._young_ms

    def _is_old(self, run: FoundRun) -> bool:
        if run.locator != self._object:
            self._object, self._object_ms = run.locator, run.created_ms
            self._object_is_sparse = run.locator in self._policy.sparse
        if self._object_is_sparse:
            return True
        if self._object_ms <= self._old_ms and is_log(run.locator):
            # The file may be written for days, and is held while it is.
            return run.seen_ms(self._now_ms) <= self._old_ms
        return self._object_ms <= self._old_ms

    def _take(self, run: FoundRun) -> list[MergeTask]:
        if run.kind == ObjectKind.SEGMENT and not run.is_adopted:
            return self._take_of_segment(run)
        tasks = self._segment_ends() if self._segment_locator else []
        if run.is_marker and run.marker is None:
            # Of a gateway that does not say what it is made of.
            return tasks + self._held_ends()
        if run.is_marker and self._held_segments:
            self._between.append(run)
            is_full = len(self._held) + len(self._between) >= MAX_TASK_RUNS
            return tasks + self._held_ends() if is_full else tasks
        return tasks + self._take_of_wal(run)

    def _take_of_wal(self, run: FoundRun) -> list[MergeTask]:
        """Of a WAL object, or a marker among those."""
        tasks: list[MergeTask] = []
        if self._held_segments:
            markers, self._between = self._between, []
            tasks += self._held_ends()
            self._hold(markers)
        if run.size > MAX_RUN_BYTES:
            return tasks + self._held_ends()
        if self._held_bytes + run.size > self._policy.task_bytes:
            tasks += self._held_ends(is_full=True)
        self._hold([run])
        self._held_old = self._held_old or (not run.is_marker and self._is_old(run))
        if len(self._held) >= MAX_TASK_RUNS:
            tasks += self._held_ends(is_full=True)
        return tasks

    def _hold(self, runs: Sequence[FoundRun]) -> None:
        self._held += runs
        self._held_bytes += sum([run.size for run in runs])

    def _take_of_segment(self, run: FoundRun) -> list[MergeTask]:
        tasks: list[MergeTask] = []
        if run.locator != self._segment_locator:
            tasks += self._segment_ends()
            self._segment_locator = run.locator
        if not self._held_segments:
            # They are of WAL objects.
            tasks += self._held_ends()
        self._segment.append(run)
        self._segment_bytes += run.size
        if self._segment_bytes >= self._policy.small_segment_bytes or len(self._segment) > MAX_TASK_RUNS:
            tasks += self._held_ends()
            self._segment = []
        return tasks

    def _segment_ends(self) -> list[MergeTask]:
        small = self._segment
        self._clear_segment()
        if not small:
            return []
        count = len(self._held) + len(self._between) + len(small)
        tasks = self._held_ends() if count > MAX_TASK_RUNS else []
        markers, self._between = self._between, []
        self._hold(markers)
        self._hold(small)
        self._held_segments += 1
        return tasks

    def _held_ends(self, *, is_full: bool = False) -> list[MergeTask]:
        """No further run is adjacent, or none has room: those that are held are due by now, or they wait."""
        self._hold(self._between)
        held, size, segments = self._held, self._held_bytes, self._held_segments
        is_old = self._held_old
        self._clear_held()
        if not held or self._layout_version is None:
            return []
        if segments:
            is_due = segments >= self._policy.many_segments
        else:
            is_due = is_full or len(held) >= self._policy.due_runs or is_old
        if not is_due:
            return []
        parts = _cut(held, size, self._policy.task_bytes)
        return [MergeTask(self.topic_id, self.partition, self._layout_version, part) for part in parts]

    def _clear_held(self) -> None:
        self._held, self._held_bytes, self._held_segments, self._held_old = [], 0, 0, False
        self._between = []

    def _clear_segment(self) -> None:
        self._segment, self._segment_bytes, self._segment_locator = [], 0, ""


def _cut(runs: Sequence[FoundRun], size: int, task_bytes: int) -> Iterator[Sequence[FoundRun]]:
    """Parts of about the same size, so that none stays small, and no larger than a task."""
    if size <= task_bytes:
        yield runs
        return
    share = size / -(-size // task_bytes)
    part: list[FoundRun] = []
    part_bytes = done = parts = 0
    for run in runs:
        is_share = done >= share * (parts + 1)
        if part and (is_share or part_bytes + run.size > task_bytes):
            yield part
            part, part_bytes, parts = [], 0, parts + 1
        part.append(run)
        part_bytes += run.size
        done += run.size
    yield part
