"""Image rows of objects: what is known of each, the results for repeats of its commits, and its uploaders."""

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.objects.state import ObjectState, Origin
from ledger.objects.uploads import NO_UPLOADER, ObjectKind, PendingDraft, Uploader, UploaderState
from ledger.records import LEVEL_WITH_ORIGINS
from ledger.state import LedgerState

OBJECT, UPLOADER = 5, 11

_OBJECT = struct.Struct(">qqqIH")
_ORIGIN = struct.Struct(">BBqi16s")
"""Follows from feature level 2 on: kind, store, creation time, gateway (or -1) and incarnation."""
_NUMBER = struct.Struct(">I")
_WIDE_NUMBER = struct.Struct(">Q")
_UPLOADER = struct.Struct(">i16s")
_SETTLED = struct.Struct(">Qq")
_PENDING = struct.Struct(">QQII")


def _keys(state: LedgerState) -> Iterable[int]:
    return state.objects.by_number


def _encode_key(number: int) -> bytes:
    # Numbers that level 1 has keep its keys, so that raising the level renames no row.
    return _NUMBER.pack(number) if number < 2**32 else _WIDE_NUMBER.pack(number)


def _decode_key(key: bytes) -> int:
    (number,) = (_NUMBER if len(key) == _NUMBER.size else _WIDE_NUMBER).unpack(key)
    return int(number)


def _encode(state: LedgerState, number: int) -> bytes | None:
    stored = state.objects.by_number.get(number)
    if stored is None:
        return None
    locator = stored.locator.encode()
    head = _OBJECT.pack(stored.size, stored.live_runs, stored.closed_ms, len(stored.starts), len(locator))
    origin = b""
    if state.feature_level >= LEVEL_WITH_ORIGINS:
        uploader = stored.uploader or NO_UPLOADER
        origin = _ORIGIN.pack(stored.kind, stored.store, stored.created_ms, *uploader)
    return b"".join((head, origin, locator, _little(stored.starts), _little(stored.bases)))


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    has_origins = state.image_level >= LEVEL_WITH_ORIGINS
    head_bytes = _OBJECT.size + (_ORIGIN.size if has_origins else 0)
    uploaders: dict[tuple[int, bytes], Uploader | None] = {NO_UPLOADER: None}
    for number, value in sorted([(_decode_key(key), value) for key, value in rows]):
        size, live_runs, closed_ms, results, locator_bytes = _OBJECT.unpack_from(value)
        end = head_bytes + locator_bytes
        locator = value[head_bytes:end].decode()
        origin = None
        if has_origins:
            kind, store, created_ms, gateway, incarnation = _ORIGIN.unpack_from(value, _OBJECT.size)
            named = gateway, incarnation
            if named not in uploaders:
                uploaders[named] = state.objects.uploaders.shared(Uploader(*named))
            origin = Origin(kind, store, created_ms, uploaders[named])
        stored = ObjectState(number, locator, origin)
        stored.size, stored.live_runs, stored.closed_ms = size, live_runs, closed_ms
        split = end + results * stored.starts.itemsize
        if len(value) != split + results * stored.bases.itemsize:
            raise StoreDamaged("the row of an object in an image does not have the length it claims")
        if results:
            stored.starts = _from_little("I", value[end:split])
            stored.bases = _from_little("q", value[split:])
        state.objects.put_back(stored)


def _uploaders(state: LedgerState) -> Iterable[Uploader]:
    return state.objects.uploaders


def _encode_uploader_key(uploader: Uploader) -> bytes:
    return _UPLOADER.pack(*uploader)


def _decode_uploader_key(key: bytes) -> Uploader:
    return Uploader(*_UPLOADER.unpack(key))


def _encode_uploader(state: LedgerState, uploader: Uploader) -> bytes | None:
    known = state.objects.uploaders.get(uploader)
    if known is None:
        return None
    head = _SETTLED.pack(known.settled, known.newest_ms)
    return b"".join([head, *(_PENDING.pack(*pending) for pending in known.pending)])


def _restore_uploaders(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in sorted(rows):
        known = state.objects.uploaders[_decode_uploader_key(key)] = UploaderState()
        known.settled, known.newest_ms = _SETTLED.unpack_from(value)
        pending = memoryview(value)[_SETTLED.size :]
        known.pending = [PendingDraft(*fields) for fields in _PENDING.iter_unpack(pending)]


def _little(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _from_little(typecode: str, data: bytes) -> "array[int]":
    column = array(typecode, data)
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
        # A settled ledger is closed by a newer one (`ledger.settled.rows.complete`).
        closed = stored.closed if stored.kind == ObjectKind.SETTLED else runs == 0
        if stored.live_runs != runs or stored.closed != closed:
            raise StoreDamaged(
                f"object {stored.number} of an image should have {stored.live_runs} runs, and {runs} name it"
            )
    if state.restores:
        state.objects.lose_entries(state.restores[-1].entries)
    find_inline(state)
    if live:
        raise StoreDamaged(f"runs of an image name object {min(live)}, which it has not")
    if state.objects.next_number <= max(state.objects.by_number, default=-1):
        raise StoreDamaged("the next object number of an image is taken")


def find_inline(state: LedgerState) -> None:
    """Which runs of all partitions are inside of entries."""
    inline, inline_runs = state.objects.inline.keys(), state.objects.inline_runs
    inline_runs.clear()
    if not inline:
        return
    for log in state.logs.values():
        for chunk in log.chunks:
            if not inline.isdisjoint(chunk.object_numbers(chunk.head, len(chunk))):
                for _, base, _, number, _, _ in chunk.rows(chunk.head):
                    if number in inline:
                        inline_runs.add(log.number, base)


SECTIONS = (
    Section(OBJECT, _keys, _encode_key, _decode_key, _encode, _restore, announced=True),
    Section(
        UPLOADER,
        _uploaders,
        _encode_uploader_key,
        _decode_uploader_key,
        _encode_uploader,
        _restore_uploaders,
    ),
)
