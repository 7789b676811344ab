"""Stored objects, as a machine of the registry."""

from ledger.machine import Machine
from ledger.objects.apply import floor_raised, objects_forgotten
from ledger.objects.decide import forget_objects, raise_floor
from ledger.objects.records import FLOOR_RAISED, OBJECTS_FORGOTTEN, FloorRaised, ObjectsForgotten
from ledger.objects.requests import ForgetObjects, RaiseFloor
from ledger.objects.rows import SECTIONS, complete

OBJECTS = Machine(
    decide={ForgetObjects: forget_objects, RaiseFloor: raise_floor},
    formats=(OBJECTS_FORGOTTEN, FLOOR_RAISED),
    apply={ObjectsForgotten: objects_forgotten, FloorRaised: floor_raised},
    sections=SECTIONS,
    complete=complete,
)
