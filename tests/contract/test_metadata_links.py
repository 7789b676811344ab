"""Metadata behind a network that fails, in etcd and in a SeaweedFS filer: answers that are lost, requests
that never arrive or arrive late, a server that is gone."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs grpcio: pip install dragoman[etcd]")

from adapters.metadata.etcd import EtcdMetadata
from adapters.metadata.filer import FilerMetadata
from adapters.rpc.caller import Limits
from ledger.errors import StoreUnavailable
from ledger.ports import Lost, MetadataStore, PutOutcome, Unknown, Versioned, Won
from tests.support.etcd import EtcdServer
from tests.support.rpc_limits import PATIENT
from tests.support.tcp_proxy import HOST, Link, linked
from tests.support.weed import Weed

ETCD: Final = "etcd"
FILER: Final = "filer"
VALUE: Final = b"v" * 10_000
POLL_S: Final = 0.01
HASTY: Final = replace(PATIENT, attempt_s=0.3)
IMPATIENT: Final = replace(PATIENT, patience_s=0.0)

_places = itertools.count()


@dataclass(frozen=True, slots=True)
class Linked:
    """A link to a server, and a place there that no other test has."""

    kind: str
    link: Link
    port: int
    place: str

    def new(self, limits: Limits = PATIENT, *, direct: bool = False) -> MetadataStore:
        """Blocking: in a thread, as the link needs the event loop."""
        endpoint = f"{HOST}:{self.port}" if direct else self.link.endpoint
        url = f"{self.kind}://{endpoint}/{self.place}"
        if self.kind == ETCD:
            return EtcdMetadata(url, limits=limits)
        return FilerMetadata(url, limits=limits)

    @asynccontextmanager
    async def opened(self, limits: Limits = PATIENT, *, direct: bool = False) -> AsyncIterator[MetadataStore]:
        store = await asyncio.to_thread(self.new, limits, direct=direct)
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(params=[ETCD, FILER])
async def far(request: pytest.FixtureRequest) -> AsyncIterator[Linked]:
    port = await asyncio.to_thread(port_of, request)
    async with linked(port) as link:
        yield Linked(request.param, link, port, f"links/{next(_places)}")


def port_of(request: pytest.FixtureRequest) -> int:
    if request.param == ETCD:
        etcd: EtcdServer = request.getfixturevalue("etcd")
        return etcd.port
    weed: Weed = request.getfixturevalue("weed")
    return weed.filer_grpc_port


def won(outcome: PutOutcome) -> str:
    assert isinstance(outcome, Won), outcome
    return outcome.version


async def until_there(store: MetadataStore, key: str) -> None:
    while await store.get(key) is None:  # noqa: ASYNC110 # another process
        await asyncio.sleep(POLL_S)


async def until_served(store: MetadataStore) -> Sequence[tuple[str, Versioned]]:
    while True:
        try:
            return await store.scan("")
        except StoreUnavailable:
            await asyncio.sleep(POLL_S)


async def test_a_put_whose_answer_is_lost_is_unknown_and_was_made(far: Linked) -> None:
    async with far.opened() as store, far.opened(direct=True) as other:
        assert await store.get("a") is None
        far.link.hold_answers()
        put = asyncio.create_task(store.put("a", VALUE, None))
        await until_there(other, "a")
        await far.link.cut()
        assert isinstance(await put, Unknown)
        found = await store.get("a")
        assert found is not None
        assert found.value == VALUE
        assert await store.put("a", VALUE, None) == Lost()


async def test_a_put_that_never_arrives_is_unknown_and_can_be_made_again(far: Linked) -> None:
    async with far.opened() as store:
        assert await store.get("a") is None
        far.link.hold_requests()
        put = asyncio.create_task(store.put("a", VALUE, None))
        await far.link.until_held(len(VALUE))
        await far.link.cut()
        assert isinstance(await put, Unknown)
        assert await store.get("a") is None
        won(await store.put("a", VALUE, None))


async def test_a_put_that_is_not_answered_in_time_may_still_arrive_but_replaces_nothing(far: Linked) -> None:
    async with far.opened(HASTY) as store, far.opened(direct=True) as other:
        await until_served(store)
        far.link.hold_requests()
        outcome = await store.put("a", VALUE, None)
        assert isinstance(outcome, Unknown)
        assert "did not answer in time" in outcome.reason
        version = won(await other.put("a", b"newer", None))
        far.link.release()
        # Through the link too, after the put.
        assert await store.get("a") == Versioned(b"newer", version)


async def test_reads_whose_answers_are_lost_are_made_again(far: Linked) -> None:
    async with far.opened() as store:
        won(await store.put("a", VALUE, None))
        far.link.hold_answers()
        reads = [asyncio.create_task(store.get("a")), asyncio.create_task(store.scan("a"))]
        await far.link.until_held(2 * len(VALUE))
        await far.link.cut()
        got, scanned = await asyncio.gather(*reads)
        assert got is not None
        assert scanned == [("a", got)]


async def test_while_the_server_is_gone_calls_certainly_have_no_effect(far: Linked) -> None:
    async with far.opened(IMPATIENT) as store:
        won(await store.put("a", b"1", None))
        await far.link.stop()
        for call in (
            store.get,
            store.scan,
            lambda key: store.put(key, b"2", None),
            lambda key: store.delete([key]),
        ):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await call("a")
        with pytest.raises(StoreUnavailable, match="no server listens there: start it"):
            await asyncio.to_thread(far.new, IMPATIENT)
        await far.link.start()
        assert [key for key, _ in await until_served(store)] == ["a"]


async def test_a_caller_that_gives_up_leaves_the_store_usable(far: Linked) -> None:
    async with far.opened() as store:
        far.link.hold_answers()
        put = asyncio.create_task(store.put("a", VALUE, None))
        await far.link.until_held(1)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        far.link.release()
        assert await store.get("b") is None


async def test_closing_waits_for_what_is_under_way_and_leaves_no_task(far: Linked) -> None:
    before = asyncio.all_tasks()
    async with far.opened() as store:
        far.link.hold_answers()
        put = asyncio.create_task(store.put("a", VALUE, None))
        await far.link.until_held(1)
        closing = asyncio.create_task(store.close())
        # It has begun, and waits.
        await asyncio.sleep(0)
        assert not closing.done()
        far.link.release()
        await closing
        won(put.result())
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.get("a")
    await far.link.stop()
    assert asyncio.all_tasks() <= before


async def test_a_bound_holds_for_calls_that_wait(far: Linked) -> None:
    async with far.opened(replace(PATIENT, max_waiting=2)) as store:
        far.link.hold_answers()
        waiting = [asyncio.create_task(store.get(key)) for key in ("a", "b")]
        await far.link.until_held(1)
        with pytest.raises(StoreUnavailable, match="2 calls wait for it"):
            await store.put("c", b"", None)
        far.link.release()
        assert await asyncio.gather(*waiting) == [None, None]
