"""Applying the metadata records of stored objects."""

from ledger.objects.records import FloorRaised, ObjectsForgotten
from ledger.objects.rows import OBJECT, UPLOADER
from ledger.state import LedgerState


def objects_forgotten(state: LedgerState, record: ObjectsForgotten) -> None:
    state.objects.forget(record.objects)
    state.dirty[OBJECT].update(record.objects)


def floor_raised(state: LedgerState, record: FloorRaised) -> None:
    objects = state.objects
    state.dirty[OBJECT].update(stored.number for stored in objects.raise_floor(record.floor_ms))
    if dropped := objects.uploaders.drop_below(objects.floor_ms):
        state.dirty[UPLOADER].update(dropped)
