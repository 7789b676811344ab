"""Objects: which hold live runs, which are garbage, and below which age nothing new may come."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Final, NamedTuple

from ledger.keys import created_ms, inline_name, is_placed
from ledger.numbered import ByNumber
from ledger.objects.inline_runs import InlineRuns
from ledger.objects.spans import CreatedNumbers, CreationTimes
from ledger.objects.uploads import ObjectKind, PendingDraft, Upload, Uploader, Uploaders
from ledger.records import FIRST_LEVEL

DATA_STORE = 0
"""The number of the shard's own data store."""
ADOPTED_STORE = 1
"""Of all other places: the locator says which (`ledger.keys.adopted_place`)."""


class Origin(NamedTuple):
    """Where an object comes from. Journals of feature level 1 say nothing of it but the locator."""

    kind: int
    store: int
    created_ms: int
    uploader: Uploader | None


def origin_of(locator: str) -> Origin:
    """Of an object of which only the locator is known: a WAL object, as old as its key says. ValueError if it
    carries no creation time."""
    return Origin(ObjectKind.WAL, DATA_STORE, created_ms(locator), None)


class ObjectState:
    """One object that a commit has named. `starts` and `bases` are the results for repeats of commits."""

    __slots__ = (
        "bases",
        "closed_ms",
        "created_ms",
        "kind",
        "live_runs",
        "locator",
        "number",
        "size",
        "starts",
        "store",
        "uploader",
    )

    def __init__(self, number: int, locator: str, origin: Origin | None = None) -> None:
        origin = origin or origin_of(locator)
        self.number = number
        self.locator = locator
        self.kind, self.store, self.created_ms, self.uploader = origin
        self.size = 0
        self.live_runs = 0
        self.closed_ms = -1
        """Entry time at which the last live run went, or -1 while some live."""
        self.starts = array("I")
        self.bases = array("q")

    @property
    def closed(self) -> bool:
        return self.closed_ms >= 0

    def remember(self, start: int, base_offset: int) -> None:
        """Keep the result of the batch at `start`. Commits come in draft order, so this appends."""
        if not self.starts or start > self.starts[-1]:
            self.starts.append(start)
            self.bases.append(base_offset)
            return
        at = bisect_left(self.starts, start)
        self.starts.insert(at, start)
        self.bases.insert(at, base_offset)

    def remember_all(self, starts: Sequence[int], base_offsets: Sequence[int]) -> None:
        """The same for the batches of one commit."""
        follows = not self.starts or starts[0] > self.starts[-1]
        if follows and all(map(lt, starts, islice(starts, 1, None))):
            self.starts.extend(starts)
            self.bases.extend(base_offsets)
            return
        for start, base_offset in zip(starts, base_offsets, strict=True):
            self.remember(start, base_offset)

    def drop_results(self, first: int, last: int) -> None:
        """Forget the results of the batches that start from `first` to `last`."""
        begin, end = bisect_left(self.starts, first), bisect_right(self.starts, last)
        if end - begin == len(self.starts):
            self.forget_results()
            return
        del self.starts[begin:end]
        del self.bases[begin:end]

    def forget_results(self) -> None:
        # Arrays keep the memory of few elements that are deleted.
        self.starts, self.bases = array("I"), array("q")

    def base_offset_at(self, start: int) -> int | None:
        """Base offset of the batch at `start`, if it was committed from this object before."""
        at = bisect_left(self.starts, start)
        return self.bases[at] if at < len(self.starts) and self.starts[at] == start else None


NEVER_MS: Final = 2**63 - 1
_MAX_NUMBER_OF_LEVEL_1 = 2**32 - 1
_MAX_NUMBER = 2**48 - 1


def max_object_number(feature_level: int) -> int:
    """Runs name objects by numbers, which are never given again. Rows of level 1 have 32 bits for them."""
    return _MAX_NUMBER_OF_LEVEL_1 if feature_level == FIRST_LEVEL else _MAX_NUMBER


