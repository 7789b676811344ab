"""WAL objects of any store, what jobs write in blobs, and files of a local log, as one store."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from adapters.segments.adopted import AdoptedSegments
from adapters.segments.locators import WAL_PREFIX
from adapters.segments.segment_blobs import SegmentBlobs
from ledger.keys import JOB_PREFIXES, LOG_PREFIX, is_adopted, is_log, is_of_job
from ledger.ports import Capabilities, SegmentStore
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject


class StoredWal(Protocol):
    """WAL objects for reading."""

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]: ...

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]: ...

    async def close(self) -> None: ...


class LogFiles(StoredWal, Protocol):
    """Files of a local log, as objects."""

    async def abandon(self, locator: str) -> None: ...

    async def delete(self, locators: Sequence[str]) -> None: ...


class WalAndSegmentsOfJob:
    """A store for jobs (`ledger.ports.JobSegments`): reads all, and writes what jobs write."""

    def __init__(
        self,
        wal: StoredWal,
        segments: SegmentBlobs,
        adopted: AdoptedSegments | None = None,
        *,
        logs: StoredWal | None = None,
    ) -> None:
        """All are closed with it. Nothing is read of adopted segments without `adopted`, and of files of a
        local log without `logs`."""
        self._stored_wal = wal
        self._segments = segments
        self._adopted = adopted
        self._stored_logs = logs

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
            return await self._read_wal(positions)
        if len(of_segments) == len(positions):
            return await self._segments.read(positions)
        found = await self._segments.read([positions[i] for i in of_segments])
        in_segments = dict(zip(of_segments, found, strict=True))
        others = [position for i, position in enumerate(positions) if i not in in_segments]
        in_wal = iter(await self._read_wal(others))
        return [in_segments[i] if i in in_segments else next(in_wal) for i in range(len(positions))]

    async def _read_wal(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        """Of WAL objects and files of a local log."""
        if self._stored_logs is None:
            return await self._stored_wal.read(positions)
        in_logs = [i for i, position in enumerate(positions) if is_log(position.locator)]
        if not in_logs:
            return await self._stored_wal.read(positions)
        if len(in_logs) == len(positions):
            return await self._stored_logs.read(positions)
        data = await self._stored_logs.read([positions[i] for i in in_logs])
        found = dict(zip(in_logs, data, strict=True))
        others = [position for i, position in enumerate(positions) if i not in found]
        in_order = iter(await self._stored_wal.read(others))
        return [found[i] if i in found else next(in_order) for i in range(len(positions))]

    async def write_segment(self, locator: str, buffers: Sequence[Buffer], index: Buffer) -> None:
        await self._segments.write(locator, buffers, index)

    async def write_settled(self, locator: str, log: Sequence[Buffer], index: Buffer, meta: Buffer) -> None:
        await self._segments.write_settled(locator, log, index, meta)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        found: list[StoredObject] = []
        if self._stored_logs is not None and after < JOB_PREFIXES[0]:
            found.extend(await self._stored_logs.objects(after, limit))
        after = "" if is_log(after) else after
        if after < WAL_PREFIX and len(found) < limit:
            found.extend(await self._segments.objects(after, limit - len(found)))
            after = ""
        if len(found) < limit:
            found.extend(await self._stored_wal.objects(after, limit - len(found)))
        return found

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for store in (self._adopted, self._segments, self._stored_wal, self._stored_logs):
                if store is not None:
                    stack.push_async_callback(store.close)


class WalAndSegments(WalAndSegmentsOfJob):
    """A SegmentStore of all. Drafts that are written to it go into WAL objects."""

    def __init__(
        self,
        wal: SegmentStore,
        segments: SegmentBlobs,
        adopted: AdoptedSegments | None = None,
        *,
        logs: LogFiles | None = None,
    ) -> None:
        super().__init__(wal, segments, adopted, logs=logs)
        self._wal = wal
        self._logs = logs

    @property
    def capabilities(self) -> Capabilities:
        return self._wal.capabilities

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        return await self._wal.write(batches, created_ms, feature_level)

    async def abandon(self, locator: str) -> None:
        if not is_log(locator):
            await self._wal.abandon(locator)
        elif self._logs is not None:
            await self._logs.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        """Adopted segments stay: they are not the gateway's own."""
        segments = [locator for locator in locators if is_of_job(locator)]
        logs = [locator for locator in locators if is_log(locator)]
        elsewhere = {*segments, *logs}
        wal = [one for one in locators if one not in elsewhere and not is_adopted(one)]
        if wal:
            await self._wal.delete(wal)
        if segments:
            await self._segments.delete(segments)
        if logs and self._logs is not None:
            await self._logs.delete(logs)


assert LOG_PREFIX < min(JOB_PREFIXES) <= max(JOB_PREFIXES) < WAL_PREFIX, "objects are listed in this order"
