"""What executors of the Spark engine do: they read runs, hand them to each other, and write segments. They
know nothing of the gateway, and import no pyspark.

There are two ways for a wave of merge tasks. *Direct*: a Spark task reads the runs of some merge tasks,
merges and writes them. *Shuffled*: Spark tasks of a first stage read each object once for all merge tasks of
the wave, and those of a second stage get the runs of theirs from the shuffle. Every attempt of a Spark task
writes segments under new keys, so that one which was given up, and goes on all the same, overwrites nothing.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from adapters.open import FarOptions, FarStores, open_job_segments
from ledger.errors import StoreError
from ledger.keys import RANDOM_BYTES
from ledger.merging.reads import ReadRule, plan_reads
from ledger.types import Buffer
from pipeline.carrying import JobStore, RunMissing, Traffic, Written, merged_parts, read_pieces, write_segment
from pipeline.engines.spark_layout import Slice, WantedRead, Work
from pipeline.stores import BlockingStore

CHUNK_BYTES: Final = 1024 * 1024
"""Of runs that go through the shuffle as one record, unless one has more."""


@dataclass(slots=True)
class Outcome:
    """What has become of a merge task. `missing`: the store did not have one of its runs, and nothing was
    written. `left`: a sentence for each run that stays as it is. `error`: why nothing more was done, so that
    what was written is no use."""

    number: int
    written: list[Written] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    missing: bool = False
    error: str = ""
    traffic: Traffic = field(default_factory=Traffic)


class ShuffledWork(NamedTuple):
    """A merge task on its way to the second stage."""

    work: Work


class ShuffledRuns(NamedTuple):
    """Some runs on their way to the second stage: merge task, run, bytes."""

    runs: Sequence[tuple[int, int, bytes]]


class ShuffledTraffic(NamedTuple):
    """What a task of the first stage has read, or why it could not. It goes the same way as what it read."""

    traffic: Traffic
    error: str


Shuffled: TypeAlias = ShuffledWork | ShuffledRuns | ShuffledTraffic
OpenStore: TypeAlias = Callable[[str, Mapping[str, Any]], AbstractContextManager[JobStore]]


@contextmanager
def opened(url: str, far: Mapping[str, Any]) -> Iterator[JobStore]:
    """The store of the gateway, for one Spark task. Errors: StoreError, UnknownStore."""
    with asyncio.Runner() as runner:
        segments = open_job_segments(url, far=FarStores(FarOptions(**far)))
        with BlockingStore(segments, runner) as store:
            yield store


@dataclass(frozen=True, slots=True)
class Executor:
    """How to work on a wave: pickled, with every Spark task."""

    data_url: str
    far: Mapping[str, Any]
    """Settings `storage.*` of a store elsewhere that its URL does not say."""
    rule: ReadRule
    created_ms: int
    """The journal's time, for the keys of segments."""
    open_store: OpenStore = opened

    def carry_out(self, groups: Iterable[Sequence[Work]]) -> Iterator[list[Outcome]]:
        """Directly: each group is held in memory at a time."""
        for group in groups:
            try:
                with self.open_store(self.data_url, self.far) as store:
                    yield self._carry_out(group, store)
            except (StoreError, ValueError) as error:
                yield [Outcome(work.number, error=str(error)) for work in group]

    def read(self, slices: Iterable[Slice]) -> Iterator[tuple[int, Shuffled]]:
        """The first stage: pairs of a task of the second stage and what it gets."""
        for reads, works in slices:
            for group, work in works:
                yield group, ShuffledWork(work)
            yield from self._read(reads)

    def merge(self, shuffled: Iterable[tuple[int, Shuffled]]) -> Iterator[list[Outcome]]:
        """The second stage: one group, from what the first has sent."""
        works: list[Work] = []
        runs: dict[tuple[int, int], bytes] = {}
        traffic, error = Traffic(), ""
        for _, part in shuffled:
            match part:
                case ShuffledWork(work):
                    works.append(work)
                case ShuffledRuns(some):
                    runs.update(((task, run), data) for task, run, data in some)
                    traffic.shuffled_bytes += sum(len(data) for _, _, data in some)
                case ShuffledTraffic(of_read, reason):
                    traffic.add(of_read)
                    error = error or reason
        yield self._merge_shuffled(sorted(works), runs, traffic, error)

    def _carry_out(self, group: Sequence[Work], store: JobStore) -> list[Outcome]:
        tasks = [work.task for work in group]
        found: list[list[Buffer | None]] = [[None] * len(task.runs) for task in tasks]
        traffic = Traffic()
        for piece, data in read_pieces(plan_reads(tasks, self.rule), store, traffic):
            found[piece.task][piece.run] = data
        # What was merged is released at once.
        outcomes = [self._merge(work, found.pop(0), store) for work in group]
        outcomes[0].traffic.add(traffic)
        return outcomes

    def _read(self, reads: Sequence[WantedRead]) -> Iterator[tuple[int, Shuffled]]:
        traffic, error = Traffic(), ""
        groups = chain.from_iterable(wanted.groups for wanted in reads)
        chunks: dict[int, list[tuple[int, int, bytes]]] = {}
        sizes: dict[int, int] = {}
        try:
            with self.open_store(self.data_url, self.far) as store:
                found = read_pieces(iter([wanted.read for wanted in reads]), store, traffic)
                for group, (piece, data) in zip(groups, found, strict=True):
                    if data is None:
                        continue
                    chunks.setdefault(group, []).append((piece.task, piece.run, bytes(data)))
                    sizes[group] = sizes.get(group, 0) + piece.size
                    if sizes[group] >= CHUNK_BYTES:
                        yield group, ShuffledRuns(chunks.pop(group))
                        del sizes[group]
        except (StoreError, ValueError) as failure:
            error = str(failure)
        for group, runs in chunks.items():
            yield group, ShuffledRuns(runs)
        concerned = sorted({group for wanted in reads for group in wanted.groups})
        for group in concerned if error else concerned[:1]:
            yield group, ShuffledTraffic(traffic, error)
            traffic = Traffic()

    def _merge_shuffled(
        self, works: Sequence[Work], runs: dict[tuple[int, int], bytes], traffic: Traffic, error: str
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        try:
            if error:
                raise StoreError(error)
            with self.open_store(self.data_url, self.far) as store:
                for work in works:
                    found = [runs.pop((work.number, run), None) for run in range(len(work.task.runs))]
                    outcomes.append(self._merge(work, found, store))
        except (StoreError, ValueError) as failure:
            outcomes = [Outcome(work.number, error=str(failure)) for work in works]
        if outcomes:
            outcomes[0].traffic.add(traffic)
        return outcomes

    def _merge(self, work: Work, found: Sequence[Buffer | None], store: JobStore) -> Outcome:
        outcome = Outcome(work.number)
        parts = merged_parts(
            work.task, found, self.created_ms, outcome.left.append, without_missing=work.without_missing
        )
        try:
            for merged in parts:
                noise = os.urandom(RANDOM_BYTES)
                outcome.written.append(
                    write_segment(work.task, merged, self.created_ms, noise, store, outcome.traffic)
                )
        except RunMissing:
            outcome.missing = True
        return outcome
