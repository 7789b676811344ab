"""The quota of a real etcd: what is pruned makes room, others keep their history, no space is reported."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("adapters.rpc.channel", reason="needs the extra etcd: pip install dragoman[etcd]")

from adapters.blobs.memory import MemoryBlobs
from adapters.metadata.etcd import DEFAULT_QUOTA, EtcdMetadata
from adapters.metadata.etcd_address import Login
from gateway.coordination.recovery import recover
from gateway.coordination.store_quota import StoreQuota
from gateway.housekeeping.checkpoint import Checkpointer
from gateway.housekeeping.snapshot_rule import SnapshotRule
from ledger.ports import StoreUsage, Won
from ledger.topics.requests import CreateTopic, DeleteTopic
from tests.support.etcd import EtcdServer, running_etcd
from tests.support.journalled import topic_id
from tests.support.rpc_limits import PATIENT
from tests.support.shards import open_shard

MIB = 1024 * 1024
QUOTA = 8 * MIB
CONFIG_BYTES = 100_000
TOPICS = 3 * QUOTA // CONFIG_BYTES
WAIT_S = 30.0
POLL_S = 0.02
NOW_MS = 1_700_000_000_000
USER = Login("dragoman", "s3cret")
ALARM = {"alarm": "NOSPACE", "memberID": 0}


@asynccontextmanager
async def opened(url: str, login: Login | None = None) -> AsyncIterator[EtcdMetadata]:
    store = await asyncio.to_thread(EtcdMetadata, url, login=login, limits=PATIENT)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def small() -> Iterator[EtcdServer]:
    with running_etcd(flags=[f"--quota-backend-bytes={QUOTA}"]) as server:
        yield server


async def test_a_journal_of_three_times_the_quota_passes_through_an_etcd_as_it_is_pruned(
    small: EtcdServer,
) -> None:
    blobs = MemoryBlobs()
    async with opened(small.url()) as store:
        quota = StoreQuota(store, QUOTA)
        shard = await open_shard(store, blobs, None, 1, lambda: NOW_MS)
        rule = SnapshotRule(QUOTA // 16)
        checkpointer = Checkpointer(shard, None, blobs, rule, lambda: NOW_MS, quota=quota)
        deadline = asyncio.get_running_loop().time() + 60
        for number in range(TOPICS):
            configs = {"retention.ms": f"{number}".rjust(CONFIG_BYTES, "1")}
            await shard.ask(CreateTopic("t", topic_id(number), 1, configs), deadline)
            await shard.ask(DeleteTopic(topic_id(number)), deadline)
            await checkpointer.snapshot_if_due()
        await quota.measure()
        assert quota.usage is not None
        assert shard.replica.journal_bytes > 2.9 * QUOTA
        assert quota.usage.file_bytes < QUOTA and not quota.full
        recovered = await recover(shard.journal, None, blobs)
        assert recovered.source.startswith("snapshot/")
        assert recovered.state.applied == shard.state.applied
        await shard.close()


async def test_an_etcd_that_others_use_is_not_compacted(etcd: EtcdServer) -> None:
    written = etcd.ask("kv/put", {"key": "b3RoZXI=", "value": "b2xk"})
    etcd.ask("kv/put", {"key": "b3RoZXI=", "value": "bmV3"})
    async with opened(etcd.url()) as store:
        assert isinstance(await store.put("a", b"", None), Won)
        await store.delete(["a"])
        why_not = await store.reclaim()
    assert "has keys of others, too: let it compact itself, with --auto-compaction-mode" in why_not
    earlier = etcd.ask("kv/range", {"key": "b3RoZXI=", "revision": written["header"]["revision"]})
    assert earlier["kvs"][0]["value"] == "b2xk"


async def test_a_user_who_may_see_its_prefix_alone_compacts_nothing_and_says_so(small: EtcdServer) -> None:
    url = small.url()
    small.add_role("writer", "READWRITE", f"{url.split('/', 3)[3]}/")
    small.enable_users({USER: "writer"})
    async with opened(url, USER) as store:
        why_not = await store.reclaim()
        assert "does not permit the user" in why_not and "--auto-compaction-mode" in why_not
        assert isinstance(await store.put("a", b"", None), Won)


async def test_the_use_of_an_etcd_and_its_alarm_are_reported(small: EtcdServer) -> None:
    async with opened(small.url()) as store:
        before = await store.usage()
        assert before.quota_bytes in (QUOTA, DEFAULT_QUOTA) and not before.full
        assert isinstance(await store.put("a", bytes(MIB), None), Won)
        async with asyncio.timeout(WAIT_S):
            # etcd says what was written up to its last commit, at most 100 ms ago.
            while (found := await store.usage()).used_bytes < before.used_bytes + MIB // 2:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        assert found.used_bytes <= found.file_bytes < QUOTA
        small.ask("maintenance/alarm", {"action": "ACTIVATE", **ALARM})
        full = (await store.usage()).full
        assert "is out of space (NOSPACE)" in full and '("etcd is out of space")' in full
        small.ask("maintenance/alarm", {"action": "DEACTIVATE", **ALARM})
        assert isinstance(await store.usage(), StoreUsage)
        assert not (await store.usage()).full
