"""Image rows of the cluster as a whole: every time that the journal was put back from a backup, the oldest
first, and the newest owners.

A row of owners is `q held until | text store | u32 count`, of each epoch
`i number | i gateway | q begun | text host | text address`, and of each jump of time that may be in doubt
`q until | q size`. It is written from feature level 2 on, with jumps from level 3 on.
"""

import struct
from collections.abc import Sequence

from ledger.cluster.apply import OWNERS, THE_ROW, ledger_restored
from ledger.cluster.owners import Epoch, Jump, Owners
from ledger.cluster.records import LEDGER_RESTORED, LedgerRestored
from ledger.errors import StoreDamaged
from ledger.fields import U32, FieldReader, encode_text
from ledger.machine import Section
from ledger.records import decode_records
from ledger.state import LedgerState

RESTORED = 6

_INDEX = struct.Struct(">I")
_HELD = struct.Struct(">q")
_EPOCH = struct.Struct(">iiq")
_JUMP = struct.Struct(">qq")
_FORMATS = {LEDGER_RESTORED.number: LEDGER_RESTORED}


def _keys(state: LedgerState) -> Sequence[int]:
    return range(len(state.restores))


def _decode_key(key: bytes) -> int:
    (at,) = _INDEX.unpack(key)
    return int(at)


def _encode(state: LedgerState, at: int) -> bytes:
    return LEDGER_RESTORED.framed(state.restores[at])


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for _, value in sorted(rows):
        (record,) = decode_records(value, 1, _FORMATS)
        assert isinstance(record, LedgerRestored)
        ledger_restored(state, record)


def _owner_keys(state: LedgerState) -> Sequence[int]:
    return (THE_ROW,) if state.part(Owners).epochs else ()


def _encode_owners(state: LedgerState, _: int) -> bytes | None:
    owners = state.part(Owners)
    if not owners.epochs:
        return None
    parts = [_HELD.pack(owners.held_until_ms), encode_text(owners.store), U32.pack(len(owners.epochs))]
    for epoch in owners.epochs:
        parts.append(_EPOCH.pack(epoch.number, epoch.gateway, epoch.began_ms))
        parts += (encode_text(epoch.host), encode_text(epoch.address))
    parts += [_JUMP.pack(*jump) for jump in owners.jumps]
    return b"".join(parts)


def _restore_owners(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    for key, value in rows:
        owners = state.part(Owners)
        if _decode_key(key) != THE_ROW or owners.epochs:
            raise StoreDamaged("an image has more than one row of owners")
        reader = FieldReader(memoryview(value))
        (owners.held_until_ms,) = _HELD.unpack(reader.take(_HELD.size))
        owners.store = reader.text()
        epochs = []
        for _ in range(reader.u32()):
            number, gateway, began_ms = _EPOCH.unpack(reader.take(_EPOCH.size))
            epochs.append(Epoch(number, gateway, began_ms, reader.text(), reader.text()))
        owners.jumps = tuple(Jump(*jump) for jump in _JUMP.iter_unpack(reader.rest()))
        owners.epochs = tuple(epochs)


SECTIONS = (
    # There are as many as operators have restored backups.
    Section(RESTORED, _keys, _INDEX.pack, _decode_key, _encode, _restore, always=True),
    Section(OWNERS, _owner_keys, _INDEX.pack, _decode_key, _encode_owners, _restore_owners),
)
