"""One attempt at each request to a bucket, through obstore. Retries, deadlines and hedges are the
client's."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store

from adapters.s3.address import DEFAULT_REGION, S3Address
from adapters.s3.credentials import RENEWED_AFTER_S, CredentialChain
from adapters.s3.failures import (
    CREDENTIAL_CODES,
    NOT_FOUND,
    PRECONDITION,
    RANGE,
    Request,
    code_of,
    failure_of,
    status_of,
    uncertain,
)
from adapters.s3.multipart import Multipart
from adapters.s3.options import S3Options, obstore_arguments
from adapters.s3.results import (
    Absent,
    Failed,
    Found,
    GetResult,
    Listed,
    OutOfRange,
    Page,
    PutResult,
    Refused,
    Stored,
)
from ledger.errors import StoreUnavailable
from ledger.keys import KEY_PARTS

PAGE: Final = 1000
"""Keys that S3 lists, or deletes, in one request."""
DRAFTS: Final = "wal"
NO_SUCH_BUCKET: Final = "NoSuchBucket"
NO_CREDENTIALS: Final = "for path External AWS credential provider:"
"""In obstore's error if the credentials could not be had: nothing was sent."""
_ERRORS: Final = (BaseError, OSError)
"""obstore raises FileNotFoundError for 404."""


Accept: TypeAlias = Callable[[int], Failed | None]
"""Called with the length of what is about to be read. What it returns is the result instead."""


class Transport(Protocol):
    """Requests that are sent once. What can go wrong with the store is a result. A request that is cancelled
    may still have its effect."""

    async def put(self, key: str, data: bytes, expect: str | None) -> PutResult:
        """Write if the present ETag is `expect`; None = the key must not exist."""
        ...

    async def get(self, key: str, start: int, size: int | None, accept: Accept) -> GetResult:
        """The bytes [start, start + size), or to the end, if they are accepted."""
        ...

    async def size(self, key: str) -> int | Absent | Failed: ...

    async def page(self, directory: str, after: str) -> Page | Failed:
        """At most PAGE objects below the directory whose key is > `after`."""
        ...

    async def level(self, directory: str) -> Page | Failed:
        """All that is directly in the directory."""
        ...

    async def delete(self, keys: Sequence[str]) -> int | Failed:
        """At most PAGE keys; how many they were."""
        ...


