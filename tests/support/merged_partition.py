"""A partition as find-batches shows it, and what swaps make of it: for tests of plans, without a ledger."""

from collections.abc import Iterator, Sequence
from itertools import count

from ledger.formats.segment import EncodedRun
from ledger.keys import segment_locator
from ledger.merging.found import FoundMarker, FoundRun, RunPage
from ledger.merging.plan import MergePolicy, MergeTask, PartitionPlanner
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import MARKER_BYTES
from ledger.partitions.runs import later_timestamp
from ledger.swaps.requests import SEGMENT_HEAD_BYTES, SEGMENT_RUN_BYTES
from ledger.types import TopicId

TOPIC = TopicId(bytes(range(16)))
MAX_PAGES = 1_000_000


class FoundPartition:
    """Runs in offset order. `page_runs`: how many a page has."""

    def __init__(self, page_runs: int = 1_000) -> None:
        self.runs: list[FoundRun] = []
        self.layout_version = 0
        self.log_start = 0
        self.high_watermark = 0
        self.page_runs = page_runs
        self._keys = count(1)

    def append(
        self, locator: str, start: int, size: int, records: int = 1, max_timestamp: int = -1
    ) -> FoundRun:
        """One flush. It lengthens the last run, as in the ledger, if it begins where that ends."""
        base, last = self.high_watermark, self.high_watermark + records - 1
        run = FoundRun(locator, ObjectKind.WAL, start, size, base, last, max_timestamp)
        before = self.runs[-1] if self.runs else None
        if before is not None and (before.locator, before.start + before.size) == (locator, start):
            stamp = later_timestamp(before.max_timestamp, max_timestamp)
            run = before._replace(size=before.size + size, last=last, max_timestamp=stamp)
            self.runs.pop()
        self.runs.append(run)
        self.high_watermark = last + 1
        return run

    def mark(self, marker: FoundMarker | None, at_ms: int) -> FoundRun:
        """The end of a transaction. None: of a gateway that does not say how it ended."""
        base = self.high_watermark
        run = FoundRun("", ObjectKind.MARKER, 0, MARKER_BYTES, base, base, at_ms, marker)
        self.runs.append(run)
        self.high_watermark += 1
        return run

    def page(self, offset: int) -> RunPage:
        first = next((at for at, run in enumerate(self.runs) if run.last >= offset), len(self.runs))
        return RunPage(
            self.layout_version,
            self.log_start,
            self.high_watermark,
            self.runs[first : first + self.page_runs],
        )

    def pages(self, planner: PartitionPlanner) -> Iterator[RunPage]:
        for _ in range(MAX_PAGES):
            if planner.next_offset is None:
                return
            yield self.page(max(planner.next_offset, self.log_start))
        raise AssertionError("a plan without an end")

    def plan(self, policy: MergePolicy, now_ms: int) -> list[MergeTask]:
        planner = PartitionPlanner(TOPIC, 0, policy, now_ms)
        return [task for page in self.pages(planner) for task in planner.feed(page)]

    def swap(self, task: MergeTask, now_ms: int) -> list[FoundRun]:
        """As the ledger does it. AssertionError unless the runs of the task are live and adjacent."""
        at = self.runs.index(task.runs[0])
        assert self.runs[at : at + len(task.runs)] == list(task.runs)
        random = next(self._keys).to_bytes(10, "big")
        locator = segment_locator(task.topic_id, task.partition, task.first, now_ms, random)
        entered = [FoundRun(locator, ObjectKind.SEGMENT, *run) for run in entered_runs(task.runs)]
        self.runs[at : at + len(task.runs)] = entered
        self.layout_version += 1
        return entered


def entered_runs(runs: Sequence[FoundRun]) -> list[EncodedRun]:
    """The runs of a segment that is made of these, of which only the sizes are known."""
    found: list[EncodedRun] = []
    position = SEGMENT_HEAD_BYTES
    base, last, size, stamp = runs[0].base, -1, 0, runs[0].max_timestamp
    for run in runs:
        if size and size + run.size > SEGMENT_RUN_BYTES:
            found.append(EncodedRun(position, size, base, last, stamp))
            position += size
            base, size, stamp = run.base, 0, run.max_timestamp
        size += run.size
        last = run.last
        if stamp != run.max_timestamp:
            stamp = later_timestamp(stamp, run.max_timestamp)
    return [*found, EncodedRun(position, size, base, last, stamp)]
