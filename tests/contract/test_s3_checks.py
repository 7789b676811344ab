"""What the settings of a bucket mean for Dragoman: what `doctor` reports, and what a start refuses."""

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from adapters.far import FarStores
from adapters.s3.bucket import S3Bucket, open_bucket
from adapters.s3.checks import BucketChecks, Inspected, abandoned
from adapters.s3.lifecycle import is_own, lifecycle_of
from ledger.errors import StoreUnavailable, StoreUnfit
from tests.support.http_proxy import Denied, running_proxy
from tests.support.s3_servers import S3Server
from tests.support.s3_stores import PATIENT
from tests.support.weed import REGION

PREFIX = "cluster/"
EXPIRES = {"Expiration": {"Days": 30}}
DAY = timedelta(days=1)


def rule(prefix: str = "", **actions: object) -> dict[str, Any]:
    return {"ID": "cleaning", "Status": "Enabled", "Filter": {"Prefix": prefix}, **actions}


@pytest.mark.parametrize("where", ["", "cl", "cluster/", "cluster/wal/", "cluster/wal/0/", "cluster/snap"])
def test_an_expiry_over_any_part_of_the_prefix_does_harm(where: str) -> None:
    (harm,) = lifecycle_of([rule(where, **EXPIRES)], PREFIX).harms
    assert harm.startswith("its lifecycle rule 'cleaning' ")
    assert harm.endswith("deletes objects 30 days old, acknowledged records among them")


@pytest.mark.parametrize(
    "harmless",
    [
        rule("clusters/", **EXPIRES),
        rule("cluster/other/", **EXPIRES),
        rule("cluster/proof/", **EXPIRES),
        {**rule("cluster/", **EXPIRES), "Status": "Disabled"},
        rule("", Expiration={"ExpiredObjectDeleteMarker": True}),
        rule("", NoncurrentVersionExpiration={"NoncurrentDays": 1}),
        rule("", AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),
        rule("", Transitions=[{"Days": 30, "StorageClass": "STANDARD_IA"}]),
        {"Status": "Enabled", "Filter": {"Tag": {"Key": "a", "Value": "b"}}, **EXPIRES},
        {
            "Status": "Enabled",
            "Filter": {"And": {"Prefix": "", "Tags": [{"Key": "a", "Value": "b"}]}},
            **EXPIRES,
        },
    ],
)
def test_a_rule_for_other_objects_or_without_an_end_of_objects_does_none(harmless: Mapping[str, Any]) -> None:
    assert not lifecycle_of([harmless], PREFIX).harms


@pytest.mark.parametrize(
    ("harmful", "says"),
    [
        (
            rule("", Expiration={"Date": datetime(2027, 1, 2, tzinfo=UTC)}),
            "deletes objects from 2027-01-02 on",
        ),
        (rule("", Transitions=[{"Days": 1, "StorageClass": "GLACIER"}]), "to GLACIER 1 days old"),
        (rule("", Transitions=[{"Days": 0, "StorageClass": "DEEP_ARCHIVE"}]), "to DEEP_ARCHIVE"),
        ({"Status": "Enabled", "Prefix": "cluster/wal/", **EXPIRES}, "a lifecycle rule below 'cluster/wal/'"),
        (
            {"Status": "Enabled", "Filter": {"And": {"Prefix": "c", "ObjectSizeGreaterThan": 1}}, **EXPIRES},
            "a lifecycle rule below 'c'",
        ),
        ({"Status": "Enabled", "Filter": {"ObjectSizeGreaterThan": 1}, **EXPIRES}, "of the whole bucket"),
    ],
)
def test_every_form_of_a_rule_is_understood(harmful: Mapping[str, Any], says: str) -> None:
    (harm,) = lifecycle_of([harmful], PREFIX).harms
    assert says in harm


def test_an_upload_is_abandoned_after_more_than_a_day() -> None:
    now = datetime(2027, 1, 2, tzinfo=UTC)
    uploads = [{"Initiated": now - age} for age in (-DAY, DAY, DAY + timedelta(seconds=1))]
    assert abandoned([*uploads, {}], now) == uploads[2:]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("cluster/snapshot/0/a", True),
        ("cluster/proof/b/c", True),
        ("cluster/others", False),
        ("clusters/wal/0/a", False),
        ("snapshot/0/a", False),
    ],
)
def test_only_keys_of_dragoman_below_the_prefix_are_its_own(key: str, expected: bool) -> None:
    assert is_own(key, PREFIX) is expected


