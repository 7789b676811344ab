"""An export: the live records of a ledger, written as segments in KafScale's layout.

Nothing in the target is replaced. A repeat goes on after the last segment that is there, and makes the index
of a segment that was left without one. So that no two topics end up in one, the target says under
`__dragoman/NAMESPACE/TOPIC` of which topic id its segments are.

KafScale has no transactions. So an export has what a consumer returns at an isolation level: of
read_committed no aborted records, and none after the last stable offset. Ends of transactions are in neither.
The target also says if it is of read_uncommitted, so that no repeat mixes both.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger.batch.header import BatchHeader, read_header
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
from ledger.ports import BlobInfo, Blobs
from ledger.types import Buffer, TopicId
from pipeline.carrying import JobStore, Traffic, read_pieces
from pipeline.messages import NOT_SAID, Aborted, FoundRuns
from pipeline.peer import PeerRefused
from pipeline.pins import Pin
from pipeline.planning import Place
from pipeline.rounds import JobError

SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Of the runs of one segment, unless one run has more. They are held in memory, and again as they are
sent."""
LIST_PAGE: Final = 1_000
NAMED: Final = 10
"""Ranges of offsets in an error, at most."""
MARKER: Final = "__dragoman"
UNCOMMITTED: Final = "read_uncommitted"
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
    left_out: int = 0
    """Batches of aborted transactions."""
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


class Finder(Protocol):
    """As `pipeline.peer.PeerClient`."""

    def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        """A page of runs from the one that holds `offset` on, and what was aborted in them."""
        ...


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
        committed: bool = True,
        said: Callable[[], None] = lambda: None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """`committed`: what consumers of read_committed return. `said` is called whenever a segment was
        written."""
        self._finder = finder
        self._store = store
        self._target = target
        self._pin = pin
        self._totals = totals
        self._namespace = namespace
        self._rule = rule
        self._committed = committed
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
        runs = _Runs(self._finder, place, following, self._pin, committed=self._committed)
        if runs.is_gone:
            self._totals.gone.append(place.topic)
            return
        if following > runs.end:
            raise JobError(
                f"the target has offsets of {place.topic}-{place.partition} up to {following - 1}, and the "
                f"ledger ends at {runs.end}: export a ledger that was put back from a backup elsewhere"
            )
        readable = _Readable(place, following, runs)
        for group in export_groups(runs, self._segment_bytes):
            self._write(at, group, readable)
            runs.aborted.drop_before(group[-1].last + 1)
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
        said = topic_id.hex().encode() if self._committed else f"{topic_id.hex()} {UNCOMMITTED}".encode()
        with suppress(NotFound):
            found = self._target.get(key)
            if found == said:
                self._claimed = topic_id
                return
            if found.startswith(topic_id.hex().encode()):
                raise JobError(
                    f"the target has {at.topic} as consumers of the other isolation level see it: give the "
                    "same --isolation-level, or export to another prefix or --namespace"
                )
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
            self._target.put(key, [said])
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

    def _write(self, at: KafScalePartition, runs: Sequence[FoundRun], readable: "_Readable") -> None:
        """A segment of the batches of these runs that are readable."""
        place, stored = readable.place, [run for run in runs if not run.is_marker]
        task = MergeTask(place.topic_id, place.partition, 0, stored)
        data = self._read(place, task)
        batches = list[SegmentBatch]()
        try:
            for batch in batches_of(task, data):
                header = read_header(batch.data)
                if header.is_control or not readable.takes(batch, header):
                    continue
                if readable.has_aborted(batch, header):
                    self._totals.left_out += 1
                else:
                    batches.append(batch)
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

    def _read(self, place: Place, task: MergeTask) -> list[Buffer]:
        found: list[Buffer | None] = [None] * len(task.runs)
        traffic = Traffic()
        for piece, data in read_pieces(plan_reads([task], self._rule), self._store, traffic, self._pin.keep):
            found[piece.run] = data
        self._totals.reads += traffic.reads
        self._totals.read_bytes += traffic.read_bytes
        whole = [data for data in found if data is not None]
        if len(whole) < len(found):
            lost = [run for run, data in zip(task.runs, found, strict=True) if data is None]
            raise JobError(f"{place.topic}-{place.partition}: {_missing(lost)}")
        return whole


