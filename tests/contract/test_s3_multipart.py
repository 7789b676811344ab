"""Large objects in parts: create-only where the store proves it, and otherwise in one PUT."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.s3.address import parse_address
from adapters.s3.bucket import open_bucket
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.failures import Request, uncertain
from adapters.s3.multipart import Multipart
from adapters.s3.multipart_proof import Uploads, is_create_only
from adapters.s3.results import PutResult, Refused, Stored
from adapters.s3.transport import ObstoreTransport
from adapters.threads import StoreThreads
from ledger.errors import AlreadyExists
from tests.support.http_proxy import HttpFault, HttpProxy, running_proxy
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.s3_transport import Answer, MemoryTransport, Trouble
from tests.support.virtual_time import run_virtually
from tests.support.weed import REGION

DRAFT = f"wal/0/{uuid.UUID('018bcfe5-6800-7000-8000-000000000000')}"
OWN_KEY = f"snapshot/0/{uuid.UUID('018bcfe5-6800-7000-8000-000000000000')}"
ABOVE = PART_BYTES = 5 * 1024 * 1024
"""The smallest parts that S3 takes."""
LARGE = bytes(range(256)) * (ABOVE // 256) + b"and more"
PARTS = 2


@dataclass(frozen=True, slots=True)
class Behind:
    """A proxy, and a bucket behind it."""

    server: S3Server
    proxy: HttpProxy
    client: S3Client
    transport: ObstoreTransport
    multipart: Multipart
    prefix: str

    def blobs(self) -> S3Blobs:
        return S3Blobs(self.client, self.prefix)

    def unfinished(self) -> list[Any]:
        uploads = self.server.boto3_client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [upload for upload in uploads if upload["Key"].startswith(self.prefix)]


@asynccontextmanager
async def a_proxy_before(server: S3Server) -> AsyncIterator[Behind]:
    async with running_proxy(server.endpoint) as proxy:
        address = parse_address(f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}")
        threads = StoreThreads("credentials", 1)
        chain = CredentialChain(str(address), threads)
        transport = ObstoreTransport(address, chain)
        multipart = Multipart(address, chain, above=ABOVE, part_bytes=PART_BYTES)
        client = S3Client(transport, str(address), Limits(hedge_share=0.0), dice=lambda: 0.0)
        yield Behind(server, proxy, client, transport, multipart, address.prefix)
        multipart.shut()
        threads.shut()


@pytest.fixture
async def behind(s3_server: S3Server) -> AsyncIterator[Behind]:
    async with a_proxy_before(s3_server) as stores:
        yield stores


@pytest.mark.parametrize("ignores_it", [False, True])
async def test_uploads_in_parts_are_used_if_the_store_proves_to_keep_them_create_only(
    moto_s3: S3Server, ignores_it: bool
) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        if ignores_it:
            proxy.dropped.add(("POST", "if-none-match"))
        prefix = uuid.uuid4().hex
        bucket = open_bucket(f"s3://{BUCKET}/{prefix}?endpoint={proxy.endpoint}&region={REGION}", PATIENT)
        metadata, blobs = bucket.metadata(), bucket.blobs()
        await bucket.prove(metadata, blobs, races=2)
        assert (bucket.transport.multipart is None) == ignores_it
        assert await blobs.list("") == []
        await metadata.close()
        await blobs.close()


class OneWinner:
    """Uploads that are create-only."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def put(self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None) -> PutResult:
        await asyncio.sleep(1.0)
        if on_uploaded is not None:
            on_uploaded()
        return await self._transport.put(key, data, None)


class TwoUploadsWin:
    """Uploads that look whether another one has won before they take their time."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def put(self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None) -> PutResult:
        if on_uploaded is not None:
            on_uploaded()
            return await self._transport.put(key, data, None)
        if key in self._transport.objects:
            return Refused()
        await asyncio.sleep(1.0)
        self._transport.objects.setdefault(key, data)
        return Stored(data.hex())


class APutWinsToo:
    """Uploads that see each other, but no PUT that comes while they are completed."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def put(self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None) -> PutResult:
        if on_uploaded is None:
            return await self._transport.put(key, data, None)
        on_uploaded()
        await asyncio.sleep(1.0)
        self._transport.objects[key] = data
        return Stored(data.hex())


