"""A metadata store of several processes, whose calls are made one at a time, in an order that is drawn."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ledger.errors import StoreError
from ledger.ports import MetadataStore, PutOutcome, Unknown, Versioned

T = TypeVar("T")
LATE_SHARE = LOST_SHARE = 0.15
"""Of the puts: those that take effect some calls later, and those of which only the result is lost."""


class Interleaving:
    """Runs coroutines whose calls wait for their turn here."""

    def __init__(self, dice: random.Random, after_each: Callable[[], Awaitable[None]]) -> None:
        self.dice = dice
        self._after_each = after_each
        self._waiting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[object]] = []

    def add(self, work: Coroutine[Any, Any, object]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def call(self, effect: Callable[[], Awaitable[T]]) -> T:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn
        result = await effect()
        await self._after_each()
        return result

    async def run(self, *works: Coroutine[Any, Any, object]) -> None:
        """Until all have ended, those that were added meanwhile too. A StoreError ends only its own work."""
        for work in works:
            self.add(work)
        while left := [task for task in self._tasks if not task.done()]:
            if len(self._waiting) < len(left):
                await asyncio.sleep(0)  # one is between two calls
            else:
                self._waiting.pop(self.dice.randrange(len(self._waiting))).set_result(None)
        for task in self._tasks:
            with suppress(StoreError):
                task.result()
        self._tasks.clear()


class InterleavedMetadata:
    """A MetadataStore, as one of several processes sees it."""

    def __init__(self, store: MetadataStore, interleaving: Interleaving, *, unknown_prefix: str) -> None:
        """Puts of keys with `unknown_prefix` may have an unknown outcome."""
        self._store = store
        self._interleaving = interleaving
        self._unknown_prefix = unknown_prefix
        self.unknown = 0

    @property
    def exclusive(self) -> bool:
        return False

    @property
    def unique_versions(self) -> bool:
        return self._store.unique_versions

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def get(self, key: str) -> Versioned | None:
        return await self._interleaving.call(lambda: self._store.get(key))

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._interleaving.call(lambda: self._store.scan(prefix, start, limit))

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        async def effect() -> PutOutcome:
            return await self._interleaving.call(lambda: self._store.put(key, value, expect))

        drawn = self._interleaving.dice.random() if key.startswith(self._unknown_prefix) else 1.0
        if drawn >= LATE_SHARE + LOST_SHARE:
            return await effect()
        self.unknown += 1
        if drawn < LATE_SHARE:
            self._interleaving.add(effect())
        else:
            await effect()
        return Unknown("drawn")

    async def delete(self, keys: Sequence[str]) -> None:
        await self._interleaving.call(lambda: self._store.delete(keys))

    async def close(self) -> None:
        return None
