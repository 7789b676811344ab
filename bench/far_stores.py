"""Far stores in this process, whose calls take as long as one says: the adapters over them are the real ones.

A bucket behind the port that the S3 client sends its requests through, and metadata that compare `start` in
the step that creates an entry, as etcd does.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeVar

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.memory import MemoryMetadata
from adapters.metadata.s3 import S3Metadata
from adapters.open import open_journal
from adapters.s3.client import S3Client
from adapters.s3.results import Absent, Found, GetResult, OutOfRange, PutResult, Refused, Stored
from adapters.s3.transport import Accept
from adapters.segments.objects import ObjectSegments
from gateway.store_assembly import INLINE_BYTES, S3_INLINE_BYTES
from gateway.world import StoreOpener
from ledger.ports import Lost, MetadataStore, PutOutcome, Versioned
from tests.support.s3_transport import Answer, MemoryTransport

T = TypeVar("T")
SLOW_S: Final = 0.5
SLOW_EVERY: Final = 100
ETCD_PUT_S, ETCD_GET_S = 0.003, 0.001
WAL: Final = "wal/"


@dataclass(frozen=True, slots=True)
class Far:
    """How far the stores are. A GET of the bucket takes half as long as a PUT."""

    put_ms: int
    with_etcd: bool = True
    """Where the metadata is: else in the bucket."""
    has_tail: bool = False
    """One PUT in SLOW_EVERY takes SLOW_S."""
    keeps: bool = True
    """Record batches may be read: else only their number and sizes are kept."""
    inline: bool = True
    """Small drafts travel inside of entries, as far as by default; else each is an object."""

    @property
    def inline_bytes(self) -> int:
        if not self.inline:
            return 0
        return INLINE_BYTES if self.with_etcd else S3_INLINE_BYTES


class BenchBucket(MemoryTransport):
    """Counts requests, and the bytes of record batches. Versions are counted, as hashing is no cost of a
    gateway."""

    def __init__(self, far: Far) -> None:
        super().__init__()
        self._far = far
        self._tags: dict[str, str] = {}
        self._numbers = count()
        self.requests: Counter[str] = Counter()
        """By operation and the first part of the key."""
        self.wal_bytes = 0

    async def put(self, key: str, data: bytes, expect: str | None) -> PutResult:
        def effect() -> PutResult:
            if self._tags.get(key) != expect:
                return Refused()
            is_wal = key.startswith(WAL)
            self.wal_bytes += len(data) if is_wal else 0
            self.objects[key] = b"" if is_wal and not self._far.keeps else data
            self._tags[key] = str(next(self._numbers))
            return Stored(self._tags[key])

        result: PutResult = await self._send("put", key, effect)
        return result

    async def get(self, key: str, start: int, size: int | None, accept: Accept) -> GetResult:
        def effect() -> GetResult:
            found = self.objects.get(key)
            if found is None:
                return Absent()
            end = len(found) if size is None else start + size
            return OutOfRange(len(found)) if end > len(found) else Found(found[start:end], self._tags[key])

        result = await self._send("get", key, effect)
        refused = accept(len(result.value)) if isinstance(result, Found) else None
        return result if refused is None else refused

    async def _send(self, operation: str, key: str, effect: Callable[[], T]) -> Any:
        self.requests[f"{operation} {key.partition('/')[0]}"] += 1
        put_s = self._far.put_ms / 1000
        is_put = operation == "put"
        is_slow = is_put and self._far.has_tail and sum(self.requests.values()) % SLOW_EVERY == 0
        self.plan.append(Answer(after_s=SLOW_S if is_slow else put_s if is_put else put_s / 2))
        self.sent.clear()
        return await super()._send(operation, key, effect)


class EtcdLike(MemoryMetadata):
    """A GuardingStore (`adapters/journals/guarded.py`)."""

    def __init__(self) -> None:
        super().__init__(exclusive=False)

    async def get(self, key: str) -> Versioned | None:
        await asyncio.sleep(ETCD_GET_S)
        return await super().get(key)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        await asyncio.sleep(ETCD_PUT_S)
        return await super().put(key, value, expect)

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        await asyncio.sleep(ETCD_PUT_S)
        present = await super().get(guard)
        if (present.version if present is not None else None) != version:
            return Lost()
        return await super().put(key, value, None)


class FarStores:
    """The stores of one gateway."""

    def __init__(self, far: Far) -> None:
        self.bucket = BenchBucket(far)
        self._client = S3Client(self.bucket, "s3://bench/")
        self.metadata: MetadataStore = EtcdLike() if far.with_etcd else S3Metadata(self._client)

    def opener(self) -> StoreOpener:
        def no_image(url: str) -> Any:
            raise ValueError(f"no image is configured: {url}")

        return StoreOpener(
            metadata=lambda url, **_: self.metadata,
            segments=lambda url, **_: ObjectSegments(S3Blobs(self._client)),
            blobs=lambda url, **_: S3Blobs(self._client),
            image=no_image,
            journal=open_journal,
        )
