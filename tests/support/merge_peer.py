"""A gateway as a merge job speaks to it, and its stores: a double with the rules of swaps, but no journal.

What a partition holds is compared before and after: `records_of` reads it as a consumer would.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field

from ledger.batch.header import TRANSACTIONAL_BIT, verify_crc, walk
from ledger.batch.records import NO_PRODUCER, Producer, Record, build_batch
from ledger.errors import ErrorName
from ledger.keys import uuid7
from ledger.merging.found import FoundMarker
from ledger.merging.found import FoundRun as MergedRun
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import MARKER_BYTES
from ledger.requests import Refused
from ledger.swaps.requests import MAX_SWAPPED_RUNS, Pinned, Swapped, SwapSegments
from ledger.types import Buffer, Position, TopicId
from pipeline.messages import Aborted, Failure, FoundRun, FoundRuns, TopicDescription

BEGUN_MS = 1_700_000_000_000
NO_FAILURE = Failure(ErrorName.NONE)


@dataclass
class Part:
    """One partition."""

    runs: list[FoundRun] = field(default_factory=list)
    layout_version: int = 1
    log_start: int = 0
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """First offset of each open transaction, by producer id."""
    aborted: list[Aborted] = field(default_factory=list)


class MergePeer:
    """Topics with the same number of partitions each. `now_s` is its clock, and that of its jobs."""

    def __init__(self, topics: Sequence[str] = ("t",), partitions: int = 1, page: int = 300) -> None:
        self.names = {TopicId(bytes([at + 1] * 16)): name for at, name in enumerate(topics)}
        self.parts = {(topic, at): Part() for topic in self.names for at in range(partitions)}
        self.objects: MutableMapping[str, bytes] = {}
        self.page = page
        self.now_s = 0.0
        self.pins: dict[bytes, Pinned] = {}
        self.swaps: list[SwapSegments] = []
        self.before_swap: Callable[[SwapSegments], Refused | None] = lambda _: None
        self.after_read: Callable[[], None] = lambda: None
        self.reads = 0
        self.entries = 0
        self._keys = 0

    def flush(
        self,
        sizes: Sequence[tuple[TopicId, int, int]],
        created_ms: int = BEGUN_MS,
        producer: Producer = NO_PRODUCER,
        flags: int = 0,
    ) -> str:
        """One WAL object, with a batch for each (topic id, partition, records). Its locator."""
        self._keys += 1
        locator = f"wal/0/{uuid7(created_ms, self._keys.to_bytes(10, 'big'))}"
        body = bytearray(b"head")
        for topic, partition, count in sizes:
            part = self.parts[topic, partition]
            values = [f"{topic[0]}/{partition}/{part.end + i}".encode() for i in range(count)]
            records = [Record(i, i, b"k", value, ()) for i, value in enumerate(values)]
            batch = build_batch(records, base_timestamp=BEGUN_MS + part.end, producer=producer, flags=flags)
            first, last = part.end, part.end + count - 1
            stamp = BEGUN_MS + part.end + count - 1
            run = FoundRun(locator, ObjectKind.WAL, len(body), len(batch), first, last, stamp)
            part.runs.append(run)
            part.end = last + 1
            body += batch
        self.objects[locator] = bytes(body)
        return locator

    def send(self, producer_id: int, records: int = 2) -> None:
        """One WAL object with a batch of a transaction."""
        (topic, partition), *_ = self.parts
        part = self.parts[topic, partition]
        part.open.setdefault(producer_id, part.end)
        self.flush(
            [(topic, partition, records)], producer=Producer(producer_id, 0, 0), flags=TRANSACTIONAL_BIT
        )

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The transaction of a producer ends."""
        part = next(iter(self.parts.values()))
        first, offset = part.open.pop(producer_id), part.end
        if not commit:
            part.aborted.append(Aborted(producer_id, first, offset))
        marker, stamp = FoundMarker(producer_id, 0, commit), BEGUN_MS + offset
        run = FoundRun("", ObjectKind.MARKER, 0, MARKER_BYTES, offset, offset, stamp, marker)
        part.runs.append(run)
        part.end += 1

    def fill(self, flushes: int, records: int = 2) -> None:
        """A batch for each partition, so often."""
        for _ in range(flushes):
            self.flush([(topic, partition, records) for topic, partition in self.parts])

    def records_of(self, topic: TopicId, partition: int) -> list[tuple[int, bytes]]:
        """Offset of each batch, and its bytes without the patched head. Offsets of dense runs are counted."""
        part, found = self.parts[topic, partition], list[tuple[int, bytes]]()
        for run in part.runs:
            expected = run.base
            if run.kind == ObjectKind.MARKER:
                found.append((run.base, MergedRun(*run).marker_bytes[16:]))
                continue
            view = memoryview(self.objects[run.object_key])[run.start : run.start + run.size]
            for batch in walk(view):
                data = view[batch.position : batch.position + batch.size_bytes]
                assert verify_crc(data)
                base = expected if run.kind == ObjectKind.WAL else batch.base_offset
                assert base == expected
                expected = base + batch.last_offset_delta + 1
                if expected > part.log_start:
                    found.append((base, bytes(data[16:])))
            assert expected == run.last + 1
        return found

    # The gateway.

    def topics(self) -> Iterator[TopicDescription]:
        for topic, name in self.names.items():
            count = sum(1 for key in self.parts if key[0] == topic)
            yield TopicDescription(topic, name, count)

    def find_batches(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        part = self.parts.get((topic_id, partition))
        if part is None:
            return FoundRuns(Failure(ErrorName.UNKNOWN_TOPIC_ID), -1, -1, -1, [])
        if not part.log_start <= offset <= part.end:
            failure = Failure(ErrorName.OFFSET_OUT_OF_RANGE)
            return FoundRuns(failure, part.layout_version, part.log_start, part.end, [])
        runs = [run for run in part.runs if run.last >= offset][: self.page]
        return FoundRuns(NO_FAILURE, part.layout_version, part.log_start, part.end, runs)

    def find_isolated(self, topic_id: TopicId, partition: int, offset: int) -> FoundRuns:
        found, part = self.find_batches(topic_id, partition, offset), self.parts.get((topic_id, partition))
        if part is None or not found.runs:
            return found._replace(last_stable=found.high_watermark)
        end = found.runs[-1].last + 1
        aborted = [each for each in part.aborted if each.last >= offset and each.first < end]
        return found._replace(last_stable=min(part.open.values(), default=part.end), aborted=aborted)

    def swap(self, swap: SwapSegments) -> Swapped | Refused:
        self.swaps.append(swap)
        if (refused := self.before_swap(swap)) is not None:
            return refused
        if swap.job not in self.pins:
            return Refused(ErrorName.UNKNOWN_MEMBER_ID)
        part = self.parts.get((swap.topic_id, swap.partition))
        if part is None:
            return Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)
        bases, lasts = [run.base for run in part.runs], [run.last for run in part.runs]
        if swap.last < part.log_start:
            return Swapped(part.layout_version, part.log_start)
        if swap.layout_version != part.layout_version:
            return Refused(ErrorName.INVALID_UPDATE_VERSION)
        if swap.last not in lasts or (swap.first not in bases and swap.first >= part.log_start):
            return Refused(ErrorName.INVALID_UPDATE_VERSION)
        first = bases.index(swap.first) if swap.first in bases else 0
        end = lasts.index(swap.last) + 1
        assert end - first <= MAX_SWAPPED_RUNS
        markers = [run for run in part.runs[first:end] if run.marker is not None]
        assert [(run.base, *run.marker, run.max_timestamp) for run in markers if run.marker] == [
            tuple(marker) for marker in swap.markers
        ]
        keys = [segment.locator for segment in swap.segments]
        assert all(key in self.objects for key in keys)
        assert not {run.object_key for run in part.runs} & set(keys)
        entered = [
            FoundRun(keys[r.segment], ObjectKind.SEGMENT, r.start, r.size, r.base, r.last, r.max_timestamp)
            for r in swap.runs
        ]
        assert entered[0].base == swap.first and entered[-1].last == swap.last
        entered = [run for run in entered if run.last >= part.log_start]
        part.runs[first:end] = entered
        part.layout_version += 1
        return Swapped(part.layout_version, part.log_start)

    def pin(self, job: bytes) -> Pinned:
        if job not in self.pins:
            self.entries += 1
            self.pins[job] = Pinned(self.entries, BEGUN_MS + 3_600_000 + int(self.now_s * 1000))
        return self.pins[job]

    def release(self, job: bytes) -> None:
        self.pins.pop(job, None)

    # The stores.

    def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        self.reads += len(positions)
        found = [self._bytes(position) for position in positions]
        self.after_read()
        return found

    def write(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        assert locator not in self.objects and index
        self.objects[locator] = b"".join(buffers)

    def elapsed_s(self) -> float:
        return self.now_s

    def _bytes(self, position: Position) -> bytes | None:
        data = self.objects.get(position.locator)
        end = position.start + position.size
        return None if data is None or end > len(data) else data[position.start : end]
