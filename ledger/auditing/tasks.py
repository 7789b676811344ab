"""One object of an audit, as an engine of any kind carries it out: a task says what to check, and its reading
yields what to read from the store and is sent the bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import Damage, DamageKind, Place, Report
from ledger.auditing.frames import PIECE_BYTES, LogFileCheck, ObjectGone, Reading, WalObjectCheck
from ledger.auditing.markers import MergedMarker
from ledger.auditing.objects import lost_runs
from ledger.auditing.segments import SegmentCheck
from ledger.auditing.windows import without_overlaps
from ledger.keys import is_adopted, is_log, is_segment
from ledger.types import Buffer, Position

MAX_DAMAGES: Final = 10_000
"""Named one by one; more are counted."""


class ObjectTask(NamedTuple):
    """An object with its readable runs, ascending by start. `size`: as the store has it in its list, None if
    it has not. `places`: of the runs' partitions, by number. `markers`: that must be in its runs, if it is a
    segment; ascending."""

    locator: str
    size: int | None
    runs: Sequence[AuditedRun]
    places: Mapping[int, Place]
    markers: Sequence[MergedMarker] = ()


@dataclass(slots=True)
class ObjectResult:
    """What was found in one object. `unnamed`: damages beyond MAX_DAMAGES, by kind. `error`: why the store
    could not be read, so that nothing is known."""

    runs: int = 0
    batches: int = 0
    records: int = 0
    read_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    unnamed: dict[DamageKind, int] = field(default_factory=dict)
    error: str = ""

    def report(self, damage: Damage) -> None:
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(damage)
        else:
            self.unnamed[damage.kind] = self.unnamed.get(damage.kind, 0) + 1


def audit_object(task: ObjectTask, result: ObjectResult) -> Reading[None]:
    """Check everything that a fetch can reach in it."""
    place_of = task.places.__getitem__
    result.runs = len(task.runs)
    runs = without_overlaps(task.locator, task.runs, place_of, result.report)
    if task.size is None:
        _lose(task, task.runs, None, result)
        return
    short = [run for run in runs if run.end > task.size]
    if short:
        _lose(task, short, task.size, result)
        runs = [run for run in runs if run.end <= task.size]

    def report(damage: Damage) -> None:
        # Of a short object it is known already that its last frame is cut.
        if not (short and damage.kind is DamageKind.DAMAGED_FRAME):
            result.report(damage)

    check = _check_of(task, task.size, runs, report)
    try:
        yield from _in_pieces(check, task.size, result)
    except ObjectGone:
        _lose(task, runs, None, result)
    result.batches, result.records = check.checked.batches, check.checked.records


def _check_of(
    task: ObjectTask, size: int, runs: Sequence[AuditedRun], report: Report
) -> WalObjectCheck | SegmentCheck:
    """What checks an object, by its kind."""
    locator, place_of = task.locator, task.places.__getitem__
    if is_segment(locator) or is_adopted(locator):
        return SegmentCheck(locator, size, runs, place_of, report, task.markers)
    check = LogFileCheck if is_log(locator) else WalObjectCheck
    return check(locator, size, runs, place_of, report)


def _lose(task: ObjectTask, runs: Sequence[AuditedRun], size: int | None, result: ObjectResult) -> None:
    for damage in lost_runs(task.locator, runs, size, task.places.__getitem__):
        result.report(damage)


def _in_pieces(check: WalObjectCheck | SegmentCheck, size: int, result: ObjectResult) -> Reading[None]:
    """What the check reads, by few calls of the store."""
    window, reading = _Window(check.locator, size, result), check.reading()
    try:
        wanted = next(reading)
    except StopIteration:
        return
    while True:
        data = yield from window.read(wanted)
        try:
            wanted = reading.send(data)
        except StopIteration:
            return


class _Window:
    """Reads an object from front to back with few calls: small pieces are cut out of the last one."""

    def __init__(self, locator: str, size: int, result: ObjectResult) -> None:
        self._locator = locator
        self._size = size
        self._result = result
        self._start = 0
        self._data = memoryview(b"")

    def read(self, wanted: Position) -> Reading[Buffer | None]:
        """None if the store does not have these bytes. What is not of the object is read by itself."""
        if wanted.locator != self._locator:
            return (yield from self._read(wanted))
        begin = wanted.start - self._start
        if begin >= 0 and begin + wanted.size <= len(self._data):
            return self._data[begin : begin + wanted.size]
        start = wanted.start - wanted.start % PIECE_BYTES
        if wanted.start + wanted.size > start + PIECE_BYTES:
            start = wanted.start
        size = min(max(PIECE_BYTES, wanted.size), self._size - start)
        data = yield from self._read(Position(wanted.locator, start, size))
        if data is None:
            return None
        self._start, self._data = start, memoryview(data)
        return self._data[wanted.start - start : wanted.start - start + wanted.size]

    def _read(self, wanted: Position) -> Reading[Buffer | None]:
        data = yield wanted
        self._result.read_bytes += 0 if data is None else len(data)
        return data
