"""Image rows of restores from backups: every time that the journal was put back, the oldest first."""

import struct
from collections.abc import Sequence

from ledger.cluster.apply import ledger_restored
from ledger.cluster.records import LEDGER_RESTORED, LedgerRestored
from ledger.machine import Section
from ledger.records import decode_records
from ledger.state import LedgerState

RESTORED = 6

_INDEX = struct.Struct(">I")
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


# There are as many as operators have restored backups.
SECTIONS = (Section(RESTORED, _keys, _INDEX.pack, _decode_key, _encode, _restore, always=True),)
