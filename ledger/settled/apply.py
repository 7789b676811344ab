"""Applying the metadata record of settled ledgers."""

from ledger.errors import StoreDamaged
from ledger.keys import created_ms
from ledger.objects.apply import announce
from ledger.objects.rows import OBJECT
from ledger.objects.state import DATA_STORE, Origin
from ledger.objects.uploads import ObjectKind
from ledger.settled.records import SettledNamed
from ledger.settled.rows import SETTLED
from ledger.settled.state import SettledLedger, SettledLedgers
from ledger.state import LedgerState


def settled_named(state: LedgerState, record: SettledNamed) -> None:
    """StoreDamaged if the partition is gone, or the object was named before: the entry is applied for the
    second time, or to another state."""
    log = state.logs.get(record.number)
    locator = record.files.locator
    if log is None or log.deleted or locator in state.objects.by_locator:
        raise StoreDamaged(f"{locator} is no new settled ledger of partition number {record.number}")
    if state.cut is not None:
        state.cut.keep_row(SETTLED, record.number)
    release(state, record.number)
    origin = Origin(ObjectKind.SETTLED, DATA_STORE, created_ms(locator), None)
    stored = state.objects.register(locator, origin)
    stored.size = record.files.log_bytes
    as_of = record.entry, record.high_watermark, record.layout_version
    newest = SettledLedger(stored.number, *record.files[1:], *as_of, record.job, record.attempt)
    state.part(SettledLedgers)[record.number] = newest
    state.dirty[SETTLED].add(record.number)
    state.dirty[OBJECT].add(stored.number)


def release(state: LedgerState, number: int) -> None:
    """The partition has no settled ledger any more: its object is garbage from here on."""
    ledgers = state.part(SettledLedgers)
    known = ledgers.get(number)
    if known is None:
        return
    if state.cut is not None:
        state.cut.keep_row(SETTLED, number)
    announce(state, (known.object_number,))
    del ledgers[number]
    state.objects.close_if_empty(state.objects.by_number[known.object_number], state.entry_time_ms)
    state.dirty[SETTLED].add(number)
    state.dirty[OBJECT].add(known.object_number)
