"""Every object accounted for: live, garbage, new, kept after a restore, or stray."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from ledger.auditing.batches import AuditedRun
from ledger.auditing.damages import PUT_BACK, REPORT, RESTORE_METADATA, Damage, DamageKind
from ledger.auditing.frames import PlaceOf
from ledger.objects.state import ADOPTED_STORE
from ledger.objects.uploads import ObjectKind
from ledger.partitions.markers import is_marker
from ledger.state import LedgerState
from ledger.types import StoredObject

STRAY_REMEDY: Final = (
    "a gateway deletes it when it next looks for such objects; or run `dragoman audit --repair`"
)


@dataclass(slots=True)
class ObjectUse:
    """How the runs of the ledger use one object: `readable` of them can be fetched, and `end` is where the
    last one of those ends."""

    runs: int = 0
    readable: int = 0
    end: int = 0


def object_uses(state: LedgerState) -> dict[int, ObjectUse]:
    """By object number, of all objects that have a run."""
    uses: dict[int, ObjectUse] = {}
    for log in state.logs.values():
        log_start = log.high_watermark if log.deleted else log.log_start
        for run in log.runs():
            if is_marker(run):
                continue
            use = uses.get(run.object_number)
            if use is None:
                use = uses[run.object_number] = ObjectUse()
            use.runs += 1
            if run.last >= log_start:
                use.readable += 1
                use.end = max(use.end, run.start + run.size)
    return uses


def check_table(state: LedgerState, uses: dict[int, ObjectUse]) -> Iterator[Damage]:
    """The object table against the runs: every object that is used is in it, and counts its runs."""
    by_number = state.objects.by_number
    for number in uses.keys() - by_number.keys():
        what = f"{uses[number].runs} runs name the object number {number}, which the ledger does not have"
        yield Damage(DamageKind.OBJECT_TABLE, what, f"{RESTORE_METADATA}; {REPORT}")
    for number, known in by_number.items():
        use = uses.get(number, ObjectUse())
        if known.live_runs != use.runs:
            what = f"the ledger counts {known.live_runs} runs in it, and has {use.runs}"
        elif known.closed and use.runs:
            what = f"it is marked as garbage, although {use.runs} runs are in it"
        elif use.end > known.size:
            what = f"its runs end at byte {use.end}, but {known.size} bytes of it are committed"
        else:
            continue
        remedy = f"do not start a gateway, which might delete it; {RESTORE_METADATA}; {REPORT}"
        yield Damage(DamageKind.OBJECT_TABLE, what, remedy, object=known.locator)


@dataclass(slots=True)
class ObjectCounts:
    """Stored objects by what the ledger says of them. `unread` of the live: no fetch can reach their runs any
    more. `due` of the garbage has no grace left. `new`: named by no entry, and may still be. `kept`: never
    deleted, as they may hold records from after the backup of a restore."""

    live: int = 0
    live_bytes: int = 0
    unread: int = 0
    garbage: int = 0
    garbage_bytes: int = 0
    due: int = 0
    new: int = 0
    kept: int = 0
    stray: int = 0


@dataclass(slots=True)
class Listing:
    """Compares the list of stored objects, page by page, with the ledger."""

    state: LedgerState
    uses: dict[int, ObjectUse]
    grace_ms: int
    counts: ObjectCounts = field(default_factory=ObjectCounts)
    sizes: dict[int, int] = field(default_factory=dict)
    """Of the objects with readable runs, by number."""
    kept: list[str] = field(default_factory=list)

    def see(self, page: Sequence[StoredObject]) -> list[StoredObject]:
        """Returns the stray ones: below the orphan floor, named by no entry, and not kept. Nothing will ever
        name them, as the ledger refuses what is below its floor."""
        stray: list[StoredObject] = []
        for found in page:
            known = self.state.objects.by_locator.get(found.locator)
            if known is None:
                self._see_unnamed(found, stray)
            elif known.closed:
                self._see_garbage(found, known.closed_ms, known.created_ms)
            else:
                use = self.uses.get(known.number)
                self.counts.live += 1
                self.counts.live_bytes += found.size
                if known.kind == ObjectKind.SETTLED:
                    # It has no runs, and is read whole (`ledger.auditing.settled`).
                    continue
                if use is None or not use.readable:
                    self.counts.unread += 1
                elif found.size:
                    # A segment without bytes is an index that is alone.
                    self.sizes[known.number] = found.size
        return stray

    def see_unlisted(self) -> None:
        """Adopted segments and batches inside of entries are in no list: the ledger says how large they are,
        and whether they are there is found when they are read."""
        for number, use in self.uses.items():
            known = self.state.objects.by_number.get(number)
            if known is None or known.closed:
                continue
            if known.store != ADOPTED_STORE and known.kind != ObjectKind.INLINE:
                continue
            self.counts.live += 1
            self.counts.live_bytes += known.size
            if use.readable:
                self.sizes[number] = known.size
            else:
                self.counts.unread += 1

    def missing(self) -> list[int]:
        """Numbers of the objects with readable runs that were in no page."""
        return sorted(
            number
            for number, use in self.uses.items()
            if use.readable and number not in self.sizes and number in self.state.objects.by_number
        )

    def _see_unnamed(self, found: StoredObject, stray: list[StoredObject]) -> None:
        if self.state.objects.keeps(found.created_ms):
            self.counts.kept += 1
            self.kept.append(found.locator)
        elif found.created_ms >= self.state.objects.floor_ms:
            self.counts.new += 1
        else:
            self.counts.stray += 1
            stray.append(found)

    def _see_garbage(self, found: StoredObject, closed_ms: int, created_ms: int) -> None:
        self.counts.garbage += 1
        self.counts.garbage_bytes += found.size
        is_over = closed_ms + self.grace_ms <= self.state.entry_time_ms
        self.counts.due += is_over and created_ms < self.state.objects.floor_ms


def stray_damage(found: StoredObject) -> Damage:
    what = f"no entry names these {found.size} bytes, and none ever will: they are below the orphan floor"
    return Damage(DamageKind.STRAY_OBJECT, what, STRAY_REMEDY, object=found.locator)


def lost_runs(
    locator: str, runs: Sequence[AuditedRun], size: int | None, place_of: PlaceOf
) -> Iterator[Damage]:
    """One damage for each partition whose runs cannot be read: the object is missing (`size` None), or ends
    before them."""
    kind = DamageKind.MISSING_OBJECT if size is None else DamageKind.SHORT_OBJECT
    for number, group in groupby(sorted(runs, key=_by_partition), key=_partition_number):
        mine = list(group)
        topic, _, partition, _ = place_of(number)
        needed = max(run.end for run in mine)
        what = "the object is not there" if size is None else f"it has {size} bytes, {needed} are needed"
        offsets = mine[0].base, mine[-1].last
        yield Damage(kind, what, PUT_BACK, topic, partition, *offsets, locator, mine[0].start)


def _by_partition(run: AuditedRun) -> tuple[int, int]:
    return run.number, run.base


def _partition_number(run: AuditedRun) -> int:
    return run.number
