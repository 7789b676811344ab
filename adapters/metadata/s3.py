"""Metadata as objects of an S3 bucket, with conditional PUTs. A version is an ETag."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from adapters.names import check_key
from adapters.s3.adapter import S3Adapter
from adapters.s3.listing import Wanted
from adapters.s3.results import Found, Listed, Stored
from ledger.errors import OutcomeUnknown
from ledger.journal import FAR_COMMIT_BATCHES
from ledger.ports import SCAN_BYTES, Lost, PutOutcome, Unknown, Versioned, Won

MAX_VALUE_BYTES: Final = 2 * SCAN_BYTES


class S3Metadata(S3Adapter):
    """A MetadataStore in a bucket: `If-None-Match: *` for what must not exist, `If-Match` for a version; the
    store must honour both (adapters/proof.py). Others may write it, and equal values have equal versions."""

    exclusive = False
    unique_versions = False
    entry_batches = FAR_COMMIT_BATCHES
    """Of its journal (`ledger.ports.Journal`)."""

    async def get(self, key: str) -> Versioned | None:
        check_key(key)
        found = await self._open().get(self._prefix + key, most=MAX_VALUE_BYTES)
        return Versioned(found.value, found.etag) if isinstance(found, Found) else None

    async def scan(self, prefix: str, start: str = "", limit: int = 1000) -> Sequence[tuple[str, Versioned]]:
        self._open()
        wanted = Wanted(prefix, start, included=True)
        found: list[tuple[str, Versioned]] = []
        while True:
            missing = limit - len(found), SCAN_BYTES - _size(found)
            listed = await self._listed(wanted, *missing)
            found += await self._values([one.key for one in listed])
            if _is_last(listed, *missing) or len(found) >= limit or _size(found) >= SCAN_BYTES:
                return _within_bound(found)
            # Some were deleted meanwhile: a short page would look like the end.
            wanted = Wanted(prefix, listed[-1].key)

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        check_key(key)
        try:
            outcome = await self._open().put(self._prefix + key, value, expect)
        except OutcomeUnknown as error:
            return Unknown(str(error))
        if isinstance(outcome, Stored):
            return Won(outcome.etag)
        if outcome.after_own_attempt:
            return Unknown(
                f"{self._client.name}: {key} was written, perhaps by an earlier attempt of one's own"
            )
        return Lost()

    async def _values(self, keys: Sequence[str]) -> list[tuple[str, Versioned]]:
        """Those that are still there."""
        # All of them end before an error is raised: no read is left without an owner.
        values = await asyncio.gather(*(self.get(key) for key in keys), return_exceptions=True)
        found: list[tuple[str, Versioned]] = []
        for key, value in zip(keys, values, strict=True):
            if isinstance(value, BaseException):
                raise value
            if value is not None:
                found.append((key, value))
        return found

    async def _listed(self, wanted: Wanted, limit: int, max_bytes: int) -> list[Listed]:
        """The first ones: `limit`, or as many as have `max_bytes` together."""
        found: list[Listed] = []
        size = 0
        async with aclosing(self._listing.objects(wanted)) as objects:
            while len(found) < limit and size < max_bytes:
                listed = await anext(objects, None)
                if listed is None:
                    break
                found.append(listed)
                size += listed.size
        return found


def _is_last(listed: list[Listed], limit: int, max_bytes: int) -> bool:
    """The listing ended there."""
    return len(listed) < limit and sum(one.size for one in listed) < max_bytes


def _size(found: list[tuple[str, Versioned]]) -> int:
    return sum(len(value.value) for _, value in found)


def _within_bound(found: list[tuple[str, Versioned]]) -> list[tuple[str, Versioned]]:
    """Values may have grown since they were listed."""
    size = 0
    for number, (_, value) in enumerate(found, 1):
        size += len(value.value)
        if size >= SCAN_BYTES:
            return found[:number]
    return found
