"""Metadata in a real etcd behind a network that fails, with TLS, with users, out of space."""

import asyncio
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs the extra etcd: pip install dragoman[etcd]")

from adapters.metadata.etcd import EtcdMetadata
from adapters.metadata.etcd_address import Login
from adapters.rpc.caller import Limits
from adapters.rpc.tls import Tls
from ledger.errors import StoreUnavailable
from ledger.journal import MAX_ENTRY_BYTES
from ledger.ports import PutOutcome, Won
from tests.support.certificates import Authority
from tests.support.etcd import HOST, EtcdServer, ServedTls, running_etcd
from tests.support.ports import free_ports
from tests.support.rpc_limits import PATIENT
from tests.support.tcp_proxy import Link, linked
from tests.support.versions import ROOT

WRITER = Login("dragoman", "s3cret of the writer")
READER = Login("reader", "s3cret of the reader")
VALUE = b"v" * 10_000
POLL_S = 0.01
LITTLE_SPACE = f"--quota-backend-bytes={4 * 1024 * 1024}"
HASTY = replace(PATIENT, attempt_s=0.3)
IMPATIENT = replace(PATIENT, patience_s=0.0)


@pytest.fixture
async def link(etcd: EtcdServer) -> AsyncIterator[Link]:
    async with linked(etcd.port) as link:
        yield link


@asynccontextmanager
async def opened(
    url: str, *, tls: Tls | None = None, login: Login | None = None, limits: Limits = PATIENT
) -> AsyncIterator[EtcdMetadata]:
    """Opened in a thread, as the link to it needs the event loop."""
    store = await asyncio.to_thread(EtcdMetadata, url, tls=tls, login=login, limits=limits)
    try:
        yield store
    finally:
        await store.close()


async def won(outcome: PutOutcome) -> str:
    assert isinstance(outcome, Won), outcome
    return outcome.version


def name_of(url: str, key: str) -> str:
    """In etcd."""
    return f"{url.split('/', 3)[3]}/{key}"


async def test_calls_go_to_another_endpoint_when_one_is_gone(etcd: EtcdServer, link: Link) -> None:
    async with linked(etcd.port) as second:
        async with opened(etcd.url(link.endpoint, second.endpoint)) as store:
            first = await won(await store.put("a", b"1", None))
            assert (link.connections, second.connections) == (2, 1)
            await link.stop()
            assert await store.get("a") is not None
            version = await won(await store.put("a", b"2", first))
            await link.start()
            await second.stop()
            assert await store.get("a") is not None
            await won(await store.put("a", b"3", version))


async def test_an_endpoint_that_is_gone_when_the_store_is_opened_is_no_obstacle(
    etcd: EtcdServer, link: Link
) -> None:
    await link.stop()
    async with opened(etcd.url(link.endpoint, etcd.endpoint)) as store:
        await won(await store.put("a", b"1", None))


def test_an_etcd_whose_port_another_process_has_taken_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        offered = iter([[taken.getsockname()[1], *free_ports(2)], free_ports(3)])
        monkeypatch.setattr("tests.support.etcd.free_ports", lambda _: next(offered))
        with running_etcd() as server:
            assert server.port != taken.getsockname()[1]


A_LIFE = """
import asyncio, sys, uvloop
from adapters.metadata.etcd import EtcdMetadata

async def live():
    store = EtcdMetadata(sys.argv[1])
    await store.put("a", b"1", None)
    print((await store.get("a")).value, await store.scan("b"))
    await store.close()

uvloop.run(live())
"""


def test_a_process_with_uvloop_ends_by_itself_and_prints_nothing_of_its_own(etcd: EtcdServer) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", A_LIFE, etcd.url()], cwd=ROOT, capture_output=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"b'1' []\n", b"")


async def test_many_deletes_are_several_transactions(etcd: EtcdServer) -> None:
    async with opened(etcd.url()) as store:
        keys = [f"k{number:03d}" for number in range(300)]
        for outcome in await asyncio.gather(*(store.put(key, b"", None) for key in keys)):
            assert isinstance(outcome, Won)
        await store.delete([*keys[:290], *keys[:10]])
        assert [key for key, _ in await store.scan("")] == keys[290:]


async def test_stores_with_different_prefixes_do_not_meet(etcd: EtcdServer) -> None:
    url = etcd.url()
    async with opened(url) as one, opened(f"{url}-") as other, opened(f"{url}0") as third:
        for store in (one, other, third):
            await won(await store.put("a", b"", None))
            assert [key for key, _ in await store.scan("")] == ["a"]


