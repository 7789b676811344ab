"""Blobs as objects of an S3 bucket: a key is the object's, after a prefix."""

from collections.abc import Sequence
from contextlib import aclosing

from adapters.names import check_key
from adapters.s3.adapter import S3Adapter
from adapters.s3.listing import Wanted
from adapters.s3.results import Absent, Found, Stored
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreUnavailable
from ledger.keys import created_ms
from ledger.ports import BlobInfo
from ledger.types import Buffer


class S3Blobs(S3Adapter):
    """Blobs in a bucket. Create-only by `If-None-Match: *`, which the store must honour
    (adapters/proof.py)."""

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        data = b"".join(parts)
        outcome = await self._open().put(self._prefix + key, data, None, own=_has_uuid(key))
        if isinstance(outcome, Stored):
            return
        # The one that is there may be from an earlier attempt of this call. A key with a UUID was made for
        # one put and none else; under any other key only the same bytes are one's own.
        if outcome.after_own_attempt and (_has_uuid(key) or await self._holds(key, data)):
            return
        raise AlreadyExists(f"blob {key} is there already in {self._client.name}")

    async def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        check_key(key)
        if start < 0 or (size is not None and size < 0):
            raise NotFound(f"blob {key} has no range from {start} of {size} bytes")
        if size == 0:
            return await self._nothing_at(key, start)
        match await self._open().get(self._prefix + key, start, size):
            case Found(value=value):
                return value
            case Absent():
                raise self._not_found(key)
        # Only the end of an object is a range without bytes.
        if size is None:
            return await self._nothing_at(key, start)
        raise NotFound(f"blob {key} in {self._client.name} has no range from {start} to {start + size}")

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[BlobInfo]:
        self._open()
        found: list[BlobInfo] = []
        if limit <= 0:
            return found
        async with aclosing(self._listing.objects(Wanted(prefix, after))) as objects:
            async for listed in objects:
                found.append(BlobInfo(listed.key, listed.size))
                if len(found) >= limit:
                    break
        return found

    async def _holds(self, key: str, data: bytes) -> bool:
        try:
            return await self.get(key) == data
        except (NotFound, StoreUnavailable) as error:
            raise OutcomeUnknown(f"blob {key} may have been put, and cannot be read: {error}") from error

    async def _nothing_at(self, key: str, start: int) -> bytes:
        size = await self._open().size(self._prefix + key)
        if isinstance(size, Absent):
            raise self._not_found(key)
        if start > size:
            raise NotFound(f"blob {key} in {self._client.name} has {size} bytes, none at {start}")
        return b""

    def _not_found(self, key: str) -> NotFound:
        return NotFound(f"there is no blob {key} in {self._client.name}")


def _has_uuid(key: str) -> bool:
    try:
        created_ms(key)
    except ValueError:
        return False
    return True
