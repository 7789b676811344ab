"""An adoption: a bucket in KafScale's layout becomes readable at its offsets, and nothing of it is copied.

Every segment is read and verified before the ledger changes, so that a bucket with damage is refused as a
whole. Then each topic is begun, its runs are entered in offset order, and it is ended; until then it takes no
records. All of that may be repeated: an adoption that was interrupted goes on with the same command.

A segment without an index is left out: KafScale acknowledges records once both are there.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Final, NamedTuple, Protocol

import msgspec

from ledger.adoption.requests import (
    DIGEST_BYTES,
    MAX_ADOPTED_RUNS,
    Adopted,
    AdoptedSegment,
    Adopting,
    AdoptRuns,
    AdoptStep,
    AdoptTopic,
)
from ledger.errors import NotFound, StoreDamaged, StoreTooNew
from ledger.formats.kafscale import KafScaleSegment, adopted_runs, found_segments
from ledger.formats.segment import read_head
from ledger.ports import BlobInfo, Blobs
from ledger.requests import Refused
from ledger.swaps.requests import SegmentRun
from ledger.types import TopicId
from pipeline.rounds import JobError

LIST_PAGE: Final = 1_000
MAX_SEGMENT_BYTES: Final = 160 * 1024 * 1024
"""Of a segment that is verified: it is held in memory."""
CHUNK_SEGMENTS: Final = 500
CHUNK_KEY_BYTES: Final = 50_000
"""That one request enters, with their keys: a journal entry has room for no more."""


class Adopter(Protocol):
    """As `pipeline.peer.PeerClient`."""

    def adopt_topic(self, adopt: AdoptTopic) -> Adopting | Refused: ...

    def adopt_runs(self, adopt: AdoptRuns) -> Adopted | Refused: ...


@dataclass(slots=True)
class AdoptTotals:
    """What an adoption has done so far."""

    topics: int = 0
    """That take records now."""
    verified: int = 0
    """Segments that were read."""
    read_bytes: int = 0
    reads: int = 0
    listings: int = 0
    segments: int = 0
    """That the ledger names now, by this job."""
    runs: int = 0
    bytes: int = 0
    """Of the segments that were verified: what stays in the bucket until it is merged."""
    without_index: int = 0
    """Segments that are left out."""
    ended: int = 0
    """Topics that an earlier job has adopted."""


@dataclass(slots=True)
class PlannedTopic:
    """What is found of a topic."""

    topic: str
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    without_index: int = 0
    digest: str = hashlib.sha256().hexdigest()
    """Of keys, sizes and offsets of the segments, in their order."""

    def add(self, segment: AdoptedSegment, runs: Sequence[SegmentRun]) -> None:
        self.segments += 1
        self.bytes += segment.object_bytes
        fields = f"{self.digest} {segment.key} {segment.object_bytes} {runs[0].base} {runs[-1].last}"
        self.digest = hashlib.sha256(fields.encode()).hexdigest()


class Chunk(NamedTuple):
    """Segments of one partition that one request enters, and their runs."""

    topic: str
    partition: int
    segments: Sequence[AdoptedSegment]
    runs: Sequence[SegmentRun]


class Spool:
    """Chunks in a file: a plan may be larger than the memory of a job."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, chunk: Chunk) -> None:
        data = msgspec.msgpack.encode(chunk)
        self._file.write(len(data).to_bytes(4, "big") + data)

    def __iter__(self) -> Iterator[Chunk]:
        self._file.seek(0)
        while head := self._file.read(4):
            topic, partition, segments, runs = msgspec.msgpack.decode(
                self._file.read(int.from_bytes(head, "big"))
            )
            yield Chunk(
                topic,
                partition,
                [AdoptedSegment(*segment) for segment in segments],
                [SegmentRun(*run) for run in runs],
            )


class Source:
    """A bucket in KafScale's layout, for one thread that blocks. Errors: StoreError."""

    def __init__(self, blobs: Blobs, runner: asyncio.Runner, totals: AdoptTotals) -> None:
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

    def get(self, key: str) -> bytes:
        data = self._runner.run(self._blobs.get(key))
        self._totals.reads += 1
        self._totals.read_bytes += len(data)
        return data


