"""Deciding what concerns stored objects."""

from ledger.machine import Decision
from ledger.objects.records import FloorRaised, ObjectsForgotten
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.overlay import Overlay
from ledger.requests import Done
from ledger.state import LedgerState


def forget_objects(state: LedgerState, overlay: Overlay, request: ForgetObjects, now_ms: int) -> Decision:
    garbage, committed = state.objects.garbage, overlay.object_bytes
    # One that gets runs in this entry is opened again by it.
    dead = [
        number for number in request.objects if number in garbage and garbage[number].locator not in committed
    ]
    return Decision(Done(len(dead)), (ObjectsForgotten(dead),) if dead else ())


def raise_floor(state: LedgerState, overlay: Overlay, request: RaiseFloor, now_ms: int) -> Decision:
    # Keys to come carry at least this entry's time. A floor above it (requested before the clock was set
    # back) would refuse them all. Jobs store segments with keys that are as old as their pins.
    floor_ms = min(request.floor_ms, now_ms, state.objects.pinned_ms)
    if floor_ms <= overlay.floor_ms:
        return Decision(Done(0))
    overlay.floor_ms = floor_ms
    return Decision(Done(1), (FloorRaised(floor_ms),))
