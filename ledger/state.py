"""The durable state of a shard: what its journal says up to the last applied entry.

Applying a metadata record (`ledger/registry.py`) is the only thing that changes it, and is deterministic:
every gateway that applies the same entries holds the same state. What changed since the image was last
written is noted in `dirty`; which partitions an entry touched, in `touched`.
"""

from collections import deque
from typing import Any, Protocol, TypeVar

from ledger.cluster.records import LedgerRestored
from ledger.groups.state import Groups
from ledger.objects.state import Objects
from ledger.partitions.logs import PartitionLogs, PartitionRange, Partitions
from ledger.partitions.producers import UNBOUNDED
from ledger.partitions.state import PartitionLog
from ledger.records import FIRST_LEVEL
from ledger.settings.state import ClientQuotas, ResourceConfigs
from ledger.topics.state import Topics

Part = TypeVar("Part")


class Dirty(dict[int, set[Any]]):
    """Keys of image rows that no longer say what the state says, by section. The chunks and producers that
    commits have touched are noted in their partitions alone (`PartitionLog.grown_chunks`,
    `unsaved_producers`); partitions that came or went with a topic only as ranges, by first number."""

    def __init__(self) -> None:
        super().__init__()
        self.created: dict[int, PartitionRange] = {}
        """Blank partitions, but for those that are named besides."""
        self.deleted: dict[int, PartitionRange] = {}
        self.chunks: dict[int, set[int]] = {}
        """Serials of chunks that swaps have changed or taken away, by partition, which is named besides."""

    def __missing__(self, section: int) -> set[Any]:
        keys = self[section] = set()
        return keys

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dirty)
            and self._named() == other._named()
            and self.created == other.created
            and self.deleted == other.deleted
            and self.chunks == other.chunks
        )

    __hash__ = None

    def add_all(self, other: "Dirty") -> None:
        """What is dirty in either."""
        for section, keys in other.items():
            self[section] |= keys
        self.created |= other.created
        self.deleted |= other.deleted
        for number, serials in other.chunks.items():
            self.chunks.setdefault(number, set()).update(serials)

    def _named(self) -> dict[int, set[Any]]:
        return {section: keys for section, keys in self.items() if keys}


class Cut(Protocol):
    """The state as of one entry, being copied while later entries are applied (`ledger.cut`)."""

    def keep(self, number: int) -> None:
        """Called before the partition of this number changes."""
        ...

    def keep_row(self, section: int, key: Any) -> None:
        """Called before this row changes, if its section is announced (`ledger.machine.Section`)."""
        ...


class LedgerState:
    """Topics, partitions, objects, producers, groups and settings of one shard."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.epoch = 0
        self.feature_level = FIRST_LEVEL
        """Which records and rows may be written (`ledger.records`)."""
        self.image_level = FIRST_LEVEL
        """The level in which all rows of the image were written that are not dirty."""
        self.applied = 0
        """Entries applied, and so the number of the next."""
        self.entry_time_ms = 0
        self.topics = Topics()
        self.logs = PartitionLogs()
        self.draining: dict[int, PartitionLog] = {}
        self.objects = Objects()
        self.next_number = 0
        self.next_producer_id = 0
        self.producer_count = 0
        """Of all partitions together."""
        self.producer_bounds = UNBOUNDED
        """Set by the owner, which decides. What was decided is applied within any bounds."""
        self.restores: list[LedgerRestored] = []
        """Every time that the journal was put back from a backup, the oldest first."""
        self.groups = Groups()
        self.quotas = ClientQuotas()
        self.resource_configs = ResourceConfigs()
        self.dirty = Dirty()
        self.cut: Cut | None = None
        self.touched: dict[int, PartitionLog] = {}
        self.leaving: deque[tuple[Partitions, int]] = deque()
        """Partitions of deleted topics that are still to be let go of, from an index on
        (`ledger.topics.apply.let_go`): nothing is decided, applied or copied meanwhile."""
        self._parts: dict[type, Any] = {}
        self.is_whole = True
        """False once an entry was applied by half, by a bug or for want of memory: nothing may be made of
        this state any more, neither an image nor a snapshot."""

    @property
    def cluster_epoch(self) -> int:
        """1, and one more for every restore from a backup."""
        return 1 + len(self.restores)

    def come_after(self, before: "LedgerState") -> None:
        """This state takes the place of an earlier one of the same journal: what was derived from that is
        outdated, and its owner's bounds stay."""
        self.topics.version = max(self.topics.version, before.topics.version) + 1
        self.quotas.version = max(self.quotas.version, before.quotas.version) + 1
        configs = self.resource_configs
        configs.version = max(configs.version, before.resource_configs.version) + 1
        self.producer_bounds = before.producer_bounds

    @property
    def partition_count(self) -> int:
        """Partitions of live topics, and of deleted ones that are not let go of or still have runs."""
        leaving = sum(len(partitions) - first for partitions, first in self.leaving)
        return self.logs.in_topics + self.logs.deleted + leaving

    def part(self, kind: type[Part]) -> Part:
        """What a feature keeps for itself, empty at first. What several features or requests of clients read
        is an attribute of the state instead."""
        part = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind()
        return part
