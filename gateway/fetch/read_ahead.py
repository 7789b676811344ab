"""Reads the next objects of a partition, or runs of its segments, before a sequential reader wants them.

A fetch that begins where an earlier one ended is sequential. From the second fetch on the objects that follow
are begun in steps, each when the reader arrives at the one before it, so that at most two steps are ahead of
it. The first step is FIRST_STEP_BYTES of objects, and each is twice as large as the one before, up to
LAST_STEP_BYTES: a consumer of 100 MB/s works on that for 300 ms while the next one is on its way. A reader
that stops causes nothing more.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.fetch.cache import RunCache
from gateway.fetch.object_reads import MAX_OBJECT_BYTES, ObjectReads, name_of
from ledger.partitions.markers import is_marker
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog

if TYPE_CHECKING:
    from gateway.fetch.reader import ObjectPlace

FIRST_STEP_BYTES: Final = 4 * 1024 * 1024
LAST_STEP_BYTES: Final = 32 * 1024 * 1024
STEP_RUNS: Final = 64
"""The most runs of a partition that one step looks at."""
MAX_SEQUENCES: Final = 16_384


class _Sequence:
    """What is known of a sequential reader."""

    __slots__ = ("step_bytes", "trigger", "until")

    def __init__(self, offset: int) -> None:
        self.trigger = offset
        """The next step is due when the reader has come so far."""
        self.until = offset
        """Where the next step begins."""
        self.step_bytes = FIRST_STEP_BYTES


class ReadAhead:
    """One for all readers: it knows them by where they go on."""

    def __init__(
        self, objects: ObjectReads, cache: RunCache, find_object: Callable[[int], "ObjectPlace"]
    ) -> None:
        self._objects = objects
        self._cache = cache
        self._find_object = find_object
        self._sequences: OrderedDict[tuple[int, int], _Sequence] = OrderedDict()
        """By number of the partition and the offset at which the reader will go on."""

    def served(self, log: PartitionLog, offset: int, end: int) -> None:
        """A fetch from `offset` on gets the batches before `end`."""
        sequence = self._sequences.pop((log.number, offset), None)
        if sequence is None:
            sequence = _Sequence(end)
        elif end >= sequence.trigger:
            self._step(log, sequence, end)
        # Of readers in step with each other the first one has a sequence.
        self._sequences.setdefault((log.number, end), sequence)
        if len(self._sequences) > MAX_SEQUENCES:
            self._sequences.popitem(last=False)

    def _step(self, log: PartitionLog, sequence: _Sequence, end: int) -> None:
        start = max(end, sequence.until)
        left, seen, has_begun = sequence.step_bytes, set[int](), False
        for run in log.find(start, sequence.step_bytes, STEP_RUNS):
            if is_marker(run):
                sequence.until = run.last + 1
                continue
            if not run.dense or run.object_number not in seen:
                seen.add(run.object_number)
                size = self._begin(run)
                if size is None:
                    # No room now. If there was none for anything: again with the next fetch.
                    sequence.trigger = start if has_begun else end
                    return
                left -= size
                has_begun = has_begun or size > 0
            sequence.until = run.last + 1
            if left <= 0:
                break
        sequence.trigger = start
        sequence.step_bytes = min(2 * sequence.step_bytes, LAST_STEP_BYTES)

    def _begin(self, run: Run) -> int | None:
        """The bytes that will be read for this run: those of its object, or in a segment its own. 0 if they
        are here, or are none to read ahead. None: there is no room for them."""
        try:
            place = self._find_object(run.object_number)
        except KeyError:
            return 0
        start, size = (0, place.size) if run.dense else (run.start, run.size)
        # To look for the object is a use of it, so that it is still there when the reader comes.
        is_here = self._cache.object(name_of(place.locator, start)) is not None
        if is_here or self._cache.has_written(place.locator, run.start):
            return 0
        if not 0 < size <= MAX_OBJECT_BYTES:
            return 0
        return size if self._objects.read_ahead(place.locator, size, start) else None
