"""What a gateway refuses or waits for before its epoch: a restored store, a contested shard, a taken port."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from adapters.blobs.memory import MemoryBlobs
from adapters.journals.metadata import entry_key
from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import HOST, running_gateway
from gateway.config import load_settings
from gateway.host import clock_ms
from gateway.network.acceptor import ListenFailed
from gateway.world import World
from ledger.cluster.owners import Owners
from ledger.cluster.requests import Description
from ledger.errors import StoreDamaged
from tests.support.in_memory import SETTINGS
from tests.support.ports import free_ports
from tests.support.shards import open_shard

WAIT_S = 20.0


async def page(port: int) -> Mapping[str, Any]:
    """Of /readyz, as soon as it is served."""
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    return {"status": response.status, **json.loads(await response.text())}
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


def world_of(store: MemoryMetadata, blobs: MemoryBlobs) -> World:
    opener = replace(HOST.stores, metadata=lambda *_, **__: store, blobs=lambda *_, **__: blobs)
    return replace(HOST, stores=opener)


async def test_a_gateway_that_waits_is_not_ready_and_names_the_owner() -> None:
    store, blobs = MemoryMetadata(exclusive=False), MemoryBlobs()
    for node_id in (7, 8, 7):
        described = Description(f"host-{node_id}", "PLAINTEXT://a:1", right_until_ms=1 << 60)
        await open_shard(store, None, None, node_id, clock_ms, described=described)
    (port,) = free_ports(1)
    settings = load_settings({**SETTINGS, "admin.listen": f"127.0.0.1:{port}"}, {})

    async def serve() -> None:
        async with running_gateway(settings, world_of(store, blobs)):
            raise AssertionError("it has not waited")

    serving = asyncio.create_task(serve())
    shown = await page(port)
    assert shown["status"] == 503 and not shown["ready"]
    (reason,) = shown["reasons"]
    assert reason["reason"] == "waiting_for_owner"
    assert "gateway 7 (host-7, PLAINTEXT://a:1) owns the shard since its epoch 3" in reason["detail"]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            metrics = await response.text()
    assert "dragoman_ready 0.0" in metrics
    assert 'dragoman_not_ready{reason="waiting_for_owner"} 1.0' in metrics
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert serving.cancelled()


class Named(MemoryMetadata):
    """Tells itself from a restored copy, as etcd does."""

    identity = "etcd cluster a"


async def test_a_metadata_store_that_was_restored_is_refused_at_the_start() -> None:
    store, blobs = Named(exclusive=False), MemoryBlobs()
    world = world_of(store, blobs)
    settings = load_settings(SETTINGS, {})
    for _ in range(2):
        async with running_gateway(settings, world) as gateway:
            assert gateway.shard.state.part(Owners).store == "etcd cluster a"
    entries = gateway.shard.state.applied
    store.identity = "etcd cluster b"
    with pytest.raises(StoreDamaged, match="in etcd cluster a, and this is etcd cluster b"):
        async with running_gateway(settings, world):
            pass
    assert await store.get(entry_key(0, entries)) is None


@pytest.mark.parametrize("taken", ["listeners.listen", "admin.listen"])
async def test_a_gateway_whose_port_is_in_use_leaves_the_shard_to_its_owner(taken: str) -> None:
    world = world_of(MemoryMetadata(exclusive=False), MemoryBlobs())
    settings = load_settings({**SETTINGS, "admin.listen": "127.0.0.1:0"}, {})
    async with running_gateway(settings, world) as running:
        ports = {"listeners.listen": f"PLAINTEXT://{running.bound[0]}", "admin.listen": str(running.admin)}
        again = load_settings({**SETTINGS, taken: ports[taken]}, {})
        with pytest.raises(ListenFailed, match="the port is in use"):
            async with running_gateway(again, world):
                pass
        # Its next entry counts.
        await running.shard.barrier(asyncio.get_running_loop().time() + WAIT_S)
        assert running.shard.state.epoch == 1
