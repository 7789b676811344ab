"""Large objects in parts: create-only where the store proves it, and otherwise in one PUT."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.s3.address import parse_address
from adapters.s3.bucket import open_bucket
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.multipart import Multipart
from adapters.s3.multipart_proof import is_create_only
from adapters.s3.results import PutResult, Refused, Stored
from adapters.s3.transport import ObstoreTransport
from adapters.threads import StoreThreads
from ledger.errors import AlreadyExists
from tests.support.http_proxy import HttpFault, HttpProxy, running_proxy
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.s3_transport import MemoryTransport
from tests.support.virtual_time import run_virtually
from tests.support.weed import REGION

OWN_KEY = f"wal/0/{uuid.UUID('018bcfe5-6800-7000-8000-000000000000')}"
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
        address = parse_address(f"s3://{BUCKET}?endpoint={proxy.endpoint}&region={REGION}")
        threads = StoreThreads("credentials", 1)
        chain = CredentialChain(str(address), threads)
        transport = ObstoreTransport(address, chain)
        multipart = Multipart(address, chain, ABOVE, PART_BYTES)
        client = S3Client(transport, str(address), Limits(hedge_share=0.0), dice=lambda: 0.0)
        yield Behind(server, proxy, client, transport, multipart, f"{uuid.uuid4().hex}/")
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


class TwoWinners:
    """Uploads that look whether an object is there before they take their time."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects

    async def put(self, key: str, data: bytes) -> PutResult:
        if key in self._objects:
            return Refused()
        await asyncio.sleep(1.0)
        self._objects.setdefault(key, data)
        return Stored(data.hex())


def test_uploads_of_which_two_win_a_race_are_not_create_only() -> None:
    async def main() -> bool:
        transport = MemoryTransport(usual_s=0.1)
        client = S3Client(transport, "s3://bucket/", PATIENT)
        found = await is_create_only(client, TwoWinners(transport.objects))
        assert transport.objects == {}
        return found

    assert run_virtually(main) is False


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
    # What is not large is one PUT as before.
    behind.proxy.requests.clear()
    await behind.blobs().put("b", [LARGE[:ABOVE]])
    assert len(behind.proxy.requests) == 1


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
