"""What is done with merge tasks next to their bytes, in whatever process: runs are read, merged, and written
as segments."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ledger.formats.segment import EncodedRun, SegmentBytes
from ledger.keys import RANDOM_BYTES, segment_locator
from ledger.merging.found import FoundRun
from ledger.merging.merge import RunDamaged, merge
from ledger.merging.plan import MergeTask
from ledger.merging.reads import ObjectRead, Piece
from ledger.swaps.requests import SegmentFile
from ledger.types import Buffer, Position

READ_BYTES: Final = 8 * 1024 * 1024
"""Of ranges that are read at once, unless one has more."""


class JobStore(Protocol):
    """Where runs are read and segments written. Calls block, each with a deadline. Errors: StoreError."""

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """The bytes of each position; None where object or range is not there."""
        ...

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        """A segment and its index: durable when it returns, and never written over another."""
        ...


@dataclass(slots=True)
class Traffic:
    """What went to and from the store, and in between."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    """Ranges of objects."""
    writes: int = 0
    """Segments and their indexes."""
    shuffled_bytes: int = 0
    """Of runs that went from one process to another in between."""

    def add(self, other: "Traffic") -> None:
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.reads += other.reads
        self.writes += other.writes
        self.shuffled_bytes += other.shuffled_bytes


class Merged(NamedTuple):
    """The runs [begin, end) of a task as a segment."""

    begin: int
    end: int
    segment: SegmentBytes


class Written(NamedTuple):
    """The same, durable, and an orphan until a swap names it."""

    begin: int
    end: int
    runs: Sequence[EncodedRun]
    segment: SegmentFile

    def of(self, task: MergeTask) -> MergeTask:
        """What of the task it is."""
        return MergeTask(task.topic_id, task.partition, task.layout_version, task.runs[self.begin : self.end])


class RunMissing(Exception):
    """The store does not have the bytes of a run. `run`: which of the task's runs."""

    def __init__(self, run: int, message: str) -> None:
        super().__init__(message)
        self.run = run


def read_pieces(
    reads: Iterator[ObjectRead],
    store: JobStore,
    traffic: Traffic,
    keep: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Piece, Buffer | None]]:
    """Each run of these reads with its bytes; None if it is not there. `keep` is called after each call of
    the store."""
    some: list[ObjectRead] = []
    size = 0
    for read in reads:
        if some and size + read.position.size > READ_BYTES:
            yield from _read_some(some, store, traffic)
            keep()
            some, size = [], 0
        some.append(read)
        size += read.position.size
    if some:
        yield from _read_some(some, store, traffic)
        keep()


def merged_parts(
    task: MergeTask,
    found: Sequence[Buffer | None],
    created_ms: int,
    left: Callable[[str], None],
    *,
    without_missing: bool,
) -> Iterator[Merged]:
    """The segment of a task, or those of the runs before and after each that is damaged. `left` is called
    with a sentence for each run that stays as it is. RunMissing, before the first segment, if the store does
    not have a run, unless that is left out too (`without_missing`)."""
    spans = [(0, len(task.runs))]
    while spans:
        begin, end = spans.pop()
        part = MergeTask(task.topic_id, task.partition, task.layout_version, task.runs[begin:end])
        try:
            whole = [_there(part, number, each) for number, each in enumerate(found[begin:end])]
            merged = merge(part, whole, created_ms)
        except RunMissing as error:
            if not without_missing:
                raise
            bad, sentence = begin + error.run, str(error)
        except RunDamaged as error:
            bad, sentence = begin + error.run, str(error)
        else:
            yield Merged(begin, end, merged)
            continue
        left(sentence)
        spans += [span for span in ((bad + 1, end), (begin, bad)) if _is_worth(task.runs[slice(*span)])]


def write_segment(
    task: MergeTask, merged: Merged, created_ms: int, noise: bytes, store: JobStore, traffic: Traffic
) -> Written:
    """Under a key that is new. `noise`: RANDOM_BYTES. Errors: StoreError."""
    first = task.runs[merged.begin].base
    locator = segment_locator(task.topic_id, task.partition, first, created_ms, noise[:RANDOM_BYTES])
    segment = merged.segment
    store.write(locator, segment.buffers, segment.index)
    traffic.writes += 2
    traffic.written_bytes += segment.size + len(segment.index)
    return Written(merged.begin, merged.end, segment.runs, SegmentFile(locator, segment.size))


def _read_some(
    reads: Sequence[ObjectRead], store: JobStore, traffic: Traffic
) -> Iterator[tuple[Piece, Buffer | None]]:
    found = _read_ranges([read.position for read in reads], store, traffic)
    for read, data in zip(reads, found, strict=True):
        if data is not None:
            yield from read.runs(memoryview(data))
        elif len(read.pieces) == 1:
            yield read.pieces[0], None
        else:
            # Perhaps only one of the runs is not there.
            locator, start = read.position.locator, read.position.start
            alone = [Position(locator, start + piece.start, piece.size) for piece in read.pieces]
            yield from zip(read.pieces, _read_ranges(alone, store, traffic), strict=True)


def _read_ranges(positions: Sequence[Position], store: JobStore, traffic: Traffic) -> Sequence[Buffer | None]:
    data = store.read(positions)
    traffic.reads += len(positions)
    traffic.read_bytes += sum(len(each) for each in data if each is not None)
    return data


def _is_worth(runs: Sequence[FoundRun]) -> bool:
    """Whether a segment is made of what is left of a task: not of ends of transactions alone, which are in no
    object as it is."""
    return any(not run.is_marker for run in runs)


def _there(task: MergeTask, number: int, data: Buffer | None) -> Buffer:
    run = task.runs[number]
    if run.is_marker:
        return b""
    if data is None:
        where = f"{run.locator} at byte {run.start} (offsets {run.base} to {run.last})"
        raise RunMissing(number, f"{where} is missing; dragoman audit names all damages")
    return data
