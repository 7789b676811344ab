"""Thin wrappers around three of the ports: the duration of each operation of a store, the last failures, and
calls that have no response for long. The time that a call waits for its turn in the store is no time of the
store, and measured apart.

One clock reading before and after a call of a store, which serves many batches: nothing per record.
"""

import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, TypeGuard

import structlog
from prometheus_client import Counter

from gateway.telemetry.local_metrics import LocalHistogram
from gateway.telemetry.logs import QuietLog
from gateway.telemetry.metrics import Metrics
from ledger.errors import AlreadyExists, NotFound, StoreError
from ledger.journal import GROUP_COMMIT_BATCHES
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
from ledger.turns import TIMED_CALL, Queueing
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

log = structlog.get_logger(__name__)

FAILURE_COUNTS_SECONDS: Final = 30.0
STALLED_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 60.0
CLIENTS_WAIT_FOR: Final = frozenset({"metadata.get", "metadata.put", "segments.read", "segments.write"})
"""What takes long elsewhere, such as the upload of a large snapshot, is no failure."""
QUEUED: Final = frozenset({"segments.read"})
"""Of these many are under way at a time. A store that answers others meanwhile has not stopped to answer: one
call that hangs then is a warning."""


@dataclass(slots=True)
class _Failing:
    """Of one operation, since its last success. Times are monotonic."""

    since: float
    is_logged: bool
    reason: str = ""
    at: float = 0.0


class StoreHealth:
    """The last failures of the operations of stores. The log has a line when an operation begins to fail, and
    one when it works again; of one that fails now and then at most these two within QUIET_SECONDS. It also
    has one of an operation that clients have waited for too long."""

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """`settings`: by store, where it is and the setting that says so."""
        self._settings = settings
        self._failing: dict[str, _Failing] = {}
        self._logged_at: dict[str, float] = {}
        self._awaited: dict[str, _Timed] = {}
        self._slow = QuietLog(QUIET_SECONDS, keyed_by=("operation",))

    def failing(self) -> dict[str, str]:
        """`store.operation` to the reason, of recent failures without a success since. They expire: a gateway
        that gets no requests because it is not ready could not notice otherwise that the store works
        again. Also operations that clients wait for, while a call of them has no response for long."""
        now = time.monotonic()
        stalled = {
            name: f"no response for {seconds:.0f} s"
            for name, timed in self._awaited.items()
            if (seconds := timed.silent_s()) >= STALLED_SECONDS
        }
        recent = {
            name: failing.reason
            for name, failing in self._failing.items()
            if now - failing.at < FAILURE_COUNTS_SECONDS
        }
        return {**stalled, **recent}

    def warnings(self) -> list[dict[str, str]]:
        """Calls that have no response for long, while others of the same operation are answered. Each with
        `reason`, a fixed word, and `detail`."""
        return [
            {"reason": "store_call_hangs", "detail": self._hanging(name, timed.longest_s())}
            for name, timed in self._awaited.items()
            if timed.longest_s() >= STALLED_SECONDS > timed.silent_s()
        ]

    def _hanging(self, name: str, seconds: float) -> str:
        setting = self._settings.get(name.partition(".")[0])
        where = f" ({setting})" if setting else ""
        return (
            f"{name}{where}: a call has had no response for {seconds:.0f} s, while others are answered; it "
            "is given up after the deadline of the store, look at the store and the network if others follow"
        )

    def watch(self, name: str, timed: "_Timed") -> None:
        if name in CLIENTS_WAIT_FOR:
            self._awaited[name] = timed

    def succeeded(self, name: str, seconds: float) -> None:
        if seconds >= STALLED_SECONDS and name in self._awaited:
            self._slow.warning("store.slow", operation=name, seconds=round(seconds, 1))
        failing = self._failing.pop(name, None) if self._failing else None
        if failing is not None and failing.is_logged:
            failed_for_s = round(time.monotonic() - failing.since, 1)
            log.info("store.works_again", operation=name, failed_for_s=failed_for_s)

    def failed(self, name: str, reason: str) -> None:
        now = time.monotonic()
        failing = self._failing.get(name)
        if failing is None:
            is_logged = now - self._logged_at.get(name, -math.inf) >= QUIET_SECONDS
            failing = self._failing[name] = _Failing(now, is_logged)
            if is_logged:
                self._logged_at[name] = now
                log.warning("store.failing", operation=name, error=reason)
        failing.reason, failing.at = reason, now


