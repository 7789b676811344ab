"""The address of a bucket, its credentials, what errors mean to an operator, and the order of listings."""

import asyncio
from pathlib import Path

import boto3
import pytest

from adapters.metadata.s3 import S3Metadata
from adapters.s3.address import BadAddress, S3Address, parse_address
from adapters.s3.bucket import open_bucket
from adapters.s3.client import Limits, S3Client
from adapters.s3.credentials import CredentialChain
from adapters.s3.failures import RIGHTS, Request, failure_of
from adapters.s3.listing import Listing, Wanted
from adapters.s3.transport import PAGE, ObstoreTransport
from adapters.threads import StoreThreads
from ledger.errors import StoreUnavailable
from tests.support.s3_transport import MemoryTransport
from tests.support.virtual_time import run_virtually

SECRET = "wJalrXUtnFEMI"


def test_an_address_has_bucket_prefix_endpoint_and_region() -> None:
    assert parse_address("s3://bucket") == S3Address("bucket")
    assert parse_address("s3://bucket/") == S3Address("bucket")
    assert parse_address("s3://my.bucket-1/a/b/") == S3Address("my.bucket-1", "a/b/")
    assert parse_address("s3://bucket/wal?region=eu-west-1") == S3Address("bucket", "wal/", None, "eu-west-1")
    found = parse_address("s3://bucket/p?endpoint=http://127.0.0.1:9000/&region=x")
    assert found == S3Address("bucket", "p/", "http://127.0.0.1:9000", "x")
    assert str(found) == "s3://bucket/p/ at http://127.0.0.1:9000"


