"""One partition's offsets: numbering, and the translation from offset to position.

Runs are kept in chunks (`ledger/partitions/runs.py`), so that a lookup is two bisections. Containers are made
when something comes into them: most partitions of a large cluster are empty, or have no producer.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ledger.errors import StoreDamaged
from ledger.partitions.aborted import AbortedTransaction
from ledger.partitions.isolation import NO_ISOLATION, Isolation
from ledger.partitions.markers import marker_run
from ledger.partitions.producers import ProducerState
from ledger.partitions.runs import SEGMENT_RUN, Run, RunChunk, run_of
from ledger.partitions.spans import RunSpan, find_span
from ledger.types import NO_TIMESTAMP, TopicId

CHUNK_RUNS = 256
"""A chunk is copied when its memory grows, and written whole into the image: so it is kept small."""
DEFAULT_FIND_RUNS = 1_000
NO_OBJECT = -1
NO_BOUND: Final = 1 << 63
NO_OFFSET: Final = -1
_NOTHING_IMAGED: Final = (0, 0)
_NO_PRODUCERS: Final[Mapping[int, ProducerState]] = MappingProxyType({})


class OffsetsTaken(StoreDamaged):
    """An entry gives offsets of partition `number` from `base` to `last` that a run has already."""

    def __init__(self, number: int, base: int, last: int, high_watermark: int) -> None:
        super().__init__(
            f"offsets {base} to {last} of partition number {number} are given to a second run: it has "
            f"records up to {high_watermark - 1} already"
        )
        self.number, self.base, self.last = number, base, last


class PartitionLog:
    """What the ledger holds of one partition. Changed by `apply` of metadata records alone."""

    __slots__ = (
        "_end_object",
        "_end_position",
        "chunks",
        "deleted",
        "high_watermark",
        "imaged",
        "index",
        "isolation",
        "layout_version",
        "log_start",
        "next_serial",
        "number",
        "producers",
        "run_count",
        "size_bytes",
        "topic_id",
        "unsaved_producers",
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
        self.chunks: Sequence[RunChunk] = ()
        self._end_object = NO_OBJECT
        """Where the last run ends: what begins there lengthens it."""
        self._end_position = 0
        self.next_serial = 0
        self.producers: Mapping[int, ProducerState] = _NO_PRODUCERS
        """Changed by the methods below alone."""
        self.unsaved_producers: set[int] | None = None
        """Producers with a batch that was accepted since the image was last written, if there is one."""
        self.imaged = _NOTHING_IMAGED
        """The high watermark at that time, and the serial of the chunk that had the last run."""
        self.isolation = NO_ISOLATION
        """Changed by the methods below alone."""

    @property
    def last_stable(self) -> int:
        """The last stable offset, at which readers of committed records end: the first of an open
        transaction, or the high watermark."""
        isolation = self.isolation
        if not isolation.open:
            return self.high_watermark
        return max(next(iter(isolation.open.values())), self.log_start)

    @property
    def shape(self) -> tuple[int, int]:
        """While this is the same, `size_bytes` has only grown by what was appended: no run was dropped, nor
        replaced by others than copies of the same batches."""
        first = self.chunks[0] if self.chunks else None
        return self.layout_version, first.row(first.head)[1] if first is not None else NO_OFFSET

    def append(
        self, object_number: int, start: int, size: int, base: int, last: int, max_timestamp: int
    ) -> bool:
        """Append a run. True if it is a new run, False if it only lengthened the last one.
        OffsetsTaken if a run has them already: the entry is applied for the second time."""
        if base < self.high_watermark:
            raise OffsetsTaken(self.number, base, last, self.high_watermark)
        goes_on = (
            start == self._end_position
            and object_number == self._end_object
            and base == self.high_watermark
            # A run below the log start may be dropped by this very entry: what lives must not hang on to it.
            and base > self.log_start
        )
        self.high_watermark = last + 1
        self.size_bytes += size
        self._end_object = object_number
        self._end_position = start + size
        if goes_on:
            self.chunks[-1].lengthen(last, size, max_timestamp)
            return False
        chunk = self.chunks[-1] if self.chunks else self._grow()
        if chunk.filled >= CHUNK_RUNS:
            chunk.trim()
            chunk = self._grow()
        chunk.append(object_number, start, size, base, last, max_timestamp)
        self.run_count += 1
        return True

    def enter(self, run: Run) -> None:
        """Append a run whose batches have their own offsets: no other lengthens it. OffsetsTaken."""
        number = run.object_number + SEGMENT_RUN
        self.append(number, run.start, run.size, run.base, run.last, run.max_timestamp)
        self._end_object = NO_OBJECT

    def begin_transaction(self, producer_id: int, offset: int) -> bool:
        """The open transaction of a producer has records from this offset on. False if it had some before."""
        if producer_id in self.isolation.open:
            return False
        self.transactional().begin(producer_id, offset)
        return True

    def mark(self, producer_id: int, epoch: int, is_commit: bool, now_ms: int) -> AbortedTransaction | None:
        """Append the marker that ends a transaction. Returns what readers must know of an aborted one."""
        offset = self.high_watermark
        self.enter(marker_run(producer_id, epoch, is_commit, offset, now_ms))
        if producer_id not in self.isolation.open:
            return None
        return self.isolation.end(producer_id, offset, is_commit)

    def transactional(self) -> Isolation:
        """Its own `isolation`, to be changed."""
        if self.isolation is NO_ISOLATION:
            self.isolation = Isolation()
        return self.isolation

    def put_back(self, chunk: RunChunk) -> None:
        """Append a chunk as it was in an image."""
        self._add(chunk)
        self.run_count += len(chunk)
        self.size_bytes += chunk.count_bytes()
        if len(chunk):
            _, _, _, number, start, size = chunk.row(len(chunk) - 1)
            self._end_object = number if number < SEGMENT_RUN else NO_OBJECT
            self._end_position = start + size

    def _grow(self) -> RunChunk:
        chunk = RunChunk(self.next_serial)
        self.next_serial += 1
        self._add(chunk)
        return chunk

    def _add(self, chunk: RunChunk) -> None:
        if isinstance(self.chunks, list):
            self.chunks.append(chunk)
        else:
            self.chunks = [chunk]

    def put_producer(self, producer_id: int, producer: ProducerState) -> None:
        """Remember a producer that is new here."""
        if isinstance(self.producers, dict):
            self.producers[producer_id] = producer
        else:
            self.producers = {producer_id: producer}

    def forget_producer(self, producer_id: int) -> bool:
        """Whether it was remembered."""
        producers = self.producers
        if not isinstance(producers, dict) or producers.pop(producer_id, None) is None:
            return False
        if not producers:
            self.producers = _NO_PRODUCERS
        return True

    def forget_producers(self) -> Sequence[int]:
        """Forget all of them. Returns their ids."""
        forgotten, self.producers = tuple(self.producers), _NO_PRODUCERS
        return forgotten

    def chunk(self, serial: int) -> RunChunk | None:
        at = bisect_left(self.chunks, serial, key=_chunk_serial)
        found = self.chunks[at] if at < len(self.chunks) else None
        return found if found is not None and found.serial == serial else None

    def grown_chunks(self) -> Sequence[RunChunk]:
        """The chunks that commits gave runs to since the image was last written."""
        end, serial = self.imaged
        if self.high_watermark == end:
            return ()
        return self.chunks[bisect_left(self.chunks, serial, key=_chunk_serial) :]

    def is_not_imaged(self) -> None:
        """The image may say nothing of its runs."""
        self.imaged = -1, 0

    def is_not_saved(self, producer_id: int) -> None:
        """The image may not say what is remembered of this producer."""
        if self.unsaved_producers is None:
            self.unsaved_producers = set()
        self.unsaved_producers.add(producer_id)

    def is_imaged(self) -> None:
        """The image, or what is on its way into it, says all of this partition."""
        self.imaged = self.high_watermark, self.chunks[-1].serial if self.chunks else self.next_serial
        self.unsaved_producers = None

    def droppable(self, limit: int) -> int:
        """How many runs from the front are no longer readable, counted up to `limit`."""
        if self.deleted:
            return min(self.run_count, limit)
        count = 0
        for chunk in self.chunks:
            dead = chunk.find(self.log_start)
            count += dead - chunk.head
            if dead < len(chunk) or count >= limit:
                break
        return min(count, limit)

    def dead_bytes(self, max_runs: int) -> int | None:
        """Bytes of the runs that are no longer readable and not drained yet; None if there are more of
        these than `max_runs`."""
        runs = size = 0
        for chunk in self.chunks:
            dead = chunk.find(self.log_start)
            runs += dead - chunk.head
            if runs > max_runs:
                return None
            size += sum(chunk.sizes(chunk.head, dead))
            if dead < len(chunk):
                break
        return size

    def first_objects(self, count: int) -> list[int]:
        """Object numbers of the first `count` runs, one for each that is in an object."""
        numbers: list[int] = []
        for chunk in self.chunks:
            end = min(chunk.head + count, len(chunk))
            numbers += chunk.object_numbers(chunk.head, end)
            count -= end - chunk.head
            if not count:
                break
        return numbers

    def drop(self, count: int) -> tuple[list[int], list[int]]:
        """Let the first `count` runs go. Returns the numbers of their objects, one for each that is in one,
        and the serials of emptied chunks."""
        numbers: list[int] = []
        emptied: list[int] = []
        for chunk in self.chunks:
            if not count:
                break
            taken = min(count, len(chunk) - chunk.head)
            end = chunk.head + taken
            numbers += chunk.object_numbers(chunk.head, end)
            self.size_bytes -= sum(chunk.sizes(chunk.head, end))
            self.run_count -= taken
            count -= taken
            chunk.head = end
            if end == len(chunk):
                emptied.append(chunk.serial)
        self.chunks = self.chunks[len(emptied) :] or ()
        return numbers, emptied

    def span(self, first: int, last: int) -> RunSpan | None:
        """As `find_span`."""
        return find_span(self.chunks, self.log_start, first, last)

    def replace(self, span: RunSpan, runs: Sequence[Run]) -> list[int]:
        """Put `runs` in the place of these live ones. Returns the serials of chunks that have changed or are
        gone."""
        self.size_bytes += sum([run.size for run in runs]) - span.size_bytes()
        self.run_count += len(runs) - span.run_count()
        if span.is_last:
            # What is appended next begins a run.
            self._end_object = NO_OBJECT
        self.chunks, changed = span.replaced(runs, CHUNK_RUNS)
        return changed

    def runs_from(self, offset: int) -> Iterator[Run]:
        """Live runs in order, from the one that holds `offset` (or the next after a gap) on."""
        for chunk in self._chunks_from(offset):
            for row in chunk.rows(chunk.find(offset)):
                yield run_of(row)

    def _chunks_from(self, offset: int) -> Sequence[RunChunk]:
        return self.chunks[bisect_left(self.chunks, offset, key=_chunk_last) :]

    def find(self, offset: int, max_bytes: int, max_runs: int = DEFAULT_FIND_RUNS) -> list[Run]:
        """Find batches: runs from `offset` on until their sizes reach `max_bytes`. Empty at the end."""
        found: list[Run] = []
        if offset >= self.high_watermark:
            return found
        if self.chunks and (chunk := self.chunks[-1]).has_last_from(offset):
            # So it is for every consumer at the end of the log.
            return [run_of(chunk.row(len(chunk) - 1))]
        total = 0
        for run in self.runs_from(offset):
            found.append(run)
            total += run.size
            if total >= max_bytes or len(found) == max_runs:
                break
        return found

    def bytes_from(self, offset: int, limit: int, bound: int = NO_BOUND) -> int:
        """About how many bytes there are from `offset` on: in whole runs, of those that begin below `bound`,
        and not much beyond `limit`."""
        if offset >= self.high_watermark:
            return 0
        total, chunks = 0, self._chunks_from(offset)
        for i, chunk in enumerate(chunks):
            first = chunk.head if i else chunk.find(offset)
            is_whole = not first and chunk.last < bound and chunk is not self.chunks[-1]
            if is_whole and total + chunk.total_bytes < limit:
                # As most of them are: no look at each run.
                total += chunk.total_bytes
                continue
            for row in chunk.rows(first):
                if row[1] >= bound:
                    return total
                total += row[5]
                if total >= limit:
                    return total
        return total

    def find_time(self, timestamp_ms: int, from_offset: int = 0) -> Run | None:
        """The first readable run with a record as late as `timestamp_ms`, and with offsets from there on."""
        first = max(from_offset, self.log_start)
        for chunk in self._chunks_from(first):
            if chunk.latest < timestamp_ms:
                continue
            for row in chunk.rows(chunk.find(first)):
                if row[2] >= timestamp_ms:
                    return run_of(row)
        return None

    def find_max_time(self, from_offset: int = 0) -> Run | None:
        """The first readable run that holds the greatest timestamp, of those with offsets from there on."""
        first = max(from_offset, self.log_start)
        chunks = self._chunks_from(first)
        if not chunks:
            return None
        # Runs of the first chunk may be gone or too early, and its `latest` may be theirs: it is looked at.
        # Of all others it is exact, and the run is in the first with the greatest, however many they are.
        found = chunks[0]
        row, latest = found.find_latest(found.find(first))
        later = max(chunks[1:], key=_chunk_latest, default=None)
        if later is not None and later.latest > max(latest, NO_TIMESTAMP):
            found = later
            row, latest = later.find_latest(later.head)
        return run_of(found.row(row)) if latest > NO_TIMESTAMP else None

    def runs(self) -> Iterator[Run]:
        """All live runs in order."""
        for chunk in self.chunks:
            for row in chunk.rows(chunk.head):
                yield run_of(row)


def _chunk_last(chunk: RunChunk) -> int:
    return chunk.last


def _chunk_latest(chunk: RunChunk) -> int:
    return chunk.latest


def _chunk_serial(chunk: RunChunk) -> int:
    return chunk.serial
