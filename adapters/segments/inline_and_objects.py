"""Batches inside of journal entries and those in objects, as one store for reading."""

from collections.abc import Sequence

from adapters.journals.inline import InlineFrames
from ledger.keys import is_inline
from ledger.ports import Capabilities, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject


class InlineAndObjects:
    """A SegmentStore, of which a part is in the entries of a journal. That part is written with the entries,
    and goes with them: it is neither listed nor deleted here."""

    def __init__(self, objects: SegmentStore, frames: InlineFrames) -> None:
        """`objects` is closed with it."""
        self._objects = objects
        self._frames = frames

    @property
    def capabilities(self) -> Capabilities:
        return self._objects.capabilities

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        return await self._objects.write(batches, created_ms, feature_level)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        inline = [i for i, position in enumerate(positions) if is_inline(position.locator)]
        if not inline:
            return await self._objects.read(positions)
        found = dict(zip(inline, await self._frames.read([positions[i] for i in inline]), strict=True))
        others = [position for i, position in enumerate(positions) if i not in found]
        in_order = iter(await self._objects.read(others) if others else ())
        return [found[i] if i in found else next(in_order) for i in range(len(positions))]

    async def abandon(self, locator: str) -> None:
        if not is_inline(locator):
            await self._objects.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        """Entries go when the journal is pruned."""
        objects = [locator for locator in locators if not is_inline(locator)]
        if objects:
            await self._objects.delete(objects)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._objects.objects(after, limit)

    async def close(self) -> None:
        try:
            await self._frames.close()
        finally:
            await self._objects.close()
