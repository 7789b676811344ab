"""Does a store refuse to complete an upload in parts where an object is, in races too?

SeaweedFS 4.44 refuses it one after the other. At once, it lets both of two uploads win in four races of ten,
and an upload and a single PUT in one of four.
"""

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog

from adapters.retries import retry_wait_s
from adapters.s3.client import S3Client
from adapters.s3.results import Failed, Found, PutResult, Refused, Stored
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable

log = structlog.get_logger(__name__)

RACES: Final = 20
RACERS: Final = 2
NAME_BYTES: Final = 8
TRIES: Final = 3
"""If the store fails meanwhile."""


class Uploads(Protocol):
    async def put(self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None) -> PutResult:
        """Store an object in parts, unless one is there. `on_uploaded`: called before it is completed."""
        ...


async def is_create_only(client: S3Client, uploads: Uploads, prefix: str = "", races: int = RACES) -> bool:
    """False as well for a store that knows no such request, or that fails meanwhile: without uploads in parts
    it is as sound. Writes a few keys `proof/...` and deletes them."""
    for tries in range(TRIES):
        try:
            return await _is_create_only(client, uploads, prefix, races)
        except (StoreUnavailable, OutcomeUnknown) as error:
            log.warning("s3.multipart_unproved", store=client.name, error=str(error), again=tries + 1 < TRIES)
            await asyncio.sleep(retry_wait_s(tries, random.random))
    return False


async def _is_create_only(client: S3Client, uploads: Uploads, prefix: str, races: int) -> bool:
    directory = f"{prefix}proof/{os.urandom(NAME_BYTES).hex()}"
    taken, raced = f"{directory}/taken", [f"{directory}/race-{number}" for number in range(races)]
    try:
        await client.put(taken, b"first", None)
        if _is_completed(await uploads.put(taken, b"second")) or not await _has(client, taken, b"first"):
            return False
        for number, key in enumerate(raced):
            race = _two_uploads if number % 2 else _upload_and_put
            if not await race(client, uploads, key):
                return False
        return True
    finally:
        with suppress(StoreError):
            await client.delete([taken, *raced])


async def _two_uploads(client: S3Client, uploads: Uploads, key: str) -> bool:
    """One of them has won, and its bytes are there."""
    values = [b"racer %d" % racer for racer in range(RACERS)]
    results = await asyncio.gather(*(uploads.put(key, value) for value in values), return_exceptions=True)
    return await _has_one_winner(client, key, values, results)


async def _upload_and_put(client: S3Client, uploads: Uploads, key: str) -> bool:
    """The same of an upload and a PUT, which is sent when the upload is about to be completed."""
    values = [b"in parts", b"at once"]
    uploaded = asyncio.Event()

    async def upload() -> PutResult:
        try:
            return await uploads.put(key, values[0], uploaded.set)
        finally:
            uploaded.set()

    async def put() -> PutResult:
        await uploaded.wait()
        return await client.put(key, values[1], None)

    results = await asyncio.gather(upload(), put(), return_exceptions=True)
    return await _has_one_winner(client, key, values, results)


async def _has_one_winner(
    client: S3Client, key: str, values: list[bytes], results: Sequence[PutResult | BaseException]
) -> bool:
    won = [value for value, result in zip(values, results, strict=True) if _is_completed(result)]
    return len(won) == 1 and await _has(client, key, won[0])


def _is_completed(result: PutResult | BaseException) -> bool:
    """Errors: OutcomeUnknown if that cannot be known."""
    if isinstance(result, BaseException):
        raise result
    if isinstance(result, Failed) and result.again:
        raise OutcomeUnknown(result.reason)
    if isinstance(result, Refused) and result.after_own_attempt:
        raise OutcomeUnknown("a PUT was sent twice, and may have met itself")
    return isinstance(result, Stored)


async def _has(client: S3Client, key: str, value: bytes) -> bool:
    found = await client.get(key)
    return isinstance(found, Found) and found.value == value
