"""Segments in memory, for tests and for trying things out: gone with the process."""

import os
from collections.abc import Callable, Sequence

from adapters.segments.locators import WalLocators, wal_created_ms
from ledger.ports import Capabilities
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject


class MemorySegments:
    """A SegmentStore in a dictionary: an object per draft, batches back to back."""

    capabilities = Capabilities(deletes=True, atomic=True, durable_ack=False)

    def __init__(self, *, shard: int = 0, random: Callable[[int], bytes] = os.urandom) -> None:
        self._locators = WalLocators(shard, random)
        self._objects: dict[str, bytes] = {}

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        if not batches:
            raise ValueError("a draft without batches has no place in a WAL object")
        self._locators.see(created_ms)
        locator = self._locators.new()
        starts: list[int] = []
        size = 0
        for batch in batches:
            starts.append(size)
            size += len(batch.data)
        self._objects[locator] = b"".join(batch.data for batch in batches)
        return Placement(locator, starts, size)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return [self._read_one(position) for position in positions]

    async def abandon(self, locator: str) -> None:
        """Nothing to do: every draft is an object of its own."""

    async def delete(self, locators: Sequence[str]) -> None:
        for locator in locators:
            self._objects.pop(locator, None)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        names = sorted(name for name in self._objects if name > after)[: max(limit, 0)]
        return [StoredObject(name, wal_created_ms(name) or 0, len(self._objects[name])) for name in names]

    async def close(self) -> None:
        return None

    def _read_one(self, position: Position) -> Buffer | None:
        held = self._objects.get(position.locator)
        end = position.start + position.size
        if held is None or not 0 <= position.start <= end <= len(held):
            return None
        return memoryview(held)[position.start : end]