@pytest.fixture(scope="module")
def other_etcd() -> Iterator[EtcdServer]:
    """With default limits. No test fills it."""
    with running_etcd() as server:
        yield server


@pytest.fixture
def small() -> Iterator[EtcdServer]:
    """Of one test, which fills it: from then on it refuses to write."""
    with running_etcd(flags=[LITTLE_SPACE]) as server:
        yield server


async def test_the_largest_entry_fits_into_an_etcd_with_default_limits(other_etcd: EtcdServer) -> None:
    async with opened(other_etcd.url()) as store:
        await won(await store.put("journal/0/1", bytes(MAX_ENTRY_BYTES), None))
        with pytest.raises(StoreUnavailable, match=r"raise its --max-request-bytes$"):
            await store.put("journal/0/2", bytes(2 * 1024 * 1024), None)
        assert await store.get("journal/0/2") is None


async def test_an_etcd_out_of_space_says_what_to_do_and_can_still_be_read_and_pruned(
    small: EtcdServer,
) -> None:
    url = small.url()
    async with opened(url) as store:
        keys: list[str] = []
        failure: StoreUnavailable | None = None
        while failure is None:
            key = f"k{len(keys)}"
            try:
                await won(await store.put(key, bytes(256 * 1024), None))
            except StoreUnavailable as error:
                failure = error
            else:
                keys.append(key)
        assert "etcdctl defrag" in str(failure)
        assert "etcdctl alarm disarm" in str(failure)
        assert await store.get(key) is None
        async with opened(url) as again:
            found: list[str] = []
            while page := await again.scan("", found[-1] + "-" if found else ""):
                found += [key for key, _ in page]
            assert found == sorted(keys)
            await again.delete(keys)
        assert await store.scan("") == []


async def test_another_cluster_behind_the_same_address_is_not_written_to(
    etcd: EtcdServer, other_etcd: EtcdServer, link: Link
) -> None:
    with pytest.raises(StoreUnavailable, match="belongs to another cluster"):
        await asyncio.to_thread(EtcdMetadata, etcd.url(etcd.endpoint, other_etcd.endpoint), limits=PATIENT)
    url = etcd.url(link.endpoint)
    async with opened(url, limits=IMPATIENT) as store:
        await won(await store.put("a", b"", None))
        await link.stop()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.get("a")
        await link.lead_to(other_etcd.port)
        await link.start()
        sentence = "cannot be reached"
        while "cannot be reached" in sentence:
            with pytest.raises(StoreUnavailable) as refused:
                await store.put("b", b"", None)
            sentence = str(refused.value)
            await asyncio.sleep(POLL_S)
        assert "belongs to another cluster" in sentence
        assert await asyncio.to_thread(other_etcd.value, name_of(url, "b")) is None


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """With users, who may write below test/."""
    with running_etcd(flags=["--bcrypt-cost=4"]) as server:
        server.add_role("writers", "READWRITE", "test/")
        server.add_role("readers", "READ", "test/")
        server.enable_users({WRITER: "writers", READER: "readers"})
        yield server


async def test_a_user_with_a_password_writes_reads_and_deletes(guarded: EtcdServer) -> None:
    async with opened(guarded.url(), login=WRITER) as store:
        version = await won(await store.put("a", b"1", None))
        await won(await store.put("a", b"2", version))
        assert [found.value for _, found in await store.scan("")] == [b"2"]
        await store.delete(["a"])
        assert await store.get("a") is None


async def test_a_token_is_renewed_when_etcd_has_forgotten_it(guarded: EtcdServer) -> None:
    async with opened(guarded.url(), login=WRITER) as store:
        await won(await store.put("a", b"", None))
        # Tokens are in its memory alone.
        guarded.kill9()
        guarded.launch()
        puts = await asyncio.gather(*(store.put(f"b{number}", b"", None) for number in range(20)))
        assert all(isinstance(outcome, Won) for outcome in puts), puts


