"""Stores that can be held, and stores whose process dies: wrappers around real backends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ledger.ports import MetadataStore, PutOutcome, Versioned
from tests.support.faulty import Call, Fault, Faults

T = TypeVar("T")


class Death(BaseException):
    """The process ends here, as far as the code under test can tell."""


class Deaths(Faults):
    """The process dies in the chosen call, before its effect or (ERROR_AFTER) behind it."""

    async def _fail(
        self,
        call: Call,
        effect: Callable[[], Awaitable[T]],
        unknown: Callable[[str], T] | None,
        conflict: Callable[[str], T] | None,
    ) -> T:
        if self._fault is Fault.ERROR_AFTER:
            await effect()
        raise Death(f"in call {call.number}, {call.store}.{call.method}({call.key})")


class HeldMetadata:
    """A MetadataStore whose puts wait while `hold` was called last, and not `release`."""

    def __init__(self, store: MetadataStore, *, exclusive: bool | None = None) -> None:
        self._store = store
        self._exclusive = exclusive
        self._may_go = asyncio.Event()
        self._may_go.set()
        self.put_keys: list[str] = []
        """Of all puts that were begun."""
        self.read_keys: list[str] = []

    def hold(self) -> None:
        self._may_go.clear()

    def release(self) -> None:
        self._may_go.set()

    @property
    def exclusive(self) -> bool:
        return self._store.exclusive if self._exclusive is None else self._exclusive

    @property
    def durable_ack(self) -> bool:
        return self._store.durable_ack

    async def get(self, key: str) -> Versioned | None:
        self.read_keys.append(key)
        return await self._store.get(key)

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        return await self._store.scan(prefix, start, limit)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.put_keys.append(key)
        await self._may_go.wait()
        return await self._store.put(key, value, expect)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._store.delete(keys)

    async def close(self) -> None:
        await self._store.close()
