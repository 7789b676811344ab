"""The merge job: finds the runs of each partition, reads them, writes segments, and has the gateway put those
in their place.

It changes nothing but by a swap, which is one journal entry: a job that ends at any moment leaves at most
segments that nothing names, which the gateway deletes as orphans. The next job merges what is left. Any
number of jobs may run at once: of two swaps of the same runs the second is refused, and planned again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from ledger.merging.plan import MergePolicy
from pipeline.messages import TopicDescription
from pipeline.peer import PeerRefused, PeerUnavailable
from pipeline.pins import Pin, PinLost, Pinner
from pipeline.planning import Look, PartitionMerge, Place, PlannedTask, Rounds, RunFinder
from pipeline.rounds import Carrier, Swapper, Swaps
from pipeline.rounds import JobError as JobError
from pipeline.rounds import MergeTotals as MergeTotals

WINDOW: Final = 16
"""Partitions that are merged together, as they share objects."""
ROUND_BYTES: Final = 16 * 1024 * 1024
"""Of runs that are held in memory at a time. With what becomes of them it is about three times as much."""
ROUND_RUNS: Final = 8_000
MAX_RUN_BYTES: Final = 2 * ROUND_BYTES
"""A larger run is left as it is: it gains nothing, and takes much memory."""
TRIES: Final = 3
SLOW: Final = (
    "the gateway released the job's pin before it was renewed, three times: is this machine or the store "
    "overloaded? Run the job again"
)


class Peer(RunFinder, Pinner, Swapper, Protocol):
    """The gateway, as `pipeline.peer.PeerClient` speaks to it. Its methods raise PeerUnavailable and
    PeerRefused."""

    def topics(self) -> Iterator[TopicDescription]: ...


@dataclass(frozen=True, slots=True)
class Engine:
    """What carries the tasks of a job out, and how much of them it takes at a time. The defaults are for one
    process with little memory."""

    carrier: Carrier
    window: int = WINDOW
    round_bytes: int = ROUND_BYTES
    round_runs: int = ROUND_RUNS
    max_run_bytes: int = MAX_RUN_BYTES


@dataclass(frozen=True, slots=True)
class Host:
    """The clock and the random values of a job."""

    elapsed_s: Callable[[], float]
    """Monotonic."""
    random: Callable[[int], bytes]


class PlannedTopic(NamedTuple):
    """What a job would merge of a topic."""

    topic: str
    look: Look


def places_of(peer: Peer, topics: Sequence[str] = ()) -> Iterator[Place]:
    """The partitions of these topics, or of all. Errors: JobError for a name that no topic has, before the
    first one."""
    if topics:
        known = {topic.name: topic for topic in peer.topics() if topic.name in topics}
        unknown = sorted(set(topics) - set(known))
        if unknown:
            raise JobError(f"there is no topic {', '.join(unknown)}; dragoman topics list shows all")
        described: Iterable[TopicDescription] = known.values()
    else:
        described = peer.topics()
    for topic in described:
        for partition in range(topic.partitions):
            yield Place(topic.topic_id, topic.name, partition)


class MergeJob:
    """One job, from its pin to its end. For one thread."""

    def __init__(
        self,
        peer: Peer,
        engine: Engine | None,
        host: Host,
        policy: MergePolicy | None = None,
        say: Callable[[MergeTotals], None] = lambda _: None,
    ) -> None:
        """Without an `engine` a job can only plan. `say` is called whenever something was done, so that a
        caller can tell a slow job from one that hangs."""
        self._peer = peer
        self._engine = engine
        self._host = host
        self._policy = policy or MergePolicy(task_bytes=ROUND_BYTES)
        self._say = say
        self.totals = MergeTotals()

    def plan(self, topics: Sequence[str] = ()) -> Iterator[PlannedTopic]:
        """What would be merged of each topic. Nothing but the ledger is read, and nothing is written."""
        try:
            with self._pinned() as pin:
                for topic, places in groupby(places_of(self._peer, topics), lambda place: place.topic):
                    yield PlannedTopic(topic, self._look(places, pin))
        except PinLost:
            raise JobError(SLOW) from None

    def _look(self, places: Iterable[Place], pin: Pin) -> Look:
        look = Look()
        for place in places:
            merging = PartitionMerge(place, self._policy, pin.started_ms)
            while merging.next_task(self._peer) is not None:
                pin.keep()
            look.add(merging.look)
            self._say(self.totals)
        return look

    def run(self, topics: Sequence[str] = ()) -> MergeTotals:
        """Merge what is to be merged.

        Errors: JobError; PeerUnavailable, PeerRefused; StoreError.
        """
        for _ in range(TRIES):
            try:
                with self._pinned() as pin:
                    self._merge(places_of(self._peer, topics), pin)
                return self.totals
            except PinLost:
                # What was swapped so far stays.
                self.totals.again += 1
        raise JobError(SLOW)

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

    def _merge(self, places: Iterable[Place], pin: Pin) -> None:
        engine = self._engine
        if engine is None:
            raise ValueError("a job without an engine can only plan")
        swaps = Swaps(self._peer, pin, self.totals)
        merges = (PartitionMerge(place, self._policy, pin.started_ms) for place in places)
        rounds = Rounds(merges, self._peer, engine.window)
        while (planned := rounds.next(engine.round_bytes, engine.round_runs)) is not None:
            fitting = [each for each in planned if self._fits(each, engine.max_run_bytes)]
            engine.carrier.carry_out(fitting, swaps)
            self.totals.partitions = rounds.ended
            self._say(self.totals)
            pin.keep()
        self.totals.partitions = rounds.ended

    def _fits(self, planned: PlannedTask, max_run_bytes: int) -> bool:
        fits = planned.task.size <= max_run_bytes
        if not fits:
            self.totals.left_runs += len(planned.task.runs)
        return fits
