"""Thin wrappers around three of the ports: the duration of each operation of a store, and the last failures.

One clock reading before and after a call of a store, which serves many batches: nothing per record.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from prometheus_client import Counter

from gateway.telemetry.local_metrics import LocalHistogram
from gateway.telemetry.metrics import Metrics
from ledger.errors import AlreadyExists, NotFound, StoreError
from ledger.ports import (
    BlobInfo,
    Blobs,
    Capabilities,
    MetadataStore,
    PutOutcome,
    SegmentStore,
    Unknown,
    Versioned,
)
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

FAILURE_COUNTS_SECONDS: Final = 30.0


class StoreHealth:
    """The last failures of the operations of stores."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, float]] = {}

    def failing(self) -> dict[str, str]:
        """`store.operation` to the reason, of recent failures without a success since. They expire: a gateway
        that gets no requests because it is not ready could not notice otherwise that the store works
        again."""
        now = time.monotonic()
        return {
            name: reason for name, (reason, at) in self._failed.items() if now - at < FAILURE_COUNTS_SECONDS
        }

    def succeeded(self, name: str) -> None:
        if self._failed:
            self._failed.pop(name, None)

    def failed(self, name: str, reason: str) -> None:
        self._failed[name] = (reason, time.monotonic())


class _Timed:
    """Times one operation, as often as it is entered; entries may overlap."""

    def __init__(self, name: str, seconds: LocalHistogram, errors: Counter, health: StoreHealth) -> None:
        self._name = name
        self._seconds = seconds
        self._errors = errors
        self._health = health

    def begin(self) -> "_Call":
        return _Call(self)

    def done(self, seconds: float, error: BaseException | None) -> None:
        self._seconds.observe(seconds)
        if isinstance(error, StoreError) and not isinstance(error, (NotFound, AlreadyExists)):
            self.failed(str(error))
        elif error is None:
            self._health.succeeded(self._name)

    def failed(self, reason: str) -> None:
        self._errors.inc()
        self._health.failed(self._name, reason)


class _Call:
    __slots__ = ("_began", "_timed")

    def __init__(self, timed: _Timed) -> None:
        self._timed = timed
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timed.done(time.perf_counter() - self._began, error)


class StoreWatch:
    """Makes the wrappers of one gateway."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.health = StoreHealth()

    def timed(self, store: str, op: str) -> _Timed:
        seconds = self._metrics.store_seconds.labels(store, op)
        errors = self._metrics.store_errors.labels(store, op)
        return _Timed(f"{store}.{op}", seconds, errors, self.health)


class TimedMetadata:
    """A MetadataStore."""

    def __init__(self, store: MetadataStore, watch: StoreWatch) -> None:
        self._store = store
        self._get = watch.timed("metadata", "get")
        self._scan = watch.timed("metadata", "scan")
        self._put = watch.timed("metadata", "put")
        self._delete = watch.timed("metadata", "delete")

    @property
    def exclusive(self) -> bool:
        return self._store.exclusive

    @property
    def unique_versions(self) -> bool:
        return self._store.unique_versions

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def get(self, key: str) -> Versioned | None:
        with self._get.begin():
            return await self._store.get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        with self._scan.begin():
            return await self._store.scan(prefix, start, limit)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        with self._put.begin():
            outcome = await self._store.put(key, value, expect)
        if isinstance(outcome, Unknown):
            self._put.failed(outcome.reason)
        return outcome

    async def delete(self, keys: Sequence[str]) -> None:
        with self._delete.begin():
            await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


class TimedSegments:
    """A SegmentStore."""

    def __init__(self, store: SegmentStore, watch: StoreWatch) -> None:
        self._store = store
        self._write = watch.timed("segments", "write")
        self._read = watch.timed("segments", "read")
        self._abandon = watch.timed("segments", "abandon")
        self._delete = watch.timed("segments", "delete")
        self._objects = watch.timed("segments", "objects")

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        with self._write.begin():
            return await self._store.write(batches, created_ms, feature_level)

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        with self._read.begin():
            return await self._store.read(positions)

    async def abandon(self, locator: str) -> None:
        with self._abandon.begin():
            await self._store.abandon(locator)

    async def delete(self, locators: Sequence[str]) -> None:
        with self._delete.begin():
            await self._store.delete(locators)

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        with self._objects.begin():
            return await self._store.objects(after, limit)

    async def close(self) -> None:
        await self._store.close()


class TimedBlobs:
    """Blobs."""

    def __init__(self, store: Blobs, watch: StoreWatch) -> None:
        self._store = store
        self._put = watch.timed("blobs", "put")
        self._get = watch.timed("blobs", "get")
        self._list = watch.timed("blobs", "list")
        self._delete = watch.timed("blobs", "delete")

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        with self._put.begin():
            await self._store.put(key, parts)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        with self._get.begin():
            return await self._store.get(key, start, size)

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        with self._list.begin():
            return await self._store.list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._delete.begin():
            await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()
