"""The request of a job that has written a settled ledger, and its result."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ledger.requests import SMALL, UTF8
from ledger.types import TopicId


class SettledFiles(NamedTuple):
    """A settled ledger that is durable: the key of its `.log`, and the bytes of its three files."""

    locator: str
    log_bytes: int
    index_bytes: int
    meta_bytes: int


@dataclass(frozen=True, slots=True)
class NameSettled:
    """Make a settled ledger the newest one of its partition. The one before becomes garbage: it is deleted
    after the grace.

    The job has the pin of `entry`. Without it the job may have read the ledger before a restore, when the
    same offsets had other records, or a sweep may have deleted what it wrote.

    A settled ledger is newer if it reaches a higher watermark, or the same one as of a later entry. A repeat
    (same job, attempt and key) gets its first result for as long as it is the newest. The result is `Named`,
    or `Refused`:

    | error | what the job does |
    | --- | --- |
    | COORDINATOR_NOT_AVAILABLE | the same request again: the entry has another one of the partition |
    | INVALID_UPDATE_VERSION | nothing: the partition has a newer one |
    | UNKNOWN_MEMBER_ID | begin again with a pin under a new id: this one has ended |
    | KAFKA_STORAGE_ERROR | write it again under a new key: this one is older than the pin |
    | UNKNOWN_TOPIC_OR_PARTITION | nothing: the partition is gone |
    | UNSUPPORTED_VERSION | nothing: `ledger.feature_level` is too low |
    | INVALID_REQUEST | nothing: the job has a bug |
    """

    job: bytes
    attempt: int
    topic_id: TopicId
    partition: int
    files: SettledFiles
    entry: int
    """The one that holds the pin of the job: nothing in it is older."""
    high_watermark: int
    """Of the partition when it was written: an offset from here on is not in it."""
    layout_version: int
    """Of the partition when the job began with it. With another one by now, runs were merged since."""
    work: ClassVar[int] = 1

    @property
    def weight(self) -> int:
        return 2 * SMALL + UTF8 * len(self.files.locator)


@dataclass(frozen=True, slots=True)
class Named:
    """`duplicate`: this is the result of an earlier request that was the same."""

    duplicate: bool = False