def proved(uploads: Callable[[MemoryTransport], Uploads], *plan: Trouble) -> bool:
    async def main() -> bool:
        transport = MemoryTransport(usual_s=0.1)
        transport.plan.extend(Answer(trouble) for trouble in plan)
        client = S3Client(transport, "s3://bucket/", PATIENT, dice=lambda: 0.0)
        found = await is_create_only(client, uploads(transport))
        assert transport.objects == {}
        return found

    return run_virtually(main)


def test_uploads_of_which_each_race_has_one_winner_are_create_only() -> None:
    assert proved(OneWinner)


def test_uploads_of_which_two_win_a_race_are_not_create_only() -> None:
    assert not proved(TwoUploadsWin)


def test_an_upload_that_wins_beside_a_put_is_not_create_only() -> None:
    assert not proved(APutWinsToo)


def test_a_failure_meanwhile_is_tried_again_and_one_that_lasts_proves_nothing() -> None:
    # The second request is the upload where an object is.
    assert proved(OneWinner, Trouble.NONE, Trouble.SLOW_DOWN)

    class Failing(OneWinner):
        async def put(
            self, key: str, data: bytes, on_uploaded: Callable[[], None] | None = None
        ) -> PutResult:
            return uncertain(Request("s3://bucket/", "put", key), "the store answered 503")

    assert not proved(Failing)


async def test_without_the_proof_a_large_object_is_one_put(behind: Behind) -> None:
    await behind.blobs().put(OWN_KEY, [LARGE])
    assert [line.split()[0] for line in behind.proxy.requests] == ["PUT"]
    assert await behind.blobs().get(OWN_KEY) == LARGE


async def test_with_the_proof_a_large_object_goes_in_parts_and_is_never_overwritten(behind: Behind) -> None:
    behind.transport.multipart = behind.multipart
    await behind.blobs().put("a", [LARGE])
    methods = [line.split()[0] for line in behind.proxy.requests]
    assert methods == ["POST", *["PUT"] * PARTS, "POST"]
    with pytest.raises(AlreadyExists):
        await behind.blobs().put("a", [LARGE[::-1]])
    assert await behind.blobs().get("a") == LARGE
    assert behind.unfinished() == []
    # What is not large is one PUT as before, and so is a draft.
    for key, value in (("b", LARGE[:ABOVE]), (DRAFT, LARGE)):
        behind.proxy.requests.clear()
        await behind.blobs().put(key, [value])
        assert [line.split()[0] for line in behind.proxy.requests] == ["PUT"]


@pytest.mark.parametrize("fault", [HttpFault.ANSWER_LOST, HttpFault.CUT_BEFORE, HttpFault.ERROR_AFTER])
async def test_an_upload_whose_last_request_fails_is_there_once_and_whole(
    behind: Behind, fault: HttpFault
) -> None:
    behind.transport.multipart = behind.multipart
    behind.proxy.harm("POST", HttpFault.NONE, fault)
    await behind.blobs().put(OWN_KEY, [LARGE])
    assert behind.proxy.unharmed == 0
    assert await behind.blobs().get(OWN_KEY) == LARGE
    assert behind.unfinished() == []


async def test_an_upload_that_loses_a_part_is_aborted_and_begun_again(behind: Behind) -> None:
    behind.transport.multipart = behind.multipart
    behind.proxy.harm("PUT", HttpFault.CUT_BEFORE)
    await behind.blobs().put("a", [LARGE])
    assert await behind.blobs().get("a") == LARGE
    assert behind.unfinished() == []
    assert "DELETE" in {line.split()[0] for line in behind.proxy.requests}
