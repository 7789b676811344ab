"""Metadata in etcd: its URL, what its errors mean, and what a real etcd does seldom."""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs the extra etcd: pip install dragoman[etcd]")

from adapters.metadata.etcd import EtcdMetadata, revision_of
from adapters.metadata.etcd_address import Login, address_of
from adapters.metadata.etcd_errors import explained
from adapters.rpc.caller import Limits
from adapters.rpc.failures import Meaning, unreached
from ledger.errors import StoreUnavailable
from ledger.ports import Lost, Unknown, Won, identity_of
from tests.support.fake_etcd import CODES, FakeEtcd, Refusal, serving
from tools.generate_protobuf import GENERATED, SOURCES, head_of

NO_SPACE = Refusal(CODES.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


@pytest.fixture
def fake() -> FakeEtcd:
    return FakeEtcd()


@pytest.fixture
def url(fake: FakeEtcd) -> Iterator[str]:
    with serving(fake) as endpoint:
        yield f"etcd://{endpoint}/test"


@pytest.mark.parametrize(
    ("url", "endpoints", "prefix"),
    [
        ("etcd://one/dragoman", ("one:2379",), "dragoman"),
        ("etcd://one:1,two.example:65535/a/b", ("one:1", "two.example:65535"), "a/b"),
        ("etcd://[::1]:2379,[fe80::1]/x", ("[::1]:2379", "[fe80::1]:2379"), "x"),
    ],
)
def test_a_url_names_endpoints_and_a_prefix(url: str, endpoints: tuple[str, ...], prefix: str) -> None:
    address = address_of(url)
    assert (address.endpoints, address.prefix) == (endpoints, prefix)


@pytest.mark.parametrize(
    "url",
    [
        "etcd:",
        "etcd://",
        "etcd://host",
        "etcd://host/",
        "etcd:///prefix",
        "etcd://host//prefix",
        "etcd://host/prefix/",
        "etcd://host/a b",
        "etcd://host:0/prefix",
        "etcd://host:65536/prefix",
        "etcd://host:port/prefix",
        "etcd://host,/prefix",
        "etcd://host,host:2379/prefix",
        "etcd://::1/prefix",
        "etcd://user:secret@host/prefix",
        "etcd://host/prefix?password=secret",
        "https://host/prefix",
    ],
)
def test_another_url_is_refused_without_repeating_what_could_be_secret(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "details", "meaning"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: x", Meaning.NOT_SENT),
        ("UNAVAILABLE", "Socket closed", Meaning.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: request timed out", Meaning.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: leader changed", Meaning.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: no leader", Meaning.UNKNOWN),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Meaning.UNKNOWN),
        ("CANCELLED", "", Meaning.UNKNOWN),
        ("INTERNAL", "stream terminated by RST_STREAM", Meaning.UNKNOWN),
        ("UNKNOWN", "", Meaning.UNKNOWN),
        ("DATA_LOSS", "etcdserver: corrupt cluster", Meaning.UNKNOWN),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Meaning.NO_SPACE),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Meaning.REFUSED),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (2 vs. 1)", Meaning.TOO_LARGE),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Meaning.TOO_LARGE),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Meaning.UNAUTHENTICATED),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Meaning.UNAUTHENTICATED),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Meaning.UNAUTHENTICATED),
        ("UNKNOWN", "auth: revision in header is old", Meaning.UNAUTHENTICATED),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            Meaning.REFUSED,
        ),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Meaning.REFUSED),
        ("UNIMPLEMENTED", "unknown service etcdserverpb.KV", Meaning.REFUSED),
    ],
)
def test_what_an_error_means_and_one_sentence_for_it(code: str, details: str, meaning: Meaning) -> None:
    failure = explained("etcd at host:1", code, details)
    assert failure.meaning is meaning
    assert failure.sentence.startswith("etcd at host:1 ")
    assert "\n" not in failure.sentence


def test_details_of_a_failed_connection_are_cut_to_a_line() -> None:
    sentence = unreached("etcd at host:1", "first\nsecond " + "x" * 10_000)
    assert len(sentence) < 400
    assert "\n" not in sentence


@pytest.mark.parametrize("version", ["0", "", "-1", "+1", " 1", "01", "1.0", "٣", "9" * 19, "9" * 30, "abc"])
def test_a_version_that_etcd_never_gives_is_none(version: str) -> None:
    assert revision_of(version) is None
    assert revision_of("9223372036854775807") == 2**63 - 1