@pytest.fixture
def bucket(moto_s3: S3Server) -> Iterator[str]:
    """A bucket of its own, without settings."""
    name = f"checks-{uuid.uuid4().hex}"
    moto_s3.boto3_client().create_bucket(Bucket=name)
    yield name


def url_of(endpoint: str, bucket: str) -> str:
    return f"s3://{bucket}/cluster?endpoint={endpoint}&region={REGION}"


async def inspected(bucket: S3Bucket) -> Inspected:
    try:
        return await bucket.checks.inspect(PREFIX)
    finally:
        bucket.checks.shut()


async def test_a_bucket_without_settings_has_nothing_to_be_found(moto_s3: S3Server, bucket: str) -> None:
    found = await inspected(open_bucket(url_of(moto_s3.endpoint, bucket), PATIENT))
    assert (found.refusals, found.findings) == ([], [])
    for note in (
        "bucket: it is there",
        "lifecycle rules: none deletes",
        "versioning: off",
        "Object Lock: no ",
    ):
        assert [one for one in found.notes if one.startswith(note)], found.notes


async def test_a_server_that_knows_few_settings_is_no_obstacle(weed_s3: S3Server) -> None:
    opened = open_bucket(weed_s3.url("cluster"), PATIENT)
    found = await inspected(opened)
    assert (found.refusals, found.findings) == ([], [])
    again = BucketChecks(opened.address, opened.transport._credentials)  # noqa: SLF001 # the chain is the same
    await again.refuse_unfit(PREFIX)
    again.shut()


@pytest.mark.parametrize("server", ["moto_s3", "weed_s3"])
async def test_a_store_tells_its_time(request: pytest.FixtureRequest, server: str) -> None:
    s3: S3Server = request.getfixturevalue(server)
    opened = open_bucket(s3.url("cluster"), PATIENT)
    seen_ms = await opened.checks.unix_ms()
    opened.checks.shut()
    assert seen_ms is not None and seen_ms % 1_000 == 0
    assert abs(seen_ms - datetime.now(UTC).timestamp() * 1_000) < 60_000


async def test_a_start_refuses_a_bucket_that_deletes_records(moto_s3: S3Server, bucket: str) -> None:
    client, opened = moto_s3.boto3_client(), open_bucket(url_of(moto_s3.endpoint, bucket), PATIENT)
    await opened.checks.refuse_unfit(PREFIX)
    client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [rule("cluster/wal/", **EXPIRES)]}
    )
    with pytest.raises(StoreUnfit) as refused:
        await opened.checks.refuse_unfit(PREFIX)
    assert str(refused.value).removeprefix(f"{opened.address} cannot be used, since ") == (
        "its lifecycle rule 'cleaning' below 'cluster/wal/' deletes objects 30 days old, acknowledged "
        "records among them; remove the rule, or give it a prefix of its own"
    )
    found = await inspected(opened)
    assert [
        one for one in found.refusals if one.startswith("its lifecycle rule 'cleaning'")
    ] == found.refusals
    assert len(found.refusals) == 1


async def test_versions_and_object_lock_are_reported(moto_s3: S3Server) -> None:
    client, name = moto_s3.boto3_client(), f"checks-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    retention = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention}
    )
    found = await inspected(open_bucket(url_of(moto_s3.endpoint, name), PATIENT))
    (finding,) = found.findings
    assert finding.startswith("Object Lock: the bucket has a default retention")
    assert [note for note in found.notes if "add a lifecycle rule with NoncurrentVersionExpiration" in note]
    client.put_bucket_lifecycle_configuration(
        Bucket=name,
        LifecycleConfiguration={"Rules": [rule("", NoncurrentVersionExpiration={"NoncurrentDays": 1})]},
    )
    found = await inspected(open_bucket(url_of(moto_s3.endpoint, name), PATIENT))
    assert "versioning: on, and a lifecycle rule removes old versions" in found.notes


