"""The S3 adapters over real servers while requests fail, before and after their effect.

The proxy between them harms chosen requests (tests/support/http_proxy.py). Waits before retries are 0 here.
"""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.blobs.s3 import S3Blobs
from adapters.metadata.s3 import S3Metadata
from adapters.proof import prove_blobs, prove_metadata
from adapters.s3.address import parse_address
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.transport import ObstoreTransport
from adapters.threads import StoreThreads
from ledger.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreUnavailable, StoreUnfit
from ledger.ports import Lost, Unknown, Won
from tests.support.http_proxy import HttpFault, HttpProxy, running_proxy
from tests.support.s3_servers import BUCKET, MOTO, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.weed import REGION, SECRET_KEY

FAULTS = [fault for fault in HttpFault if fault not in (HttpFault.NONE, HttpFault.HELD)]
BEFORE_EFFECT = [
    HttpFault.CUT_BEFORE,
    HttpFault.SLOW_DOWN_BEFORE,
    HttpFault.CONFLICT_BEFORE,
    HttpFault.LATE,
]
AFTER_EFFECT = [HttpFault.ANSWER_LOST, HttpFault.ERROR_AFTER]
OWN_KEY = f"wal/0/{uuid.UUID('018bcfe5-6800-7000-8000-000000000000')}"
HASTY = Limits(hedge_share=0.0, attempt_s=0.2, deadline_s=0.5)


@dataclass(frozen=True, slots=True)
class Behind:
    """A proxy and the stores behind it, of a new prefix."""

    proxy: HttpProxy
    blobs: S3Blobs
    metadata: S3Metadata


def opened(endpoint: str, limits: Limits = PATIENT, bucket: str = BUCKET) -> S3Client:
    address = parse_address(f"s3://{bucket}?endpoint={endpoint}&region={REGION}")
    threads = StoreThreads("credentials", 1)
    transport = ObstoreTransport(address, CredentialChain(str(address), threads))
    return S3Client(transport, str(address), limits, dice=lambda: 0.0, on_close=threads.shut)


@pytest.fixture
async def behind(s3_server: S3Server) -> AsyncIterator[Behind]:
    async with running_proxy(s3_server.endpoint) as proxy:
        client, prefix = opened(proxy.endpoint), f"{uuid.uuid4().hex}/"
        stores = Behind(proxy, S3Blobs(client, prefix), S3Metadata(client, prefix))
        yield stores
        await stores.blobs.close()
        await stores.metadata.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_blob_is_there_once_and_whole_after_any_fault(behind: Behind, fault: HttpFault) -> None:
    behind.proxy.harm("PUT", fault)
    await behind.blobs.put(OWN_KEY, [b"one"])
    # A first attempt that arrives now meets what the second has written.
    assert set(await behind.proxy.arrive()) <= {412}
    assert await behind.blobs.get(OWN_KEY) == b"one"
    assert [info.key for info in await behind.blobs.list("")] == [OWN_KEY]
    assert behind.proxy.unharmed == 0
    with pytest.raises(AlreadyExists):
        await behind.blobs.put(OWN_KEY, [b"two"])


@pytest.mark.parametrize("fault", BEFORE_EFFECT)
async def test_metadata_whose_first_attempt_had_no_effect_is_won(behind: Behind, fault: HttpFault) -> None:
    behind.proxy.harm("PUT", fault)
    first = await behind.metadata.put("a", b"mine", None)
    assert isinstance(first, Won)
    behind.proxy.harm("PUT", fault)
    second = await behind.metadata.put("a", b"newer", first.version)
    assert isinstance(second, Won)
    assert set(await behind.proxy.arrive()) <= {412}
    found = await behind.metadata.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"newer", second.version)


@pytest.mark.parametrize("fault", AFTER_EFFECT)
async def test_metadata_whose_first_attempt_had_its_effect_is_unknown_until_it_is_read(
    behind: Behind, fault: HttpFault
) -> None:
    behind.proxy.harm("PUT", fault)
    assert isinstance(await behind.metadata.put("a", b"mine", None), Unknown)
    found = await behind.metadata.get("a")
    assert found is not None
    assert found.value == b"mine"
    behind.proxy.harm("PUT", fault)
    assert isinstance(await behind.metadata.put("a", b"newer", found.version), Unknown)
    assert await behind.metadata.put("a", b"third", found.version) == Lost()
    now = await behind.metadata.get("a")
    assert now is not None
    assert now.value == b"newer"


@pytest.mark.parametrize("fault", FAULTS)
async def test_reads_and_deletes_are_repeated_after_any_fault(behind: Behind, fault: HttpFault) -> None:
    for key in ("a", "b"):
        await behind.blobs.put(key, [b"0123456789"])
    behind.proxy.harm("GET", fault)
    assert await behind.blobs.get("a", 2, 3) == b"234"
    behind.proxy.harm("GET", fault)
    assert [info.key for info in await behind.blobs.list("")] == ["a", "b"]
    behind.proxy.harm("GET", fault)
    assert [key for key, _ in await behind.metadata.scan("a")] == ["a"]
    behind.proxy.harm("POST", fault)
    await behind.blobs.delete(["a", "b"])
    with pytest.raises(NotFound):
        await behind.blobs.get("a")
    assert behind.proxy.unharmed == 0


