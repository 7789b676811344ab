"""Metadata in a real SeaweedFS filer: with TLS, and next to files of others."""

import asyncio
import itertools
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs grpcio: pip install dragoman[etcd]")

from adapters.metadata.filer import FilerMetadata
from adapters.metadata.filer_client import FilerClient, address_of, explained
from adapters.metadata.memory import MemoryMetadata
from adapters.rpc.failures import Meaning
from adapters.rpc.tls import Tls
from ledger.errors import StoreDamaged, StoreUnavailable
from ledger.ports import Lost, PutOutcome, Versioned, Won
from tests.support.certificates import Authority
from tests.support.etcd import EtcdServer
from tests.support.rpc_limits import PATIENT
from tests.support.weed import Weed

_roots = itertools.count()


def fresh_url(endpoint: str) -> str:
    return f"filer://{endpoint}/filer-tests/{next(_roots)}"


def endpoint_of(weed: Weed) -> str:
    return f"127.0.0.1:{weed.filer_grpc_port}"


@asynccontextmanager
async def opened(url: str, tls: Tls | None = None) -> AsyncIterator[FilerMetadata]:
    """Opened in a thread, as it blocks."""
    store = await asyncio.to_thread(FilerMetadata, url, tls=tls, limits=PATIENT)
    try:
        yield store
    finally:
        await store.close()


def won(outcome: PutOutcome) -> str:
    assert isinstance(outcome, Won), outcome
    return outcome.version


async def test_scans_are_in_the_order_of_keys_where_folders_and_files_have_the_same_beginning(
    weed: Weed,
) -> None:
    keys = ["a/x", "a/y-z", "a/y/1", "a/y.", "a-b", "a-/q", "a.c/d", "a.c.d", "a0", "b/c/d", "b-/e", "b.f"]
    memory = MemoryMetadata()
    async with opened(fresh_url(endpoint_of(weed))) as store:
        for key in keys:
            won(await store.put(key, key.encode(), None))
            won(await memory.put(key, key.encode(), None))
        prefixes = ["", "a", "a/", "a-", "a.", "a.c", "a/y", "a/y/", "b", "b/c/", "c", "a//", "a/../b/", "~"]
        for prefix, start, limit in itertools.product(prefixes, ["", *keys, "a\0", "a~"], [2, 1000]):
            found, expected = await store.scan(prefix, start, limit), await memory.scan(prefix, start, limit)
            assert [key for key, _ in found] == [key for key, _ in expected], (prefix, start, limit)


async def test_stores_with_different_roots_do_not_meet(weed: Weed) -> None:
    url = fresh_url(endpoint_of(weed))
    async with opened(url) as one, opened(f"{url}-") as other, opened(f"{url}/in") as third:
        for store in (one, other, third):
            won(await store.put("a", b"", None))
        assert [key for key, _ in await other.scan("")] == ["a"]
        assert [key for key, _ in await third.scan("")] == ["a"]


