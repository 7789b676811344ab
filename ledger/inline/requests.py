"""Requests about batches inside of journal entries, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.requests import SMALL, UTF8
from ledger.types import TopicId

MAX_MOVES: Final = 100
"""A request moves at most so many ranges."""
MAX_MOVED_RUNS: Final = 2_000
"""And takes away at most so many runs."""
MOVE_BYTES: Final = 28
MOVED_RUN_BYTES: Final = 32
"""Of a range and of a run in the journal."""


class MovedRun(NamedTuple):
    """Offsets [base, last] are bytes [start, start + size) of the object. `max_timestamp`: as that of the
    runs that it is made of (`ledger.partitions.runs.later_timestamp`)."""

    start: int
    size: int
    base: int
    last: int
    max_timestamp: int


class RangeMove(NamedTuple):
    """The `replaced` live runs of a partition with offsets from `first` to `last`, which are all inside of
    entries, and the runs that take their place: in offset order, without gaps."""

    topic_id: TopicId
    partition: int
    first: int
    last: int
    replaced: int
    runs: Sequence[MovedRun]


@dataclass(frozen=True, slots=True)
class MoveInline:
    """Batches that are inside of entries are now in this WAL object too, unchanged: it takes their place.

    The object is durable, and nothing else names it. Idempotent: what was moved or deleted since is left out,
    and so is a range of which the runs are others by now. Layout versions stay, but for the first: no plan of
    a job has runs that are inside of entries. At most MAX_MOVES ranges and MAX_MOVED_RUNS runs, unless there
    is one range.

    The result is `Done`, with the number of ranges that were moved; or `StaleObject` if the object is below
    the orphan floor or closed: it is stored again under a new key.
    """

    locator: str
    object_bytes: int
    moves: Sequence[RangeMove]

    @property
    def weight(self) -> int:
        runs = sum(len(move.runs) for move in self.moves)
        named = 2 * SMALL + UTF8 * len(self.locator)
        return named + MOVE_BYTES * len(self.moves) + MOVED_RUN_BYTES * runs

    @property
    def work(self) -> int:
        return 10 * len(self.moves)