async def test_a_store_that_does_not_answer_ends_every_call_with_one_sentence(moto_s3: S3Server) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        blobs = S3Blobs(opened(proxy.endpoint, HASTY))
        for method in ("PUT", "GET", "POST"):
            proxy.harm(method, *[HttpFault.HELD] * 50)
        calls = [blobs.put("a", [b"x"]), blobs.get("a"), blobs.list(""), blobs.delete(["a", "b"])]
        results = await asyncio.gather(*calls, return_exceptions=True)
        await blobs.close()
    kinds = [OutcomeUnknown, StoreUnavailable, StoreUnavailable, OutcomeUnknown]
    assert [type(result) for result in results] == kinds
    for result in results:
        assert str(result).startswith(f"s3://{BUCKET}/ at {proxy.endpoint}: ")
        assert "\n" not in str(result)
        assert SECRET_KEY not in str(result)


async def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    client = opened(s3_server.endpoint, bucket=f"absent-{uuid.uuid4().hex}")
    blobs, metadata = S3Blobs(client), S3Metadata(client)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: blobs.get("a"),
        lambda: metadata.get("a"),
        lambda: metadata.scan("a/"),
    ]
    if s3_server.name == MOTO:
        # SeaweedFS makes the bucket of a first put by itself, if the credentials may.
        calls += [lambda: blobs.put("a", [b"x"]), lambda: metadata.put("a", b"x", None)]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="no such bucket: create it, or correct the URL"):
            await call()
    await blobs.close()
    await metadata.close()


async def test_a_wrong_key_is_named_and_a_renewed_one_found(
    weed_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    metadata = S3Metadata(opened(weed_s3.endpoint))
    with pytest.raises(StoreUnavailable, match="the secret key is not the one of the access key: renew"):
        await metadata.put("a", b"x", None)
    # Credentials that were renewed are found without a restart.
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert await metadata.get(f"absent/{uuid.uuid4().hex}") is None
    await metadata.close()


@pytest.mark.parametrize("fault", AFTER_EFFECT)
async def test_credentials_that_fail_for_another_request_make_no_outcome_certain(
    s3_server: S3Server, fault: HttpFault
) -> None:
    async with running_proxy(s3_server.endpoint) as proxy:
        address = parse_address(f"s3://{BUCKET}?endpoint={proxy.endpoint}&region={REGION}")
        threads = StoreThreads("credentials", 1)
        chain = CredentialChain(str(address), threads)
        client = S3Client(ObstoreTransport(address, chain), str(address), PATIENT, dice=lambda: 0.0)
        metadata, key = S3Metadata(client, f"{uuid.uuid4().hex}/"), "a"
        assert await metadata.get(key) is None
        # The credentials that obstore has are still good; another request has looked for new ones in vain.
        chain.error = "there are no credentials now"
        proxy.harm("PUT", fault)
        assert isinstance(await metadata.put(key, b"mine", None), Unknown)
        found = await metadata.get(key)
        assert found is not None
        assert found.value == b"mine"
        await metadata.close()
        threads.shut()


async def test_an_object_with_an_impossible_name_is_named_in_one_sentence(moto_s3: S3Server) -> None:
    prefix = uuid.uuid4().hex
    moto_s3.boto3_client().put_object(Bucket=BUCKET, Key=f"{prefix}/wal/0/a//b", Body=b"foreign")
    blobs = S3Blobs(opened(moto_s3.endpoint), f"{prefix}/")
    with pytest.raises(StoreUnavailable, match=rf"'{prefix}/wal/0/a//b'.*: rename or remove the object$"):
        await blobs.list("wal/0/")
    await blobs.close()


async def test_a_client_for_renewed_credentials_is_made_in_a_thread(
    weed_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Chain(CredentialChain):
        asked_by: list[threading.Thread] = []  # noqa: RUF012 # of one test

        @property
        def region(self) -> str | None:
            self.asked_by.append(threading.current_thread())
            return REGION

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    address = parse_address(f"s3://{BUCKET}?endpoint={weed_s3.endpoint}")
    threads = StoreThreads("credentials", 1)
    client = S3Client(ObstoreTransport(address, Chain(str(address), threads)), str(address), PATIENT)
    metadata = S3Metadata(client)
    with pytest.raises(StoreUnavailable):
        await metadata.put("a", b"x", None)
    first, renewed = Chain.asked_by
    assert (first is threading.current_thread(), renewed is threading.current_thread()) == (True, False)
    await metadata.close()
    threads.shut()


async def test_no_server_at_all_is_certain_to_have_had_no_effect(aws_environment: None) -> None:
    metadata = S3Metadata(opened("http://127.0.0.1:1"))
    with pytest.raises(StoreUnavailable, match="check its endpoint"):
        await metadata.put("a", b"x", None)
    await metadata.close()


async def test_a_sound_store_passes_the_proof_at_the_door_and_nothing_is_left(behind: Behind) -> None:
    await prove_metadata(behind.metadata, "the bucket", races=5)
    await prove_blobs(behind.blobs, "the bucket", races=5)
    assert await behind.blobs.list("") == []


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
async def test_a_server_that_ignores_a_condition_is_refused_with_the_broken_promise(
    moto_s3: S3Server, header: str
) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.dropped.add(("PUT", header))
        client, prefix = opened(proxy.endpoint), f"{uuid.uuid4().hex}/"
        blobs, metadata = S3Blobs(client, prefix), S3Metadata(client, prefix)
        with pytest.raises(StoreUnfit, match=rf"(?i)broke a promise: .*\({header}\)"):
            await prove_metadata(metadata, "the bucket", races=1)
        if header == "if-none-match":
            with pytest.raises(StoreUnfit, match="more than one succeeded"):
                await prove_blobs(blobs, "the bucket", races=1)
        assert await blobs.list("") == []
        await blobs.close()
        await metadata.close()
