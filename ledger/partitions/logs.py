"""The partitions of a shard and of a topic. Most are blank: no record, no request has ever concerned them.

A blank partition has no `PartitionLog`, only a place in the range that its topic was created or grown with.
So a topic of very many partitions is created and deleted at little cost, and a blank one takes 8 bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from ledger.partitions.state import PartitionLog
from ledger.types import TopicId


class PartitionRange(NamedTuple):
    """Partitions of one topic with consecutive numbers and indexes: those that one record has added."""

    first_number: int
    partitions: int
    topic_id: TopicId
    first_index: int

    @property
    def end(self) -> int:
        """One past the last number."""
        return self.first_number + self.partitions

    def index_of(self, number: int) -> int:
        return self.first_index + number - self.first_number


class PartitionLogs(dict[int, PartitionLog]):
    """The partitions of a shard that are not blank, by number; deleted ones until their runs are drained.

    `logs[number]` makes the `PartitionLog` of a blank partition, `logs.get(number)` does not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_topics = 0
        """Partitions of live topics, blank or not."""
        self.deleted = 0
        """Partitions of deleted topics that still have runs."""
        self._firsts: list[int] = []
        """First numbers of all ranges of live topics, ascending, and whose they are."""
        self._ranges: list[tuple[PartitionRange, Partitions]] = []

    def __missing__(self, number: int) -> PartitionLog:
        at = bisect_right(self._firsts, number) - 1
        if at >= 0:
            found, partitions = self._ranges[at]
            if number < found.end:
                return partitions[found.index_of(number)]
        raise KeyError(number)

    def range_of(self, number: int) -> PartitionRange | None:
        """The range of a live topic that holds this partition."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        found, _ = self._ranges[at]
        return found if number < found.end else None

    def ranges(self) -> list[PartitionRange]:
        """Of all live topics, ascending."""
        return [found for found, _ in self._ranges]

    def numbers(self) -> Iterator[int]:
        """Of all partitions: those of live topics, and the deleted ones that still have runs."""
        for found, _ in self._ranges:
            yield from range(found.first_number, found.end)
        yield from (number for number, log in self.items() if log.deleted)

    def add(self, added: PartitionRange, partitions: "Partitions") -> None:
        at = bisect_right(self._firsts, added.first_number)
        self._firsts.insert(at, added.first_number)
        self._ranges.insert(at, (added, partitions))
        self.in_topics += added.partitions

    def remove(self, gone: PartitionRange) -> None:
        at = bisect_right(self._firsts, gone.first_number) - 1
        del self._firsts[at], self._ranges[at]
        self.in_topics -= gone.partitions


class Partitions(Sequence[PartitionLog]):
    """The partitions of one topic by index. `partitions[index]` makes the `PartitionLog` of a blank one."""

    __slots__ = ("_logs", "made", "ranges", "topic_id")

    def __init__(self, topic_id: TopicId, logs: PartitionLogs) -> None:
        self.topic_id = topic_id
        self.made: list[PartitionLog | None] = []
        """None for a blank partition. Where each call counts: `made[index] or partitions[index]`."""
        self.ranges: list[PartitionRange] = []
        self._logs: PartitionLogs | None = logs
        """None once the topic is deleted."""

    def grow(self, first_number: int, count: int) -> PartitionRange:
        """Add `count` blank partitions."""
        assert self._logs is not None
        added = PartitionRange(first_number, count, self.topic_id, len(self.made))
        self.ranges.append(added)
        self.made += [None] * count
        self._logs.add(added, self)
        return added

    def put_back(self, log: PartitionLog) -> None:
        """A partition as it is, read from an image; `grow` has made its place."""
        self.made[log.index] = log

    def delete(self) -> None:
        """The topic is gone: blank partitions cannot be found any more, others are left to the caller."""
        assert self._logs is not None
        for gone in self.ranges:
            self._logs.remove(gone)
        self._logs = None

    def __len__(self) -> int:
        return len(self.made)

    @overload
    def __getitem__(self, index: int) -> PartitionLog: ...

    @overload
    def __getitem__(self, index: slice) -> list[PartitionLog]: ...

    def __getitem__(self, index: int | slice) -> PartitionLog | list[PartitionLog]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self.made)))]
        log = self.made[index]
        return log if log is not None else self._make(range(len(self.made))[index])

    def _make(self, index: int) -> PartitionLog:
        at = bisect_right(self.ranges, index, key=_first_index) - 1
        number = self.ranges[at].first_number + index - self.ranges[at].first_index
        log = PartitionLog(number, self.topic_id, index)
        if self._logs is None:
            # Of a request that began before the deletion: nothing else may find it.
            log.deleted = True
        else:
            self.made[index] = self._logs[number] = log
        return log


def _first_index(found: PartitionRange) -> int:
    return found.first_index
