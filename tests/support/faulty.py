"""Stores that fail on purpose: wrappers around any real backend, sharing one plan of faults.

Run a script once without a fault to learn how many calls it makes, then once for each call:

    faults = Faults(); await script(FaultyMetadata(store, faults)); total = len(faults.calls)
    for n in range(1, total + 1):
        faults = Faults(fail_at=n, fault=Fault.ANSWER_LOST)
        ...
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from adapters.journals.guarded import GuardingStore
from ledger.errors import AlreadyExists, OutcomeUnknown, StoreError, StoreUnavailable
from ledger.ports import (
    BlobInfo,
    Blobs,
    Capabilities,
    Lost,
    MetadataStore,
    PutOutcome,
    SegmentStore,
    Unknown,
    Versioned,
)
from ledger.records import FIRST_LEVEL
from ledger.types import Buffer, DraftBatch, Placement, Position, StoredObject

T = TypeVar("T")


class Fault(Enum):
    """What happens to the chosen call. For calls that only read, all of these are StoreUnavailable."""

    ERROR_BEFORE = "StoreUnavailable; nothing happened"
    ERROR_AFTER = "an error is raised; the effect has happened"
    ANSWER_LOST = "the outcome is unknown; the effect has happened"
    NEVER_SENT = "the outcome is unknown; the effect has not happened and will not"
    LATE = "the outcome is unknown; the effect happens after `late_by` more calls"
    CONFLICT_AFTER_RETRY = "a conflict with one's own first attempt is reported; the effect has happened"


EVERY_FAULT = tuple(Fault)
READING = frozenset({"get", "scan", "list", "read", "objects"})


@dataclass(frozen=True, slots=True)
class Call:
    number: int
    store: str
    method: str
    key: str


class Faults:
    """The plan, and the calls that were counted. May be shared by several wrappers.

    Calls are counted from 1; `only` limits counting to methods with these names ("put") or to those of
    one store ("metadata.put", "segments.write", "blobs.get").
    """

    def __init__(
        self,
        fail_at: int = 0,
        fault: Fault = Fault.ERROR_BEFORE,
        *,
        times: int = 1,
        late_by: int = 1,
        only: Collection[str] = (),
    ) -> None:
        self.calls: list[Call] = []
        self.failed: list[Call] = []
        self._chosen = range(fail_at, fail_at + times) if fail_at else range(0)
        self._fault = fault
        self._late_by = late_by
        self._only = frozenset(only)
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []

    async def call(
        self,
        name: str,
        key: str,
        effect: Callable[[], Awaitable[T]],
        unknown: Callable[[str], T] | None = None,
        conflict: Callable[[str], T] | None = None,
    ) -> T:
        """Do `effect`, unless this call is one of those that fail. `unknown` and `conflict` make the result
        of such outcomes as a value; without them they are raised."""
        call = self._count(name, key)
        try:
            if call is None or call.number not in self._chosen:
                return await effect()
            self.failed.append(call)
            return await self._fail(call, effect, unknown, conflict)
        finally:
            await self._arrive_due(call)

    async def arrive(self) -> None:
        """Let all effects that are late happen now."""
        late, self._late = self._late, []
        for _, effect in late:
            with suppress(StoreError):
                await effect()

    async def _fail(
        self,
        call: Call,
        effect: Callable[[], Awaitable[T]],
        unknown: Callable[[str], T] | None,
        conflict: Callable[[str], T] | None,
    ) -> T:
        reason = f"fault on purpose in call {call.number}, {call.store}.{call.method}({call.key})"
        if self._fault is Fault.ERROR_BEFORE or call.method in READING:
            raise StoreUnavailable(reason)
        if self._fault is Fault.LATE:
            self._late.append((call.number + self._late_by, effect))
        elif self._fault is Fault.CONFLICT_AFTER_RETRY and conflict is not None:
            await effect()
            return conflict(reason)
        elif self._fault is not Fault.NEVER_SENT:
            await effect()
        if unknown is None or self._fault is Fault.ERROR_AFTER:
            raise OutcomeUnknown(reason)
        return unknown(reason)

    async def _arrive_due(self, call: Call | None) -> None:
        if call is None or not self._late:
            return
        due = [effect for number, effect in self._late if number <= call.number]
        self._late = [(number, effect) for number, effect in self._late if number > call.number]
        for effect in due:
            with suppress(StoreError):
                await effect()

    def _count(self, name: str, key: str) -> Call | None:
        store, method = name.split(".")
        if self._only and not self._only & {name, method}:
            return None
        call = Call(len(self.calls) + 1, store, method, key)
        self.calls.append(call)
        return call


class FaultyMetadata:
    """A MetadataStore. CONFLICT_AFTER_RETRY: a put that happened returns Lost."""

    def __init__(self, store: MetadataStore, faults: Faults, *, exclusive: bool | None = None) -> None:
        self._store = store
        self._faults = faults
        self._exclusive = exclusive

    @property
    def exclusive(self) -> bool:
        return self._store.exclusive if self._exclusive is None else self._exclusive

    @property
    def unique_versions(self) -> bool:
        return self._store.unique_versions

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def get(self, key: str) -> Versioned | None:
        return await self._faults.call("metadata.get", key, lambda: self._store.get(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._faults.call(
            "metadata.scan", prefix, lambda: self._store.scan(prefix, start, limit)
        )

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        async def effect() -> PutOutcome:
            return await self._store.put(key, value, expect)

        return await self._faults.call("metadata.put", key, effect, Unknown, lambda _: Lost())

    async def delete(self, keys: Sequence[str]) -> None:
        await self._faults.call("metadata.delete", ",".join(keys), lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()


class FaultyGuarding(FaultyMetadata):
    """A GuardingStore. Its guarded creations are puts to the plan, with the same faults."""

    def __init__(self, store: GuardingStore, faults: Faults) -> None:
        super().__init__(store, faults)
        self._guarding = store

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        async def effect() -> PutOutcome:
            return await self._guarding.create_guarded(key, value, guard, version)

        return await self._faults.call("metadata.put", key, effect, Unknown, lambda _: Lost())


class FaultyBlobs:
    """Blobs. CONFLICT_AFTER_RETRY: a put that happened raises AlreadyExists."""

    def __init__(self, blobs: Blobs, faults: Faults) -> None:
        self._blobs = blobs
        self._faults = faults

    @property
    def durable_ack(self) -> bool:
        return self._blobs.durable_ack

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        def conflict(reason: str) -> None:
            raise AlreadyExists(reason)

        # A late effect must carry the bytes of the time of the call.
        kept = [bytes(part) for part in parts]
        await self._faults.call("blobs.put", key, lambda: self._blobs.put(key, kept), conflict=conflict)

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return await self._faults.call("blobs.get", key, lambda: self._blobs.get(key, start, size))

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        return await self._faults.call("blobs.list", prefix, lambda: self._blobs.list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._faults.call("blobs.delete", ",".join(keys), lambda: self._blobs.delete(keys))

    async def close(self) -> None:
        await self._blobs.close()


class FaultySegments:
    """A SegmentStore. A failed write leaves its bytes, except with ERROR_BEFORE and NEVER_SENT;
    the object that may hold them is abandoned, as the port promises."""

    def __init__(self, store: SegmentStore, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    async def write(
        self, batches: Sequence[DraftBatch], created_ms: int, feature_level: int = FIRST_LEVEL
    ) -> Placement:
        written: list[Placement] = []

        async def effect() -> Placement:
            written.append(await self._store.write(batches, created_ms, feature_level))
            return written[-1]

        try:
            return await self._faults.call("segments.write", str(len(batches)), effect)
        except StoreError:
            for placement in written:
                await self._store.abandon(placement.locator)
            raise

    async def read(self, positions: Sequence[Position]) -> Sequence[Buffer | None]:
        return await self._faults.call(
            "segments.read", str(len(positions)), lambda: self._store.read(positions)
        )

    async def abandon(self, locator: str) -> None:
        await self._faults.call("segments.abandon", locator, lambda: self._store.abandon(locator))

    async def delete(self, locators: Sequence[str]) -> None:
        await self._faults.call("segments.delete", ",".join(locators), lambda: self._store.delete(locators))

    async def objects(self, after: str = "", limit: int = 1000) -> Sequence[StoredObject]:
        return await self._faults.call("segments.objects", after, lambda: self._store.objects(after, limit))

    async def close(self) -> None:
        await self._store.close()
