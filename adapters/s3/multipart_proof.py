"""Does a store refuse to complete an upload in parts where an object is, in races too?

SeaweedFS 4.44 refuses it one after the other, and lets both of two uploads win that are completed at once in
four races of ten.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final, Protocol

from adapters.s3.client import S3Client
from adapters.s3.results import Failed, Found, PutResult, Stored
from ledger.errors import OutcomeUnknown, StoreError

RACES: Final = 20
RACERS: Final = 2
NAME_BYTES: Final = 8


class Uploads(Protocol):
    async def put(self, key: str, data: bytes) -> PutResult:
        """Store an object in parts, unless one is there."""
        ...


async def is_create_only(client: S3Client, uploads: Uploads, prefix: str = "", races: int = RACES) -> bool:
    """False as well for a store that knows no such request. Writes a few keys `proof/...` and deletes them.
    Errors: StoreUnavailable and OutcomeUnknown if the store fails meanwhile."""
    directory = f"{prefix}proof/{os.urandom(NAME_BYTES).hex()}"
    taken, raced = f"{directory}/taken", [f"{directory}/race-{number}" for number in range(races)]
    try:
        await client.put(taken, b"first", None)
        if _is_completed(await uploads.put(taken, b"second")) or not await _has(client, taken, b"first"):
            return False
        for key in raced:
            if not await _has_one_winner(client, uploads, key):
                return False
        return True
    finally:
        with suppress(StoreError):
            await client.delete([taken, *raced])


async def _has_one_winner(client: S3Client, uploads: Uploads, key: str) -> bool:
    values = [b"racer %d" % racer for racer in range(RACERS)]
    results = await asyncio.gather(*(uploads.put(key, value) for value in values))
    won = [value for value, result in zip(values, results, strict=True) if _is_completed(result)]
    return len(won) == 1 and await _has(client, key, won[0])


def _is_completed(result: PutResult) -> bool:
    if isinstance(result, Failed) and result.again:
        raise OutcomeUnknown(result.reason)
    return isinstance(result, Stored)


async def _has(client: S3Client, key: str, value: bytes) -> bool:
    found = await client.get(key)
    return isinstance(found, Found) and found.value == value