class Objects:
    """The object table of a shard."""

    def __init__(self) -> None:
        self.by_number: dict[int, ObjectState] = {}
        self.by_locator: dict[str, ObjectState] = {}
        self.next_number = 0
        self.floor_ms = 0
        self.pinned_ms = NEVER_MS
        """Entry time at which the oldest pin was taken. No floor passes it, and objects that were closed from
        then on keep their bytes."""
        self.garbage = ByNumber[ObjectState]()
        self.segments = 0
        """How many of the objects are segments."""
        self.inline: dict[int, ObjectState] = {}
        """Those of them that are inside of entries, in the order of these."""
        self.lost: dict[int, ObjectState] = {}
        """Those that were inside of entries which a restore has not found: the journal does not have these.
        They are read as any object that is missing, and nothing waits for them."""
        self.inline_runs = InlineRuns()
        """Of `inline`."""
        self.inline_bytes = 0
        """Of `inline`."""
        self.uploaders = Uploaders()
        self._created = CreationTimes()
        """Of those that no entry and no log file has, and that are above the floor."""
        self._with_results = CreatedNumbers()
        self._kept: list[tuple[int, int]] = []

    def locator(self, number: int) -> str:
        """KeyError if the object is gone from the table."""
        return self.by_number[number].locator

    def register(self, locator: str, origin: Origin | None = None) -> ObjectState:
        """The object of this locator, new if it was not known."""
        known = self.by_locator.get(locator)
        if known is not None:
            return known
        fresh = ObjectState(self.next_number, locator, origin)
        if fresh.uploader is not None:
            # Objects of one uploader share it.
            fresh.uploader = self.uploaders.shared(fresh.uploader)
        self.next_number += 1
        self.put_back(fresh)
        return fresh

    def put_back(self, state: ObjectState) -> None:
        """Add an object as it is: new, or read from an image."""
        self.by_number[state.number] = state
        self.by_locator[state.locator] = state
        self.segments += state.kind == ObjectKind.SEGMENT
        if state.kind == ObjectKind.INLINE:
            self.inline[state.number] = state
            self.inline_bytes += state.size
        if state.created_ms >= self.floor_ms and not is_placed(state.locator):
            self._created.add(state.created_ms)
        if state.starts:
            self._with_results.add(state.number, state.created_ms)
        if state.closed:
            self.garbage[state.number] = state

    def remember(self, state: ObjectState, starts: Sequence[int], base_offsets: Sequence[int]) -> None:
        """Keep the results of the batches of one commit, until they are settled or below the floor."""
        state.remember_all(starts, base_offsets)
        self._with_results.add(state.number, state.created_ms)

    def drop_results(self, state: ObjectState, draft: PendingDraft) -> None:
        """Forget those of this draft, which is settled."""
        state.drop_results(draft.first, draft.last)
        if not state.starts:
            self._with_results.discard(state.number, state.created_ms)

    def release(self, numbers: Iterable[int], now_ms: int) -> set[int]:
        """One live run fewer for each number given; those that lose their last are closed. Returns all
        objects touched."""
        touched: set[int] = set()
        for number in numbers:
            state = self.by_number[number]
            state.live_runs -= 1
            touched.add(number)
        for number in touched:
            self.close_if_empty(self.by_number[number], now_ms)
        return touched

    def close_if_empty(self, state: ObjectState, now_ms: int) -> None:
        if state.kind == ObjectKind.INLINE and state.live_runs == 0:
            # Its bytes are deleted with its entry, when the journal is pruned.
            self.forget((state.number,))
        elif state.live_runs == 0 and not state.closed:
            state.closed_ms = now_ms
            self.garbage[state.number] = state

    def grow(self, state: ObjectState, size: int) -> None:
        """It gets runs, up to this size. A log file may have lost its last one while the log went on in it:
        then it is open again."""
        if state.kind == ObjectKind.INLINE:
            self.inline_bytes += max(0, size - state.size)
        state.size = max(state.size, size)
        if state.closed:
            state.closed_ms = -1
            self.garbage.pop(state.number, None)

    def forget(self, numbers: Iterable[int]) -> None:
        """The bytes of these are gone."""
        for number in numbers:
            state = self.by_number.pop(number, None)
            if state is not None:
                del self.by_locator[state.locator]
                self.segments -= state.kind == ObjectKind.SEGMENT
                self.garbage.pop(number, None)
                self.lost.pop(number, None)
                self._leave_entry(state)
                self._with_results.discard(number, state.created_ms)

    def lose_entries(self, end: int) -> None:
        """A restore has put no entry below `end` back: what is still inside of them is nowhere. The caller
        finds which runs are left."""
        for stored in list(self.inline.values()):
            name = inline_name(stored.locator)
            if name is not None and name.entry < end:
                self.lost[stored.number] = stored
                self._leave_entry(stored)

    def find_entries(self) -> None:
        """Another restore may find what earlier ones have not. The caller finds its runs."""
        lost, self.lost = self.lost, {}
        self.inline_bytes += sum(stored.size for stored in lost.values())
        self.inline = lost | self.inline

    def _leave_entry(self, state: ObjectState) -> None:
        if self.inline.pop(state.number, None) is None:
            return
        self.inline_bytes -= state.size

    @property
    def oldest_inline(self) -> ObjectState | None:
        """Of those inside of entries, the one in the lowest entry."""
        return next(iter(self.inline.values()), None)

    def first_inline_entry(self, start: int = 0) -> int | None:
        """The lowest number from `start` on of an entry with a live run inside; None if there is none."""
        for stored in self.inline.values():
            name = inline_name(stored.locator)
            if name is not None and name.entry >= start:
                return name.entry
        return None

    def passes(self, floor_ms: int) -> bool:
        """Whether a floor that is raised to this passes an object or an uploader: it changes nothing else."""
        if self._created.any_within(self.floor_ms, floor_ms):
            return True
        return any(known.newest_ms < floor_ms for known in self.uploaders.values())

    def raise_floor(self, floor_ms: int) -> list[ObjectState]:
        """Nothing older may be committed. Returns the objects that are older and have results, which the
        caller makes them forget."""
        self.floor_ms = max(self.floor_ms, floor_ms)
        self._created.drop_below(self.floor_ms)
        return [self.by_number[number] for number in self._with_results.take_below(self.floor_ms)]

    def uploaded(
        self, upload: Upload, stored: ObjectState, first: int, last: int, entry_time_ms: int
    ) -> list[tuple[ObjectState, PendingDraft]]:
        """Note a committed draft whose batches start from `first` to `last`. Returns the drafts that are
        settled, with their objects, which the caller makes drop their results."""
        pending = PendingDraft(upload.draft, stored.number, first, last)
        newest_ms = max(stored.created_ms, entry_time_ms)
        return [
            (known, settled)
            for settled in self.uploaders.committed(upload, newest_ms, pending)
            if (known := self.by_number.get(settled.object_number)) is not None
        ]

    def keep(self, from_ms: int, to_ms: int) -> None:
        """Never delete the bytes of objects that were created in this time, both ends included."""
        self._kept.append((from_ms, to_ms))

    def keeps(self, created_ms: int) -> bool:
        """Whether the bytes of an object of this creation time stay for ever (see LedgerRestored)."""
        return any(from_ms <= created_ms <= to_ms for from_ms, to_ms in self._kept)

    def is_due(self, closed: ObjectState, now_ms: int, grace_ms: int) -> bool:
        """Whether the grace of this garbage is over, no pin keeps it, and it is below the floor (so that no
        repeat may come) unless no commit into it is ever repeated."""
        is_below = closed.created_ms < self.floor_ms or is_placed(closed.locator)
        is_over = closed.closed_ms + grace_ms <= now_ms and is_below
        return is_over and closed.closed_ms < self.pinned_ms and not self.keeps(closed.created_ms)

    def due_garbage(self, now_ms: int, grace_ms: int) -> Iterator[ObjectState]:
        """All of it at once, for callers that may take as long as there is garbage."""
        return (stored for stored in self.garbage.values() if self.is_due(stored, now_ms, grace_ms))