async def test_unfinished_uploads_of_long_ago_are_aborted(moto_s3: S3Server, bucket: str) -> None:
    # moto says of every upload that it was begun in 2010.
    client = moto_s3.boto3_client()
    for key in ("cluster/snapshot/0/a", "cluster/proof/b/c", "cluster/of-others", "elsewhere/snapshot/0/a"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    found = await inspected(open_bucket(url_of(moto_s3.endpoint, bucket), PATIENT))
    assert "unfinished uploads: 2 that were begun more than a day ago aborted, 0 left" in found.notes
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert sorted(upload["Key"] for upload in left) == ["cluster/of-others", "elsewhere/snapshot/0/a"]


async def test_an_upload_that_was_just_begun_is_left(weed_s3: S3Server) -> None:
    url = weed_s3.url()
    client, opened = weed_s3.boto3_client(), open_bucket(url, PATIENT)
    key = f"{opened.address.prefix}snapshot/0/a"
    client.create_multipart_upload(Bucket=opened.address.bucket, Key=key)
    found = await opened.checks.inspect(opened.address.prefix)
    opened.checks.shut()
    assert "unfinished uploads: 0 that were begun more than a day ago aborted, 1 left" in found.notes
    uploads = client.list_multipart_uploads(Bucket=opened.address.bucket, Prefix=key)["Uploads"]
    assert [upload["Key"] for upload in uploads] == [key]


async def test_a_right_that_is_missing_is_a_note_and_not_an_error(moto_s3: S3Server, bucket: str) -> None:
    moto_s3.boto3_client().put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [rule("", **EXPIRES)]}
    )
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.denied = Denied(lambda request: "lifecycle" in request.query)
        opened = open_bucket(url_of(proxy.endpoint, bucket), PATIENT)
        await opened.checks.refuse_unfit(PREFIX)
        found = await inspected(opened)
    assert (found.refusals, found.findings) == ([], [])
    assert (
        "lifecycle rules: not checked, since the credentials lack the right s3:GetLifecycleConfiguration"
        in found.notes
    )


@pytest.mark.parametrize("text", ["no XML", "<Other><Kind>of answer</Kind></Other>"])
async def test_a_server_whose_answers_are_of_no_s3_is_no_obstacle(
    moto_s3: S3Server, bucket: str, text: str
) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.denied = Denied(lambda request: request.method == "GET", status=200, text=text)
        opened = open_bucket(url_of(proxy.endpoint, bucket), PATIENT)
        await opened.checks.refuse_unfit(PREFIX)
        found = await inspected(opened)
    assert (found.refusals, found.findings) == ([], [])


class InRegion(boto3.Session):  # type: ignore[misc] # boto3 is Any to mypy
    """Of Amazon, with a bucket in this region and without any settings."""

    def __init__(self, region: str) -> None:
        super().__init__("key", "secret", region_name="us-east-1")
        self._region = region

    def client(self, *_: object, **__: object) -> Any:
        headers = {"x-amz-bucket-region": self._region, "date": "Sat, 02 Jan 2027 00:00:00 GMT"}
        return Answering({"ResponseMetadata": {"HTTPHeaders": headers}})


class Answering:
    """A client whose every call has the same response."""

    def __init__(self, response: Mapping[str, Any]) -> None:
        self._response = response

    def __getattr__(self, operation: str) -> Any:
        return lambda **_: self._response


@pytest.mark.parametrize(("url", "refused"), [("s3://bucket", True), ("s3://bucket?region=eu-west-1", False)])
async def test_the_region_of_a_bucket_of_amazon_is_compared_with_that_of_the_url(
    url: str, refused: bool
) -> None:
    found = await inspected(open_bucket(url, PATIENT, InRegion("eu-west-1")))
    assert [one for one in found.refusals if one.endswith("name it in the URL (?region=eu-west-1)")] == (
        found.refusals
    )
    assert bool(found.refusals) is refused


async def test_a_promise_that_a_store_breaks_is_a_finding_of_the_doctor(
    moto_s3: S3Server, bucket: str
) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.dropped.add(("PUT", "if-match"))
        far = FarStores()
        metadata, blobs = (opened(url_of(proxy.endpoint, bucket)) for opened in (far.metadata, far.blobs))
        found = await far.inspect()
        await metadata.close()
        await blobs.close()
    (finding,) = found.findings
    assert finding.startswith(
        f"proof: s3://{bucket}/ at {proxy.endpoint} cannot be used, since it broke a promise"
    )
    assert (
        f"proof: the data in s3://{bucket}/ at {proxy.endpoint} keeps what the ledger rests on" in found.notes
    )


async def test_a_bucket_that_is_not_there_cannot_be_inspected(moto_s3: S3Server) -> None:
    opened = open_bucket(url_of(moto_s3.endpoint, f"absent-{uuid.uuid4().hex}"), PATIENT)
    with pytest.raises(StoreUnavailable, match="there is no such bucket: create it, or correct the URL"):
        await inspected(opened)
