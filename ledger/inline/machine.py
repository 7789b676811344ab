"""Batches inside of journal entries, as a machine of the registry."""

from ledger.inline.apply import inline_moved
from ledger.inline.decide import move_inline
from ledger.inline.records import INLINE_MOVED, InlineMoved
from ledger.inline.requests import MoveInline
from ledger.machine import Machine

INLINE = Machine(
    decide={MoveInline: move_inline},
    formats=(INLINE_MOVED,),
    apply={InlineMoved: inline_moved},
)
