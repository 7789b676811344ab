"""Runs as find-batches returns them: what a plan of merges is made of."""

from collections.abc import Sequence
from typing import NamedTuple

from ledger.keys import created_ms, is_adopted
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import marker_bytes, marker_run
from ledger.partitions.runs import committed_ms


class FoundMarker(NamedTuple):
    """How a transaction ended in a partition."""

    producer_id: int
    epoch: int
    is_commit: bool


class FoundRun(NamedTuple):
    """A live run of a partition, with the locator of its object in place of the object's number.

    `kind` is an `ObjectKind`. `max_timestamp` is as the ledger has it: below zero if no record has one, and
    then it may say when the run was committed (`ledger.partitions.runs.committed_ms`). `marker`: what a run
    of kind MARKER is made of, which has no locator; None if the gateway does not say.
    """

    locator: str
    kind: int
    start: int
    size: int
    base: int
    last: int
    max_timestamp: int
    marker: FoundMarker | None = None

    @property
    def is_marker(self) -> bool:
        """Whether it is the end of a transaction, which is in no object."""
        return self.kind == ObjectKind.MARKER

    @property
    def marker_bytes(self) -> bytes:
        """The batch of a marker as it is served. ValueError for another run."""
        if self.marker is None:
            raise ValueError(f"the run at offset {self.base} is no marker that is known")
        return marker_bytes(marker_run(*self.marker, self.base, self.max_timestamp))

    @property
    def is_segment(self) -> bool:
        """Whether its batches carry their own offsets: a merge has made it, or it was adopted."""
        return self.kind == ObjectKind.SEGMENT

    @property
    def is_adopted(self) -> bool:
        """Whether it is in a bucket of others: it is merged once, whatever its size, so that an adoption
        ends."""
        return is_adopted(self.locator)

    @property
    def created_ms(self) -> int:
        """Creation time of its object; 0 if its locator carries none. A local object is created a while
        before the last of its runs."""
        try:
            return created_ms(self.locator)
        except ValueError:
            return 0

    def seen_ms(self, now_ms: int) -> int:
        """About when it was produced: as its timestamps say, if that is possible at all."""
        at_ms = self.max_timestamp if self.max_timestamp >= 0 else committed_ms(self.max_timestamp) or 0
        created = self.created_ms
        return at_ms if created <= at_ms <= now_ms else created


class RunPage(NamedTuple):
    """Some adjacent runs of one partition in offset order, all as of one moment.

    `layout_version` changes whenever a swap puts other runs in the place of these.
    """

    layout_version: int
    log_start: int
    high_watermark: int
    runs: Sequence[FoundRun]