@pytest.mark.parametrize(
    "url",
    [
        "s3:",
        "s3://",
        "s3:///prefix",
        "http://bucket",
        "s3://b/p",
        f"s3://key:{SECRET}@bucket/p",
        f"s3://bucket/p?endpoint=http://key:{SECRET}@host",
        f"s3://bucket/p?secret_access_key={SECRET}",
        "s3://bucket/p?endpoint=host:9000",
        f"s3://bucket/p?endpoint=http://host?{SECRET}",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/a%20b",
        f"s3://bucket/{'p' * 199}/{'p' * 199}",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadAddress) as refused:
        parse_address(url)
    assert SECRET not in str(refused.value)


def error_text(status: str, body: str = "") -> str:
    """As obstore 0.12 words it."""
    return (
        "Generic S3 error: Error performing PUT http://127.0.0.1:1/b/k in 1ms - Server returned non-2xx "
        f"status code: {status}: {body}\n\nDebug source:\nGeneric {{ ... }}"
    )


@pytest.mark.parametrize(
    ("text", "certain", "again", "says"),
    [
        (error_text("503 Service Unavailable"), False, True, "503"),
        (error_text("500 Internal Server Error"), False, True, "500"),
        (error_text("429 Too Many Requests"), False, True, "429"),
        (error_text("507 Insufficient Storage"), False, True, "507"),
        (
            error_text("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"),
            True,
            False,
            "s3:PutObject",
        ),
        (error_text("403 Forbidden", "<Code>InvalidAccessKeyId</Code>"), True, False, "access key"),
        (error_text("403 Forbidden", "<Code>SignatureDoesNotMatch</Code>"), True, False, "secret key"),
        (error_text("403 Forbidden", "<Code>RequestTimeTooSkewed</Code>"), True, False, "clock"),
        (error_text("400 Bad Request", "<Code>ExpiredToken</Code>"), True, False, "expired"),
        (error_text("404 Not Found", "<Code>NoSuchBucket</Code>"), True, False, "no such bucket"),
        (error_text("400 Bad Request", "<Code>AuthorizationHeaderMalformed</Code>"), True, False, "?region="),
        (error_text("501 Not Implemented", "<Code>NotImplemented</Code>"), True, False, "conditional writes"),
        (error_text("400 Bad Request", "<Code>RequestTimeout</Code>"), False, True, "in time"),
        (error_text("408 Request Timeout"), False, True, "in time"),
        (error_text("507 Insufficient Storage", "<Code>InsufficientStorage</Code>"), False, False, "full"),
        (error_text("507 x", "<Code>XMinioStorageFull</Code>"), False, False, "full"),
        (error_text("403 Forbidden", "<Code>QuotaExceeded</Code>"), True, False, "quota"),
        (error_text("429 Too Many", "<Code>QuotaExceeded</Code>"), False, False, "quota"),
        (error_text("409 Conflict", "<Code>InvalidAccessKeyId</Code>"), False, False, "access key"),
        (
            'Encountered object with invalid path: Path "wal/0/a//b" contained empty path segment',
            True,
            False,
            "'wal/0/a//b'",
        ),
        (
            'Encountered object with invalid path: Error parsing Path "a/../b": Encountered',
            True,
            False,
            "'a/../b' in it",
        ),
        ("... - Received redirect without LOCATION, this normally ...", True, False, "?region="),
        ("HTTP error: error sending request ... HttpError { kind: Connect, ...", True, True, "reached"),
        ("HTTP error: error sending request ... HttpError { kind: Request, ...", False, True, "connection"),
        ("HTTP error: error sending request ... HttpError { kind: Timeout, ...", False, True, "in time"),
        ("something that no version of obstore said before", False, True, "connection"),
    ],
)
def test_an_error_says_what_failed_and_what_to_do(text: str, certain: bool, again: bool, says: str) -> None:
    failed = failure_of(Request("s3://bucket/ at http://host", "put", "wal/0/x"), text)
    assert (failed.certain, failed.again) == (certain, again)
    assert says in failed.reason
    assert failed.reason.startswith("s3://bucket/ at http://host: put wal/0/x failed, since ")
    assert "\n" not in failed.reason
    assert "Debug" not in failed.reason


@pytest.mark.parametrize("operation", RIGHTS)
def test_a_missing_right_is_named(operation: str) -> None:
    failed = failure_of(Request("s3://bucket/", operation), error_text("403 Forbidden"))
    assert RIGHTS[operation] in failed.reason


async def test_without_credentials_each_call_says_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    store = open_bucket("s3://bucket/p?endpoint=http://127.0.0.1:1", Limits(hedge_share=0.0)).metadata()
    with pytest.raises(StoreUnavailable, match="no credentials were found; set AWS_ACCESS_KEY_ID"):
        await store.get("a")
    await store.close()


def test_a_profile_that_is_unknown_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(StoreUnavailable, match="check AWS_PROFILE"):
        open_bucket("s3://bucket/p")


async def test_credentials_stay_out_of_every_repr_and_message() -> None:
    session = boto3.Session("AKIDEXAMPLE", SECRET, region_name="us-east-1")
    threads = StoreThreads("credentials", 1)
    chain = CredentialChain("s3://bucket/", threads, session)
    assert (await chain())["secret_access_key"] == SECRET
    address = parse_address("s3://bucket/p?endpoint=http://127.0.0.1:1")
    transport = ObstoreTransport(address, chain)
    client = S3Client(transport, str(address), dice=lambda: 0.0, on_close=threads.shut)
    store = S3Metadata(client, address.prefix)
    with pytest.raises(StoreUnavailable) as failed:
        await store.get("a")
    for text in (
        repr(chain),
        repr(client),
        repr(store),
        repr(address),
        str(failed.value),
        repr(failed.value),
    ):
        assert SECRET not in text
        assert "AKIDEXAMPLE" not in text
    await store.close()


KEYS = [
    *(f"journal/0/{number:020d}" for number in range(3)),
    *(f"journal/0-/{number:020d}" for number in range(2)),
    *(f"journal/00/{number:020d}" for number in range(2)),
    "journal-start/0",
    "cluster-id",
    *(f"x/{name}" for name in ("a", "a-/b", "a.b/c", "a0", "b-c", "b/a", "b/c/0")),
]


@pytest.mark.parametrize("as_directories", [False, True])
@pytest.mark.parametrize("root", ["", "some/prefix/"])
def test_a_listing_is_by_code_point_whatever_the_order_of_the_store(as_directories: bool, root: str) -> None:
    transport = MemoryTransport()
    transport.as_directories = as_directories
    transport.objects = {f"{root}{key}": b"v" for key in KEYS}
    transport.objects["some/other"] = b"foreign"

    async def main() -> None:
        listing = Listing(S3Client(transport, "s3://bucket/", Limits(hedge_share=0.0)), root)

        async def listed(wanted: Wanted) -> list[str]:
            return [found.key async for found in listing.objects(wanted) if found.key in KEYS]

        for prefix in [
            "",
            "journal",
            "journal/",
            "journal/0",
            "journal/0/",
            "journal/0/00",
            "x/a",
            "x/b/",
            "y",
        ]:
            for first in ["", *KEYS, "journal/0/~", "journal/0", "x/a.", "a", "~"]:
                for included in (False, True):
                    wanted = Wanted(prefix, first, included)
                    assert await listed(wanted) == sorted(filter(wanted.has, KEYS)), wanted

    run_virtually(main)


def test_a_large_directory_is_read_page_by_page_from_the_first_key_wanted() -> None:
    transport = MemoryTransport()
    keys = [f"wal/0/{number:08d}" for number in range(3 * PAGE)]
    transport.objects = dict.fromkeys(keys, b"v")

    async def main() -> None:
        listing = Listing(S3Client(transport, "s3://bucket/", Limits(hedge_share=0.0)), "")
        found = [listed.key async for listed in listing.objects(Wanted("wal/0/"))]
        assert found == keys
        transport.sent.clear()
        found = [listed.key async for listed in listing.objects(Wanted("wal/0/", keys[-5]))]
        assert found == keys[-4:]
        assert transport.sent == ["list wal/0/"]
        found = [listed.key async for listed in listing.objects(Wanted("wal/0/000012"))]
        assert found == keys[1200:1300]
        assert len(transport.sent) == 2

    run_virtually(main)


@pytest.mark.parametrize("as_directories", [False, True])
def test_segments_of_many_partitions_are_read_a_thousand_at_a_time(as_directories: bool) -> None:
    transport = MemoryTransport()
    transport.as_directories = as_directories
    name = "00000000000000000000-01a1fe52-9509-79f8-8478-73dc80f921ea.kfs"
    keys = sorted(f"seg/{0xA:032x}/{partition}/{name}" for partition in range(3 * PAGE))
    transport.objects = dict.fromkeys([*keys, "wal/0/x"], b"v")

    async def main() -> None:
        listing = Listing(S3Client(transport, "s3://bucket/", Limits(hedge_share=0.0)), "")
        assert [listed.key async for listed in listing.objects(Wanted("seg/"))] == keys
        assert len(transport.sent) <= 4
        transport.sent.clear()
        found = [listed.key async for listed in listing.objects(Wanted("seg/", keys[-5]))]
        assert found == keys[-4:]
        assert len(transport.sent) == 1

    run_virtually(main)


def test_objects_that_no_store_of_ours_wrote_are_left_out() -> None:
    transport = MemoryTransport()
    names = ["wal/0/a", "wal/0/a b", "wal/0/.hidden", "wal/0/b/c", "wal/x", "__health/1", "ok"]
    transport.objects = dict.fromkeys(names, b"v")

    async def main() -> list[str]:
        listing = Listing(S3Client(transport, "s3://bucket/", Limits(hedge_share=0.0)), "")
        return [listed.key async for listed in listing.objects(Wanted(""))]

    assert asyncio.run(main()) == ["__health/1", "ok", "wal/0/a"]
