"""Proof at the door: does a store keep the promises on which the ledger rests?

A store that several gateways may write must let exactly one of two creates win, refuse a stale version, and
take a key again after a delete. Servers that speak the protocol of a store but ignore its conditions exist;
over such a server two gateways would both number the same offsets. The proof writes a few keys `proof/...`
and deletes them.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreError, StoreUnfit
from ledger.ports import Blobs, Lost, MetadataStore, PutOutcome, Unknown, Won

RACES: Final = 20
RACERS: Final = 2
DELETES: Final = 3
"""How often a delete is tried of which it seems that the store did not keep to it."""
NAME_BYTES: Final = 8
VALUE_BYTES: Final = 32

T = TypeVar("T")


async def prove_metadata(store: MetadataStore, name: str, races: int = RACES) -> None:
    """`name` of the store, for messages. StoreUnfit names the broken promise; StoreUnavailable and
    OutcomeUnknown if the store fails during the proof."""
    proof = _MetadataProof(store, name)
    await proof.try_rights()
    try:
        await all_of([proof.race(number) for number in range(races)])
        await all_of([proof.stale_version(), proof.delete_and_create()])
    finally:
        with suppress(StoreError):
            await store.delete(proof.keys)


async def prove_blobs(blobs: Blobs, name: str, races: int = RACES) -> None:
    """The same for blobs."""
    proof = _BlobsProof(blobs, name)
    await proof.try_rights()
    try:
        await all_of([*(proof.race(number) for number in range(races)), proof.delete_and_create()])
    finally:
        with suppress(StoreError):
            await blobs.delete(proof.keys)


class _PerhapsLate(StoreUnfit):
    """A broken promise, or a create that came to the store once more after the delete."""


class _Proof(ABC):
    def __init__(self, name: str) -> None:
        self._name = name
        self._directory = f"proof/{os.urandom(NAME_BYTES).hex()}"
        self.keys: list[str] = []

    def _key(self, name: object) -> str:
        self.keys.append(f"{self._directory}/{name}")
        return self.keys[-1]

    async def delete_and_create(self) -> None:
        """With another key each time: a create that was sent again, since its answer did not come in time,
        may reach the store after the delete. A store that is unfit fails every time."""
        for left in reversed(range(DELETES)):
            try:
                return await self._delete_and_create(self._key(f"again-{left}"))
            except _PerhapsLate:
                if not left:
                    raise

    @abstractmethod
    async def _delete_and_create(self, key: str) -> None: ...

    def _broken(self, promise: str, kind: type[StoreUnfit] = StoreUnfit) -> StoreUnfit:
        return kind(
            f"{self._name} cannot be used, since it broke a promise: {promise}; use a store with exact "
            "conditional writes (of SeaweedFS one filer alone)"
        )

    def _check_one_winner(self, won: Sequence[bool]) -> None:
        if won.count(True) > 1:
            raise self._broken("of several creates of one key more than one succeeded (If-None-Match)")
        if True not in won:
            raise self._broken("of several creates of one key none succeeded (If-None-Match)")


class _MetadataProof(_Proof):
    def __init__(self, store: MetadataStore, name: str) -> None:
        super().__init__(name)
        self._store = store

    async def try_rights(self) -> None:
        """Before anything is written: what may not be deleted would stay."""
        absent = f"{self._directory}/absent"
        await self._store.scan(absent, limit=1)
        await self._store.get(absent)
        await self._store.delete([absent])

    async def race(self, number: int) -> None:
        key = self._key(f"race-{number}")
        values = [_value() for _ in range(RACERS)]
        won = await all_of([self._wins(key, value, None) for value in values])
        self._check_one_winner([version is not None for version in won])
        found = await self._store.get(key)
        winner = next(value for value, version in zip(values, won, strict=True) if version is not None)
        if found is None or found.value != winner:
            raise self._broken("a value that was written is not what is read")

    async def stale_version(self) -> None:
        key, second = self._key("stale"), _value()
        old = await self._written(key, _value(), None)
        await self._written(key, second, old)
        if await self._wins(key, _value(), old) is not None:
            raise self._broken("a write that expected an old version succeeded (If-Match)")
        found = await self._store.get(key)
        if found is None or found.value != second:
            raise self._broken("a value that was written is not what is read")
        if await self._wins(self._key("absent"), _value(), old) is not None:
            raise self._broken("a write of an absent key that expected a version succeeded (If-Match)")

    async def _delete_and_create(self, key: str) -> None:
        old = await self._written(key, _value(), None)
        await self._store.delete([key])
        if await self._store.get(key) is not None:
            raise self._broken("a deleted key can still be read", _PerhapsLate)
        if await self._wins(key, _value(), None) is None:
            raise self._broken("a create of a key that is not there was refused", _PerhapsLate)
        if await self._wins(key, _value(), old) is not None:
            raise self._broken("a write that expected a deleted version succeeded (If-Match)")

    async def _written(self, key: str, value: bytes, expect: str | None) -> str:
        version = await self._wins(key, value, expect)
        if version is None:
            how = (
                "create of a key that is not there"
                if expect is None
                else "write that expected the present version"
            )
            raise self._broken(f"a {how} was refused")
        return version

    async def _wins(self, key: str, value: bytes, expect: str | None) -> str | None:
        """The new version if the put happened; an unknown outcome is resolved by reading."""
        outcome: PutOutcome = await self._store.put(key, value, expect)
        match outcome:
            case Won(version=version):
                return version
            case Lost():
                return None
            case Unknown(reason=reason):
                found = await self._store.get(key)
                if found is None:
                    raise OutcomeUnknown(reason)
                return found.version if found.value == value else None


class _BlobsProof(_Proof):
    def __init__(self, blobs: Blobs, name: str) -> None:
        super().__init__(name)
        self._blobs = blobs

    async def try_rights(self) -> None:
        """Before anything is written: what may not be deleted would stay."""
        absent = f"{self._directory}/absent"
        await self._blobs.list(absent, limit=1)
        with suppress(NotFound):
            await self._blobs.get(absent)
        await self._blobs.delete([absent])

    async def race(self, number: int) -> None:
        key = self._key(f"race-{number}")
        values = [_value() for _ in range(RACERS)]
        won = await all_of([self._wins(key, value) for value in values])
        self._check_one_winner(won)
        await self._check_read(key, values[won.index(True)])

    async def _delete_and_create(self, key: str) -> None:
        again = _value()
        if not await self._wins(key, _value()):
            raise self._broken("a create of a key that is not there was refused")
        await self._blobs.delete([key])
        with suppress(NotFound):
            await self._blobs.get(key)
            raise self._broken("a deleted key can still be read", _PerhapsLate)
        if not await self._wins(key, again):
            raise self._broken("a key cannot be created again after a delete", _PerhapsLate)
        await self._check_read(key, again)

    async def _check_read(self, key: str, value: bytes) -> None:
        try:
            found = await self._blobs.get(key)
        except NotFound:
            found = b""
        if found != value:
            raise self._broken("a value that was written is not what is read")
        if key not in [info.key for info in await self._blobs.list(key)]:
            raise self._broken("a key that was written is not listed")

    async def _wins(self, key: str, value: bytes) -> bool:
        try:
            await self._blobs.put(key, [value])
        except AlreadyExists:
            return False
        except OutcomeUnknown:
            return await self._blobs.get(key) == value
        return True


async def all_of(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Every result, after all have ended; an error if one has failed."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


def _value() -> bytes:
    """That no other write has: versions may be hashes."""
    return os.urandom(VALUE_BYTES)