async def test_a_put_that_expects_no_such_version_loses(url: str, fake: FakeEtcd) -> None:
    store = EtcdMetadata(url)
    # A revision of 0 would stand for an absent key.
    assert await store.put("a", b"", "0") == Lost()
    assert await store.put("a", b"", "another store's") == Lost()
    assert fake.values == {}
    await store.close()


@pytest.mark.parametrize("version", ["3.3.25", "2.3.8", "", "unknown"])
async def test_an_old_etcd_is_refused(url: str, fake: FakeEtcd, version: str) -> None:
    fake.version = version
    with pytest.raises(StoreUnavailable, match=r"3\.4 is the oldest that will do: upgrade it$"):
        EtcdMetadata(url)


async def test_a_newer_etcd_will_do(url: str, fake: FakeEtcd) -> None:
    fake.version = "3.10.0"
    await EtcdMetadata(url).close()


async def test_a_server_that_is_no_etcd_is_refused(url: str, fake: FakeEtcd) -> None:
    fake.on_status = raising(Refusal(CODES.UNIMPLEMENTED, "unknown service"))
    with pytest.raises(StoreUnavailable, match=r"is no etcd of version 3\.4 or newer"):
        EtcdMetadata(url)


async def test_a_put_that_was_made_although_etcd_reports_no_space_is_unknown(
    url: str, fake: FakeEtcd
) -> None:
    store = EtcdMetadata(url)
    fake.on_txn = raising(NO_SPACE)
    outcome = await store.put("a", b"mine", None)
    assert isinstance(outcome, Unknown)
    assert "etcdctl defrag" in outcome.reason
    assert fake.values[b"test/a"].value == b"mine"
    found = await store.get("a")
    assert found is not None
    assert isinstance(await store.put("a", b"next", found.version), Unknown)
    await store.close()


async def test_a_put_that_was_not_made_for_lack_of_space_certainly_had_no_effect(
    url: str, fake: FakeEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EtcdMetadata(url)
    won = await store.put("a", b"one", None)
    assert isinstance(won, Won)
    monkeypatch.setattr(fake, "put", lambda request: None)
    fake.on_txn = raising(NO_SPACE)
    for key, expect in (("a", won.version), ("b", None)):
        with pytest.raises(StoreUnavailable, match="etcdctl alarm disarm"):
            await store.put(key, b"two", expect)
    await store.close()


async def test_an_etcd_out_of_space_can_be_opened(url: str, fake: FakeEtcd) -> None:
    fake.on_txn = raising(NO_SPACE)
    store = EtcdMetadata(url)
    assert await store.scan("") == []
    await store.close()


async def test_a_store_names_the_cluster_that_it_was_opened_with(url: str, fake: FakeEtcd) -> None:
    store = EtcdMetadata(url)
    assert identity_of(store) == f"etcd cluster {fake.cluster_id:x}"
    await store.close()


async def test_an_answer_of_another_cluster_on_the_same_connection_does_not_count(
    url: str, fake: FakeEtcd
) -> None:
    store = EtcdMetadata(url, limits=Limits(patience_s=0.0))
    assert await store.get("a") is None
    fake.cluster_id += 1
    outcome = await store.put("a", b"", None)
    assert isinstance(outcome, Unknown)
    assert "belongs to another cluster" in outcome.reason
    with pytest.raises(StoreUnavailable, match="belongs to another cluster"):
        await store.get("a")
    await store.close()


async def test_errors_carry_no_password(url: str, fake: FakeEtcd) -> None:
    login = Login("dragoman", "s3cret")
    with pytest.raises(StoreUnavailable) as refused:
        # This etcd has no call to authenticate.
        EtcdMetadata(url, login=login)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))
    assert "s3cret" not in repr(login)


def test_a_store_can_be_used_on_one_event_loop_after_another(url: str) -> None:
    store = EtcdMetadata(url)
    assert isinstance(asyncio.run(store.put("a", b"1", None)), Won)
    assert asyncio.run(store.get("a")) is not None
    asyncio.run(store.close())


def raising(error: Exception) -> Callable[..., None]:
    """A hook that always raises."""

    def hook(*_: object) -> None:
        raise error

    return hook


@pytest.mark.parametrize("proto", sorted(SOURCES.glob("*.proto")), ids=lambda path: path.stem)
def test_generated_messages_are_those_of_their_proto(proto: Path) -> None:
    for suffix in (".py", ".pyi"):
        generated = GENERATED / f"{proto.stem}_pb2{suffix}"
        assert generated.read_text("utf-8").startswith(head_of(proto)), f"run make protobuf for {generated}"
