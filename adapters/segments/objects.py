"""Batches as objects in Blobs: every draft one frame under a key of its own, `wal/{shard}/{uuidv7}`."""

import asyncio
import os
from collections.abc import Callable, Sequence

from adapters.segments.locators import WAL_PREFIX, WalLocators, wal_created_ms
from adapters.segments.ranges import MergedRange, merge_adjacent
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.formats.wal import encode_frame, frame_version
from ledger.ports import BlobInfo, Blobs, Capabilities
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

READS_AT_ONCE = 128
MAX_GAP_BYTES = 128 * 1024
"""Between two ranges of an object: to read so much more costs less than another call."""
LIST_PAGE = 1000


class ObjectSegments:
    """A SegmentStore over any Blobs, which it closes with itself."""

    def __init__(self, blobs: Blobs, *, shard: int = 0, random: Callable[[int], bytes] = os.urandom) -> None:
        self._blobs = blobs
        self._locators = WalLocators(shard, random)
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

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
        try:
            await self._blobs.put(locator, frame.buffers)
        except AlreadyExists as error:
            await self._check_own(locator, frame.buffers, error)
        except OutcomeUnknown as error:
            raise StoreUnavailable(str(error)) from error
        return Placement(locator, list(frame.starts), frame.size)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        found: list[Buffer | None] = [None] * len(positions)
        errors: list[StoreError] = []
        async with asyncio.TaskGroup() as tasks:
            for merged in merge_adjacent(positions, MAX_GAP_BYTES):
                tasks.create_task(self._read_merged(merged, positions, found, errors))
        if errors:
            raise errors[0]
        return found

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

    async def _check_own(self, locator: str, buffers: Sequence[Buffer], error: AlreadyExists) -> None:
        """The key is new and random, so an object with the same bytes is from an earlier attempt of the same
        put: clients of remote stores retry by themselves."""
        try:
            is_own = await self._blobs.get(locator) == b"".join(buffers)
        except NotFound:
            is_own = False
        if not is_own:
            raise StoreUnavailable(f"{error}, with other bytes; the next write takes another key") from error

    async def _read_merged(
        self,
        merged: MergedRange,
        positions: Sequence[Position],
        found: list[Buffer | None],
        errors: list[StoreError],
    ) -> None:
        if errors or wal_created_ms(merged.locator) is None:
            return
        try:
            data = memoryview(await self._get(merged.locator, merged.start, merged.size))
        except NotFound:
            # Some of its positions may be there nevertheless.
            if len(merged.pieces) > 1:
                for index, offset in merged.pieces:
                    alone = MergedRange(merged.locator, merged.start + offset, positions[index].size)
                    alone.pieces.append((index, 0))
                    await self._read_merged(alone, positions, found, errors)
            return
        except StoreError as error:
            errors.append(error)
            return
        for index, offset in merged.pieces:
            piece = data[offset : offset + positions[index].size]
            # A view would keep the gaps in memory.
            found[index] = bytes(piece) if merged.gap_bytes else piece

    async def _get(self, locator: str, start: int, size: int) -> bytes:
        async with self._reads:
            return await self._blobs.get(locator, start, size)


def _stored(info: BlobInfo) -> StoredObject | None:
    created = wal_created_ms(info.key)
    return None if created is None else StoredObject(info.key, created, info.size)
