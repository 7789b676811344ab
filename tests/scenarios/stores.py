"""Metadata stores of scenarios: any that may be away, and real ones that take no time on a virtual clock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from adapters.journals.guarded import GuardingStore, is_guarding
from adapters.open import open_metadata
from ledger.errors import StoreUnavailable
from ledger.ports import MetadataStore, PutOutcome, Versioned
from tests.support.loop_thread import Call, loop_in_thread


class _Wrapped:
    """A MetadataStore like the one inside."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

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
        return await self._store.get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._store.scan(prefix, start, limit)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        return await self._store.put(key, value, expect)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()


class AwayStore(_Wrapped):
    """Refuses to write while it is away."""

    is_away = False

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self._check()
        return await super().put(key, value, expect)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the store is away")


class _AwayGuardingStore(AwayStore):
    def __init__(self, store: GuardingStore) -> None:
        super().__init__(store)
        self._guarding = store

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        self._check()
        return await self._guarding.create_guarded(key, value, guard, version)


def away_store(store: MetadataStore) -> AwayStore:
    """With all that the store can do."""
    return _AwayGuardingStore(store) if is_guarding(store) else AwayStore(store)


class _Elsewhere(_Wrapped):
    """Its calls run on a loop in another thread, and this one stands still until they have ended."""

    def __init__(self, store: MetadataStore, call: Call) -> None:
        super().__init__(store)
        self._call = call

    async def get(self, key: str) -> Versioned | None:
        return self._call(super().get(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return self._call(super().scan(prefix, start, limit))

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        return self._call(super().put(key, value, expect))

    async def delete(self, keys: Sequence[str]) -> None:
        self._call(super().delete(keys))


class _GuardingElsewhere(_Elsewhere):
    def __init__(self, store: GuardingStore, call: Call) -> None:
        super().__init__(store, call)
        self._guarding = store

    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        return self._call(self._guarding.create_guarded(key, value, guard, version))


@contextmanager
def real_store(url: str) -> Iterator[MetadataStore]:
    """For `run_virtually`: a call of it takes no time on the clock there."""
    with loop_in_thread("a real store") as (_, call):
        store = open_metadata(url)
        try:
            yield _GuardingElsewhere(store, call) if is_guarding(store) else _Elsewhere(store, call)
        finally:
            call(store.close())
