"""Image rows of pins and of the first results of swaps. They are written from feature level 3 on.

A pin has the job as its key, and `q entry | q started`. A result has `q entry | I partition number` as its
key, and `16s job | i attempt | 16s topic id | i partition | q first | q last | q layout version before |
q log start | q started`.
"""

import struct
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.state import LedgerState
from ledger.swaps.requests import JOB_BYTES
from ledger.swaps.state import KeptResult, Pin, Pins, Place, SwapKey, SwapResults

PIN, SWAP_RESULT = 13, 14

_PIN = struct.Struct(">qq")
_PLACE = struct.Struct(">qI")
_RESULT = struct.Struct(">16si16siqqqqq")


def _pins(state: LedgerState) -> Iterable[bytes]:
    return state.part(Pins)


def _same(job: bytes) -> bytes:
    return job


def _encode_pin(state: LedgerState, job: bytes) -> bytes | None:
    pin = state.part(Pins).get(job)
    return _PIN.pack(*pin) if pin is not None else None


def _restore_pins(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    pins = state.part(Pins)
    for job, value in rows:
        if len(job) != JOB_BYTES:
            raise StoreDamaged("the row of a pin in an image does not have the id of a job")
        pins[job] = Pin(*_PIN.unpack(value))
    state.objects.pinned_ms = pins.oldest_ms


def _results(state: LedgerState) -> Iterable[Place]:
    return state.part(SwapResults).kept


def _encode_place(place: Place) -> bytes:
    return _PLACE.pack(*place)


def _decode_place(key: bytes) -> Place:
    entry, number = _PLACE.unpack(key)
    return entry, number


def _encode_result(state: LedgerState, place: Place) -> bytes | None:
    kept = state.part(SwapResults).kept.get(place)
    if kept is None:
        return None
    return _RESULT.pack(*kept.key, kept.log_start, kept.started_ms)


def _restore_results(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    results = state.part(SwapResults)
    for key, value in sorted(rows):
        fields = _RESULT.unpack(value)
        results.keep(_decode_place(key), KeptResult(SwapKey(*fields[:7]), *fields[7:]))


SECTIONS = (
    Section(PIN, _pins, _same, _same, _encode_pin, _restore_pins),
    Section(
        SWAP_RESULT,
        _results,
        _encode_place,
        _decode_place,
        _encode_result,
        _restore_results,
        announced=True,
    ),
)
