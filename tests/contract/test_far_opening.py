"""Far stores as a gateway opens them from its settings: proved, with credentials, and nothing on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.metadata.etcd_address import Login
from adapters.open import FarStores
from adapters.s3.multipart import MULTIPART_ABOVE
from gateway.assembly import running_gateway
from gateway.config import load_settings
from gateway.settings import ConfigError
from gateway.store_assembly import opened_stores
from ledger.errors import StoreUnavailable, StoreUnfit
from ledger.ports import Appended
from tests.support.certificates import Authority
from tests.support.etcd import ServedTls, running_etcd
from tests.support.far_stores import ETCD_S3, FarPlace, far_place
from tests.support.http_proxy import HttpFault, running_proxy
from tests.support.s3_servers import BUCKET, S3Server

NOWHERE = "?endpoint=http://127.0.0.1:1&region=us-east-1"
PASSWORD = "DRAGOMAN_STORAGE_ETCD_PASSWORD"


@contextmanager
def nothing_made_in(directory: Path) -> Iterator[None]:
    """Also not in the working directory, which is this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield
    assert list(directory.iterdir()) == []


def keys_of(server: S3Server, prefix: str) -> list[str]:
    found = server.boto3_client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for entry in found.get("Contents", ())]


async def test_far_stores_are_proved_and_keep_nothing_of_it(
    far: FarPlace, weed_s3: S3Server, tmp_path: Path
) -> None:
    with nothing_made_in(tmp_path):
        async with opened_stores(load_settings(far.settings(), {}), prove=True) as stores:
            assert stores.image is None and stores.directories == []
            # etcd compares `start` in the same step, so an entry counts at once.
            assert await stores.journal.append(0, b"an entry") == Appended(counts=far.row == ETCD_S3)
            assert await stores.blobs.list("") == []
            assert await stores.segments.objects() == []
    # Of others, in the same bucket, a gateway that was killed may have left some.
    place = far.data.removeprefix(f"s3://{BUCKET}/").partition("/")[0]
    assert [key for key in keys_of(weed_s3, f"{place}/") if "/proof/" in key] == []


@pytest.mark.parametrize("which", ["metadata", "data"])
async def test_a_store_that_ignores_conditions_is_unfit(moto_s3: S3Server, which: str) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.dropped.add(("PUT", "if-none-match"))
        at = {
            name: f"s3://{BUCKET}/unfit-{which}/{name}"
            f"?endpoint={proxy.endpoint if name == which else moto_s3.endpoint}&region=us-east-1"
            for name in ("metadata", "data")
        }
        settings = load_settings(FarPlace("bucket", **at).settings(), {})
        with pytest.raises(StoreUnfit, match=r"more than one succeeded \(If-None-Match\)") as unfit:
            async with opened_stores(settings, prove=True):
                pass
    assert proxy.endpoint in str(unfit.value)
    assert keys_of(moto_s3, f"unfit-{which}/") == []


async def test_a_gateway_proves_uploads_in_parts_next_to_its_first_work(moto_s3: S3Server) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        url = f"s3://{BUCKET}/uploads?endpoint={proxy.endpoint}&region=us-east-1"
        here = {"listeners.listen": ("PLAINTEXT://127.0.0.1:0",), "admin.listen": ""}
        settings = load_settings({**FarPlace("bucket", url, url).settings(), **here}, {})
        async with running_gateway(settings):
            pass
        # A gateway that ends so early waits for them.
        assert [one for one in proxy.requests if one.startswith(f"POST /{BUCKET}/uploads/proof/")]


