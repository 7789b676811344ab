"""What is wrong with a bucket, its rights or its credentials is one sentence, and nothing is left in it."""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from adapters.s3.bucket import S3Bucket, open_bucket
from ledger.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ledger.ports import Won
from tests.support.http_proxy import Denied, running_proxy
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.weed import ACCESS_KEY, REGION, SECRET_KEY

LISTED: Final = "list-type"


def everything(_: web.Request) -> bool:
    return True


def puts(request: web.Request) -> bool:
    return request.method == "PUT"


def reads(request: web.Request) -> bool:
    return request.method == "GET" and LISTED not in request.query


def lists(request: web.Request) -> bool:
    return request.method == "GET" and LISTED in request.query


def deletes(request: web.Request) -> bool:
    return request.method == "POST" and "delete" in request.query


def conditional_puts(request: web.Request) -> bool:
    return puts(request) and bool({"If-None-Match", "If-Match"} & set(request.headers))


ONE_KEY_DENIED = (
    "<DeleteResult><Error><Key>KEY</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
)
BY_POLICY = "<Message>User: arn:aws:iam::1:user/a is not authorized to perform: {} on resource: x</Message>"
WRONG: Final = {
    "no right to write": (Denied(puts), "give the credentials the right s3:PutObject for PREFIX*"),
    "no right to read": (
        Denied(reads),
        "give the credentials the right s3:GetObject and s3:ListBucket for PREFIX*",
    ),
    "no right to list": (Denied(lists), "give the credentials the right s3:ListBucket for PREFIX*"),
    "no right to delete": (Denied(deletes), "give the credentials the right s3:DeleteObject for PREFIX*"),
    "no right to delete a key": (
        Denied(deletes, status=200, text=ONE_KEY_DENIED),
        "give the credentials the right s3:DeleteObject for PREFIX*",
    ),
    "the store names the right": (
        Denied(reads, text=BY_POLICY.format("s3:ListBucket")),
        "give the credentials the right s3:ListBucket for PREFIX*",
    ),
    "no right to use the key of KMS": (
        Denied(puts, text=BY_POLICY.format("kms:GenerateDataKey")),
        "give the credentials the right kms:GenerateDataKey for the key of AWS KMS",
    ),
    "no such key of KMS": (
        Denied(puts, "KMS.NotFoundException", 400),
        "AWS KMS has no such key: enable it, or correct storage.s3_kms_key",
    ),
    "wrong region, said": (
        Denied(everything, "AuthorizationHeaderMalformed", 400),
        "signed for another region: the bucket is in another region: name it in the URL (?region=...)",
    ),
    "wrong region, redirected": (
        Denied(everything, "PermanentRedirect", 301),
        "name it in the URL (?region=",
    ),
    "wrong clock": (Denied(everything, "RequestTimeTooSkewed"), "this machine's clock is wrong: set it"),
    "expired credentials": (Denied(everything, "ExpiredToken", 400), "the credentials have expired: renew"),
    "unknown access key": (Denied(everything, "InvalidAccessKeyId"), "does not know the access key: renew"),
    "no conditional writes": (
        Denied(conditional_puts, "NotImplemented", 501),
        "use a store with conditional writes (If-None-Match and If-Match)",
    ),
}


async def refusal_of(bucket: S3Bucket) -> str:
    """Of the proof that a start and `doctor` make."""
    metadata, blobs = bucket.metadata(), bucket.blobs()
    try:
        with pytest.raises(StoreError) as refused:
            await bucket.prove(metadata, blobs, races=1)
    finally:
        await metadata.close()
        await blobs.close()
    return str(refused.value)


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_is_wrong_is_one_sentence_and_nothing_is_left(moto_s3: S3Server, wrong: str) -> None:
    denied, says = WRONG[wrong]
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.denied = denied
        bucket = open_bucket(
            f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}", PATIENT
        )
        sentence = await refusal_of(bucket)
    assert says.replace("PREFIX", bucket.address.prefix) in sentence
    assert sentence.startswith(f"{bucket.address}: ")
    assert "\n" not in sentence
    assert SECRET_KEY not in sentence
    kept = moto_s3.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=bucket.address.prefix)
    assert kept["KeyCount"] == 0


