"""What a move of a ledger to other stores copies, and what of it cannot be copied whole."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gateway.offline.backup import all_objects, is_lone_index
from gateway.offline.doctor import readable_runs
from ledger.batch.header import BatchError, verify_crc, walk
from ledger.keys import is_adopted, settled_keys_of
from ledger.partitions.markers import is_marker
from ledger.ports import SegmentStore
from ledger.settled.state import SettledLedgers
from ledger.state import LedgerState
from ledger.types import Buffer, Position


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Batches of one partition, [start, start + size) of an object; `records` -1: not to be counted."""

    start: int
    size: int
    records: int


class RunColumns:
    """The readable runs of one object, packed: a ledger may have millions of them."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = array("q")

    def add(self, run: LiveRun) -> None:
        self._columns.extend((run.start, run.size, run.records))

    def __iter__(self) -> Iterator[LiveRun]:
        columns = iter(self._columns)
        return (LiveRun(*row) for row in zip(columns, columns, columns, strict=True))

    def __len__(self) -> int:
        return len(self._columns) // 3


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """An object to copy, with its size in the store that it is in."""

    locator: str
    size: int
    runs: RunColumns
    others: Sequence[Position] = ()
    """Its other files, whole, where the ledger knows how large they are."""


@dataclass(slots=True)
class MovePlan:
    """`objects` ascending by locator. `missing`: locators that the ledger names and the store does not have.
    `left`: objects that nothing needs, which stay where they are."""

    objects: list[PlannedObject] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    kept: int = 0
    """Of the objects, those that no entry names and that may hold acknowledged records (after a restore)."""
    left: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(planned.size for planned in self.objects)


async def plan_move(state: LedgerState, segments: SegmentStore) -> MovePlan:
    """Every live object, and those that are kept for ever."""
    runs, others = _runs_by_object(state), _files_of_settled(state)
    plan, stored = MovePlan(), set[str]()
    async for found in all_objects(segments):
        if is_lone_index(found):
            continue
        stored.add(found.locator)
        known = state.objects.by_locator.get(found.locator)
        is_kept = state.objects.keeps(found.created_ms)
        if is_kept or (known is not None and not known.closed):
            number = -1 if known is None else known.number
            columns, files = runs.get(number, RunColumns()), others.get(found.locator, ())
            plan.objects.append(PlannedObject(found.locator, found.size, columns, files))
            plan.kept += is_kept and known is None
        else:
            plan.left += 1
    named = {state.objects.locator(number) for number in runs} | others.keys()
    # Adopted segments stay where they are.
    plan.missing = sorted(locator for locator in named if locator not in stored and not is_adopted(locator))
    return plan


def _files_of_settled(state: LedgerState) -> dict[str, Sequence[Position]]:
    """By the locator of each settled ledger that the journal names, its other files."""
    found: dict[str, Sequence[Position]] = {}
    for known in state.part(SettledLedgers).values():
        keys = settled_keys_of(state.objects.locator(known.object_number))
        index = Position(keys.index_key, 0, known.index_bytes)
        found[keys.log_key] = index, Position(keys.meta_key, 0, known.meta_bytes)
    return found


def _runs_by_object(state: LedgerState) -> dict[int, RunColumns]:
    by_object: dict[int, RunColumns] = {}
    for log in state.logs.values():
        for run in readable_runs(log):
            if is_marker(run):
                continue
            columns = by_object.get(run.object_number)
            if columns is None:
                columns = by_object[run.object_number] = RunColumns()
            columns.add(LiveRun(run.start, run.size, run.last - run.base + 1 if run.dense else -1))
    return by_object


def damage_in(data: Buffer, runs: RunColumns) -> str:
    """What is wrong with the bytes of the first damaged run of an object; empty if all are as written."""
    view = memoryview(data)
    for run in runs:
        wrong = _wrong_with(view, run)
        if wrong:
            return wrong
    return ""


def _wrong_with(view: memoryview, run: LiveRun) -> str:
    end = run.start + run.size
    if len(view) < end:
        return f"it has {len(view)} of {end} bytes"
    piece = view[run.start : end]
    records = 0
    try:
        for batch in walk(piece):
            records += batch.last_offset_delta + 1
            if not verify_crc(piece[batch.position : batch.position + batch.size_bytes]):
                return f"the batch at byte {run.start + batch.position} does not match its CRC"
    except BatchError as error:
        return f"at byte {run.start}: {error.reason}"
    if run.records not in (-1, records):
        return f"{records} of {run.records} records are at byte {run.start}"
    return ""