@pytest.mark.parametrize(
    ("login", "prefix", "sentence"),
    [
        (None, "test", "requires authentication: set a user and a password"),
        (Login(WRITER.user, "wr0ng"), "test", "does not accept the user with this password"),
        (Login("nobody", "wr0ng"), "test", "does not accept the user with this password"),
        (WRITER, "other", "does not permit the user to read and write there"),
        (READER, "test", "does not permit the user to read and write there"),
    ],
)
async def test_a_user_that_may_not_write_is_refused_at_opening_in_one_sentence(
    guarded: EtcdServer, login: Login | None, prefix: str, sentence: str
) -> None:
    url = f"etcd://{guarded.endpoint}/{prefix}/refused"
    with pytest.raises(StoreUnavailable, match=sentence) as refused:
        await asyncio.to_thread(EtcdMetadata, url, login=login, limits=PATIENT)
    assert "\n" not in str(refused.value)
    if login is not None:
        assert login.password not in "".join(traceback.format_exception(refused.value))


async def test_rights_that_are_taken_away_are_a_certain_refusal(guarded: EtcdServer) -> None:
    temporary = Login("temporary", "s3cret of a while")
    guarded.add_user(temporary, "writers")
    async with opened(guarded.url(), login=temporary) as store:
        await won(await store.put("a", b"", None))
        guarded.ask("auth/user/revoke", {"name": temporary.user, "role": "writers"})
        with pytest.raises(StoreUnavailable, match="grant-permission"):
            await store.put("b", b"", None)
        guarded.ask("auth/user/changepw", {"name": temporary.user, "password": "another"})
        with pytest.raises(StoreUnavailable, match="does not accept the user with this password"):
            await store.get("a")


async def test_the_password_is_in_no_message(guarded: EtcdServer) -> None:
    assert WRITER.password not in repr(WRITER)
    async with opened(guarded.url(), login=WRITER) as store:
        assert WRITER.password not in repr(store)
    with pytest.raises(ValueError, match="settings of their own") as refused:
        EtcdMetadata(f"etcd://{WRITER.user}:{WRITER.password}@{guarded.endpoint}/test")
    assert WRITER.password not in str(refused.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("etcd-ca"))


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[EtcdServer]:
    """Asks for a certificate of the same CA."""
    with running_etcd(tls=ServedTls(authority)) as server:
        yield server


async def test_a_client_with_a_certificate_is_served_over_tls(
    encrypted: EtcdServer, authority: Authority
) -> None:
    client = authority.client()
    tls = Tls(authority.file, client.certificate, client.key)
    async with opened(encrypted.url(), tls=tls) as store:
        await won(await store.put("a", b"", None))
        assert await store.get("a") is not None


async def test_renewed_certificates_of_the_client_are_read_when_it_connects_again(
    encrypted: EtcdServer, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"

    def show(name: str, by: Authority) -> None:
        issued = by.client(name)
        issued.certificate.rename(certificate)
        issued.key.rename(key)

    show("first", authority)
    tls = Tls(authority.file, certificate, key)
    async with (
        linked(encrypted.port) as link,
        opened(encrypted.url(link.endpoint), tls=tls, limits=IMPATIENT) as store,
    ):
        await won(await store.put("a", b"", None))
        await link.stop()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.get("a")
        await link.start()
        show("theirs", Authority(tmp_path, "foreign"))
        with pytest.raises(StoreUnavailable, match="client certificate"):
            await store.get("a")
        show("renewed", authority)
        assert await store.get("a") is not None


async def test_what_is_wrong_with_tls_is_said_in_one_sentence(
    encrypted: EtcdServer, etcd: EtcdServer, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path, "foreign")
    ours, theirs = authority.client(), foreign.client()
    for server, tls, sentence in (
        (encrypted, Tls(foreign.file, ours.certificate, ours.key), "correct the CA bundle"),
        (encrypted, Tls(authority.file), "client certificate"),
        (encrypted, Tls(authority.file, theirs.certificate, theirs.key), "client certificate"),
        (encrypted, None, "whether it speaks TLS"),
        (etcd, Tls(authority.file), "whether it speaks TLS"),
        (etcd, Tls(tmp_path / "absent.pem"), "absent.pem"),
        (etcd, Tls(ours.key), "it is no such PEM file"),
        (etcd, Tls(authority.file, ours.certificate), "only one of them is set"),
        (etcd, Tls(authority.file, ours.certificate, theirs.key), "its key belongs to another certificate"),
    ):
        with pytest.raises(StoreUnavailable, match=sentence) as refused:
            await asyncio.to_thread(EtcdMetadata, server.url(), tls=tls, limits=PATIENT)
        assert "\n" not in str(refused.value)
