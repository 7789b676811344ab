"""What was decided for the entry that is being filled, on top of the durable state."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ledger.groups.state import Group, OffsetKey
from ledger.objects.uploads import Uploader
from ledger.partitions.producers import ProducerState
from ledger.settings.state import QuotaEntity, ResourceKey
from ledger.state import LedgerState
from ledger.transactions.state import TransactionsOfEntry
from ledger.types import TopicId

Part = TypeVar("Part")

CARRIED: Final = ("next_offset", "object_bytes", "producers", "repeats", "settled")
"""Mappings to the newest value: what requests of `Machine.overlapping` leave for later decisions, with the
numbers below."""


class Overlay:
    """Made for each entry; holds only what later decisions of the same entry must see.

    `before`: the overlay of the entry before, where that is not applied to `state`. Then it begins with what
    that one has added, as if both were one entry. Only for requests of `Machine.overlapping`, in both.
    """

    __slots__ = (
        "_carried",
        "_parts",
        "configs",
        "created",
        "deleted",
        "dropped",
        "floor_ms",
        "groups",
        "log_start",
        "new_objects",
        "new_producers",
        "next_number",
        "next_offset",
        "next_producer_id",
        "object_bytes",
        "offsets",
        "partitions",
        "producer_count",
        "producers",
        "quotas",
        "repeats",
        "resource_configs",
        "settled",
        "swapped",
        "touched_objects",
    )

    def __init__(self, state: LedgerState, before: "Overlay | None" = None) -> None:
        self.configs: dict[TopicId, Mapping[str, str]] = {}
        self.created: set[str] = set()
        self.deleted: set[TopicId] = set()
        self.dropped: set[int] = set()
        self.floor_ms = state.objects.floor_ms
        self.groups: dict[str, Group | None] = {}
        """Stored in this entry, or None if removed."""
        self.offsets: dict[str, dict[OffsetKey, int | None]] = {}
        """By group, when an offset was committed, or None if it was removed."""
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.resource_configs: dict[ResourceKey, Mapping[str, str]] = {}
        self.log_start: dict[int, int] = {}
        self.next_number = state.next_number
        self.next_offset: dict[int, int] = {}
        self.next_producer_id = state.next_producer_id
        self.partitions: dict[TopicId, int] = {}
        """How many partitions a topic has by now."""
        self.object_bytes: dict[str, int] = {}
        self.new_objects = 0
        """How many of them no entry has named before."""
        self.repeats: dict[tuple[str, int], int] = {}
        """Base offsets given in this entry, by (locator, start)."""
        self.settled: dict[Uploader, int] = {}
        """Drafts that commits of this entry have declared settled, by uploader."""
        self.producers: dict[tuple[int, int], ProducerState] = {}
        self.producer_count = state.producer_count
        """In all by now."""
        self.new_producers: dict[int, int] = {}
        """How many of them are new to a partition in this entry."""
        self.swapped: set[int] = set()
        """Partitions of which runs are swapped in this entry."""
        self.touched_objects: set[int] = set()
        """Objects that lose runs in this entry: they may be closed by it."""
        self._parts: dict[type, Any] | None = None
        self._carried: dict[str, Any] = {}
        """What it began with."""
        if before is not None:
            self.carry(before)

    def carry(self, before: "Overlay") -> None:
        """Begin with what the entry before has added."""
        self._carried = carried = before.added()
        for name in CARRIED:
            setattr(self, name, dict(carried[name]))
        self.new_producers = dict(carried["new_producers"])
        self.new_objects = carried["new_objects"]
        self.producer_count = before.producer_count
        self.next_producer_id = before.next_producer_id
        if (opened := before.carried_part(TransactionsOfEntry)) is not None:
            self._parts = {TransactionsOfEntry: opened.carried()}

    def added(self) -> dict[str, Any]:
        """What decisions of this entry have changed, without what it began with: that is applied by now."""
        carried = self._carried
        if not carried:
            added = {name: getattr(self, name) for name in CARRIED}
            return added | {"new_producers": self.new_producers, "new_objects": self.new_objects}
        added = {name: _changed(getattr(self, name), carried[name]) for name in CARRIED}
        before: dict[int, int] = carried["new_producers"]
        new = {log: count - before.get(log, 0) for log, count in self.new_producers.items()}
        added["new_producers"] = {log: count for log, count in new.items() if count}
        added["new_objects"] = self.new_objects - carried["new_objects"]
        return added

    def carried_part(self, kind: type[Part]) -> Part | None:
        """What a feature has kept for itself, if it has."""
        return None if self._parts is None else self._parts.get(kind)

    def part(self, kind: type[Part]) -> Part:
        """What a feature keeps for itself, empty at first (cf. `LedgerState.part`)."""
        if self._parts is None:
            self._parts = {}
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind()
        return part


def _changed(present: dict[Any, Any], before: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in present.items() if before.get(key) is not value}
