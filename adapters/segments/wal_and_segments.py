"""WAL objects of any store, and what jobs write in blobs, as one store."""

from collections.abc import Sequence
from typing import Protocol

from adapters.segments.adopted import AdoptedSegments
from adapters.segments.locators import WAL_PREFIX
from adapters.segments.segment_blobs import SegmentBlobs
from ledger.keys import JOB_PREFIXES, is_adopted, is_of_job
from ledger.ports import Capabilities, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject


class StoredWal(Protocol):
    """WAL objects for reading."""

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]: ...

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]: ...

    async def close(self) -> None: ...


class WalAndSegmentsOfJob:
    """A store for jobs (`ledger.ports.JobSegments`): reads both, and writes what jobs write."""

    def __init__(
        self, wal: StoredWal, segments: SegmentBlobs, adopted: AdoptedSegments | None = None
    ) -> None:
        """All are closed with it. Nothing is read of adopted segments without `adopted`."""
        self._stored_wal = wal
        self._segments = segments
        self._adopted = adopted

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        if self._adopted is None or not any(is_adopted(position.locator) for position in positions):
            return await self._read_own(positions)
        elsewhere = [i for i, position in enumerate(positions) if is_adopted(position.locator)]
        data = await self._adopted.read([positions[i] for i in elsewhere])
        found = dict(zip(elsewhere, data, strict=True))
        own = [position for i, position in enumerate(positions) if i not in found]
        in_order = iter(await self._read_own(own) if own else ())
        return [found[i] if i in found else next(in_order) for i in range(len(positions))]

    async def _read_own(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        of_segments = [i for i, position in enumerate(positions) if is_of_job(position.locator)]
        if not of_segments:
            return await self._stored_wal.read(positions)
        if len(of_segments) == len(positions):
            return await self._segments.read(positions)
        found = await self._segments.read([positions[i] for i in of_segments])
        in_segments = dict(zip(of_segments, found, strict=True))
        others = [position for i, position in enumerate(positions) if i not in in_segments]
        in_wal = iter(await self._stored_wal.read(others))
        return [in_segments[i] if i in in_segments else next(in_wal) for i in range(len(positions))]

    async def write_segment(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        await self._segments.write(locator, buffers, index)

    async def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        await self._segments.write_settled(locator, log, index, meta)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        found: list[StoredObject] = []
        if after < WAL_PREFIX:
            found = await self._segments.objects(after, limit)
            after = ""
        if len(found) < limit:
            found.extend(await self._stored_wal.objects(after, limit - len(found)))
        return found

    async def close(self) -> None:
        try:
            await self._stored_wal.close()
        finally:
            try:
                await self._segments.close()
            finally:
                if self._adopted is not None:
                    await self._adopted.close()


class WalAndSegments(WalAndSegmentsOfJob):
    """A SegmentStore of both."""

    def __init__(
        self, wal: SegmentStore, segments: SegmentBlobs, adopted: AdoptedSegments | None = None
    ) -> None:
        super().__init__(wal, segments, adopted)
        self._wal = wal

    @property
    def capabilities(self) -> Capabilities:
        return self._wal.capabilities

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        return await self._wal.write(batches, created_ms, feature_level)

    async def abandon(self, locator: str) -> None:
        await self._wal.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        """Adopted segments stay: they are not the gateway's own."""
        locators = [locator for locator in locators if not is_adopted(locator)]
        segments = [locator for locator in locators if is_of_job(locator)]
        if len(segments) < len(locators):
            await self._wal.delete([locator for locator in locators if not is_of_job(locator)])
        if segments:
            await self._segments.delete(segments)


assert max(JOB_PREFIXES) < WAL_PREFIX, "objects are listed in this order"
