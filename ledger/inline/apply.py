"""Applying the metadata record of batches that were moved out of journal entries."""

from ledger.errors import StoreDamaged
from ledger.inline.records import InlineMoved, MovedRange
from ledger.objects.apply import announce
from ledger.objects.rows import OBJECT
from ledger.objects.state import ObjectState, origin_of
from ledger.objects.uploads import ObjectKind
from ledger.partitions.apply import changing
from ledger.partitions.rows import PARTITION
from ledger.partitions.runs import Run
from ledger.state import LedgerState


def inline_moved(state: LedgerState, record: InlineMoved) -> None:
    """StoreDamaged if the runs are not there as they were when this was decided: the entry is applied for the
    second time, or to another state."""
    known = state.objects.by_locator.get(record.locator)
    if known is not None:
        announce(state, (known.number,))
    stored = state.objects.register(record.locator, origin_of(record.locator))
    # A local file may have more by now.
    state.objects.grow(stored, record.object_bytes)
    state.dirty[OBJECT].add(stored.number)
    released: list[int] = []
    for moved in record.ranges:
        released += _move(state, stored, moved)
    announce(state, set(released))
    state.dirty[OBJECT].update(state.objects.release(released, state.entry_time_ms))


def _move(state: LedgerState, stored: ObjectState, moved: MovedRange) -> list[int]:
    """The objects of the runs that have gone, one for each."""
    log = changing(state, moved.number)
    span = log.span(moved.first, moved.last)
    objects = state.objects.by_number
    released = span.objects() if span is not None else []
    is_inline = all(objects[number].kind == ObjectKind.INLINE for number in released)
    if span is None or len(released) != moved.replaced or not is_inline:
        raise StoreDamaged(
            f"runs {moved.first} to {moved.last} of partition number {moved.number} are moved out of journal "
            "entries, and there are no such runs"
        )
    runs = [
        Run(base, last, stored.number, start, size, max_timestamp)
        for start, size, base, last, max_timestamp in moved.runs
    ]
    state.dirty.chunks.setdefault(log.number, set()).update(log.replace(span, runs))
    # Of a partition whose layout version is 0 no chunk was ever replaced, which a restart verifies. Otherwise
    # it stays: no plan of a job has runs that are inside of entries.
    log.layout_version = max(log.layout_version, 1)
    stored.live_runs += len(runs)
    state.objects.inline_runs.remove(log.number, moved.first, moved.last)
    state.dirty[PARTITION].add(log.number)
    if log.droppable(1):
        state.draining[log.number] = log
    else:
        state.draining.pop(log.number, None)
    return released
