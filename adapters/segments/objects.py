"""Batches as objects in Blobs: every draft one frame under a key of its own, `wal/{shard}/{uuidv7}`."""

import os
from collections.abc import Callable, Sequence

from adapters.segments.blob_ranges import MAX_GAP_BYTES as MAX_GAP_BYTES
from adapters.segments.blob_ranges import READS_AT_ONCE as READS_AT_ONCE
from adapters.segments.blob_ranges import BlobRanges, put_new
from adapters.segments.locators import WAL_PREFIX, WalLocators, wal_created_ms
from ledger.formats.wal import encode_frame, frame_version
from ledger.ports import BlobInfo, Blobs, Capabilities
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

LIST_PAGE = 1000


class ObjectSegments:
    """A SegmentStore over any Blobs, which it closes with itself."""

    def __init__(self, blobs: Blobs, *, shard: int = 0, random: Callable[[int], bytes] = os.urandom) -> None:
        self._blobs = blobs
        self._locators = WalLocators(shard, random)
        self._ranges = BlobRanges(blobs, lambda locator: wal_created_ms(locator) is not None)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(deletes=True, atomic=True, durable_ack=self._blobs.durable_ack, overlapping=True)

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        """StoreUnavailable on every failure: no caller got the key, so an object under it is an orphan."""
        if not batches:
            raise ValueError("a draft without batches has no place in a WAL object")
        frame = encode_frame(batches, frame_version(feature_level))
        self._locators.see(created_ms)
        locator = self._locators.new()
        await put_new(self._blobs, locator, frame.buffers)
        return Placement(locator, list(frame.starts), frame.size)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._ranges.read(positions)

    async def abandon(self, locator: str) -> None:
        """Nothing to do: every draft is an object of its own."""

    async def delete(self, locators: Sequence[str]) -> None:
        await self._blobs.delete([locator for locator in locators if wal_created_ms(locator) is not None])

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        found: list[StoredObject] = []
        while len(found) < limit:
            page = await self._blobs.list(WAL_PREFIX, after, LIST_PAGE)
            if not page:
                break
            after = page[-1].key
            found.extend(stored for info in page if (stored := _stored(info)) is not None)
        return found[: max(limit, 0)]

    async def close(self) -> None:
        await self._blobs.close()


def _stored(info: BlobInfo) -> StoredObject | None:
    created = wal_created_ms(info.key)
    return None if created is None else StoredObject(info.key, created, info.size)
