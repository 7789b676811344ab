"""The settled ledger of one partition, from the runs that were found of it: its bytes, written and named."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ledger.formats.settled import SettledPartition, SettledRun, encode_settled
from ledger.formats.settled_meta import SettledMeta, encode_meta
from ledger.keys import RANDOM_BYTES, settled_keys
from ledger.objects.uploads import ObjectKind
from ledger.settled.requests import SettledFiles
from ledger.types import Buffer
from pipeline.messages import FoundRun
from pipeline.planning import Place

MAX_JOB_OBJECTS: Final = 600_000
"""Of one partition: their names are in the memory of the job, 0.4 KB each with what is written of them. A
partition that was merged has far fewer."""
_FIELDS: Final = 5


class SettledStore(Protocol):
    """Where settled ledgers are written. Calls block, each with a deadline. Errors: StoreError."""

    def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        """All three files: durable when it returns, and never written over others."""
        ...


class RunColumns:
    """The runs of a partition, ascending, in 40 bytes each and the names of their objects. Ends of
    transactions are in no object: their offsets are gaps."""

    def __init__(self) -> None:
        self._locators: list[str] = []
        self._kinds = bytearray()
        self._numbers = array("q")
        self.next_offset = 0

    def add(self, found: FoundRun) -> None:
        if found.kind == ObjectKind.MARKER:
            self.next_offset = max(self.next_offset, found.last + 1)
            return
        # Adjacent runs are often of one object. The writer of the file finds the others that are the same.
        if not self._locators or self._locators[-1] != found.object_key:
            self._locators.append(found.object_key)
            self._kinds.append(found.kind)
        base = found.base
        if base < self.next_offset:
            # Merged since the page before. Batches of a segment carry their offsets, so a part of its run is
            # named as well; no other run can hold what is known already.
            base = self.next_offset
            if found.kind != ObjectKind.SEGMENT or base > found.last:
                raise ValueError(f"the run of offsets {found.base} to {found.last} was found twice")
        self._numbers.extend((len(self._locators) - 1, found.start, found.size, base, found.last))
        self.next_offset = found.last + 1

    @property
    def objects(self) -> int:
        """At most so many."""
        return len(self._locators)

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def __iter__(self) -> Iterator[SettledRun]:
        numbers = iter(self._numbers)
        for at, start, size, base, last in zip(*[numbers] * _FIELDS, strict=True):
            yield SettledRun(self._locators[at], self._kinds[at], start, size, base, last)


@dataclass(slots=True)
class FoundPartition:
    """All runs of a partition, as of `high_watermark`; the rest is as of when the job began with it."""

    place: Place
    cluster_id: str
    entry: int
    entry_time_ms: int
    layout_version: int
    log_start: int
    high_watermark: int = 0
    runs: RunColumns = field(default_factory=RunColumns)


class WrittenSettled(NamedTuple):
    """A settled ledger that is durable, and an orphan until the journal names it. `error`: why there is none;
    then `files` is None."""

    files: SettledFiles | None
    runs: int = 0
    objects: int = 0
    error: str = ""

    @property
    def written_bytes(self) -> int:
        return 0 if self.files is None else sum(self.files[1:])


def write_partition(
    found: FoundPartition, created_ms: int, random: Callable[[int], bytes], store: SettledStore
) -> WrittenSettled:
    """Under keys that are new. Errors: StoreError."""
    place = found.place
    about = SettledPartition(place.topic_id, place.partition, created_ms, found.high_watermark)
    try:
        encoded = encode_settled(about, found.runs)
    except ValueError as error:
        return WrittenSettled(None, error=f"{place.topic}-{place.partition}: {error}")
    keys = settled_keys(place.topic_id, place.partition, created_ms, random(RANDOM_BYTES))
    meta = encode_meta(
        SettledMeta(
            cluster_id=found.cluster_id,
            topic_id=place.topic_id.hex(),
            topic=place.topic,
            partition=place.partition,
            entry=found.entry,
            entry_time_ms=found.entry_time_ms,
            layout_version=found.layout_version,
            log_start=found.log_start,
            high_watermark=found.high_watermark,
            created_ms=created_ms,
            log=keys.log_key,
            log_bytes=encoded.log_bytes,
            index=keys.index_key,
            index_bytes=len(encoded.index),
            runs=encoded.runs,
            objects=encoded.objects,
        )
    )
    store.write_settled(keys.log_key, encoded.log, encoded.index, meta)
    files = SettledFiles(keys.log_key, encoded.log_bytes, len(encoded.index), len(meta))
    return WrittenSettled(files, encoded.runs, encoded.objects)
