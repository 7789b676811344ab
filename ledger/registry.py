"""All features of the ledger, and what is looked up among them: this list is the only one."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ledger.adoption.machine import ADOPTION
from ledger.cluster.machine import CLUSTER
from ledger.cluster.records import FeatureLevelRaised
from ledger.groups.machine import GROUPS
from ledger.inline.machine import INLINE
from ledger.machine import Applier, Decider, Decision, Machine
from ledger.objects.machine import OBJECTS
from ledger.overlay import Overlay
from ledger.partitions.machine import PARTITIONS
from ledger.records import FIRST_LEVEL, RESERVED, MetadataRecord
from ledger.records import decode_records as decode_by_formats
from ledger.records import decoding_records as decoding_by_formats
from ledger.requests import Request
from ledger.rows import META
from ledger.settings.machine import SETTINGS
from ledger.settled.machine import SETTLED_LEDGERS
from ledger.state import LedgerState
from ledger.swaps.machine import SWAPS
from ledger.topics.machine import TOPICS
from ledger.transactions.machine import TRANSACTIONS
from ledger.types import Buffer

Key = TypeVar("Key")
Value = TypeVar("Value")


class Registry:
    """Machines in order of what they build on. ValueError if two of them claim the same."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = tuple(machines)
        self.sections = tuple(section for machine in machines for section in machine.sections)
        """In the order in which they are restored."""
        self.written = sorted(self.sections, key=lambda section: (not section.always, section.number))
        """In the order in which their rows are written."""
        self.overlapping = frozenset(request for machine in machines for request in machine.overlapping)
        self.growing = frozenset(request for machine in machines for request in machine.growing)
        self.appliers: Mapping[type, Applier] = _appliers(machines)
        formats = [each for machine in machines for each in machine.formats]
        self._deciders: Mapping[type, Decider] = _unique(
            pair for machine in machines for pair in machine.decide.items()
        )
        self._formats = _unique((each.number, each) for each in formats)
        self._by_kind = _unique((each.kind, each) for each in formats)
        for number in self._formats:
            if any(number in numbers for numbers in RESERVED):
                raise ValueError(f"record type {number} is reserved")
        _unique([(META, None), *((section.number, section) for section in self.sections)])

    def decide(self, state: LedgerState, overlay: Overlay, request: Request, now_ms: int) -> Decision:
        """Decide one request. `now_ms` is the time of the entry that will hold the records."""
        return self._deciders[type(request)](state, overlay, request, now_ms)

    def apply(self, state: LedgerState, record: MetadataRecord) -> None:
        self.appliers[type(record)](state, record)

    def encode_record(self, record: MetadataRecord, level: int = FIRST_LEVEL) -> bytes:
        """The framed bytes of one record at this feature level of the journal."""
        return self._by_kind[type(record)].framed(record, level)

    def encode_records(self, records: Iterable[MetadataRecord], level: int) -> list[bytes]:
        """Those of one decision. Where it raises the level, what follows is of the new one: a build that does
        not know that refuses the entry in any case."""
        encoded = []
        for record in records:
            encoded.append(self.encode_record(record, level))
            if isinstance(record, FeatureLevelRaised):
                level = record.level
        return encoded

    def decode_records(self, data: Buffer, count: int) -> Iterator[MetadataRecord]:
        """The `count` records that fill `data`. StoreTooNew for an unknown type or version, StoreDamaged for
        lengths that do not add up."""
        return decode_by_formats(data, count, self._formats)

    def decoding_records(self, data: Buffer, count: int) -> Generator[int, None, list[MetadataRecord]]:
        """The same in steps; yields the weight of each step of a record that may take long."""
        return decoding_by_formats(data, count, self._formats)


def _unique(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, Value]:
    found: dict[Key, Value] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"two machines of the registry claim {key!r}")
        found[key] = value
    return found


def _appliers(machines: Sequence[Machine]) -> dict[type, Applier]:
    found: dict[type, list[Applier]] = {}
    for machine in machines:
        for kind, applier in machine.apply.items():
            found.setdefault(kind, []).append(applier)
    # One call is what nearly all records need.
    return {kind: some[0] if len(some) == 1 else _in_turn(some) for kind, some in found.items()}


def _in_turn(appliers: Sequence[Applier]) -> Applier:
    def apply(state: LedgerState, record: MetadataRecord) -> None:
        for applier in appliers:
            applier(state, record)

    return apply


REGISTRY = Registry(
    (
        CLUSTER,
        PARTITIONS,
        TOPICS,
        OBJECTS,
        GROUPS,
        SETTINGS,
        SWAPS,
        SETTLED_LEDGERS,
        ADOPTION,
        INLINE,
        TRANSACTIONS,
    )
)

decide = REGISTRY.decide
encode_record = REGISTRY.encode_record
encode_records = REGISTRY.encode_records
decode_records = REGISTRY.decode_records