def _missing(lost: Sequence[FoundRun]) -> str:
    ranges: list[tuple[int, int]] = []
    for run in lost:
        if ranges and ranges[-1][1] + 1 == run.base:
            ranges[-1] = ranges[-1][0], run.last
        else:
            ranges.append((run.base, run.last))
    named = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges[:NAMED])
    more = f", and {len(ranges) - NAMED} more," if len(ranges) > NAMED else ""
    return (
        f"offsets {named}{more} are missing, the first of them from {lost[0].locator} at byte "
        f"{lost[0].start}; dragoman audit names all damages"
    )


class AbortedRanges:
    """Which transactional batches of a partition are aborted, as far as its runs were found."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[Aborted]] = {}
        """By producer id. Transactions of one producer follow each other."""

    def add(self, found: Sequence[Aborted]) -> None:
        """What was aborted in the next runs; some of it may have been in the ones before as well."""
        for aborted in found:
            known = self._ranges.setdefault(aborted.producer_id, [])
            if not known or known[-1].last < aborted.last:
                known.append(aborted)

    def has(self, header: BatchHeader, base: int) -> bool:
        known = self._ranges.get(header.producer_id)
        if known is None or not header.is_transactional:
            return False
        at = bisect_left(known, base, key=_last_aborted)
        return at < len(known) and known[at].first <= base

    def drop_before(self, offset: int) -> None:
        """No batch below this offset comes any more."""
        kept = ((name, [one for one in known if one.last >= offset]) for name, known in self._ranges.items())
        self._ranges = {producer_id: known for producer_id, known in kept if known}


def _last_aborted(aborted: Aborted) -> int:
    return aborted.last


class _Readable:
    """Which batches of a partition an export has, each once: those with offsets from `first` on and below the
    end that are neither aborted nor ends of transactions."""

    def __init__(self, place: Place, first: int, runs: "_Runs") -> None:
        self.place = place
        self._next = first
        self._runs = runs

    def takes(self, batch: SegmentBatch, header: BatchHeader) -> bool:
        """Whether it is one of the range, and comes for the first time. Runs that were merged since the page
        before are one now, which may begin with batches of that page."""
        last = batch.base_offset + header.last_offset_delta
        if last < max(self._next, self._runs.log_start) or batch.base_offset >= self._runs.end:
            return False
        self._next = last + 1
        return True

    def has_aborted(self, batch: SegmentBatch, header: BatchHeader) -> bool:
        return self._runs.aborted.has(header, batch.base_offset)


class _Runs:
    """Runs of a partition from an offset on, up to where it ends now for readers of an isolation level. They
    overlap where some were merged between two pages.
    `aborted`: what of the runs so far is not for readers of committed records; nothing for others."""

    def __init__(self, finder: Finder, place: Place, offset: int, pin: Pin, *, committed: bool) -> None:
        self._finder = finder
        self._committed = committed
        self.aborted = AbortedRanges()
        self._place = place
        self._pin = pin
        self._page = self._find(offset)
        self._offset = max(offset, self.log_start)
        self.is_gone = self._page.failure.error in _GONE
        self.end = self._page.last_stable if committed else self._page.high_watermark

    @property
    def log_start(self) -> int:
        return self._page.log_start

    def __iter__(self) -> Iterator[FoundRun]:
        while not self.is_gone and self._offset < self.end:
            for run in self._page.runs:
                if self._offset <= run.last and run.base < self.end:
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
        found = self._finder.find_isolated(topic_id, partition, offset)
        if found.failure.error is ErrorName.OFFSET_OUT_OF_RANGE and offset < found.log_start:
            found = self._finder.find_isolated(topic_id, partition, found.log_start)
        if found.failure and found.failure.error not in (*_GONE, ErrorName.OFFSET_OUT_OF_RANGE):
            raise PeerRefused(found.failure)
        if not found.failure and found.last_stable == NOT_SAID:
            raise JobError(
                "the gateway is older than this command and does not say what was aborted: upgrade it first"
            )
        if self._committed:
            self.aborted.add(found.aborted)
        return found
