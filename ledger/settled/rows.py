"""Image rows of settled ledgers, written from feature level 4 on: `I partition number` as the key, and
`Q object number | q bytes of the .log | q of the .index | q of the .json | q entry | q high watermark |
q layout version | 16s job | i attempt`."""

import struct
from collections.abc import Iterable, Sequence

from ledger.errors import StoreDamaged
from ledger.machine import Section
from ledger.objects.uploads import ObjectKind
from ledger.settled.state import SettledLedger, SettledLedgers
from ledger.state import LedgerState

SETTLED = 15

_NUMBER = struct.Struct(">I")
_LEDGER = struct.Struct(">Qqqqqqq16si")


def _keys(state: LedgerState) -> Iterable[int]:
    return state.part(SettledLedgers)


def _decode_key(key: bytes) -> int:
    (number,) = _NUMBER.unpack(key)
    return int(number)


def _encode(state: LedgerState, number: int) -> bytes | None:
    known = state.part(SettledLedgers).get(number)
    return _LEDGER.pack(*known) if known is not None else None


def _restore(state: LedgerState, rows: Sequence[tuple[bytes, bytes]]) -> None:
    ledgers = state.part(SettledLedgers)
    for key, value in rows:
        ledgers[_decode_key(key)] = SettledLedger(*_LEDGER.unpack(value))


def complete(state: LedgerState) -> None:
    """StoreDamaged unless exactly the settled ledgers that are not garbage are the newest of partitions."""
    named = set[int]()
    for number, known in state.part(SettledLedgers).items():
        stored, log = state.objects.by_number.get(known.object_number), state.logs.get(number)
        if log is None or log.deleted:
            raise StoreDamaged(f"an image has a settled ledger of partition number {number}, which is gone")
        if stored is None or stored.kind != ObjectKind.SETTLED or stored.closed:
            raise StoreDamaged(
                f"object {known.object_number} of an image should be the settled ledger of partition number "
                f"{number}, and is none"
            )
        named.add(known.object_number)
    for stored in state.objects.by_number.values():
        if stored.kind == ObjectKind.SETTLED and not stored.closed and stored.number not in named:
            raise StoreDamaged(f"object {stored.number} of an image is the settled ledger of no partition")


SECTIONS = (Section(SETTLED, _keys, _NUMBER.pack, _decode_key, _encode, _restore, announced=True),)
