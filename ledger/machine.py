"""What a feature of the ledger is made of: how its requests are decided, its records and what applying them
does, its image rows. `ledger/registry.py` has all features.

Deciding only looks; records change the state once they are durable (`ledger.journal.apply_entry`). The
*overlay* carries what was decided for the entry that is being filled, and is thrown away with it: if the
entry is won, its records are applied; if it is lost, nothing has to be undone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ledger.overlay import Overlay
from ledger.records import MetadataRecord, RecordFormat
from ledger.requests import LedgerResult
from ledger.state import LedgerState


class Decision(NamedTuple):
    """What to make durable, and the result of the request once it is."""

    result: LedgerResult
    records: Sequence[MetadataRecord] = ()
    work: int | None = None
    """What applying the records costs, where `Request.work` cannot know it."""


Decider: TypeAlias = Callable[[LedgerState, Overlay, Any, int], Decision]
"""(state, overlay, request, time of the entry that will hold the records)."""

Applier: TypeAlias = Callable[[LedgerState, Any], None]
"""(state, record). The state's `entry_time_ms` is the time of the entry that holds it."""


class Section(NamedTuple):
    """One kind of image rows. Its number is never given twice, and also orders the rows that are written."""

    number: int
    keys: Callable[[LedgerState], Iterable[Any]]
    """Of all its rows."""
    encode_key: Callable[[Any], bytes]
    decode_key: Callable[[bytes], Any]
    encode: Callable[[LedgerState, Any], bytes | None]
    """The value of a row, without its checksum; None if the row is gone."""
    restore: Callable[[LedgerState, Sequence[tuple[bytes, bytes]]], None]
    """Takes keys and values of all its rows. Whatever it raises means that they are damaged."""
    always: bool = False
    """All its rows are written each time, before those of other sections."""
    announced: bool = False
    """Whatever changes one of its rows announces that to a cut before (`ledger.state.Cut.keep_row`). So rows
    of very many keys are made while entries are applied."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One feature. Several may apply the same record, in the order of the registry."""

    decide: Mapping[type, Decider] = field(default_factory=dict)
    """By class of the request."""
    formats: Sequence[RecordFormat] = ()
    apply: Mapping[type, Applier] = field(default_factory=dict)
    """By class of the record."""
    sections: Sequence[Section] = ()
    """In the order in which they are restored, after those of the machines before it in the registry."""
    complete: Callable[[LedgerState], None] | None = None
    """Once all rows are restored: makes what no row says, and raises StoreDamaged where rows contradict each
    other, as then one of them is missing."""
    overlapping: frozenset[type] = frozenset()
    """Requests that may be decided before the last entry is applied, if that has no others: all that they
    need of it is carried over by its overlay (`ledger.overlay.CARRIED`)."""
    growing: frozenset[type] = frozenset()
    """Requests of clients that only make the ledger grow: refused first when a disk is nearly full."""
