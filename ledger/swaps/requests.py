"""Requests of jobs that merge runs into segments, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from ledger.requests import SMALL, UTF8
from ledger.types import TopicId

JOB_BYTES: Final = 16
MAX_SWAPPED_RUNS: Final = 2_000
"""A swap takes away at most so many runs, and enters at most so many."""
SEGMENT_RUN_BYTES: Final = 4 * 1024 * 1024
"""A run inside of a segment has at most so many bytes, unless one batch is larger: so the ledger is the
segment's index, and serving never reads the `.index`."""
MAX_SEGMENT_BYTES: Final = 2**31 - 1
SEGMENT_HEAD_BYTES: Final = 32
SEGMENT_TRAILER_BYTES: Final = 16
RUN_BYTES: Final = 36
"""Of a run in the journal."""


class SegmentFile(NamedTuple):
    """A segment that is durable, with its `.index`, which belongs to it and is never named.

    `locator`: `ledger.keys.segment_locator`. `object_bytes`: of the `.kfs`, header and trailer included.
    """

    locator: str
    object_bytes: int


class SegmentRun(NamedTuple):
    """Offsets [base, last] are bytes [start, start + size) of one of the request's segments.

    `start` counts from the beginning of the `.kfs`. `max_timestamp` of runs without timestamps: as that of
    the runs that they are made of (`ledger.partitions.runs.later_timestamp`).
    """

    segment: int
    """Index into `SwapSegments.segments`."""
    start: int
    size: int
    base: int
    last: int
    max_timestamp: int


class SwapMarker(NamedTuple):
    """The end of a transaction, as the job has put its batch into a segment. `timestamp`: unix ms."""

    offset: int
    producer_id: int
    epoch: int
    is_commit: bool
    timestamp: int


@dataclass(frozen=True, slots=True)
class SwapSegments:
    """Put segments in the place of all live runs with offsets from `first` to `last`.

    `first` is the base of a run and `last` the last offset of one. What has fallen below the log start since
    the job looked is left out. `runs` are in offset order, and begin and end as the range does; gaps between
    them are legal. Their segments are in the order of the runs, none without a run, and none was ever named
    before.

    `markers`: all that are among these live runs, in offset order, and each is in one of `runs`. Any other
    than the ledger has is refused, and so is a job that leaves one out: with the swap the ledger forgets
    them, and then the batch in the segment is all that says to clients how a transaction ended.

    The job has a pin, and its segments are no older. Without one its plan may be of a time before a restore,
    when the same offsets had other records, or a sweep may have deleted its segments by now.

    A repeat (all but segments and runs are the same) gets its first result. The result is `Swapped`,
    or `Refused`:

    | error | what the job does |
    | --- | --- |
    | COORDINATOR_NOT_AVAILABLE | the same request again: the entry has other work on this partition |
    | INVALID_UPDATE_VERSION | plan again: the layout version or the borders of runs are others |
    | UNKNOWN_MEMBER_ID | begin again with a pin under a new id: it has none, or none any more |
    | KAFKA_STORAGE_ERROR | store the segments again under new keys: these are older than the pin |
    | UNKNOWN_TOPIC_OR_PARTITION | nothing: they are gone |
    | UNSUPPORTED_VERSION | nothing: `ledger.feature_level` is too low |
    | INVALID_REQUEST | nothing: the job has a bug |
    """

    job: bytes
    attempt: int
    topic_id: TopicId
    partition: int
    first: int
    last: int
    layout_version: int
    """The one that the plan saw."""
    segments: Sequence[SegmentFile]
    runs: Sequence[SegmentRun]
    markers: Sequence[SwapMarker] = ()
    work: ClassVar[int] = MAX_SWAPPED_RUNS

    @property
    def weight(self) -> int:
        locators = sum(SMALL + UTF8 * len(segment.locator) for segment in self.segments)
        return 2 * SMALL + locators + RUN_BYTES * len(self.runs)


@dataclass(frozen=True, slots=True)
class Swapped:
    """`layout_version`: of the partition from now on. Where `log_start` is above the request's range, nothing
    of that was left to be swapped, and its segments are orphans.

    `duplicate`: this is the result of an earlier request that was the same.
    """

    layout_version: int
    log_start: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class TakePin:
    """Keep what is live for a job: the orphan floor stays below the time of this entry, and objects that lose
    their last run from then on stay readable. A job that has a pin gets that one, and nothing is written.

    Keys of the job's segments must not be older than `Pinned.started_ms`. The owner releases a pin that was
    not renewed for ten minutes; a job whose `Pinned.entry` has changed has lost its first pin, and begins
    from scratch. Result: `Pinned` or `Refused`.
    """

    job: bytes
    weight: ClassVar[int] = SMALL
    work: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Pinned:
    """`entry`: the number of the journal entry that holds the pin, and `started_ms` its time."""

    entry: int
    started_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePin:
    """The job has ended. Results of its swaps are kept no longer. Result: `Done`, of 0 if it had no pin."""

    job: bytes
    weight: ClassVar[int] = SMALL
    work: ClassVar[int] = 0
