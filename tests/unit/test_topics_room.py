"""The topics room over a shard whose journal others could write to as well."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from adapters.metadata.memory import MemoryMetadata
from gateway.config import Settings
from gateway.coordination.opening import open_shard
from gateway.coordination.shard import Shard
from gateway.topics.altering import ConfigEdit, ResourceEdit
from gateway.topics.configs_room import ConfigsRoom
from gateway.topics.creation import NewTopic
from gateway.topics.room import REMEMBER_SECONDS, TopicsRoom
from ledger.errors import StoreUnavailable
from ledger.ports import Versioned
from ledger.requests import Refused
from ledger.topics import Topic


class SharedMetadata(MemoryMetadata):
    """Counts reads; can be out of reach."""

    reads = 0
    is_away = False

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().get(key)


class Rooms:
    def __init__(self, store: SharedMetadata, shard: Shard) -> None:
        self.store = store
        self.room = TopicsRoom(shard, Settings(), ConfigsRoom(shard, Settings()))

    async def proves(self, *names: str) -> bool:
        return await self.room.prove_unknown(names, soon())


def soon() -> float:
    return asyncio.get_running_loop().time() + 2.0


@pytest_asyncio.fixture
async def rooms() -> AsyncIterator[Rooms]:
    store = SharedMetadata(exclusive=False)
    shard = await open_shard(store, None, None, 1, lambda: time.time_ns() // 1_000_000)
    yield Rooms(store, shard)
    await shard.close()


async def test_a_name_is_denied_only_after_the_journal_was_asked(rooms: Rooms) -> None:
    before = rooms.store.reads
    assert await rooms.proves("nope")
    assert rooms.store.reads > before


async def test_an_unknown_name_is_remembered_for_a_moment_and_no_longer(rooms: Rooms) -> None:
    assert await rooms.proves("nope")
    reads = rooms.store.reads
    assert await rooms.proves("nope")
    assert rooms.store.reads == reads
    await asyncio.sleep(REMEMBER_SECONDS * 1.2)
    assert await rooms.proves("nope")
    assert rooms.store.reads > reads


async def test_nothing_is_denied_while_the_journal_cannot_be_asked(rooms: Rooms) -> None:
    rooms.store.is_away = True
    assert not await rooms.proves("nope")
    rooms.store.is_away = False
    assert await rooms.proves("nope")


async def test_a_known_name_asks_nobody(rooms: Rooms) -> None:
    created = await rooms.room.create(NewTopic("t", 2, {"retention.ms": "5"}), soon())
    assert isinstance(created, Topic)
    assert created.configs == {"retention.ms": "5"}
    reads = rooms.store.reads
    assert await rooms.proves("t")
    assert rooms.store.reads == reads


async def test_of_two_that_create_the_same_topic_at_once_one_is_refused(rooms: Rooms) -> None:
    answers = await asyncio.gather(*(rooms.room.create(NewTopic("t", 1, {}), soon()) for _ in range(2)))
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert [answer.error for answer in refused] == ["TOPIC_ALREADY_EXISTS"]


async def test_asked_for_by_two_at_once_a_missing_topic_is_created_once(rooms: Rooms) -> None:
    answers = await asyncio.gather(*(rooms.room.create_missing(["t"], soon()) for _ in range(2)))
    assert answers == [{}, {}]
    assert [topic.name for topic in rooms.room.all()] == ["t"]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_are_not_created_by_asking_for_them(rooms: Rooms, name: str) -> None:
    refused = await rooms.room.create_missing([name], soon())
    assert refused[name].error == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_a_partition_is_denied_only_after_the_journal_was_asked(rooms: Rooms) -> None:
    await rooms.room.create(NewTopic("t", 2, {}), soon())
    reads = rooms.store.reads
    assert await rooms.room.prove_partitions_unknown([("t", 0), ("t", 1)], soon())
    assert rooms.store.reads == reads
    for missing in [("t", 2), ("t", -1), ("nope", 0)]:
        reads = rooms.store.reads
        assert await rooms.room.prove_partitions_unknown([("t", 0), missing], soon())
        assert rooms.store.reads > reads


async def test_no_partition_is_denied_while_the_journal_cannot_be_asked(rooms: Rooms) -> None:
    await rooms.room.create(NewTopic("t", 2, {}), soon())
    rooms.store.is_away = True
    assert not await rooms.room.prove_partitions_unknown([("t", 2)], soon())
    assert not await rooms.room.prove_partitions_unknown([("nope", 0)], soon())
    assert await rooms.room.prove_partitions_unknown([("t", 1)], soon())


async def test_changes_of_configs_that_wait_too_long_for_their_turn_are_given_up(rooms: Rooms) -> None:
    await rooms.room.create(NewTopic("t", 1, {}), soon())
    edit = ResourceEdit(2, "t", [ConfigEdit("flush.ms", 0, "5")])
    late = asyncio.get_running_loop().time() - 1.0
    await rooms.room._altering.acquire()
    (refused,) = await rooms.room.alter([edit], False, late)
    assert refused is not None
    assert refused.error == "REQUEST_TIMED_OUT"
    rooms.room._altering.release()
    assert await rooms.room.alter([edit], False, soon()) == [None]
