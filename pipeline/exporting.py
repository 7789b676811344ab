"""An export: the live records of a ledger, written as segments in KafScale's layout.

Nothing in the target is replaced. A repeat goes on after the last segment that is there, and makes the index
of a segment that was left without one. So that no two topics end up in one, the target says under
`__dragoman/NAMESPACE/TOPIC` of which topic id its segments are.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger.batch.header import walk
from ledger.errors import AlreadyExists, ErrorName, NotFound
from ledger.formats.kafscale import (
    KafScalePartition,
    KafScaleSegment,
    export_groups,
    found_segments,
    index_for,
    segment_keys,
)
from ledger.formats.segment import (
    HEAD_BYTES,
    TRAILER_BYTES,
    SegmentBatch,
    encode_segment,
    read_trailer,
)
from ledger.merging.found import FoundRun
from ledger.merging.merge import RunDamaged, batches_of
from ledger.merging.plan import MergeTask
from ledger.merging.reads import ReadRule, plan_reads
from ledger.objects.uploads import ObjectKind
from ledger.ports import BlobInfo, Blobs
from ledger.types import Buffer
from pipeline.carrying import JobStore, Traffic, read_pieces
from pipeline.messages import FoundRuns
from pipeline.peer import PeerRefused
from pipeline.pins import Pin
from pipeline.planning import Place, RunFinder
from pipeline.rounds import JobError

SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Of the runs of one segment, unless one run has more. They are held in memory, and again as they are
sent."""
LIST_PAGE: Final = 1_000
MARKER: Final = "__dragoman"
_GONE: Final = (ErrorName.UNKNOWN_TOPIC_OR_PARTITION, ErrorName.UNKNOWN_TOPIC_ID)


@dataclass(slots=True)
class ExportTotals:
    """What an export has done so far."""

    partitions: int = 0
    """Looked at, to their ends."""
    segments: int = 0
    """Written."""
    present: int = 0
    """Segments that were there already."""
    batches: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    reads: int = 0
    writes: int = 0
    """Objects put."""
    listings: int = 0
    target_reads: int = 0
    gone: list[str] = field(default_factory=list)
    """Topics that were deleted meanwhile."""


class Target:
    """A bucket in KafScale's layout, for one thread that blocks. Errors: StoreError."""

    def __init__(self, blobs: Blobs, runner: asyncio.Runner, totals: ExportTotals) -> None:
        self._blobs = blobs
        self._runner = runner
        self._totals = totals

    def close(self) -> None:
        self._runner.run(self._blobs.close())

    def listing(self, prefix: str) -> Iterator[BlobInfo]:
        after = ""
        while page := self._runner.run(self._blobs.list(prefix, after, LIST_PAGE)):
            self._totals.listings += 1
            yield from page
            after = page[-1].key

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self._totals.target_reads += 1
        return self._runner.run(self._blobs.get(key, start, size))

    def put(self, key: str, buffers: list[Buffer]) -> None:
        """Create-only. AlreadyExists."""
        self._runner.run(self._blobs.put(key, buffers))
        self._totals.writes += 1
        self._totals.written_bytes += sum(map(len, buffers))


class Finder(RunFinder, Protocol):
    """As `pipeline.peer.PeerClient`."""