class _Timed:
    """Times one operation, as often as it is entered; entries may overlap."""

    def __init__(
        self,
        name: str,
        seconds: LocalHistogram,
        queued: LocalHistogram,
        errors: Counter,
        health: StoreHealth,
    ) -> None:
        self._name = name
        self._seconds = seconds
        self._queued = queued
        self._errors = errors
        self._health = health
        self._under_way: dict[_Call, None] = {}
        """The oldest first."""
        self._is_queued = name in QUEUED
        self._ended = -math.inf
        """When a call ended last."""

    def begin(self) -> "_Call":
        return _Call(self)

    def begun(self, call: "_Call") -> None:
        self._under_way[call] = None

    def done(self, call: "_Call", error: BaseException | None) -> None:
        del self._under_way[call]
        self._ended = now = time.perf_counter()
        queued_s = call.queued_s(now)
        seconds = now - call.began - queued_s
        self._seconds.observe(seconds)
        if queued_s:
            self._queued.observe(queued_s)
        if isinstance(error, StoreError) and not isinstance(error, (NotFound, AlreadyExists)):
            self._failed(str(error))
        elif call.unknown:
            self._failed(call.unknown)
        elif error is None:
            self._health.succeeded(self._name, seconds)

    def _failed(self, reason: str) -> None:
        self._errors.inc()
        self._health.failed(self._name, reason)

    def longest_s(self) -> float:
        """How long a call under way has been with the store without a response, at most."""
        now = time.perf_counter()
        return max((call.seconds(now) for call in self._under_way), default=0.0)

    def silent_s(self) -> float:
        """The same; of operations of which many are under way, how long none has had a response."""
        longest_s = self.longest_s()
        return min(longest_s, time.perf_counter() - self._ended) if self._is_queued else longest_s


class _Call(Queueing):
    __slots__ = (
        "_before",
        "_queued_s",
        "_serving",
        "_timed",
        "_waiting",
        "_waits_since",
        "began",
        "unknown",
    )

    def __init__(self, timed: _Timed) -> None:
        self._timed = timed
        self.began = 0.0
        self.unknown = ""
        """Why its outcome is not known, where it says so by a value."""
        self._waiting = self._serving = 0
        self._queued_s = 0.0
        self._waits_since: float | None = None
        self._before: Token[Queueing | None] | None = None

    def __enter__(self) -> "_Call":
        self.began = time.perf_counter()
        self._timed.begun(self)
        self._before = TIMED_CALL.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            TIMED_CALL.reset(self._before)
        self._timed.done(self, error)

    def queued_s(self, now: float) -> float:
        """For how long it has waited for its turn."""
        return self._queued_s + (now - self._waits_since if self._waits_since is not None else 0.0)

    def seconds(self, now: float) -> float:
        """For how long it has been with the store."""
        return now - self.began - self.queued_s(now)

    def waits(self) -> None:
        self._waiting += 1
        self._look()

    def passes(self) -> None:
        self._waiting -= 1
        self._look()

    def begins(self) -> None:
        self._serving += 1
        self._look()

    def ends(self) -> None:
        self._serving -= 1
        self._look()

    def _look(self) -> None:
        is_queued = self._waiting > 0 and not self._serving
        if is_queued == (self._waits_since is not None):
            return
        now = time.perf_counter()
        self._queued_s, self._waits_since = self.queued_s(now), now if is_queued else None


class StoreWatch:
    """Makes the wrappers of one gateway."""

    def __init__(self, metrics: Metrics, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """`settings` as of `StoreHealth`."""
        self._metrics = metrics
        self.health = StoreHealth(settings)

    def timed(self, store: str, op: str) -> _Timed:
        seconds = self._metrics.store_seconds.labels(store, op)
        queued = self._metrics.store_queue_seconds.labels(store, op)
        errors = self._metrics.store_errors.labels(store, op)
        name = f"{store}.{op}"
        timed = _Timed(name, seconds, queued, errors, self.health)
        self.health.watch(name, timed)
        self._metrics.store_waiting_seconds.labels(store, op).set_function(timed.longest_s)
        return timed


class TimedMetadata:
    """A MetadataStore."""

    def __init__(self, store: MetadataStore, watch: StoreWatch) -> None:
        self._store = store
        self.entry_batches: int = getattr(store, "entry_batches", GROUP_COMMIT_BATCHES)
        """Of its journal (`ledger.ports.Journal`)."""
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
        return await self._timed_put(self._store.put(key, value, expect))

    async def _timed_put(self, put: Awaitable[PutOutcome]) -> PutOutcome:
        with self._put.begin() as call:
            outcome = await put
            if isinstance(outcome, Unknown):
                call.unknown = outcome.reason
        return outcome

    async def delete(self, keys: Sequence[str]) -> None:
        with self._delete.begin():
            await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


class GuardingStore(MetadataStore, Protocol):
    """A store that compares another key in the step that creates one (`adapters/journals/guarded.py`)."""

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome: ...


class TimedGuarding(TimedMetadata):
    """A GuardingStore, whose guarded creates count as puts."""

    def __init__(self, store: GuardingStore, watch: StoreWatch) -> None:
        super().__init__(store, watch)
        self._guarding = store

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        return await self._timed_put(self._guarding.create_guarded(key, value, guard, version))


def timed_metadata(store: MetadataStore, watch: StoreWatch) -> TimedMetadata:
    """With all that the store can do."""
    return TimedGuarding(store, watch) if _is_guarding(store) else TimedMetadata(store, watch)


def _is_guarding(store: MetadataStore) -> TypeGuard[GuardingStore]:
    return hasattr(store, "create_guarded")


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
