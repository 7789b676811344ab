"""Markers as runs: the end of a transaction in a partition takes one offset and is in no object. Its row has
all that its bytes are made of.

| field of the row | of a marker                                                     |
|------------------|-----------------------------------------------------------------|
| object number    | MARKER_RUN + producer id                                        |
| start            | producer epoch x 2, and 1 for a commit                          |
| size             | of its batch, MARKER_BYTES                                      |
| max timestamp    | time of the journal entry that ended the transaction, unix ms   |
| base, last       | its offset                                                      |
"""

from typing import Final

from ledger.batch.control import Marker, MarkerType, build_marker
from ledger.partitions.runs import MARKER_RUN, SEGMENT_RUN, Run

MAX_PRODUCER_ID: Final = 2**62 - 1
MARKER_BYTES: Final = 78
COORDINATOR_EPOCH: Final = 0
"""Kafka puts in the leader epoch of its transaction log: 0 for ever where no leader changes."""

_COMMIT: Final = 1
_OF_SEGMENTS: Final = MARKER_RUN - SEGMENT_RUN


def marker_run(producer_id: int, epoch: int, is_commit: bool, offset: int, now_ms: int) -> Run:
    """The run of a marker at this offset. ValueError for a producer id above MAX_PRODUCER_ID."""
    if not 0 <= producer_id <= MAX_PRODUCER_ID:
        raise ValueError(f"a marker of producer {producer_id}")
    start = 2 * epoch + (_COMMIT if is_commit else 0)
    return Run(offset, offset, _OF_SEGMENTS + producer_id, start, MARKER_BYTES, now_ms, dense=False)


def is_marker(run: Run) -> bool:
    """Whether a run is a marker: then it is in no object."""
    return run.object_number >= _OF_SEGMENTS and not run.dense


def marker_of(run: Run) -> Marker:
    """What a marker says. ValueError for another run."""
    if not is_marker(run):
        raise ValueError(f"the run at offset {run.base} is no marker")
    epoch, kind = divmod(run.start, 2)
    producer_id = run.object_number - _OF_SEGMENTS
    return Marker(MarkerType(kind), producer_id, epoch, COORDINATOR_EPOCH, run.max_timestamp)


def marker_bytes(run: Run) -> bytes:
    """The batch of a marker, byte for byte as Kafka has it."""
    return build_marker(marker_of(run), run.base)
