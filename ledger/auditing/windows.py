"""The readable runs of a ledger by object, some objects at a time.

Objects are read from front to back, but a ledger has its runs by partition. To sort all of them would take
more memory than the ledger itself: so its runs are gone through once for each window of objects.
"""

from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from ledger.adoption.state import Adoptions
from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import REPORT, RESTORE_METADATA, Damage, DamageKind, Place, Report
from ledger.auditing.frames import PlaceOf
from ledger.auditing.objects import ObjectUse
from ledger.partitions.state import PartitionLog
from ledger.state import LedgerState

WINDOW_RUNS: Final = 100_000
"""About 20 MB."""


class ObjectRuns(NamedTuple):
    """One object with its readable runs, ascending by start."""

    number: int
    locator: str
    runs: Sequence[AuditedRun]


def places_of(state: LedgerState) -> PlaceOf:
    """The topic and index of each partition that has a run, by its number."""
    places: dict[int, Place] = {}

    def place_of(number: int) -> Place:
        place = places.get(number)
        if place is None:
            log = state.logs[number]
            topic = state.topics.by_id[log.topic_id]
            compacts = "compact" in topic.configs.get("cleanup.policy", "")
            # KafScale's segments may have gaps between them, which stay when they are merged.
            compacts = compacts or log.topic_id in state.part(Adoptions)
            place = places[number] = Place(topic.name, log.topic_id, log.index, compacts)
        return place

    return place_of


def objects_with_runs(
    state: LedgerState,
    uses: dict[int, ObjectUse],
    partitions: Container[int] | None = None,
    window_runs: int = WINDOW_RUNS,
) -> Iterator[ObjectRuns]:
    """All objects with readable runs, ascending by number; or those of `partitions` (their numbers) alone.
    Objects that the ledger does not have are left out."""
    logs = [
        log
        for number, log in state.logs.items()
        if not log.deleted and (partitions is None or number in partitions)
    ]
    for first, last in _windows(state, uses, window_runs):
        runs = sorted(run for log in logs for run in _runs_in(log, first, last))
        for number, group in groupby(runs, key=attrgetter("object_number")):
            if number in state.objects.by_number:
                yield ObjectRuns(number, state.objects.locator(number), list(group))


def without_overlaps(
    locator: str, runs: Sequence[AuditedRun], place_of: PlaceOf, report: Report
) -> list[AuditedRun]:
    """The runs of an object, but for those that begin within another: these are reported."""
    kept: list[AuditedRun] = []
    for run in runs:
        if kept and run.start < kept[-1].end:
            topic, _, partition, _ = place_of(run.number)
            other = place_of(kept[-1].number)
            what = (
                f"offsets {kept[-1].base} to {kept[-1].last} of {other.topic}-{other.partition} have the "
                "same bytes"
            )
            remedy = f"{RESTORE_METADATA}; {REPORT}"
            offsets = run.base, run.last
            report(Damage(DamageKind.OVERLAP, what, remedy, topic, partition, *offsets, locator, run.start))
        else:
            kept.append(run)
    return kept


def _windows(state: LedgerState, uses: dict[int, ObjectUse], window_runs: int) -> Iterator[tuple[int, int]]:
    """Object numbers, from the first to the last, that have about so many readable runs together."""
    first, last, count = -1, -1, 0
    for number in sorted(uses):
        readable = uses[number].readable
        if first < 0:
            first = number
        elif count + readable > window_runs:
            yield first, last
            first, count = number, 0
        last, count = number, count + readable
    if first >= 0:
        yield first, last


def _runs_in(log: PartitionLog, first: int, last: int) -> Iterator[AuditedRun]:
    """The readable runs of a partition in objects from number `first` to `last`."""
    for chunk in log.chunks:
        numbers = chunk.object_numbers(chunk.head, len(chunk))
        if not numbers or max(numbers) < first or min(numbers) > last or chunk.last < log.log_start:
            continue
        for run in log.runs_from(max(log.log_start, chunk.row(chunk.head)[1])):
            if run.last > chunk.last:
                break
            if first <= run.object_number <= last:
                yield AuditedRun(
                    run.object_number, run.start, run.size, run.base, run.last, log.number, run.dense
                )
