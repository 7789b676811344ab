"""The topic service over a shard whose journal other gateways could write to."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.configs.alter import ConfigEdit, ResourceEdit
from gateway.configs.service import ConfigService
from gateway.coordination.shard import Shard
from gateway.settings import Settings
from gateway.topics.creation import NewTopic
from gateway.topics.service import ABSENCE_TTL_S, TopicService
from ledger.errors import StoreUnavailable
from ledger.journal import begin_entry, decode_entry, go_on
from ledger.partitions.requests import CommitFile
from ledger.ports import Versioned
from ledger.requests import Refused
from ledger.topics.apply import SLICE_PARTITIONS
from ledger.topics.requests import CreateTopic, DeleteTopic
from ledger.topics.state import Topic
from tests.support.journalled import JournalledLedger, commit_batch, locator, topic_id
from tests.support.shards import open_shard


class SharedMetadata(MemoryMetadata):
    """Counts reads; can be out of reach."""

    reads = 0
    is_away = False

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().get(key)


class Host:
    def __init__(self, store: SharedMetadata, shard: Shard) -> None:
        self.store = store
        self.shard = shard
        self.topics = TopicService(shard, Settings(), ConfigService(shard, Settings()))

    async def confirms_absent(self, *names: str) -> bool:
        return await self.topics.confirm_absent(names, soon())


def soon() -> float:
    return asyncio.get_running_loop().time() + 2.0


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Host]:
    store = SharedMetadata(exclusive=False)
    shard = await open_shard(store, None, None, 1, lambda: time.time_ns() // 1_000_000)
    yield Host(store, shard)
    await shard.close()


async def test_a_name_is_absent_only_after_a_linearizable_read(host: Host) -> None:
    before = host.store.reads
    assert await host.confirms_absent("nope")
    assert host.store.reads > before


async def test_an_absent_name_is_remembered_for_a_moment_and_no_longer(host: Host) -> None:
    assert await host.confirms_absent("nope")
    reads = host.store.reads
    assert await host.confirms_absent("nope")
    assert host.store.reads == reads
    await asyncio.sleep(ABSENCE_TTL_S * 1.2)
    assert await host.confirms_absent("nope")
    assert host.store.reads > reads


async def test_no_name_is_absent_for_certain_while_the_journal_cannot_be_read(host: Host) -> None:
    host.store.is_away = True
    assert not await host.confirms_absent("nope")
    host.store.is_away = False
    assert await host.confirms_absent("nope")


async def test_a_known_name_needs_no_read(host: Host) -> None:
    created = await host.topics.create(NewTopic("t", 2, {"retention.ms": "5"}), soon())
    assert isinstance(created, Topic)
    assert created.configs == {"retention.ms": "5"}
    reads = host.store.reads
    assert await host.confirms_absent("t")
    assert host.store.reads == reads


async def test_of_two_concurrent_creations_of_a_topic_one_is_refused(host: Host) -> None:
    results = await asyncio.gather(*(host.topics.create(NewTopic("t", 1, {}), soon()) for _ in range(2)))
    refused = [result for result in results if isinstance(result, Refused)]
    assert [result.error for result in refused] == ["TOPIC_ALREADY_EXISTS"]


async def test_a_missing_topic_that_two_requests_name_is_created_once(host: Host) -> None:
    results = await asyncio.gather(*(host.topics.create_missing(["t"], soon()) for _ in range(2)))
    assert results == [{}, {}]
    assert [topic.name for topic in host.topics.all()] == ["t"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_are_not_created_automatically(host: Host, name: str) -> None:
    refused = await host.topics.create_missing([name], soon())
    assert refused[name].error == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_a_partition_is_absent_only_after_a_linearizable_read(host: Host) -> None:
    await host.topics.create(NewTopic("t", 2, {}), soon())
    reads = host.store.reads
    assert await host.topics.confirm_partitions_absent([("t", 0), ("t", 1)], soon())
    assert host.store.reads == reads
    for missing in [("t", 2), ("t", -1), ("nope", 0)]:
        reads = host.store.reads
        assert await host.topics.confirm_partitions_absent([("t", 0), missing], soon())
        assert host.store.reads > reads


async def test_no_partition_is_absent_for_certain_while_the_journal_cannot_be_read(host: Host) -> None:
    await host.topics.create(NewTopic("t", 2, {}), soon())
    host.store.is_away = True
    assert not await host.topics.confirm_partitions_absent([("t", 2)], soon())
    assert not await host.topics.confirm_partitions_absent([("nope", 0)], soon())
    assert await host.topics.confirm_partitions_absent([("t", 1)], soon())


async def test_changes_of_configs_that_wait_too_long_for_others_time_out(host: Host) -> None:
    await host.topics.create(NewTopic("t", 1, {}), soon())
    edit = ResourceEdit(2, "t", [ConfigEdit("flush.ms", 0, "5")])
    late = asyncio.get_running_loop().time() - 1.0
    await host.topics._altering.acquire()
    (refused,) = await host.topics.alter([edit], False, late)
    assert refused is not None
    assert refused.error == "REQUEST_TIMED_OUT"
    host.topics._altering.release()
    assert await host.topics.alter([edit], False, soon()) == [None]


async def test_partitions_that_are_still_let_go_of_count_against_the_limit(host: Host) -> None:
    """Their deletion has no result yet, and those with runs will still be there after it."""
    before = host.topics.creation_limits().partitions_left
    ledger = JournalledLedger()
    ledger.submit(CreateTopic("t", topic_id(1), 2 * SLICE_PARTITIONS + 1, {}))
    batches = [commit_batch(topic_id(1), 2 * SLICE_PARTITIONS, 0)]
    ledger.submit(CommitFile(locator(1, ledger.now_ms), 100, batches))
    ledger.submit(DeleteTopic(topic_id(1)))
    left = []
    for data in ledger.entries[1:]:
        begin_entry(host.shard.state, decode_entry(data, "e"))
        left.append(before - host.topics.creation_limits().partitions_left)
    while host.shard.state.leaving:
        go_on(host.shard.state)
        left.append(before - host.topics.creation_limits().partitions_left)
    assert left == [2 * SLICE_PARTITIONS + 1] * 2 + [SLICE_PARTITIONS + 1, 1, 1]


async def test_a_name_that_collides_is_refused_by_the_newest_state_alone(host: Host) -> None:
    assert isinstance(await host.topics.create(NewTopic("a.b", 1, {}), soon()), Topic)
    assert (await host.topics.create_missing(["a_b"], soon()))["a_b"].error == "INVALID_TOPIC_EXCEPTION"
    host.store.is_away = True
    assert (await host.topics.create_missing(["a_b"], soon()))["a_b"].error == "KAFKA_STORAGE_ERROR"
