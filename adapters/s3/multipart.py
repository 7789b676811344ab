"""Create-only uploads of large objects in parts, through boto3: obstore knows no condition for them.

Used only over a store that refuses to complete an upload where an object is (`If-None-Match: *`), which
`adapters/s3/multipart_proof.py` finds out; over any other, one PUT carries the whole object.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from adapters.s3.address import S3Address
from adapters.s3.credentials import RENEWED_AFTER_S, CredentialChain
from adapters.s3.failures import (
    ABORT,
    CREDENTIAL_CODES,
    DENIED,
    PRECONDITION,
    Request,
    failure_of_status,
    uncertain,
)
from adapters.s3.options import Calls, S3Options, boto3_client, encryption_of
from adapters.s3.results import Failed, PutResult, Refused, Stored
from adapters.threads import StoreThreads
from ledger.errors import StoreError

MULTIPART_ABOVE: Final = 16 * 1024 * 1024
PART_BYTES: Final = 8 * 1024 * 1024
THREADS: Final = 4
CALLS: Final = Calls(connections=THREADS, attempts=1, read_timeout_s=60)
REQUEST_DEADLINE_S: Final = 120.0


log = structlog.get_logger(__name__)


class _Broken(Exception):
    """A request failed."""

    def __init__(self, failed: Failed, status: int | None = None) -> None:
        super().__init__(failed.reason)
        self.failed = failed
        self.status = status


class Multipart:
    """Uploads to one bucket. Each request is sent once."""

    def __init__(
        self,
        address: S3Address,
        credentials: CredentialChain,
        options: S3Options | None = None,
        *,
        above: int = MULTIPART_ABOVE,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """For objects of more than `above` bytes. S3 takes parts from 5 MiB on, but for the last."""
        self._options = options or S3Options()
        self.above = above
        self._part_bytes = part_bytes
        self._address = address
        self._credentials = credentials
        self.unfit = ""
        """Why no upload should be begun: the right to abort one is missing."""
        self._threads = StoreThreads(f"uploads to {address}", THREADS, REQUEST_DEADLINE_S)
        self._opening = threading.Lock()
        """Of the session, its client and when they were renewed: all threads use the same."""
        self._renewed_at = -RENEWED_AFTER_S
        self._session: Any = None
        self._client: Any = None

    async def put(self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None) -> PutResult:
        """Stored, or Refused where an object is; `on_uploaded` is called before that is asked. An upload that
        fails is aborted as far as possible; one that is cancelled may stay behind unfinished, as the store
        lists it."""
        request = Request(str(self._address), "put", key)
        try:
            begun = await self._send(request, "create_multipart_upload", key, **encryption_of(self._options))
        except _Broken as broken:
            return _without_effect(broken)
        upload = str(begun["UploadId"])
        try:
            parts = await self._send_parts(request, key, upload, data)
        except _Broken as broken:
            await self._abort(request, key, upload)
            return _without_effect(broken)
        if on_uploaded is not None:
            on_uploaded()
        outcome = await self._complete(request, key, upload, parts)
        if not isinstance(outcome, Stored):
            await self._abort(request, key, upload)
        return outcome

    def shut(self) -> None:
        """Called when no upload is under way."""
        self._threads.shut()
        if self._client is not None:
            self._client.close()

    async def _send_parts(
        self, request: Request, key: str, upload: str, data: bytes
    ) -> list[Mapping[str, object]]:
        view = memoryview(data)
        size = self._part_bytes
        pieces = [view[start : start + size] for start in range(0, max(len(view), 1), size)]

        async def send(number: int, piece: memoryview) -> Mapping[str, object]:
            part = await self._send(
                request, "upload_part", key, UploadId=upload, PartNumber=number, Body=piece
            )
            return {"ETag": part["ETag"], "PartNumber": number}

        sent = (send(number, piece) for number, piece in enumerate(pieces, 1))
        results = await asyncio.gather(*sent, return_exceptions=True)
        parts: list[Mapping[str, object]] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            parts.append(result)
        return parts

    async def _complete(
        self, request: Request, key: str, upload: str, parts: list[Mapping[str, object]]
    ) -> PutResult:
        """Only this request has an effect that others see."""
        try:
            done = await self._send(
                request,
                "complete_multipart_upload",
                key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )
        except _Broken as broken:
            return Refused() if broken.status in PRECONDITION else broken.failed
        etag = done.get("ETag")
        return Stored(str(etag)) if etag else uncertain(request, "the response has no ETag")

    async def _abort(self, request: Request, key: str, upload: str) -> None:
        """What is left of it costs, and a lifecycle rule or `doctor` removes it."""
        request = replace(request, operation=ABORT)
        try:
            await self._send(request, "abort_multipart_upload", key, UploadId=upload)
        except _Broken as broken:
            log.warning("s3.upload_left", error=broken.failed.reason)
            self.unfit = broken.failed.reason if broken.status in DENIED else self.unfit

    async def _send(
        self, request: Request, operation: str, key: str, **arguments: object
    ) -> Mapping[str, Any]:
        """The response. Errors: _Broken."""
        try:
            return await self._threads.run(self._call, request, operation, key, arguments)
        except StoreError as error:
            raise _Broken(Failed(str(error), certain=False, again=True)) from None

    def _call(
        self, request: Request, operation: str, key: str, arguments: Mapping[str, object]
    ) -> Mapping[str, Any]:
        if isinstance(piece := arguments.get("Body"), memoryview):
            # boto3 takes no view. A copy here is one for each thread, not one of the whole object.
            arguments = {**arguments, "Body": bytes(piece)}
        try:
            call = getattr(self._opened(), operation)
            response: Mapping[str, Any] = call(Bucket=self._address.bucket, Key=key, **arguments)
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in CREDENTIAL_CODES:
                self._renew()
            text = str(error.response.get("Error", {}).get("Message", ""))
            raise _Broken(failure_of_status(request, status, code, text), status) from None
        except (BotoCoreError, ResponseParserError) as error:
            raise _Broken(uncertain(request, f"the request broke off ({type(error).__name__})")) from None
        return response

    def _renew(self) -> None:
        """The next request goes through the chain again, which may find newer credentials."""
        with self._opening:
            now = time.monotonic()
            if now - self._renewed_at >= RENEWED_AFTER_S:
                self._renewed_at = now
                self._credentials.forget()
                self._session = None

    def _opened(self) -> Any:
        """boto3's client takes its time to make, and few gateways ever need it. A client that is replaced may
        still have requests under way in other threads, and closes with the last of them."""
        with self._opening:
            session = self._credentials.session
            if session is not self._session:
                region = self._credentials.region
                self._client = boto3_client(session, self._address, self._options, region, CALLS)
                self._session = session
            return self._client


def _without_effect(broken: _Broken) -> Failed:
    """Parts that were uploaded are no object."""
    return Failed(broken.failed.reason, certain=True, again=broken.failed.again)
