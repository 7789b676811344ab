"""Swaps as a job would ask for them: segments for runs of a ledger that has no bytes."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

from ledger.batch.control import MarkerType
from ledger.keys import segment_locator
from ledger.merging.found import FoundMarker
from ledger.partitions.markers import is_marker, marker_of
from ledger.partitions.runs import Run
from ledger.partitions.state import PartitionLog
from ledger.swaps.requests import (
    SEGMENT_HEAD_BYTES,
    SEGMENT_TRAILER_BYTES,
    SegmentFile,
    SegmentRun,
    SwapMarker,
    SwapSegments,
)

JOB = b"j" * 16
Item = TypeVar("Item")
_numbers = itertools.count()


def swap_of(
    log: PartitionLog,
    runs: Sequence[Run],
    created_ms: int,
    *,
    join: int = 4,
    segments: int = 1,
    job: bytes = JOB,
    attempt: int = 0,
) -> SwapSegments:
    """Live runs of a partition, of which `join` after another become one unless there is a gap between them;
    `segments` at most."""
    entered: list[SegmentRun] = []
    files: list[SegmentFile] = []
    joined = [part for dense in _without_gaps(runs) for part in _parts(dense, join)]
    for some in _parts(joined, -(-len(joined) // segments)):
        at, position = len(files), SEGMENT_HEAD_BYTES
        for part in some:
            size = sum(run.size for run in part)
            stamp = max(run.max_timestamp for run in part)
            entered.append(SegmentRun(at, position, size, part[0].base, part[-1].last, stamp))
            position += size
        random = next(_numbers).to_bytes(10, "big")
        where = segment_locator(log.topic_id, log.index, some[0][0].base, created_ms, random)
        files.append(SegmentFile(where, position + SEGMENT_TRAILER_BYTES))
    first, last = runs[0].base, runs[-1].last
    return SwapSegments(
        job,
        attempt,
        log.topic_id,
        log.index,
        first,
        last,
        log.layout_version,
        files,
        entered,
        [SwapMarker(run.base, *found_marker(run), run.max_timestamp) for run in runs if is_marker(run)],
    )


def found_marker(run: Run) -> FoundMarker:
    """What a job finds of a marker."""
    marker = marker_of(run)
    return FoundMarker(marker.producer_id, marker.producer_epoch, marker.type is MarkerType.COMMIT)


def _without_gaps(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """What a swap leaves out below the log start is a gap."""
    begins = [at for at, run in enumerate(runs) if not at or run.base != runs[at - 1].last + 1]
    for begin, end in itertools.pairwise([*begins, len(runs)]):
        yield runs[begin:end]


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