class Export:
    """Exports partitions one after the other, under one pin. For one thread."""

    def __init__(  # noqa: PLR0913 - where it reads, where it writes, and how
        self,
        finder: Finder,
        store: JobStore,
        target: Target,
        pin: Pin,
        totals: ExportTotals,
        *,
        namespace: str,
        rule: ReadRule,
        said: Callable[[], None] = lambda: None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """`said` is called whenever a segment was written."""
        self._finder = finder
        self._store = store
        self._target = target
        self._pin = pin
        self._totals = totals
        self._namespace = namespace
        self._rule = rule
        self._said = said
        self._segment_bytes = segment_bytes
        self._claimed = b""

    def partition(self, place: Place) -> None:
        """All records of a partition that are readable when this begins, and not in the target yet.

        Errors: JobError, PinLost; PeerUnavailable, PeerRefused; StoreError.
        """
        at = KafScalePartition(self._namespace, place.topic, place.partition)
        present = self._present(at)
        self._claim(place, at, has_segments=bool(present))
        following = self._completed(present)
        runs = _Runs(self._finder, place, following, self._pin)
        if runs.is_gone:
            self._totals.gone.append(place.topic)
            return
        if following > runs.end:
            raise JobError(
                f"the target has offsets of {place.topic}-{place.partition} up to {following - 1}, and the "
                f"ledger ends at {runs.end}: export a ledger that was put back from a backup elsewhere"
            )
        for group in export_groups(runs, self._segment_bytes):
            self._write(place, at, list(group), max(following, runs.log_start))
            self._pin.keep()
            self._said()
        self._totals.partitions += 1

    def _present(self, at: KafScalePartition) -> list[KafScaleSegment]:
        """What the target has of a partition. A listing by a prefix has other partitions too: those of
        `t/1` begin as those of `t/10`, were it not for the slash."""
        key, _ = segment_keys(at, 0)
        folder = key.rpartition("/")[0] + "/"
        listing = ((info.key, info.size) for info in self._target.listing(folder))
        return list(found_segments(listing))

    def _claim(self, place: Place, at: KafScalePartition, *, has_segments: bool) -> None:
        """Say in the target of which topic its segments are. JobError if they are of another."""
        topic_id = place.topic_id
        if self._claimed == topic_id:
            return
        key = f"{MARKER}/{at.namespace}/{at.topic}"
        with suppress(NotFound):
            if self._target.get(key) == topic_id.hex().encode():
                self._claimed = topic_id
                return
            raise JobError(
                f"the target has another topic under the name {at.topic}, one of another cluster or one that "
                "was deleted: export to another prefix, or with another --namespace"
            )
        if has_segments:
            raise JobError(
                f"the target has segments of {at.topic} that no export has written: export to another "
                "prefix, or with another --namespace"
            )
        with suppress(AlreadyExists):
            self._target.put(key, [topic_id.hex().encode()])
        self._claimed = topic_id

    def _completed(self, present: list[KafScaleSegment]) -> int:
        """The offset after the last segment. One that was left without an index gets it."""
        self._totals.present += len(present)
        for found in present:
            if found.index_key is None:
                _, index_key = segment_keys(found.partition, found.base)
                self._put(index_key, [index_for(found, self._target.get(found.key))])
        if not present:
            return 0
        newest = present[-1]
        if newest.size < HEAD_BYTES + TRAILER_BYTES:
            raise JobError(f"{newest.key} in the target has {newest.size} bytes, and is no segment")
        tail = self._target.get(newest.key, newest.size - TRAILER_BYTES, TRAILER_BYTES)
        return read_trailer(tail, f"{newest.key} in the target").last + 1

    def _write(self, place: Place, at: KafScalePartition, runs: list[FoundRun], first: int) -> None:
        """A segment of the batches of these runs that have offsets from `first` on."""
        if any(run.kind == ObjectKind.MARKER for run in runs):
            # Without its marker a reader would see an aborted transaction as any other.
            raise JobError(
                f"{place.topic} has transactions, which cannot be exported yet: name the other topics with "
                "--topics"
            )
        task = MergeTask(place.topic_id, place.partition, 0, runs)
        data = self._read(task)
        try:
            batches = [batch for batch in batches_of(task, data) if _last_of(batch) >= first]
        except RunDamaged as error:
            raise JobError(str(error)) from error
        if not batches:
            return
        base = batches[0].base_offset
        segment = encode_segment(batches, base, self._pin.now_ms())
        key, index_key = segment_keys(at, base)
        self._put(key, segment.buffers)
        # KafScale takes a segment without its index for one that was never finished.
        self._put(index_key, [segment.index])
        self._totals.segments += 1
        self._totals.batches += len(batches)

    def _put(self, key: str, buffers: list[Buffer]) -> None:
        try:
            self._target.put(key, buffers)
        except AlreadyExists:
            raise JobError(
                f"{key} has come into the target meanwhile: does another export run? Run this one again"
            ) from None

    def _read(self, task: MergeTask) -> list[Buffer]:
        found: list[Buffer | None] = [None] * len(task.runs)
        traffic = Traffic()
        for piece, data in read_pieces(plan_reads([task], self._rule), self._store, traffic, self._pin.keep):
            found[piece.run] = data
        self._totals.reads += traffic.reads
        self._totals.read_bytes += traffic.read_bytes
        whole = [data for data in found if data is not None]
        if len(whole) < len(found):
            run = task.runs[found.index(None)]
            raise JobError(
                f"{run.locator} at byte {run.start} (offsets {run.base} to {run.last}) is missing; "
                "dragoman audit names all damages"
            )
        return whole


class _Runs:
    """Runs of a partition from an offset on, up to where it ends now."""

    def __init__(self, finder: RunFinder, place: Place, offset: int, pin: Pin) -> None:
        self._finder = finder
        self._place = place
        self._pin = pin
        self._page = self._find(offset)
        self._offset = max(offset, self.log_start)
        self.is_gone = self._page.failure.error in _GONE
        self.end = self._page.high_watermark

    @property
    def log_start(self) -> int:
        return self._page.log_start

    def __iter__(self) -> Iterator[FoundRun]:
        while not self.is_gone and self._offset < self.end:
            for run in self._page.runs:
                if run.last >= self._offset:
                    self._offset = run.last + 1
                    yield FoundRun(*run)
            if self._offset >= self.end:
                return
            self._pin.keep()
            before, self._page = self._offset, self._find(self._offset)
            self._offset = max(self._offset, self.log_start)
            self.is_gone = self._page.failure.error in _GONE
            if not self._page.runs and self._offset == before:
                return

    def _find(self, offset: int) -> FoundRuns:
        topic_id, partition = self._place.topic_id, self._place.partition
        found = self._finder.find_batches(topic_id, partition, offset)
        if found.failure.error is ErrorName.OFFSET_OUT_OF_RANGE and offset < found.log_start:
            found = self._finder.find_batches(topic_id, partition, found.log_start)
        if found.failure and found.failure.error not in (*_GONE, ErrorName.OFFSET_OUT_OF_RANGE):
            raise PeerRefused(found.failure)
        return found


def _last_of(batch: SegmentBatch) -> int:
    (header,) = walk(memoryview(batch.data))
    return batch.base_offset + header.last_offset_delta
