"""Applying the metadata records of stored objects."""

from collections.abc import Iterable

from ledger.objects.records import FloorRaised, ObjectsForgotten
from ledger.objects.rows import OBJECT, UPLOADER
from ledger.state import LedgerState


def announce(state: LedgerState, numbers: Iterable[int]) -> None:
    """Call this before the rows of these objects change."""
    if state.cut is not None:
        for number in numbers:
            state.cut.keep_row(OBJECT, number)


def objects_forgotten(state: LedgerState, record: ObjectsForgotten) -> None:
    announce(state, record.objects)
    state.objects.forget(record.objects)
    state.dirty[OBJECT].update(record.objects)


def floor_raised(state: LedgerState, record: FloorRaised) -> None:
    objects = state.objects
    below = objects.raise_floor(record.floor_ms)
    announce(state, (stored.number for stored in below))
    for stored in below:
        stored.forget_results()
    state.dirty[OBJECT].update(stored.number for stored in below)
    if dropped := objects.uploaders.drop_below(objects.floor_ms):
        state.dirty[UPLOADER].update(dropped)
