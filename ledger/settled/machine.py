"""Settled ledgers, as a machine of the registry."""

from ledger.machine import Machine
from ledger.settled.apply import settled_named
from ledger.settled.decide import name_settled
from ledger.settled.records import SETTLED_NAMED, SettledNamed
from ledger.settled.requests import NameSettled
from ledger.settled.rows import SECTIONS, complete

SETTLED_LEDGERS = Machine(
    decide={NameSettled: name_settled},
    formats=(SETTLED_NAMED,),
    apply={SettledNamed: settled_named},
    sections=SECTIONS,
    complete=complete,
)
