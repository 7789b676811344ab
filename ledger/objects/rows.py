"""Image rows of objects: what is known of each, and the results for repeats of its commits."""

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.objects.state import ObjectState
from ledger.state import LedgerState

OBJECT = 5

_OBJECT = struct.Struct(">qqqIH")
_NUMBER = struct.Struct(">I")


def _keys(state: LedgerState) -> Iterable[int]:
    return state.objects.by_number


def _decode_key(key: bytes) -> int:
    (number,) = _NUMBER.unpack(key)
    return int(number)


def _encode(state: LedgerState, number: int) -> bytes | None:
    stored = state.objects.by_number.get(number)
    if stored is None:
        return None
    locator = stored.locator.encode()
    head = _OBJECT.pack(stored.size, stored.live_runs, stored.closed_ms, len(stored.starts), len(locator))
    return b"".join((head, locator, _little(stored.starts), _little(stored.bases)))


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows):
        (number,) = _NUMBER.unpack(key)
        size, live_runs, closed_ms, results, locator_bytes = _OBJECT.unpack_from(value)
        view = memoryview(value)[_OBJECT.size :]
        stored = ObjectState(number, str(view[:locator_bytes], "utf-8"))
        view = view[locator_bytes:]
        stored.size, stored.live_runs, stored.closed_ms = size, live_runs, closed_ms
        split = results * stored.starts.itemsize
        if len(view) != split + results * stored.bases.itemsize:
            raise StoreDamaged("the row of an object in an image does not have the length it claims")
        stored.starts = _from_little("I", view[:split])
        stored.bases = _from_little("q", view[split:])
        state.objects.put_back(stored)


def _little(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _from_little(typecode: str, data: memoryview) -> "array[int]":
    column = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def complete(state: LedgerState) -> None:
    live: Counter[int] = Counter()
    for log in state.logs.values():
        for chunk in log.chunks:
            live.update(chunk.object_numbers(chunk.head, len(chunk)))
    for stored in state.objects.by_number.values():
        runs = live.pop(stored.number, 0)
        if stored.live_runs != runs or stored.closed != (runs == 0):
            raise StoreDamaged(
                f"object {stored.number} of an image should have {stored.live_runs} runs, and {runs} name it"
            )
    if live:
        raise StoreDamaged(f"runs of an image name object {min(live)}, which it has not")
    if state.objects.next_number <= max(state.objects.by_number, default=-1):
        raise StoreDamaged("the next object number of an image is taken")


SECTIONS = (Section(OBJECT, _keys, _NUMBER.pack, _decode_key, _encode, _restore),)
