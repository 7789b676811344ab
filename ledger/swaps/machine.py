"""Swaps and pins, as a machine of the registry."""

from ledger.machine import Machine
from ledger.objects.records import FloorRaised
from ledger.swaps.apply import floor_raised, pin_released, pin_taken, segments_swapped
from ledger.swaps.decide import release_pin, swap_segments, take_pin
from ledger.swaps.records import (
    PIN_RELEASED,
    PIN_TAKEN,
    SEGMENTS_SWAPPED,
    PinReleased,
    PinTaken,
    SegmentsSwapped,
)
from ledger.swaps.requests import ReleasePin, SwapSegments, TakePin
from ledger.swaps.rows import SECTIONS

SWAPS = Machine(
    decide={SwapSegments: swap_segments, TakePin: take_pin, ReleasePin: release_pin},
    formats=(SEGMENTS_SWAPPED, PIN_TAKEN, PIN_RELEASED),
    apply={
        SegmentsSwapped: segments_swapped,
        PinTaken: pin_taken,
        PinReleased: pin_released,
        # After the objects have applied it.
        FloorRaised: floor_raised,
    },
    sections=SECTIONS,
)
