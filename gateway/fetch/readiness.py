"""Whether a parked fetch has bytes enough, from what is appended to its partitions.

A partition is planned when it moves for the first time, and counted from then on: as Kafka's DelayedFetch
subtracts two positions, what was appended is added to what there was. Else each move would look at all runs
since the fetch offset once more. The count may be too high, never too low: a fetch that is woken is planned,
and parks again if that was too early; one that is not woken waits until its deadline.
"""

from collections.abc import Sequence

from gateway.fetch.operation import FetchOperation
from gateway.fetch.planning import READ_COMMITTED, PartitionFetch, plan
from ledger.partitions.state import PartitionLog


class PartitionCount:
    """The bytes of one partition that a fetch could get from its offset on, up to `max_bytes`."""

    __slots__ = (
        "_bound",
        "_is_committed",
        "_is_whole",
        "_log",
        "_max_bytes",
        "_offset",
        "_shape",
        "_size_bytes",
        "available",
    )

    def __init__(
        self, log: PartitionLog, offset: int, isolation: int, max_bytes: int, available: int
    ) -> None:
        """`available` is what a plan has just found."""
        self._log = log
        self._offset = offset
        self._is_committed = isolation == READ_COMMITTED
        self._max_bytes = max_bytes
        self.available = available
        self._shape = log.shape
        self._bound = self._readable_end()
        """What is before this offset is counted."""
        self._size_bytes = log.size_bytes
        """Of the log, at the last update."""
        self._is_whole = self._bound == log.high_watermark
        """All that the log had at the last update is counted."""

    def holds(self, log: PartitionLog) -> bool:
        """Whether the count can go on. If not, the partition must be planned: it is another one, or gone,
        the offset may be out of range, or runs were dropped or replaced."""
        return (
            log is self._log
            and log.log_start <= self._offset
            and log.shape == self._shape
            and not log.deleted
        )

    def update(self) -> int:
        """What is available now."""
        log, bound = self._log, self._readable_end()
        if self._is_whole and bound == log.high_watermark:
            added = log.size_bytes - self._size_bytes
        elif bound == self._bound:
            # All that came is after the first record of an open transaction.
            self._is_whole = False
            return self.available
        else:
            # The run that holds the old bound may have grown since, and is counted again as a whole.
            added = log.bytes_from(self._bound, self._max_bytes - self.available, bound)
        self.available = min(self.available + added, self._max_bytes)
        self._bound, self._size_bytes = bound, log.size_bytes
        self._is_whole = bound == log.high_watermark
        return self.available

    def _readable_end(self) -> int:
        log = self._log
        return max(log.last_stable, self._offset) if self._is_committed else log.high_watermark


class Readiness:
    """Whether the partitions of a fetch that were added have its `min_bytes` together: what
    `ParkedFetch.is_ready` is."""

    __slots__ = ("_counts", "_fetched", "_operation", "_parked", "_total")

    def __init__(self, operation: FetchOperation) -> None:
        self._operation = operation
        self._total = 0
        self._fetched: dict[int, PartitionFetch] = {}
        """By partition number."""
        self._parked: dict[int, int] = {}
        """What was available of those that have not moved since they were added, where there was anything."""
        self._counts: dict[int, PartitionCount] = {}
        """Of those that have moved."""

    def add(self, partitions: Sequence[PartitionFetch]) -> None:
        """As they were planned last; they still have their streams."""
        for fetched in partitions:
            if fetched.log is not None:
                number = fetched.log.number
                self._fetched[number] = fetched
                if fetched.stream is not None:
                    self._parked[number] = fetched.available
                    self._total += fetched.available

    def __call__(self, moved: Sequence[PartitionLog]) -> bool:
        counts = self._counts
        for log in moved:
            count = counts.get(log.number)
            if count is not None and count.holds(log):
                before = count.available
                self._total += count.update() - before
            elif not self._plan(log):
                return True
        return self._total >= self._operation.min_bytes

    def _plan(self, log: PartitionLog) -> bool:
        """False if there is an error to report, or if the partition was created again under its name: the
        purgatory knows nothing of the new one."""
        operation, fetched = self._operation, self._fetched[log.number]
        resources = operation.resources
        topics = resources.shard.state.topics
        plan(fetched, topics, operation.isolation, operation.max_bytes, resources.offset_index)
        available, fetched.stream = fetched.available, None
        if fetched.is_exceptional or fetched.log is not log:
            return False
        count = self._counts.pop(log.number, None)
        self._total += available - (self._parked.pop(log.number, 0) if count is None else count.available)
        request = fetched.request
        if request.max_bytes >= 0:
            # Below zero, the first record is an error.
            max_bytes = min(request.max_bytes, operation.max_bytes)
            count = PartitionCount(log, request.fetch_offset, operation.isolation, max_bytes, available)
            self._counts[log.number] = count
        return True
