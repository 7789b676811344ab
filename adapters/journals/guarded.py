"""A journal over a store that compares `start` in the step that creates an entry.

So an append needs no read after it to know that it counts.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeGuard

from adapters.journals.metadata import COUNTS, MetadataJournal, decode_start, start_key
from ledger.errors import OutcomeUnknown
from ledger.ports import Appended, AppendOutcome, MetadataStore, PutOutcome, Unknown, Versioned, Won
from ledger.types import DraftBatch

ATTEMPTS: Final = 3


class GuardingStore(MetadataStore, Protocol):
    async def create_guarded(self, key: str, value: bytes, guard: str, version: str | None) -> PutOutcome:
        """As `put` of a key that must not exist, if in the same step the present version of `guard`, another
        key, is `version`; None: it must not exist."""
        ...


def is_guarding(store: MetadataStore) -> TypeGuard[GuardingStore]:
    return hasattr(store, "create_guarded")


class GuardedJournal(MetadataJournal):
    """A Journal. Whatever is not simply won goes the way of `MetadataJournal`."""

    def __init__(
        self, store: GuardingStore, shard: int, *, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        super().__init__(store, shard, random=random)
        self._guarding = store
        self._start_key = start_key(shard)
        self._start: Versioned | None = None
        """As it was read last; None if it was absent."""
        self._is_start_known = False
        self._number = 0
        self._counts = False

    async def append(self, number: int, entry: bytes, batches: Sequence[DraftBatch] = ()) -> AppendOutcome:
        self._number, self._counts = number, False
        outcome = await super().append(number, entry, batches)
        return COUNTS if self._counts and isinstance(outcome, Appended) else outcome

    async def _put_entry(self, key: str, value: bytes) -> PutOutcome:
        """Also of an entry that was put before, with an unknown outcome."""
        for _ in range(ATTEMPTS):
            if not self._is_start_known:
                self._start = await self._guarding.get(self._start_key)
                self._is_start_known = True
            start = self._start
            if start is not None and decode_start(start.value, self._start_key) > self._number:
                # It will not count, which the caller finds out as with any store.
                break
            version = start.version if start is not None else None
            outcome = await self._created(key, value, version)
            self._counts = isinstance(outcome, Won)
            if isinstance(outcome, Won):
                return outcome
            # `start` may have been raised, or the entry may be there.
            self._is_start_known = False
            if isinstance(outcome, Unknown) or await self._guarding.get(key) is not None:
                return outcome
        self._is_start_known = False
        return await super()._put_entry(key, value)

    async def _created(self, key: str, value: bytes, version: str | None) -> PutOutcome:
        try:
            return await self._guarding.create_guarded(key, value, self._start_key, version)
        except OutcomeUnknown as error:
            return Unknown(str(error))