async def test_a_file_of_another_program_is_not_taken_for_a_value(weed: Weed) -> None:
    url = fresh_url(endpoint_of(weed))
    async with opened(url) as store:
        request = urllib.request.Request(
            f"http://{weed.filer}{address_of(url).root}/a",
            data=b"x",
            method="PUT",
            headers={"Content-Type": "text/plain"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        await asyncio.to_thread(lambda: opener.open(request, timeout=60).close())
        for read in (store.get, store.scan):
            with pytest.raises(StoreDamaged, match="that Dragoman did not write"):
                await read("a")
        assert await store.put("a", b"", None) == Lost()


async def test_only_a_version_of_this_store_is_compared(weed: Weed) -> None:
    async with opened(fresh_url(endpoint_of(weed))) as store:
        version = won(await store.put("a", b"1", None))
        for other in ("*", "", version.upper(), f'"{version}"', f"W/{version}"):
            assert await store.put("a", b"2", other) == Lost()
        won(await store.put("a", b"2", version))


async def test_many_deletes_are_several_batches(weed: Weed) -> None:
    async with opened(fresh_url(endpoint_of(weed))) as store:
        keys = [f"k{number:03d}" for number in range(300)]
        for outcome in await asyncio.gather(*(store.put(key, b"", None) for key in keys)):
            won(outcome)
        await store.delete([*keys[:290], *keys[:10]])
        assert [key for key, _ in await store.scan("")] == keys[290:]


async def test_what_is_read_at_once_is_bounded_with_all_that_belongs_to_a_file(
    weed: Weed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.metadata.filer.SCAN_BYTES", 1000)
    pages: list[int] = []
    listed = FilerClient.listed

    async def noted(client: FilerClient, *arguments: Any) -> list[Any]:
        entries = await listed(client, *arguments)
        pages.append(len(entries))
        return entries

    monkeypatch.setattr(FilerClient, "listed", noted)
    async with opened(fresh_url(endpoint_of(weed))) as store:
        keys = [f"k{number:02d}" for number in range(50)]
        for key in keys:
            won(await store.put(key, b"", None))
        # The values alone do not reach the bound of a scan.
        assert [key for key, _ in await store.scan("")] == keys
    assert max(pages) < 20


async def test_a_filer_with_tls_serves_clients_with_a_certificate_of_its_ca(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client, encrypted = authority.client(), Weed(tmp_path)
    encrypted.encrypt(authority)
    try:
        await asyncio.to_thread(encrypted.start)
        url = fresh_url(endpoint_of(encrypted))
        async with opened(url, tls=Tls(authority.file, client.certificate, client.key)) as store:
            version = won(await store.put("a", b"1", None))
            assert await store.get("a") == Versioned(b"1", version)
        for tls, says in (
            (Tls(authority.file), "set a client certificate of a CA that it knows"),
            (Tls(None, client.certificate, client.key), "CA bundle"),
            (None, "whether it speaks TLS"),
        ):
            with pytest.raises(StoreUnavailable, match=says) as refused:
                await asyncio.to_thread(FilerMetadata, url, tls=tls, limits=PATIENT)
            assert "\n" not in str(refused.value)
    finally:
        encrypted.kill9()


async def test_a_server_that_is_no_filer_is_refused(etcd: EtcdServer) -> None:
    with pytest.raises(StoreUnavailable, match=r"is no SeaweedFS filer of version 4\.44 or newer"):
        await asyncio.to_thread(FilerMetadata, fresh_url(etcd.endpoint), limits=PATIENT)


@pytest.mark.parametrize(
    "url",
    [
        "filer:",
        "filer://",
        "filer://host",
        "filer://host/",
        "filer:///root",
        "filer://one,two/root",
        "filer://host:0/root",
        "filer://user:secret@host/root",
        "filer://host/root?password=secret",
        "http://host/root",
    ],
)
def test_another_url_is_refused_without_repeating_what_could_be_secret(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)


def test_a_url_names_the_port_of_grpc_and_a_directory() -> None:
    assert address_of("filer://host/a/b") == ("host:18888", "/a/b")
    assert address_of("filer://[::1]:9/a") == ("[::1]:9", "/a")


@pytest.mark.parametrize(
    ("code", "details", "meaning"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: x", Meaning.NOT_SENT),
        ("UNAVAILABLE", "Socket closed", Meaning.UNKNOWN),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Meaning.UNKNOWN),
        ("UNKNOWN", "persisting /a: leveldb closed", Meaning.UNKNOWN),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (2 vs. 1)", Meaning.TOO_LARGE),
        ("UNAUTHENTICATED", "no certificate", Meaning.REFUSED),
        ("UNIMPLEMENTED", "unknown method", Meaning.REFUSED),
    ],
)
def test_what_an_error_means(code: str, details: str, meaning: Meaning) -> None:
    failure = explained("the filer at host:1", code, details)
    assert failure.meaning is meaning
    assert failure.sentence.startswith("the filer at host:1 ")