async def test_large_objects_go_in_parts_once_that_is_proved(
    moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_create_only(*_: object) -> bool:
        return True

    # The proof itself: tests/contract/test_s3_multipart.py.
    monkeypatch.setattr("adapters.s3.bucket.is_create_only", is_create_only)
    async with running_proxy(moto_s3.endpoint) as proxy:
        far = FarStores()
        blobs = far.blobs(f"s3://{BUCKET}/large?endpoint={proxy.endpoint}&region=us-east-1")
        for number, is_proved in enumerate((False, True)):
            if is_proved:
                await far.prove_uploads()
            key = f"snapshot/0/{number}"
            await blobs.put(key, [bytes(MULTIPART_ABOVE + 1)])
            assert (f"POST /{BUCKET}/large/{key}" in proxy.requests) is is_proved
        await blobs.close()


async def test_a_bucket_that_is_out_of_reach_is_unavailable(aws_environment: None) -> None:
    place = FarPlace("bucket", f"s3://{BUCKET}/m{NOWHERE}", f"s3://{BUCKET}/d{NOWHERE}")
    with pytest.raises(StoreUnavailable, match=f"s3://{BUCKET}/ at http://127.0.0.1:1"):
        async with opened_stores(load_settings(place.settings(), {}), prove=True):
            pass


async def test_a_proof_that_takes_too_long_ends_and_deletes_its_keys(moto_s3: S3Server) -> None:
    async with running_proxy(moto_s3.endpoint) as proxy:
        proxy.harm("PUT", *[HttpFault.HELD] * 200)
        far = FarStores()
        blobs = far.blobs(f"s3://{BUCKET}/slow/data?endpoint={proxy.endpoint}&region=us-east-1")
        with pytest.raises(
            StoreUnavailable, match=r"^the proof of the data in s3://.* took more than 0\.5 s"
        ):
            await far.prove(deadline_s=0.5)
        await blobs.close()
    assert keys_of(moto_s3, "slow/") == []


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1/x", "filer://127.0.0.1:1/x"])
async def test_a_server_that_is_out_of_reach_is_unavailable(url: str) -> None:
    settings = load_settings({"storage.metadata": url, "storage.data": "memory:"}, {})
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        async with opened_stores(settings):
            pass


async def test_the_own_store_of_a_filer_needs_the_setting(request: pytest.FixtureRequest) -> None:
    place = far_place(request, "filer+s3")
    settings = load_settings({**place.settings(), "storage.allow_unsafe_acks": False}, {})
    with pytest.raises(ConfigError, match=r"^storage\.metadata: what this store acknowledges does not"):
        async with opened_stores(settings):
            pass


async def test_an_etcd_that_asks_for_certificates(moto_s3: S3Server, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.client("gateway")
    with running_etcd(ServedTls(authority)) as etcd:
        flags = {
            **FarPlace(ETCD_S3, etcd.url(), moto_s3.url()).settings(),
            "storage.etcd_ca": str(authority.file),
        }
        files = {
            "storage.etcd_certificate": str(client.certificate),
            "storage.etcd_key": str(client.key),
        }
        async with opened_stores(load_settings({**flags, **files}, {}), prove=True):
            pass
        with pytest.raises(StoreUnavailable, match=etcd.endpoint):
            async with opened_stores(load_settings(flags, {})):
                pass


async def test_an_etcd_that_asks_for_a_password(moto_s3: S3Server, tmp_path: Path) -> None:
    login = Login("gateway", "the password of a gateway")
    file = tmp_path / "password"
    file.write_text(f"{login.password}\n")
    with running_etcd() as etcd:
        etcd.add_role("below-test", "READWRITE", "test/")
        etcd.enable_users({login: "below-test"})
        flags = {
            **FarPlace(ETCD_S3, etcd.url(), moto_s3.url()).settings(),
            "storage.etcd_user": login.user,
        }
        from_file = load_settings({**flags, "storage.etcd_password_file": str(file)}, {})
        async with opened_stores(from_file, prove=True):
            pass
        async with opened_stores(load_settings(flags, {PASSWORD: login.password})):
            pass
        with pytest.raises(StoreUnavailable, match=etcd.endpoint) as refused:
            async with opened_stores(load_settings(flags, {PASSWORD: "no such secret"})):
                pass
    assert "no such secret" not in str(refused.value)