class ObstoreTransport:
    """A Transport over one HTTP client, which keeps connections open."""

    def __init__(
        self, address: S3Address, credentials: CredentialChain, options: S3Options | None = None
    ) -> None:
        self._name = str(address)
        self._options = options or S3Options()
        self._credentials = credentials
        self.multipart: Multipart | None = None
        """For creates of large objects, if the store has proved that it keeps them create-only."""
        self._address = address
        self._renewed_at = -RENEWED_AFTER_S
        self._store = self._opened()

    def _opened(self) -> S3Store:
        """Errors: StoreUnavailable if a file of the options cannot be used."""
        return S3Store(
            self._address.bucket,
            region=self._address.region or self._credentials.region or DEFAULT_REGION,
            credential_provider=self._credentials,
            **obstore_arguments(self._address, self._options),
        )

    async def put(self, key: str, data: bytes, expect: str | None) -> PutResult:
        # A draft is one PUT, whatever its length: produce waits for it.
        in_parts = expect is None and not _is_draft(key)
        if in_parts and self.multipart is not None and len(data) > self.multipart.above:
            return await self.multipart.put(key, data)
        request = Request(self._name, "put", key)
        mode: Any = "create" if expect is None else {"e_tag": expect}
        try:
            result = await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            return self._refused(request, str(error))
        except _ERRORS as error:
            return await self._failed(request, error)
        etag = result["e_tag"]
        return Stored(str(etag)) if etag else uncertain(request, "the response has no ETag")

    async def get(self, key: str, start: int, size: int | None, accept: Accept) -> GetResult:
        request = Request(self._name, "get", key)
        try:
            result = await obstore.get_async(self._store, key, options=_range(start, size))
            whole, etag = int(result.meta["size"]), str(result.meta["e_tag"])
            end = whole if size is None else start + size
            if end > whole:
                return OutOfRange(whole)
            if (failed := accept(end - start)) is not None:
                return failed
            value = bytes(await result.bytes_async())
        except FileNotFoundError as error:
            return await self._absent(request, error)
        except _ERRORS as error:
            return OutOfRange(None) if status_of(str(error)) == RANGE else await self._failed(request, error)
        if len(value) != end - start:
            return uncertain(request, f"{len(value)} bytes came instead of {end - start}")
        return Found(value, etag)

    async def size(self, key: str) -> int | Absent | Failed:
        request = Request(self._name, "get", key)
        try:
            return int((await obstore.head_async(self._store, key))["size"])
        except FileNotFoundError as error:
            return await self._absent(request, error)
        except _ERRORS as error:
            return await self._failed(request, error)

    async def page(self, directory: str, after: str) -> Page | Failed:
        try:
            stream = obstore.list(self._store, directory or None, offset=after or None, chunk_size=PAGE)
            async for chunk in stream:
                return Page(_listed(chunk))
        except _ERRORS as error:
            return await self._failed(Request(self._name, "list", directory), error)
        return Page([])

    async def level(self, directory: str) -> Page | Failed:
        try:
            result = await obstore.list_with_delimiter_async(self._store, directory or None)
        except _ERRORS as error:
            return await self._failed(Request(self._name, "list", directory), error)
        return Page(_listed(result["objects"]), [f"{path}/" for path in result["common_prefixes"]])

    async def delete(self, keys: Sequence[str]) -> int | Failed:
        request = Request(self._name, "delete", keys[0])
        try:
            await obstore.delete_async(self._store, list(keys))
        except FileNotFoundError as error:
            if code_of(str(error)) != NO_SUCH_BUCKET:
                return len(keys)
            return await self._failed(request, error)
        except Exception as error:
            # Also a panic, for which obstore has no class: if the response names a key that was not sent.
            failed = await self._failed(request, error)
            is_refusal = not failed.again and status_of(str(error)) is None
            return replace(failed, certain=True) if is_refusal and len(keys) == 1 else failed
        return len(keys)

    def _refused(self, request: Request, text: str) -> PutResult:
        """obstore has one error for 412 and for 409, which is not certain, and takes 404 for a condition that
        does not hold."""
        status = status_of(text)
        missing = status == NOT_FOUND and code_of(text) != NO_SUCH_BUCKET
        return Refused() if status in PRECONDITION or missing else failure_of(request, text)

    async def _absent(self, request: Request, error: FileNotFoundError) -> Absent | Failed:
        return await self._failed(request, error) if code_of(str(error)) == NO_SUCH_BUCKET else Absent()

    async def _failed(self, request: Request, error: Exception) -> Failed:
        # By the error itself: the chain may have failed for another request while this one was on its way.
        if isinstance(error, UnauthenticatedError) and NO_CREDENTIALS in str(error):
            reason = self._credentials.error or f"{request} failed, since there were no credentials for it"
            return Failed(reason, certain=True, again=False)
        if code_of(str(error)) in CREDENTIAL_CODES:
            await self._renew()
        return failure_of(request, str(error))

    async def _renew(self) -> None:
        """The next request goes through the chain again, which may find newer ones. obstore keeps what it was
        given, so it begins again as well."""
        now = time.monotonic()
        if now - self._renewed_at >= RENEWED_AFTER_S:
            self._renewed_at = now
            self._credentials.forget()
            # In a thread: a new HTTP client reads the certificates of the machine.
            with suppress(StoreUnavailable):
                self._store = await self._credentials.in_thread(self._opened)


def _is_draft(key: str) -> bool:
    """Whatever prefix it has: the bucket's stores have their own."""
    parts = key.split("/")
    return len(parts) >= KEY_PARTS[DRAFTS] and parts[-KEY_PARTS[DRAFTS]] == DRAFTS


def _range(start: int, size: int | None) -> Any:
    if size is not None:
        return {"range": (start, start + size)}
    return {"range": {"offset": start}} if start else {}


def _listed(objects: Sequence[Any]) -> list[Listed]:
    return [Listed(str(found["path"]), int(found["size"])) for found in objects]