async def test_without_the_right_to_abort_no_upload_in_parts_is_begun(moto_s3: S3Server) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.denied = Denied(lambda request: request.method == "DELETE" and "uploadId" in request.query)
        bucket = open_bucket(
            f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}", PATIENT
        )
        metadata, blobs = bucket.metadata(), bucket.blobs()
        await bucket.prove(metadata, blobs, races=1)
        assert bucket.transport.multipart is None
        assert f"s3:AbortMultipartUpload for {bucket.address.prefix}*" in bucket.multipart.unfit
        await metadata.close()
        await blobs.close()


async def test_a_bucket_and_a_server_that_are_not_there(moto_s3: S3Server) -> None:
    absent = open_bucket(f"s3://absent-bucket/p?endpoint={moto_s3.endpoint}&region={REGION}", PATIENT)
    assert "there is no such bucket: create it, or correct the URL" in await refusal_of(absent)
    nowhere = open_bucket("s3://bucket/p?endpoint=http://127.0.0.1:1&region=x", PATIENT)
    assert "cannot be reached: check its endpoint and the network" in await refusal_of(nowhere)


async def test_a_delete_that_is_refused_for_the_only_key_had_no_effect(moto_s3: S3Server) -> None:
    denied, _ = WRONG["no right to delete a key"]
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.denied = denied
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}"
        blobs = open_bucket(url, PATIENT).blobs()
        with pytest.raises(StoreUnavailable, match="s3:DeleteObject"):
            await blobs.delete(["a"])
        with pytest.raises(OutcomeUnknown, match="s3:DeleteObject"):
            await blobs.delete(["a", "b"])
        await blobs.close()


async def test_a_response_that_obstore_does_not_expect_leaves_the_outcome_open(
    moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RustPanic(Exception):
        """As obstore raises it: of no class of its own."""

    async def panics(*_: object) -> None:
        raise RustPanic("rust future panicked: unknown error")

    monkeypatch.setattr("adapters.s3.transport.obstore.delete_async", panics)
    monkeypatch.setattr("adapters.s3.client.retry_wait_s", lambda *_: 0.0)
    blobs = open_bucket(moto_s3.url(), PATIENT).blobs()
    with pytest.raises(OutcomeUnknown, match=r"delete .*a failed, since the store broke the connection off"):
        await blobs.delete(["a"])
    await blobs.close()


def is_signed_with(key: str) -> Callable[[web.Request], bool]:
    return lambda request: f"Credential={key}/" in request.headers.get("Authorization", "")


async def test_credentials_that_expire_are_found_again_without_a_restart_and_nothing_is_lost(
    moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As by a program that renews the file of credentials."""
    file = tmp_path / "credentials"

    def renew(access_key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id={access_key}\naws_secret_access_key={SECRET_KEY}\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setattr("adapters.s3.transport.RENEWED_AFTER_S", 0.0)
    renew("first")
    async with running_proxy(moto_s3.endpoint) as proxy:
        bucket = open_bucket(
            f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}", PATIENT
        )
        metadata, blobs = bucket.metadata(), bucket.blobs()
        await blobs.put("wal/0/a", [b"acknowledged"])
        assert isinstance(await metadata.put("journal/0/a", b"acknowledged", None), Won)
        proxy.denied = Denied(is_signed_with("first"), "ExpiredToken", 400)
        calls = [blobs.put("wal/0/b", [b""]), metadata.put("journal/0/b", b"", None), blobs.get("wal/0/a")]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            # Certainly without effect, so that a client may send its records again.
            assert isinstance(result, StoreUnavailable)
            assert "the credentials have expired: renew" in str(result)
        renew("second")
        assert await blobs.get("wal/0/a") == b"acknowledged"
        await blobs.put("wal/0/b", [b"again"])
        assert isinstance(await metadata.put("journal/0/b", b"again", None), Won)
        found = await metadata.get("journal/0/a")
        assert found is not None
        assert found.value == b"acknowledged"
        assert ACCESS_KEY not in repr(bucket)
        await metadata.close()
        await blobs.close()


async def test_a_right_that_is_taken_away_and_given_back_while_running_needs_no_restart(
    moto_s3: S3Server,
) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        bucket = open_bucket(
            f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}", PATIENT
        )
        metadata = bucket.metadata()
        for denied in (Denied(puts), Denied(everything, "RequestTimeTooSkewed")):
            proxy.denied = denied
            with pytest.raises(StoreUnavailable):
                await metadata.put("a", b"", None)
            proxy.denied = None
            assert isinstance(await metadata.put("a", b"", None), Won)
            await metadata.delete(["a"])
        await metadata.close()
