"""What a merge job does with one partition: its tasks, page by page, and the layout version that each swap
needs."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol

from ledger.errors import ErrorName
from ledger.merging.found import FoundRun, RunPage
from ledger.merging.plan import MergePolicy, MergeTask, PartitionPlanner
from ledger.types import TopicId
from pipeline.messages import FoundRuns
from pipeline.peer import PeerRefused

MAX_AGAIN: Final = 5
"""How often a job begins one partition again. What is left then is for the next job."""


class Place(NamedTuple):
    """One partition, with the name of its topic."""

    topic_id: TopicId
    topic: str
    partition: int


class RunFinder(Protocol):
    """As `pipeline.peer.PeerClient`."""

    def find_batches(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        """A page of runs from the one that holds `offset` on."""
        ...


@dataclass(slots=True)
class Look:
    """What was found of the runs of one or more partitions."""

    partitions: int = 0
    runs: int = 0
    """That were looked at. A tail that is left alone may be only partly among them."""
    tasks: int = 0
    merged_runs: int = 0
    merged_bytes: int = 0
    """Of the tasks."""

    def add(self, other: "Look") -> None:
        self.partitions += other.partitions
        self.runs += other.runs
        self.tasks += other.tasks
        self.merged_runs += other.merged_runs
        self.merged_bytes += other.merged_bytes


class PlannedTask(NamedTuple):
    """A task, and which plan of its partition it is of."""

    partition: "PartitionMerge"
    plan: int
    task: MergeTask

    @property
    def is_outdated(self) -> bool:
        """Whether the partition was planned again since."""
        return self.plan != self.partition.plan or self.partition.is_gone


@dataclass(slots=True)
class PartitionMerge:
    """The merge of one partition, as far as it is known. Swaps of this job change the layout version, and
    those of others too: after one of another job its runs are planned again."""

    place: Place
    policy: MergePolicy
    now_ms: int
    plan: int = 0
    """How often it was begun again."""
    is_gone: bool = False
    """Its topic was deleted, or it was begun again too often."""
    looks: int = 0
    """How often an object was missing."""
    look: Look = field(default_factory=Look)
    _planner: PartitionPlanner = field(init=False)
    _tasks: deque[MergeTask] = field(default_factory=deque)
    _planned_version: int = -1
    _swapped_version: int = -1

    def __post_init__(self) -> None:
        self._planner = self._new_planner()
        self.look.partitions = 1

    def next_task(self, finder: RunFinder) -> PlannedTask | None:
        """None: there is nothing left to merge. Errors: PeerRefused, PeerUnavailable."""
        while not self.is_gone and not self._tasks and (offset := self._planner.next_offset) is not None:
            self._tasks.extend(self._planner.feed(self._page(finder, offset)))
        if self.is_gone or not self._tasks:
            return None
        task = self._tasks.popleft()
        self.look.tasks += 1
        self.look.merged_runs += len(task.runs)
        self.look.merged_bytes += task.size
        return PlannedTask(self, self.plan, task)

    def version_for(self, task: MergeTask) -> int:
        """The layout version that the swap of this task must name."""
        if self._swapped_version >= 0 and task.layout_version == self._planned_version:
            return self._swapped_version
        return task.layout_version

    def swapped(self, layout_version: int) -> None:
        """A swap of this job has left this layout version."""
        self._swapped_version = layout_version

    def begin_again(self, offset: int) -> None:
        """Others have changed the runs from about `offset` on."""
        self.plan += 1
        self.is_gone = self.is_gone or self.plan > MAX_AGAIN
        self._tasks.clear()
        self._planner = self._new_planner()
        self._planner.next_offset = offset
        self._planned_version = self._swapped_version = -1

    def _new_planner(self) -> PartitionPlanner:
        return PartitionPlanner(self.place.topic_id, self.place.partition, self.policy, self.now_ms)

    def _page(self, finder: RunFinder, offset: int) -> RunPage:
        found = finder.find_batches(self.place.topic_id, self.place.partition, offset)
        if found.failure.error is ErrorName.OFFSET_OUT_OF_RANGE and offset < found.log_start:
            found = finder.find_batches(self.place.topic_id, self.place.partition, found.log_start)
        if found.failure.error in (ErrorName.UNKNOWN_TOPIC_OR_PARTITION, ErrorName.UNKNOWN_TOPIC_ID):
            self.is_gone = True
        elif found.failure.error is not ErrorName.OFFSET_OUT_OF_RANGE and found.failure:
            raise PeerRefused(found.failure)
        runs = [] if found.failure else [FoundRun(*run) for run in found.runs]
        self.look.runs += len(runs)
        return RunPage(self._as_planned(found.layout_version), found.log_start, found.high_watermark, runs)

    def _as_planned(self, layout_version: int) -> int:
        """The planner need not begin again after a swap of this job, which was of runs it had returned."""
        if layout_version == self._swapped_version:
            return self._planned_version
        if layout_version != self._planned_version:
            self._planned_version, self._swapped_version = layout_version, -1
        return layout_version


class Rounds:
    """Tasks that are carried out together: taken from `window` partitions in turn, as these share objects."""

    def __init__(self, merges: Iterable[PartitionMerge], finder: RunFinder, window: int) -> None:
        self._waiting = iter(merges)
        self._finder = finder
        self._window = window
        self._active = deque[PartitionMerge]()
        self._at_end: list[tuple[PartitionMerge, int]] = []
        """Partitions of which no task is left, each with the number of its plan."""
        self.ended = 0
        """Partitions that are done."""

    def next(self, round_bytes: int, round_runs: int) -> list[PlannedTask] | None:
        """Tasks until they have so many bytes or runs. None at the end; a round may be empty before. The
        tasks of the round before are done: a partition that must be planned again was begun again.

        Errors: PeerRefused, PeerUnavailable.
        """
        self._take_back()
        held: list[PlannedTask] = []
        size = runs = 0
        while size < round_bytes and runs < round_runs and len(self._at_end) < self._window:
            # Those that began again may be more than the window.
            self._active.extend(islice(self._waiting, max(0, self._window - len(self._active))))
            if not self._active:
                return held if self._at_end else None
            planned = self._active[0].next_task(self._finder)
            if planned is None:
                merge = self._active.popleft()
                self._at_end.append((merge, merge.plan))
                continue
            held.append(planned)
            self._active.rotate(-1)
            size, runs = size + planned.task.size, runs + len(planned.task.runs)
        return held

    def _take_back(self) -> None:
        for merge, plan in self._at_end:
            if merge.plan != plan and not merge.is_gone:
                self._active.append(merge)
            else:
                self.ended += 1
        self._at_end = []
