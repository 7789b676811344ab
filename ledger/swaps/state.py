"""Pins of jobs, and the first results of swaps, which are kept for repeats."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from ledger.objects.state import NEVER_MS
from ledger.types import TopicId

MAX_RESULTS: Final = 10_000
MAX_PINS: Final = 100

Place: TypeAlias = tuple[int, int]
"""(entry, partition number) of a swap: there is one of a partition in an entry at most."""


class Pin(NamedTuple):
    """The number of the entry that holds it, and its time."""

    entry: int
    started_ms: int


class Pins(dict[bytes, Pin]):
    """By job. Part of the state of a shard (`LedgerState.part`)."""

    @property
    def oldest_ms(self) -> int:
        return min([pin.started_ms for pin in self.values()], default=NEVER_MS)


class SwapKey(NamedTuple):
    """A request with the same is a repeat."""

    job: bytes
    attempt: int
    topic_id: TopicId
    partition: int
    first: int
    last: int
    layout_version: int
    """Before the swap."""


class KeptResult(NamedTuple):
    """`started_ms`: of the job's pin, or of the swap if it had none. A floor above it ends the result."""

    key: SwapKey
    log_start: int
    started_ms: int


class SwapResults:
    """Part of the state of a shard (`LedgerState.part`)"""

    __slots__ = ("_in_order", "_places", "kept")

    def __init__(self) -> None:
        self.kept: dict[Place, KeptResult] = {}
        self._places: dict[SwapKey, Place] = {}
        self._in_order: list[Place] = []

    def of(self, key: SwapKey) -> KeptResult | None:
        place = self._places.get(key)
        return self.kept[place] if place is not None else None

    def overflowing(self) -> list[Place]:
        """Those that are given up for one more: the oldest."""
        return self._in_order[: max(len(self._in_order) + 1 - MAX_RESULTS, 0)]

    def of_job(self, job: bytes) -> list[Place]:
        return [place for place, kept in self.kept.items() if kept.key.job == job]

    def below(self, floor_ms: int) -> list[Place]:
        """Those that a floor of this time ends."""
        return [place for place, kept in self.kept.items() if kept.started_ms < floor_ms]

    def keep(self, place: Place, result: KeptResult) -> None:
        self.kept[place] = result
        self._places[result.key] = place
        # One after the other, but for those of the same entry.
        insort(self._in_order, place)

    def drop(self, places: Iterable[Place]) -> None:
        for place in places:
            del self._places[self.kept.pop(place).key]
            del self._in_order[bisect_left(self._in_order, place)]


class SwapsOfEntry:
    """What was decided for the entry that is being filled (`Overlay.part`)."""

    def __init__(self) -> None:
        self.results: dict[SwapKey, int] = {}
        """Log start by swap."""
        self.pins: dict[bytes, Pin | None] = {}
        """None: released."""
