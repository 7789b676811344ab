"""Requests that adopt topics from KafScale's buckets, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from ledger.requests import SMALL, UTF8
from ledger.swaps.requests import RUN_BYTES, SegmentRun
from ledger.types import TopicId

MAX_ADOPTED_RUNS: Final = 2_000
"""That one request enters."""
MAX_PLACE_BYTES: Final = 1_000
DIGEST_BYTES: Final = 16
MAX_ADOPTED_PARTITIONS: Final = 10_000


class AdoptStep(IntEnum):
    """What is requested of an adoption."""

    CHECK = 0
    BEGIN = 1
    END = 2


class AdoptedSegment(NamedTuple):
    """A segment in a bucket that is not the gateway's own. `key`: below the place. `object_bytes`: of the
    `.kfs`."""

    key: str
    object_bytes: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class AdoptTopic:
    """Begin to adopt a topic, or end it; or say whether it could begin, and change nothing.

    The topic is created with `topic_id` and that many partitions, unless there is one of this name without
    records. Until the end producers are refused, with an error that they repeat. A repeat gets the same
    result. `digest`: of what the bucket has of the topic. A repeat does not compare what was entered before
    with the bucket, so it is refused if that has changed. Result: `Adopting` or `Refused`:

    | error | what the job does |
    | --- | --- |
    | COORDINATOR_NOT_AVAILABLE | the same request again: the entry has other work on this topic |
    | TOPIC_ALREADY_EXISTS | nothing: it has records of its own, or was adopted from something else |
    | INVALID_PARTITIONS | nothing: the topic that is there has too few partitions |
    | INVALID_TOPIC_EXCEPTION | nothing: there is no topic of such a name in Kafka |
    | UNSUPPORTED_VERSION | nothing: `ledger.feature_level` is too low |
    | INVALID_REQUEST | nothing: the job has a bug |
    """

    name: str
    topic_id: TopicId
    partitions: int
    place: str
    digest: bytes
    step: AdoptStep = AdoptStep.BEGIN
    work: ClassVar[int] = 0

    @property
    def weight(self) -> int:
        return 2 * SMALL + UTF8 * (len(self.name) + len(self.place))


@dataclass(frozen=True, slots=True)
class Adopting:
    """`is_open`: segments may be adopted into it. `has_ended`: they were, and it takes records."""

    topic_id: TopicId
    is_open: bool
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class AdoptRuns:
    """Enter runs of segments, in offset order, as the next ones of a partition whose adoption is open. They
    are wholly after the high watermark; the first of all runs gives the partition its log start. A segment is
    entered with all of its runs, once.

    A repeat, whose last offset is below the high watermark, changes nothing. Result: `Adopted` or `Refused`.
    """

    topic_id: TopicId
    partition: int
    place: str
    segments: Sequence[AdoptedSegment]
    runs: Sequence[SegmentRun]
    work: ClassVar[int] = MAX_ADOPTED_RUNS

    @property
    def weight(self) -> int:
        keys = sum(SMALL + UTF8 * len(segment.key) for segment in self.segments)
        return 2 * SMALL + UTF8 * len(self.place) + keys + RUN_BYTES * len(self.runs)


@dataclass(frozen=True, slots=True)
class Adopted:
    """`high_watermark`: of the partition from now on. `duplicate`: nothing was entered, as all of it was."""

    high_watermark: int
    duplicate: bool = False
