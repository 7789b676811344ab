"""A metadata store with a quota that fills up: warned of, topics refused, then records, then not ready."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.memory import MemoryMetadata
from gateway.assembly import HOST
from gateway.coordination.store_quota import Quota, StoreQuota
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.snapshot_rule import SnapshotRule
from gateway.wire.apis import ApiKey
from gateway.wire.errors import ErrorCode
from gateway.wire.messages.generated.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.wire.messages.generated.delete_topics import DeleteTopicsRequest
from ledger.errors import StoreUnavailable
from ledger.ports import StoreUsage
from tests.support.in_memory import InMemoryGateway, in_memory_gateway, records
from tests.support.shards import open_shard
from tests.support.virtual_time import run_virtually

QUOTA = 1_000
EMPTY = StoreUsage(0, 0, QUOTA, "")


class Metered(MemoryMetadata):
    def __init__(self) -> None:
        super().__init__()
        self.now = EMPTY
        self.fails = False
        self.reclaimed = 0
        self.why_not = ""

    async def usage(self) -> StoreUsage:
        if self.fails:
            raise StoreUnavailable("it cannot be reached")
        return self.now

    async def reclaim(self) -> str:
        self.reclaimed += 1
        return self.why_not


async def measured(store: Metered, used: int, file: int = 0, quota: StoreQuota | None = None) -> StoreQuota:
    quota = quota or StoreQuota(store)
    store.now = replace(EMPTY, used_bytes=used, file_bytes=max(file, used))
    await quota.measure()
    return quota


@pytest.mark.parametrize(
    ("used", "file", "warned", "short", "critical"),
    [
        (599, 599, False, False, False),
        (600, 600, True, False, False),
        (100, 940, True, False, False),
        (799, 799, True, False, False),
        (800, 800, True, True, False),
        # Free pages are used before the file grows, but it cannot grow any more.
        (100, 950, True, True, False),
        (949, 949, True, True, False),
        (950, 950, True, True, True),
    ],
)
async def test_what_is_refused_grows_with_what_is_used(
    used: int, file: int, warned: bool, short: bool, critical: bool
) -> None:
    with capture_logs() as logs:
        quota = await measured(Metered(), used, file)
    assert bool(logs) is warned
    assert (bool(quota.topic_refusal), bool(quota.refusal)) == (short, critical)
    assert quota.for_snapshots() == Quota(QUOTA, is_short=short)


async def test_the_operators_quota_counts_more_than_the_reported_one() -> None:
    store = Metered()
    quota = await measured(store, 800, quota=StoreQuota(store, 10 * QUOTA))
    assert not quota.topic_refusal
    assert quota.for_snapshots() == Quota(10 * QUOTA)


async def test_a_store_that_does_not_answer_counts_as_it_was_measured_last() -> None:
    store = Metered()
    quota = await measured(store, 800)
    store.fails = True
    with capture_logs() as logs:
        await quota.measure()
    assert quota.topic_refusal and [event["event"] for event in logs] == ["metadata.usage_unknown"]


async def test_without_a_quota_nothing_is_refused_or_asked() -> None:
    quota = StoreQuota(None, QUOTA)
    await quota.measure()
    await quota.reclaim()
    assert not (quota.topic_refusal or quota.refusal or quota.full or quota.usage)
    assert quota.for_snapshots() == Quota(0)


async def test_why_a_store_is_not_compacted_is_in_the_log() -> None:
    store = Metered()
    store.why_not = "others use it"
    with capture_logs() as logs:
        await StoreQuota(store).reclaim()
    assert [(event["event"], event["error"]) for event in logs] == [
        ("metadata.not_compacted", "others use it")
    ]


# With a gateway


@asynccontextmanager
async def gateway_over(store: Metered) -> AsyncIterator[InMemoryGateway]:
    opener = replace(HOST.stores, metadata=lambda *_, **__: store)
    settings = {"admin.listen": "127.0.0.1:0"}
    async with in_memory_gateway(settings, world=replace(HOST, stores=opener)) as gateway:
        yield gateway


async def create(gateway: InMemoryGateway, name: str) -> str:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
    (created,) = (await gateway.ask(ApiKey.CREATE_TOPICS, 7, request)).topics
    return ErrorCode(created.error_code).name


async def fill(gateway: InMemoryGateway, store: Metered, used: int, full: str = "") -> None:
    store.now = StoreUsage(used, used, QUOTA, full)
    await gateway.running.quota.measure()


async def test_at_80_percent_there_are_no_new_topics_and_records_go_on() -> None:
    store = Metered()
    async with gateway_over(store) as gateway:
        assert await create(gateway, "t") == "NONE"
        await fill(gateway, store, 800)
        assert await create(gateway, "u") == "KAFKA_STORAGE_ERROR"
        shown = gateway.running.services.metrics.render().decode()
        assert "\ndragoman_metadata_used_bytes 800.0\n" in shown
        assert "\ndragoman_metadata_quota_bytes 1000.0\n" in shown
        assert await gateway.send("t", records(2)) == 0
        await fill(gateway, store, 500)
        assert await create(gateway, "u") == "NONE"


async def test_at_95_percent_records_are_refused_and_topics_can_be_deleted() -> None:
    store = Metered()
    async with gateway_over(store) as gateway:
        assert await create(gateway, "t") == "NONE"
        await fill(gateway, store, 950)
        with pytest.raises(AssertionError, match=f"^{ErrorCode.KAFKA_STORAGE_ERROR.value}$"):
            await gateway.send("t", records(2))
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        (deleted,) = (await gateway.ask(ApiKey.DELETE_TOPICS, 5, request)).responses
        assert deleted.error_code == 0


def reasons(gateway: InMemoryGateway) -> list[dict[str, str]]:
    """Of /readyz."""
    admin = gateway.running.admin
    assert admin is not None
    connection = http.client.HTTPConnection(admin.host, admin.port, timeout=5.0)
    connection.request("GET", "/readyz")
    found = json.load(connection.getresponse())
    connection.close()
    return list(found.get("reasons", []))


async def test_a_store_without_space_makes_the_gateway_not_ready() -> None:
    store = Metered()
    async with gateway_over(store) as gateway:
        assert await create(gateway, "t") == "NONE"
        assert await asyncio.to_thread(reasons, gateway) == []
        await fill(gateway, store, 500, "etcd is out of space")
        assert await asyncio.to_thread(reasons, gateway) == [
            {"reason": "store_full", "detail": "etcd is out of space"}
        ]
        with pytest.raises(AssertionError, match=f"^{ErrorCode.KAFKA_STORAGE_ERROR.value}$"):
            await gateway.send("t", records(2))
        await fill(gateway, store, 500)
        assert await asyncio.to_thread(reasons, gateway) == []
        assert await gateway.send("t", records(2)) == 0


@pytest.mark.parametrize(("used", "attempts"), [(799, 0), (960, 3)])
def test_what_could_not_be_reclaimed_is_tried_again_where_no_snapshot_is_due(
    used: int, attempts: int
) -> None:
    """Also what a process has left that was killed after its prune: nothing grows any more that would make
    another snapshot due."""

    async def steps() -> int:
        store = Metered()
        shard = await open_shard(store, MemoryBlobs(), None, 1, lambda: 0)
        quota = await measured(store, used)
        checkpointer = Checkpointer(shard, None, MemoryBlobs(), SnapshotRule(1 << 30), lambda: 0, quota=quota)
        store.why_not = "it cannot be reached"
        for step in range(200):
            await checkpointer.snapshot_if_due()
            await asyncio.sleep(1.0)
            if step == 100:
                store.why_not = ""
        await shard.close()
        return store.reclaimed

    assert run_virtually(steps) == attempts


async def test_after_a_prune_the_store_is_reclaimed() -> None:
    store, blobs = Metered(), MemoryBlobs()
    shard = await open_shard(store, blobs, None, 1, lambda: 0)
    rule = SnapshotRule(1)
    checkpointer = Checkpointer(shard, None, blobs, rule, lambda: 0, quota=StoreQuota(store))
    await checkpointer.snapshot_if_due()
    await checkpointer.snapshot_if_due()
    assert store.reclaimed == 1
    await shard.close()
