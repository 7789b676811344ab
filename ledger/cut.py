"""The rows of one entry, made step by step while later entries are applied.

Partitions are nearly all of a state. They are copied when their turn comes, or just before they change
(`LedgerState.cut`): the rows are those of the entry all the same, and no step takes long. So are the rows of
sections whose changes are announced (`ledger.machine.Section`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ledger.image import (
    Keys,
    everything_but_partitions,
    key_decoders,
    put_back,
    put_back_row,
    row_of,
    rows_of,
    rows_that_levels_change,
)
from ledger.machine import Section
from ledger.partitions.logs import PartitionRange
from ledger.partitions.rows import (
    PARTITION,
    PartitionCopy,
    blank_row,
    copy_changes,
    copy_whole,
    gone_chunk_rows,
    gone_row,
    is_narrow,
)
from ledger.registry import REGISTRY, Registry
from ledger.rows import Row
from ledger.state import Dirty, LedgerState

KEYS_AT_ONCE: Final = 1_000


class StateCut:
    """At most one of a state at a time: it ends with `rest`, or with `give_up`."""

    def __init__(self, state: LedgerState, *, whole: bool = False, registry: Registry = REGISTRY) -> None:
        """Rows that changed since the last cut, and count as clean from here on; `whole`: all rows."""
        assert state.is_whole and not state.leaving and state.cut is None
        self.applied = state.applied
        self._state = state
        self._whole = whole
        self._registry = registry
        self._level = state.feature_level
        self._narrow = is_narrow(state.feature_level)
        if not whole and state.image_level < state.feature_level:
            # What the image has is of an older version.
            state.dirty.add_all(rows_that_levels_change(state))
            state.image_level = state.feature_level
        if whole:
            self._dirty = Dirty()
            self._left = set(state.logs)
            self._dirty.created = {found.first_number: found for found in state.logs.ranges()}
        else:
            self._dirty, state.dirty = state.dirty, Dirty()
            self._left = self._dirty.pop(PARTITION, set())
        # `_left`: numbers of partitions that have not been copied.
        self._later: dict[int, tuple[Section, set[Any]]] = {
            section.number: (section, self._dirty.pop(section.number, set()))
            for section in registry.sections
            if section.announced
        }
        """Announced sections, and which of their rows are not made yet."""
        self._done: set[int] = set()
        self._ranges = state.logs.ranges()
        self._copies = deque[PartitionCopy]()
        """Copied, and not yet encoded."""
        self._rows: list[Row] = []
        self._of_ranges: list[Row] = []
        state.cut = self

    def begin(self) -> Iterator[None]:
        """The rows of what is neither a partition nor announced, in small steps. No entry may be applied
        until it has ended."""
        dirty: Keys = self._dirty
        if self._whole:
            everything = everything_but_partitions(self._state, self._registry)
            for number, (_, left) in self._later.items():
                keys = iter(everything[number])
                while some := tuple(islice(keys, KEYS_AT_ONCE)):
                    left.update(some)
                    yield
            dirty = {number: keys for number, keys in everything.items() if number not in self._later}
        for row in rows_of(self._state, dirty, self._registry):
            self._rows.append(row)
            yield

    def rest(self) -> Iterator[None]:
        """All other rows, in small steps, between which entries may be applied."""
        yield from self._partition_rows()
        for section, left in self._later.values():
            while left:
                self._make(section, left.pop())
                yield
        yield from self._range_rows()
        self._state.cut = None

    def _partition_rows(self) -> Iterator[None]:
        while self._left or self._copies:
            if not self._copies:
                self._copy(self._left.pop())
            while self._copies:
                # Not taken out before it is encoded, as it may have to be put back.
                for row in self._copies[0].rows():
                    self._rows.append(row)
                    yield
                self._copies.popleft()
            yield

    def _range_rows(self) -> Iterator[None]:
        done, deleted = self._done, self._dirty.deleted
        for found in self._dirty.created.values():
            if found.first_number not in deleted:
                for number in range(found.first_number, found.end):
                    if number not in done:
                        self._of_ranges.append(blank_row(found, number))
                    yield
        for found in deleted.values():
            for number in range(found.first_number, found.end):
                if number not in done:
                    self._of_ranges.append(gone_row(number))
                    yield

    def rows(self) -> list[Row]:
        """All rows, once `rest` has ended."""
        return self._rows + self._of_ranges

    def take(self) -> list[Row]:
        """Of a whole cut: the rows that were made and not taken yet."""
        assert self._whole
        rows, self._rows, self._of_ranges = self.rows(), [], []
        return rows

    @property
    def feature_level(self) -> int:
        """Of the entry."""
        return self._level

    def giving_up(self) -> Iterator[None]:
        """The rows could not be made or written: they are dirty again. In small steps, between which entries
        may be applied; they must be gone to the end before the next cut."""
        state = self._state
        if state.cut is self:
            state.cut = None
        if self._whole:
            return
        state.dirty.add_all(self._dirty)
        state.dirty[PARTITION] |= self._left
        for number, (_, left) in self._later.items():
            state.dirty[number] |= left
        decoders = key_decoders(self._registry)
        for row in self._rows:
            put_back_row(state, row, decoders)
            yield
        for copy in self._copies:
            for section, key in copy.row_keys():
                put_back(state, section, key)
                yield

    def give_up(self) -> None:
        """The same at once."""
        for _ in self.giving_up():
            pass

    def keep(self, number: int) -> None:
        if number in self._left:
            self._left.discard(number)
            self._copy(number)

    def keep_row(self, section: int, key: Any) -> None:
        announced, left = self._later[section]
        if key in left:
            left.discard(key)
            self._make(announced, key)

    def _make(self, section: Section, key: Any) -> None:
        try:
            self._rows.append(row_of(self._state, section, key))
        except BaseException:
            # It may have to be put back.
            self._later[section.number][1].add(key)
            raise

    def _copy(self, number: int) -> None:
        self._done.add(number)
        log = self._state.logs.get(number)
        if log is None:
            found = self._range_of(number)
            self._rows.append(blank_row(found, number) if found is not None else gone_row(number))
            self._rows += gone_chunk_rows(number, self._dirty.chunks.pop(number, ()))
        elif self._whole:
            self._copies.append(copy_whole(log, self._narrow))
        else:
            self._copies.append(copy_changes(log, self._dirty, self._narrow))

    def _range_of(self, number: int) -> PartitionRange | None:
        """As the topics were at the entry."""
        at = bisect_right(self._ranges, number, key=_first_number) - 1
        return self._ranges[at] if at >= 0 and number < self._ranges[at].end else None


def _first_number(found: PartitionRange) -> int:
    return found.first_number


def take_dirty_rows(state: LedgerState, registry: Registry = REGISTRY) -> list[Row]:
    """Rows that changed since the last cut, at once."""
    cut = StateCut(state, registry=registry)
    for steps in (cut.begin(), cut.rest()):
        for _ in steps:
            pass
    return sorted(cut.rows(), key=_section)


def _section(row: Row) -> int:
    return row.section
