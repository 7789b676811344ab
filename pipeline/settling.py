"""The job that writes settled ledgers: finds all runs of each partition, has them written, and has the
gateway name what was written.

It changes nothing but by naming, which is one journal entry a partition: a job that ends at any moment leaves
at most files that nothing names, which the gateway deletes as orphans. Any number of jobs may run at once: of
two settled ledgers of a partition the newer one stays.

The job has a pin, so every object that it names is readable when the settled ledger is named. Afterwards they
age: a settled ledger keeps none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from ledger.errors import ErrorName
from ledger.records import LEVEL_WITH_SETTLED
from ledger.requests import Refused
from ledger.settled.requests import NameSettled
from ledger.types import TopicId
from pipeline.messages import FoundRuns, NewestSettled, ShardPage
from pipeline.peer import PeerRefused, PeerUnavailable
from pipeline.pins import Pin, PinLost
from pipeline.planning import Place
from pipeline.segments import SLOW, TRIES, Host, JobError, Peer, places_of
from pipeline.settled_files import (
    MAX_JOB_OBJECTS,
    FoundPartition,
    SettledStore,
    WrittenSettled,
    write_partition,
)

MAX_SHOWN: Final = 20
_GONE: Final = (ErrorName.UNKNOWN_TOPIC_OR_PARTITION, ErrorName.UNKNOWN_TOPIC_ID)
_OURS_IS_OLD: Final = (ErrorName.INVALID_UPDATE_VERSION, *_GONE)


class SettlingPeer(Peer, Protocol):
    """As `pipeline.peer.PeerClient`."""

    def describe(self) -> ShardPage: ...

    def newest_settled(self, topic_id: TopicId, partition: int) -> NewestSettled: ...

    def name_settled(self, naming: NameSettled) -> NewestSettled | Refused: ...


class Writer(Protocol):
    """Writes what was found: what an engine is."""

    def write(self, found: Sequence[FoundPartition], pin: Pin) -> Iterator[tuple[int, WrittenSettled]]:
        """Each as soon as it is durable, with its place in `found`; renews the pin meanwhile. Errors:
        JobError, PinLost; PeerUnavailable, PeerRefused; StoreError."""
        ...


class LocalWriter:
    """In this process, one after the other."""

    def __init__(self, store: SettledStore, random: Callable[[int], bytes]) -> None:
        self._store = store
        self._random = random

    def write(self, found: Sequence[FoundPartition], pin: Pin) -> Iterator[tuple[int, WrittenSettled]]:
        for at, each in enumerate(found):
            yield at, write_partition(each, pin.now_ms(), self._random, self._store)


@dataclass(frozen=True, slots=True)
class SettlingEngine:
    """`wave_runs`: of partitions that are held in memory together, unless one has more."""

    writer: Writer
    wave_runs: int = 1


class PlannedTopic(NamedTuple):
    """What a job would write of a topic. `offsets`: of the partitions to write, from their log starts."""

    topic: str
    partitions: int
    to_write: int
    offsets: int


@dataclass(slots=True)
class SettlingTotals:
    """What a job has done so far."""

    partitions: int = 0
    """Looked at."""
    unchanged: int = 0
    """Of these, those whose newest settled ledger says it all, and those that never had a record."""
    named: int = 0
    """Settled ledgers that are the newest ones of their partitions now."""
    runs: int = 0
    objects: int = 0
    """In these."""
    written_bytes: int = 0
    writes: int = 0
    orphans: int = 0
    """Settled ledgers that were written in vain, as another job was faster or the topic was deleted; the
    gateway deletes them."""
    again: int = 0
    """Pins that were lost."""
    left: list[str] = field(default_factory=list)
    """A sentence for each of the first partitions that have no new one."""
    left_partitions: int = 0


class SettlingJob:
    """One job, from its pin to its end. For one thread."""

    def __init__(
        self,
        peer: SettlingPeer,
        engine: SettlingEngine | None,
        host: Host,
        say: Callable[[SettlingTotals], None] = lambda _: None,
    ) -> None:
        """Without an `engine` a job can only plan. `say` is called whenever something was done."""
        self._peer = peer
        self._engine = engine
        self._host = host
        self._say = say
        self._attempt = 0
        self.totals = SettlingTotals()

    def plan(self, topics: Sequence[str] = ()) -> Iterator[PlannedTopic]:
        """What would be written of each topic. Nothing but the ledger is read, and nothing is written."""
        self._check_level()
        for topic, places in groupby(places_of(self._peer, topics), attrgetter("topic")):
            partitions = to_write = offsets = 0
            for place in places:
                partitions += 1
                look = self._look(place)
                if look is not None:
                    to_write += 1
                    offsets += look.high_watermark - look.log_start
            yield PlannedTopic(topic, partitions, to_write, offsets)

    def run(self, topics: Sequence[str] = ()) -> SettlingTotals:
        """Write what is to be written. Errors: JobError; PeerUnavailable, PeerRefused; StoreError."""
        shard = self._check_level()
        for _ in range(TRIES):
            try:
                with self._pinned() as pin:
                    self._settle(places_of(self._peer, topics), pin, shard.cluster_id)
                return self.totals
            except PinLost:
                # What was named so far stays, and is unchanged at the next try.
                self.totals.again += 1
        raise JobError(SLOW)

    def _check_level(self) -> ShardPage:
        shard, level = self._peer.describe(), LEVEL_WITH_SETTLED
        if shard.feature_level < level:
            raise JobError(
                f"the ledger has feature level {shard.feature_level}, and settled ledgers need level "
                f"{level}: start the gateway once with ledger.feature_level = {level}"
            )
        return shard

    @contextmanager
    def _pinned(self) -> Iterator[Pin]:
        pin = Pin(self._peer, self._host.random, self._host.elapsed_s)
        try:
            yield pin
        except PeerUnavailable:
            # Nor would it hear of the release: the pin expires.
            raise
        except BaseException:
            with suppress(PeerUnavailable, PeerRefused):
                pin.release()
            raise
        pin.release()

    def _settle(self, places: Iterable[Place], pin: Pin, cluster_id: str) -> None:
        engine = self._engine
        if engine is None:
            raise ValueError("a job without an engine can only plan")
        self.totals.partitions = self.totals.unchanged = 0
        wave: list[FoundPartition] = []
        for place in places:
            self.totals.partitions += 1
            found = self._find(place, pin, cluster_id)
            pin.keep()
            if found is not None:
                wave.append(found)
            if sum(len(each.runs) + 1 for each in wave) >= engine.wave_runs:
                self._write(engine.writer, wave, pin)
                wave = []
            self._say(self.totals)
        self._write(engine.writer, wave, pin)

    def _look(self, place: Place) -> FoundRuns | None:
        """The partition as it is now, if its newest settled ledger does not say it all; no runs."""
        newest = self._newest(place)
        if newest is None:
            return None
        known = newest.high_watermark if newest.files is not None else 0
        look = self._page(place, max(known, newest.log_start))
        if look is None or not look.high_watermark:
            return None
        is_same = newest.files is not None and known == look.high_watermark
        return None if is_same and newest.layout_version == look.layout_version else look

    def _newest(self, place: Place) -> NewestSettled | None:
        try:
            return self._peer.newest_settled(place.topic_id, place.partition)
        except PeerRefused as error:
            if error.error in _GONE:
                return None
            raise

    def _page(self, place: Place, offset: int) -> FoundRuns | None:
        """None: the partition is gone. From the log start, if that is above the offset by now."""
        found = self._peer.find_batches(place.topic_id, place.partition, offset)
        if found.failure.error is ErrorName.OFFSET_OUT_OF_RANGE:
            found = self._peer.find_batches(place.topic_id, place.partition, found.log_start)
        if found.failure.error in _GONE:
            return None
        if found.failure:
            raise PeerRefused(found.failure)
        return found

    def _find(self, place: Place, pin: Pin, cluster_id: str) -> FoundPartition | None:
        """All runs of a partition; None if there is nothing to write. The last page has all runs up to its
        high watermark: they are of one step of the ledger."""
        look = self._look(place)
        if look is None:
            self.totals.unchanged += 1
            return None
        as_of = cluster_id, pin.entry, pin.started_ms, look.layout_version, look.log_start
        partition = FoundPartition(place, *as_of)
        offset = look.log_start
        while True:
            page = self._page(place, offset)
            if page is None:
                self.totals.unchanged += 1
                return None
            for run in page.runs:
                partition.runs.add(run)
            partition.high_watermark = page.high_watermark
            offset = partition.runs.next_offset
            if not page.runs or offset >= page.high_watermark:
                return partition
            if partition.runs.objects > MAX_JOB_OBJECTS:
                self._leave(
                    place,
                    f"more than {MAX_JOB_OBJECTS:,} objects; merge it first (dragoman compact segments)",
                )
                return None
            pin.keep()

    def _write(self, writer: Writer, wave: Sequence[FoundPartition], pin: Pin) -> None:
        for at, written in writer.write(wave, pin) if wave else ():
            self.totals.writes += 3 * (written.files is not None)
            self.totals.written_bytes += written.written_bytes
            self._name(wave[at], written, pin)
            pin.keep()
            self._say(self.totals)

    def _name(self, found: FoundPartition, written: WrittenSettled, pin: Pin) -> None:
        place = found.place
        if written.files is None:
            self._leave(place, written.error)
            return
        self._attempt += 1
        of_job = pin.job, self._attempt, place.topic_id, place.partition
        as_of = found.entry, found.high_watermark, found.layout_version
        result = self._peer.name_settled(NameSettled(*of_job, written.files, *as_of))
        if not isinstance(result, Refused):
            self.totals.named += 1
            self.totals.runs += written.runs
            self.totals.objects += written.objects
            return
        self.totals.orphans += 1
        if result.error is ErrorName.UNKNOWN_MEMBER_ID:
            raise PinLost
        if result.error in (ErrorName.KAFKA_STORAGE_ERROR, ErrorName.COORDINATOR_NOT_AVAILABLE):
            self._leave(place, f"{result.message}; run the job again")
        elif result.error not in _OURS_IS_OLD:
            raise JobError(f"the gateway refuses a settled ledger: {result.error}: {result.message}")

    def _leave(self, place: Place, reason: str) -> None:
        self.totals.left_partitions += 1
        if len(self.totals.left) < MAX_SHOWN:
            self.totals.left.append(f"{place.topic}-{place.partition}: {reason}")
