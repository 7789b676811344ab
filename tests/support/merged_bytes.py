"""A partition with the bytes of its objects: what a merge makes of them, and what consumers are served."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ledger.batch.header import outgoing_head, read_header, walk
from ledger.formats.segment import EncodedRun
from ledger.keys import segment_locator
from ledger.merging.found import FoundRun
from ledger.merging.merge import merge
from ledger.merging.plan import MergeTask
from ledger.merging.reads import NEAR, ReadRule, plan_reads
from ledger.objects.uploads import ObjectKind
from ledger.partitions.runs import without_timestamp
from ledger.types import Position
from tests.support.merged_partition import FoundPartition


@dataclass(frozen=True, slots=True)
class Served:
    """One batch as a consumer gets it."""

    base: int
    data: bytes


class StoredPartition(FoundPartition):
    """`objects`: bytes by locator, those of other partitions among them."""

    def __init__(self, page_runs: int = 1_000) -> None:
        super().__init__(page_runs)
        self.objects: dict[str, bytearray] = {}
        self._attempts = count(1)

    def write(self, locator: str, batches: Sequence[bytes], now_ms: int, before: int = 0) -> None:
        """One flush: `before` bytes of others, then these batches, then their run is committed."""
        stored = self.objects.setdefault(locator, bytearray())
        stored += b"\xee" * before
        for batch in batches:
            header = read_header(batch)
            stamp = header.max_timestamp if header.max_timestamp >= 0 else without_timestamp(now_ms)
            self.append(locator, len(stored), len(batch), header.last_offset_delta + 1, stamp)
            stored += batch

    def read(self, position: Position) -> memoryview:
        return memoryview(self.objects[position.locator])[position.start : position.start + position.size]

    def bytes_of(self, run: FoundRun) -> memoryview:
        if run.is_marker:
            return memoryview(run.marker_bytes)
        return self.read(Position(run.locator, run.start, run.size))

    def served(self) -> Iterator[Served]:
        """Every batch in order, as a fetch patches it."""
        for run in self.runs:
            view, base = self.bytes_of(run), run.base
            for batch in walk(view):
                base = batch.base_offset if run.is_segment else base
                data = view[batch.position : batch.position + batch.size_bytes]
                yield Served(base, outgoing_head(base, batch.size_bytes - 12) + bytes(data[16:]))
                base += batch.last_offset_delta + 1

    def carry_out(self, tasks: Sequence[MergeTask], now_ms: int, rule: ReadRule = NEAR) -> None:
        """Read, merge, write and swap all of them."""
        data: list[list[memoryview]] = [[memoryview(b"")] * len(task.runs) for task in tasks]
        for read in plan_reads(tasks, rule):
            for piece, view in read.runs(self.read(read.position)):
                data[piece.task][piece.run] = view
        for task, found in zip(tasks, data, strict=True):
            merged = merge(task, found, now_ms)
            locator = self.new_segment(task, now_ms)
            self.objects[locator] = bytearray(b"".join(merged.buffers))
            self.put_in_place(task, locator, merged.runs)

    def new_segment(self, task: MergeTask, now_ms: int) -> str:
        random = next(self._attempts).to_bytes(10, "big")
        return segment_locator(task.topic_id, task.partition, task.first, now_ms, random)

    def put_in_place(self, task: MergeTask, locator: str, runs: Sequence[EncodedRun]) -> None:
        at = self.runs.index(task.runs[0])
        assert self.runs[at : at + len(task.runs)] == list(task.runs)
        self.runs[at : at + len(task.runs)] = [
            FoundRun(locator, ObjectKind.SEGMENT, run.start, run.size, run.base, run.last, run.max_timestamp)
            for run in runs
        ]
        self.layout_version += 1
