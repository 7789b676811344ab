"""How many bytes of an object are live. The ledger keeps the number of its live runs and not their bytes, as
each commit would pay for that: they are counted from the rows of the runs, when that is needed."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from ledger.partitions.runs import SEGMENT_RUN, RunChunk
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState


class LiveBytesCount:
    """One count, of objects that get no further runs. It is made in slices, and the ledger may change in
    between: what was read of a partition ends with an offset, and the next slice begins behind it."""

    def __init__(self, state: LedgerState, objects: Iterable[int]) -> None:
        """`objects`: their numbers, in the table of objects."""
        self._state = state
        self._runs = {number: state.objects.by_number[number].live_runs for number in objects}
        self._bytes = dict.fromkeys(self._runs, 0)
        self._left = sum(self._runs.values())
        """Runs that were not found yet."""
        self._chunks = _chunks(list(state.logs.values()))

    def step(self, chunks: int) -> bool:
        """Look at so many chunks of runs, or partitions without any. False at the end."""
        for _ in range(chunks):
            found = next(self._chunks, None) if self._left > 0 else None
            if found is None:
                return False
            chunk, first = found
            if chunk is not None:
                self._look(chunk, first)
        return True

    def _look(self, chunk: RunChunk, first: int) -> None:
        if self._bytes.keys().isdisjoint(chunk.object_numbers(first, len(chunk))):
            return
        for _, _, _, marked, _, size in chunk.rows(first):
            number = marked % SEGMENT_RUN
            if number in self._bytes:
                self._bytes[number] += size
                self._left -= 1

    def results(self) -> Mapping[int, int]:
        """After the last step: live bytes by number, of the objects that have lost no run since the count
        began. Of others it may have missed some."""
        objects = self._state.objects.by_number
        return {
            number: size
            for number, size in self._bytes.items()
            if number in objects and objects[number].live_runs == self._runs[number]
        }


def _chunks(logs: Iterable[PartitionLog]) -> Iterator[tuple[RunChunk | None, int]]:
    """Each chunk with its first row that was not in one before; None for a partition at its end. To be
    continued after the chunks have changed."""
    for log in logs:
        offset = 0
        while (at := bisect_left(log.chunks, offset, key=_last)) < len(log.chunks):
            chunk = log.chunks[at]
            first, offset = chunk.find(offset), chunk.last + 1
            yield chunk, first
        yield None, 0


def _last(chunk: RunChunk) -> int:
    return chunk.last
