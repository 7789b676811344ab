"""What an operator sets for a bucket has its effect in both clients: CA bundle, path style, key of KMS."""

import ssl
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest
from obstore.store import S3Store

from adapters.s3.address import ENDPOINT_VARIABLES, BadAddress, parse_address
from adapters.s3.bucket import open_bucket
from adapters.s3.options import Calls, S3Options, boto3_client, obstore_arguments
from adapters.s3.results import Stored
from ledger.errors import StoreUnavailable
from tests.support.certificates import Authority
from tests.support.http_proxy import running_proxy
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.s3_stores import PATIENT
from tests.support.weed import REGION

KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/0b1c2d3e-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("s3-ca"))


def served_tls(authority: Authority) -> ssl.SSLContext:
    issued = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    return context


async def test_an_endpoint_with_a_certificate_of_the_ca_bundle_is_used_by_both_clients(
    moto_s3: S3Server, authority: Authority
) -> None:
    async with running_proxy(moto_s3.endpoint, served_tls(authority)) as proxy:
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint={proxy.endpoint}&region={REGION}"
        bucket = open_bucket(url, PATIENT, options=S3Options(ca=authority.file))
        blobs = bucket.blobs()
        await blobs.put("a", [b"one"])
        assert await blobs.get("a") == b"one"
        assert isinstance(await bucket.multipart.put(f"{bucket.address.prefix}b", b"two"), Stored)
        assert await blobs.get("b") == b"two"
        await blobs.close()
        stranger = open_bucket(url, PATIENT).blobs()
        with pytest.raises(StoreUnavailable, match=r"certificate is not trusted .*: set storage\.s3_ca"):
            await stranger.get("a")
        await stranger.close()
    mistaken = open_bucket(
        f"s3://b-a-d?endpoint={moto_s3.endpoint.replace('http', 'https')}", PATIENT
    ).blobs()
    with pytest.raises(StoreUnavailable, match="does not speak TLS: write http://"):
        await mistaken.get("a")
    await mistaken.close()


@pytest.mark.parametrize("content", [None, "no PEM"])
def test_a_ca_bundle_that_cannot_be_used_is_refused_at_opening(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StoreUnavailable, match=r"the CA bundle .*ca\.pem cannot be (used|read)"):
        open_bucket("s3://bucket/p", options=S3Options(ca=path))


@pytest.mark.parametrize(
    ("url", "path_style", "expected"),
    [
        ("s3://bucket", None, "https://bucket.s3.us-east-1.amazonaws.com/key"),
        ("s3://bucket", True, "https://s3.us-east-1.amazonaws.com/bucket/key"),
        ("s3://a.bucket", None, "https://s3.us-east-1.amazonaws.com/a.bucket/key"),
        ("s3://bucket?endpoint=https://s3.example.com:9000", None, "https://s3.example.com:9000/bucket/key"),
        ("s3://bucket?endpoint=https://s3.example.com:9000", False, "https://bucket.s3.example.com:9000/key"),
        (
            "s3://bucket?endpoint=https://s3.us-east-1.amazonaws.com",
            None,
            "https://bucket.s3.us-east-1.amazonaws.com/key",
        ),
    ],
)
def test_the_bucket_is_in_the_path_or_in_the_host(url: str, path_style: bool | None, expected: str) -> None:
    address, options = parse_address(url), S3Options(path_style=path_style)
    store = S3Store(
        address.bucket,
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        **obstore_arguments(address, options),
    )
    signed = obstore.sign(store, "GET", "key", timedelta(minutes=1))
    assert signed.partition("?")[0] == expected
    session = boto3.Session("key", "secret", region_name="us-east-1")
    client = boto3_client(session, address, options, "us-east-1", Calls(1, 1, 60))
    signed = client.generate_presigned_url("get_object", {"Bucket": address.bucket, "Key": "key"})
    # boto3 knows a host without the region too, which Amazon redirects.
    found = signed.partition("?")[0].replace("s3.amazonaws.com", "s3.us-east-1.amazonaws.com")
    assert found == expected


@pytest.mark.parametrize("name", ENDPOINT_VARIABLES)
async def test_an_endpoint_of_the_environment_counts_for_both_clients(
    moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, moto_s3.endpoint)
    prefix = uuid.uuid4().hex
    bucket = open_bucket(f"s3://{BUCKET}/{prefix}?region={REGION}", PATIENT)
    assert str(bucket.address) == f"s3://{BUCKET}/{prefix}/ at {moto_s3.endpoint}"
    blobs = bucket.blobs()
    await blobs.put("a", [b"one"])
    assert isinstance(await bucket.multipart.put(f"{prefix}/b", b"two"), Stored)
    listed = moto_s3.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")
    assert [found["Key"] for found in listed["Contents"]] == [f"{prefix}/a", f"{prefix}/b"]
    await blobs.close()


def test_an_endpoint_of_a_profile_is_followed_by_no_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text("[default]\nendpoint_url = https://elsewhere.example\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    session = boto3.Session("key", "secret", region_name="us-east-1")
    client = boto3_client(session, parse_address("s3://bucket"), S3Options(), "us-east-1", Calls(1, 1, 60))
    assert "amazonaws.com" in client.meta.endpoint_url


@pytest.mark.parametrize(
    "url", ["s3://bucket?endpoint=http://127.0.0.1:9000", "s3://a.bucket?endpoint=https://s3.example.com"]
)
def test_a_bucket_that_cannot_be_in_the_host_is_refused_there(url: str) -> None:
    with pytest.raises(BadAddress, match=r"keep path style on$"):
        open_bucket(url, options=S3Options(path_style=False))


async def test_every_object_is_written_with_the_key_of_kms(moto_s3: S3Server) -> None:
    client: Any = moto_s3.boto3_client()
    bucket = open_bucket(moto_s3.url(), PATIENT, options=S3Options(kms_key=KMS_KEY))
    prefix, blobs, metadata = bucket.address.prefix, bucket.blobs(), bucket.metadata()
    await blobs.put("a", [b"one"])
    await metadata.put("b", b"two", None)
    await bucket.multipart.put(f"{prefix}c", b"three")
    for name in "abc":
        found = client.head_object(Bucket=BUCKET, Key=f"{prefix}{name}")
        assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", KMS_KEY), name
    await blobs.close()
    await metadata.close()
