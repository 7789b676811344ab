"""One partition's offsets: runs in columns, numbering, and the translation from offset to position.

A run is a stretch of adjacent batches in one object. Runs lie in chunks of parallel `array` columns
(36 bytes a run), so that a million of them fit in memory and a lookup is two bisections.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.producers import ProducerState
from ledger.types import NO_TIMESTAMP, TopicId

CHUNK_RUNS = 4_096
DEFAULT_FIND_RUNS = 1_000


@dataclass(frozen=True, slots=True)
class Run:
    """Offsets [base, last] lie in bytes [start, start + size) of an object.

    `dense`: batches carry the producer's base offset, and true offsets come from counting
    lastOffsetDelta + 1 from `base`; otherwise (a segment) batches carry their own.
    """

    base: int
    last: int
    object_number: int
    start: int
    size: int
    max_timestamp: int
    dense: bool = True


class RunChunk:
    """Up to CHUNK_RUNS runs of one partition, in offset order. `head` is the first that still lives.

    `trimmed` counts runs that had gone before the chunk was read from an image: they fill it all the same,
    so that a restarted gateway cuts chunks where the one before it did.
    """

    __slots__ = (
        "base",
        "head",
        "last",
        "latest",
        "max_timestamp",
        "object_number",
        "serial",
        "size",
        "start",
        "trimmed",
    )

    def __init__(self, serial: int, trimmed: int = 0) -> None:
        self.serial = serial
        self.head = 0
        self.trimmed = trimmed
        self.latest = NO_TIMESTAMP
        """At least the greatest timestamp of the live runs, so that a search may pass the chunk by."""
        self.base = array("q")
        self.last = array("q")
        self.object_number = array("I")
        self.start = array("I")
        self.size = array("I")
        self.max_timestamp = array("q")

    def columns(self) -> "tuple[array[int], ...]":
        return (self.base, self.last, self.object_number, self.start, self.size, self.max_timestamp)

    def run(self, i: int) -> Run:
        return Run(
            self.base[i],
            self.last[i],
            self.object_number[i],
            self.start[i],
            self.size[i],
            self.max_timestamp[i],
        )

    def live(self) -> range:
        return range(self.head, len(self.base))


class PartitionLog:
    """What the ledger holds of one partition. Changed by `apply` of metadata records alone."""

    __slots__ = (
        "chunks",
        "deleted",
        "high_watermark",
        "index",
        "layout_version",
        "log_start",
        "next_serial",
        "number",
        "producers",
        "run_count",
        "size_bytes",
        "topic_id",
    )

    def __init__(self, number: int, topic_id: TopicId, index: int) -> None:
        self.number = number
        self.topic_id = topic_id
        self.index = index
        self.log_start = 0
        self.high_watermark = 0
        self.layout_version = 0
        self.size_bytes = 0
        self.run_count = 0
        self.deleted = False
        self.chunks: list[RunChunk] = []
        self.next_serial = 0
        self.producers: dict[int, ProducerState] = {}

    @property
    def last_stable(self) -> int:
        """The last stable offset: the high watermark, as there is never an open transaction."""
        return self.high_watermark

    def append(
        self, object_number: int, start: int, size: int, base: int, last: int, max_timestamp: int
    ) -> bool:
        """Take up a run at the end. True if it is a new run, False if it only lengthened the last one."""
        self.high_watermark = last + 1
        self.size_bytes += size
        chunk = self.chunks[-1] if self.chunks else self._grow()
        runs = len(chunk.base)
        if runs > chunk.head and self._adjoins(chunk, runs - 1, object_number, start, base):
            chunk.last[-1] = last
            chunk.size[-1] += size
            if max_timestamp > chunk.max_timestamp[-1]:
                chunk.max_timestamp[-1] = max_timestamp
                chunk.latest = max(chunk.latest, max_timestamp)
            return False
        if runs + chunk.trimmed == CHUNK_RUNS:
            chunk = self._grow()
        chunk.base.append(base)
        chunk.last.append(last)
        chunk.object_number.append(object_number)
        chunk.start.append(start)
        chunk.size.append(size)
        chunk.max_timestamp.append(max_timestamp)
        chunk.latest = max(chunk.latest, max_timestamp)
        self.run_count += 1
        return True

    def _adjoins(self, chunk: RunChunk, i: int, object_number: int, start: int, base: int) -> bool:
        # A run below the log start may be dropped by this very entry: what lives must not hang on to it.
        return (
            chunk.start[i] + chunk.size[i] == start
            and chunk.object_number[i] == object_number
            and chunk.last[i] + 1 == base
            and chunk.last[i] >= self.log_start
        )

    def _grow(self) -> RunChunk:
        chunk = RunChunk(self.next_serial)
        self.next_serial += 1
        self.chunks.append(chunk)
        return chunk

    def droppable(self, limit: int) -> int:
        """How many runs from the front are no longer readable, counted up to `limit`."""
        if self.deleted:
            return min(self.run_count, limit)
        count = 0
        for chunk in self.chunks:
            for i in chunk.live():
                if chunk.last[i] >= self.log_start or count == limit:
                    return count
                count += 1
        return count

    def first_objects(self, count: int) -> list[int]:
        """Object numbers of the first `count` runs, one for each."""
        numbers: list[int] = []
        for chunk in self.chunks:
            numbers += chunk.object_number[chunk.head : chunk.head + count - len(numbers)]
            if len(numbers) == count:
                break
        return numbers

    def drop(self, count: int) -> tuple[list[int], list[int]]:
        """Let the first `count` runs go. Returns their object numbers and the serials of emptied chunks."""
        numbers: list[int] = []
        emptied: list[int] = []
        while count and self.chunks:
            chunk = self.chunks[0]
            taken = min(count, len(chunk.base) - chunk.head)
            end = chunk.head + taken
            numbers += chunk.object_number[chunk.head : end]
            self.size_bytes -= sum(chunk.size[chunk.head : end])
            self.run_count -= taken
            count -= taken
            chunk.head = end
            if end == len(chunk.base):
                emptied.append(chunk.serial)
                del self.chunks[0]
        return numbers, emptied

    def runs_from(self, offset: int) -> Iterator[Run]:
        """Live runs in order, from the one that holds `offset` (or the next after a gap) on."""
        at = bisect_left(self.chunks, offset, key=_chunk_last)
        for chunk in self.chunks[at:]:
            for i in range(max(bisect_left(chunk.last, offset), chunk.head), len(chunk.base)):
                yield chunk.run(i)

    def find(self, offset: int, max_bytes: int, max_runs: int = DEFAULT_FIND_RUNS) -> list[Run]:
        """Find batches: runs from `offset` on until their sizes reach `max_bytes`. Empty at the end."""
        found: list[Run] = []
        if offset >= self.high_watermark:
            return found
        total = 0
        for run in self.runs_from(offset):
            found.append(run)
            total += run.size
            if total >= max_bytes or len(found) == max_runs:
                break
        return found

    def bytes_from(self, offset: int, limit: int) -> int:
        """About how many bytes lie from `offset` on, counted in whole runs and not much beyond `limit`."""
        if offset >= self.high_watermark:
            return 0
        at = bisect_left(self.chunks, offset, key=_chunk_last)
        total = 0
        for chunk in self.chunks[at:]:
            for i in range(max(bisect_left(chunk.last, offset), chunk.head), len(chunk.base)):
                total += chunk.size[i]
                if total >= limit:
                    return total
        return total

    def find_time(self, timestamp_ms: int) -> Run | None:
        """The first readable run with a record as late as `timestamp_ms`."""
        for chunk in self.chunks:
            if chunk.latest < timestamp_ms:
                continue
            for i in chunk.live():
                if chunk.max_timestamp[i] >= timestamp_ms and chunk.last[i] >= self.log_start:
                    return chunk.run(i)
        return None

    def find_max_time(self) -> Run | None:
        """The first readable run that holds the greatest timestamp."""
        best: tuple[int, RunChunk, int] | None = None
        for chunk in self.chunks:
            if chunk.latest <= (best[0] if best else NO_TIMESTAMP):
                continue
            for i in chunk.live():
                stamp = chunk.max_timestamp[i]
                if chunk.last[i] >= self.log_start and stamp > (best[0] if best else NO_TIMESTAMP):
                    best = (stamp, chunk, i)
        return best[1].run(best[2]) if best else None

    def runs(self) -> Iterator[Run]:
        """All live runs in order."""
        for chunk in self.chunks:
            for i in chunk.live():
                yield chunk.run(i)


def _chunk_last(chunk: RunChunk) -> int:
    return chunk.last[-1]


def partitions_of(
    topic_id: TopicId, first_number: int, count: int, first_index: int = 0
) -> list[PartitionLog]:
    """Fresh partitions of a topic that is new, or that grows from `first_index` on."""
    return [PartitionLog(first_number + i, topic_id, first_index + i) for i in range(count)]
