"""The rights that docs/buckets.md lists are enough, and each of them is named where it is missing."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import boto3
import pytest

from adapters.s3.bucket import S3Bucket, open_bucket
from adapters.s3.checks import Inspected
from ledger.errors import StoreError
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import PATIENT
from tests.support.versions import ROOT
from tests.support.weed import ACCESS_KEY, REGION, SECRET_KEY

PAGE: Final = ROOT / "docs/buckets.md"
POLICY: Final[dict[str, Any]] = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
RIGHTS: Final = [right for statement in POLICY["Statement"] for right in statement["Action"]]
OF_CHECKS: Final = RIGHTS[5:]
OF_MOTO: Final = ["s3:HeadBucket"]
"""Amazon calls it s3:ListBucket."""

SEEN_BY_MOTO: Final = [
    right
    for right in OF_CHECKS
    # moto takes these requests for listings.
    if right not in ("s3:GetBucketObjectLockConfiguration", "s3:GetEncryptionConfiguration")
]

Opened = Callable[[list[str]], S3Bucket]


@pytest.fixture
def opened(moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A bucket for a user who has these rights. moto compares the actions; of a delete of several objects it
    knows no key, so the resources are left out."""
    from moto import settings

    def client(service: str) -> Any:
        session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name=REGION)
        return session.client(service, endpoint_url=moto_s3.endpoint)

    iam, name = client("iam"), "rights"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]

    def open_with(rights: list[str]) -> S3Bucket:
        allowed = {"Effect": "Allow", "Action": [*rights, *OF_MOTO], "Resource": "*"}
        policy = json.dumps({**POLICY, "Statement": [allowed]})
        iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=policy)
        monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=REGION)
        return open_bucket(moto_s3.url(), PATIENT, session)

    yield open_with
    monkeypatch.undo()
    iam.delete_user_policy(UserName=name, PolicyName=name)
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=name)


async def used(bucket: S3Bucket) -> Inspected:
    """As by a start and by `doctor`. Errors: StoreError."""
    metadata, blobs = bucket.metadata(), bucket.blobs()
    try:
        await bucket.prove(metadata, blobs, races=1)
        await bucket.checks.refuse_unfit(bucket.address.prefix)
        return await bucket.checks.inspect(bucket.address.prefix)
    finally:
        await metadata.close()
        await blobs.close()


async def test_the_rights_of_the_page_are_enough(opened: Opened) -> None:
    bucket = await asyncio.to_thread(opened, RIGHTS)
    inspected = await used(bucket)
    assert (inspected.refusals, inspected.findings, bucket.multipart.unfit) == ([], [], "")
    assert bucket.transport.multipart is not None
    assert not [note for note in inspected.notes if "not checked" in note]


@pytest.mark.parametrize("missing", [right for right in RIGHTS if right not in OF_CHECKS])
async def test_each_right_that_is_needed_is_named(opened: Opened, missing: str) -> None:
    bucket = await asyncio.to_thread(opened, [right for right in RIGHTS if right != missing])
    if missing == "s3:AbortMultipartUpload":
        await used(bucket)
        assert missing in bucket.multipart.unfit
        return
    with pytest.raises(StoreError, match=rf"give the credentials the right {missing}\b"):
        await used(bucket)


@pytest.mark.parametrize("missing", SEEN_BY_MOTO)
async def test_each_right_of_a_check_is_named_and_not_needed(opened: Opened, missing: str) -> None:
    bucket = await asyncio.to_thread(opened, [right for right in RIGHTS if right != missing])
    inspected = await bucket.checks.inspect(bucket.address.prefix)
    bucket.checks.shut()
    assert [note for note in inspected.notes if note.endswith(f"the credentials lack the right {missing}")]