class BucketPlan:
    """Reads and verifies what a bucket has of a namespace, and spools what is to be entered."""

    def __init__(
        self,
        source: Source,
        totals: AdoptTotals,
        said: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._totals = totals
        self._said = said
        self.topics: dict[str, PlannedTopic] = {}

    def read(self, namespace: str, wanted: Sequence[str], spool: Spool) -> None:
        """Errors: JobError for a segment that cannot be adopted; StoreError."""
        listing = ((info.key, info.size) for info in self._source.listing(f"{namespace}/"))
        for partition, segments in groupby(found_segments(listing), lambda found: found.partition):
            if wanted and partition.topic not in wanted:
                continue
            topic = self.topics.setdefault(partition.topic, PlannedTopic(partition.topic))
            topic.partitions = max(topic.partitions, partition.partition + 1)
            for chunk in self._chunks(topic, partition.partition, segments):
                spool.add(chunk)
        if unknown := sorted(set(wanted) - set(self.topics)):
            raise JobError(f"the bucket has no segment of {', '.join(unknown)} in namespace {namespace}")
        if not self.topics:
            raise JobError(
                f"the bucket has no segment in namespace {namespace}: look at the prefix, and at --namespace"
            )

    def _chunks(
        self, topic: PlannedTopic, partition: int, segments: Iterable[KafScaleSegment]
    ) -> Iterator[Chunk]:
        held: list[AdoptedSegment] = []
        runs: list[SegmentRun] = []
        last, before, key_bytes = -1, "", 0
        for found in segments:
            if found.index_key is None:
                topic.without_index += 1
                self._totals.without_index += 1
                continue
            segment, entered = self._verified(found)
            if entered[0].base <= last:
                raise JobError(f"{found.key} has offset {entered[0].base}, which {before} has already")
            last, before = entered[-1].last, found.key
            topic.add(segment, entered)
            key_bytes += len(found.key)
            is_full = len(held) == CHUNK_SEGMENTS or key_bytes > CHUNK_KEY_BYTES
            if held and (is_full or len(runs) + len(entered) > MAX_ADOPTED_RUNS):
                yield Chunk(topic.topic, partition, held, runs)
                held, runs, key_bytes = [], [], len(found.key)
            runs += [run._replace(segment=len(held)) for run in entered]
            held.append(segment)
            self._said()
        if held:
            yield Chunk(topic.topic, partition, held, runs)

    def _verified(self, found: KafScaleSegment) -> tuple[AdoptedSegment, list[SegmentRun]]:
        if found.size > MAX_SEGMENT_BYTES:
            raise JobError(
                f"{found.key} has {found.size} bytes; segments of up to {MAX_SEGMENT_BYTES} are adopted"
            )
        assert found.index_key is not None
        try:
            data = self._source.get(found.key)
            runs = adopted_runs(found, data, self._source.get(found.index_key))
        except (StoreDamaged, StoreTooNew) as error:
            raise JobError(
                f"{error}: nothing is adopted; mend or remove it, or leave its topic out"
            ) from error
        except NotFound as error:
            raise JobError(f"{error}: the bucket changes; stop KafScale's brokers first") from error
        if len(runs) > MAX_ADOPTED_RUNS:
            raise JobError(f"{found.key} has more than {MAX_ADOPTED_RUNS} runs, by the ages of its batches")
        self._totals.verified += 1
        self._totals.bytes += found.size
        created_ms = max(read_head(data, found.key).created_ms, 0)
        return AdoptedSegment(found.key, found.size, created_ms), [SegmentRun(0, *run) for run in runs]


class Adoption:
    """Enters what a bucket's plan has. For one thread."""

    def __init__(
        self,
        adopter: Adopter,
        place: str,
        totals: AdoptTotals,
        new_id: Callable[[], bytes],
        said: Callable[[], None] = lambda: None,
    ) -> None:
        self._adopter = adopter
        self._place = place
        self._totals = totals
        self._new_id = new_id
        self._said = said

    def enter(self, topics: Mapping[str, PlannedTopic], spool: Spool) -> None:
        """Errors: JobError, before anything changes if one of the topics cannot be adopted; PeerUnavailable,
        PeerRefused."""
        ended = {name for name in topics if self._step(topics[name], AdoptStep.CHECK).has_ended}
        self._totals.ended = len(ended)
        for name, chunks in groupby(spool, lambda chunk: chunk.topic):
            if name in ended:
                continue
            topic_id = self._step(topics[name], AdoptStep.BEGIN).topic_id
            for chunk in chunks:
                self._enter(topic_id, chunk)
            self._step(topics[name], AdoptStep.END)
            self._totals.topics += 1

    def _enter(self, topic_id: TopicId, chunk: Chunk) -> None:
        request = AdoptRuns(topic_id, chunk.partition, self._place, chunk.segments, chunk.runs)
        result = self._adopter.adopt_runs(request)
        if isinstance(result, Refused):
            raise JobError(f"{chunk.topic}-{chunk.partition}: {result.message or result.error}")
        if not result.duplicate:
            self._totals.segments += len(chunk.segments)
            self._totals.runs += len(chunk.runs)
        self._said()

    def _step(self, topic: PlannedTopic, step: AdoptStep) -> Adopting:
        digest = bytes.fromhex(topic.digest)[:DIGEST_BYTES]
        request = AdoptTopic(
            topic.topic, TopicId(self._new_id()), topic.partitions, self._place, digest, step
        )
        result = self._adopter.adopt_topic(request)
        if isinstance(result, Refused):
            raise JobError(result.message or str(result.error))
        return result
