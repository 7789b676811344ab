"""Invariant 11: a topic that is deleted and created again has a new id, offsets from 0, and no old data."""

from pathlib import Path

import pytest

from ledger.errors import ErrorName
from ledger.partitions.requests import CommitFile, FileCommit
from ledger.requests import Refused
from ledger.topics.requests import CreateTopic, Deleted, DeleteTopic
from tests.support.embedded import GRACE_MS, Client, Clock, Embedded
from tests.support.journalled import batches_in_order, locator, topic_id

OLD, NEW = topic_id(1), topic_id(2)


@pytest.mark.parametrize("swept", ["before", "after", "never"])
async def test_a_topic_created_again_begins_empty(scratch: Path, swept: str) -> None:
    clock, client = Clock(), Client(3)
    async with Embedded(scratch, clock) as host:
        await host.ask(CreateTopic("t", OLD, 3, {"retention.ms": "5"}))
        old = [client.batch("t", partition) for partition in range(3)]
        for partition, batch in enumerate(old):
            await host.send("t", partition, batch)
        assert await host.ask(DeleteTopic(OLD)) == Deleted()
        assert "t" not in host.shard.state.topics.by_name and OLD not in host.shard.state.topics.by_id
        if swept == "before":
            await host.sweep()
        await host.ask(CreateTopic("t", NEW, 2, {}))
        topic = host.shard.state.topics.by_name["t"]
        assert (topic.topic_id, topic.configs, len(topic.partitions)) == (NEW, {}, 2)
        for partition in range(2):
            log = host.log("t", partition)
            assert (log.log_start, log.high_watermark, log.size_bytes) == (0, 0, 0)
            assert await host.read("t", partition) == [] and not log.producers
        fresh = Client(3).batch("t", 1)
        assert await host.send("t", 1, fresh) == [0]  # its sequences begin again, too
        if swept == "after":
            clock.now_ms += GRACE_MS + 1
            await host.sweep()
            await host.sweep()
    for source in ("journal", "image"):
        async with Embedded(scratch, clock) as host:
            assert [stored.data for stored in await host.read("t", 1)] == [fresh]
            assert await host.read("t", 0) == []
            assert OLD not in host.shard.state.topics.by_id
            await host.checkpointer.write_image()
            assert host.shard.state.applied > 0, source


async def test_a_batch_on_its_way_to_the_old_topic_never_lands_in_the_new_one(scratch: Path) -> None:
    async with Embedded(scratch, Clock()) as host:
        await host.ask(CreateTopic("t", OLD, 1, {}))
        log = host.log("t")
        await host.ask(DeleteTopic(OLD))
        await host.ask(CreateTopic("t", NEW, 1, {}))
        late = CommitFile(locator(1, host.clock.now_ms), 100, batches_in_order(log.topic_id, 0, [2]))
        assert await host.ask(late) == FileCommit([Refused(ErrorName.UNKNOWN_TOPIC_OR_PARTITION)])
        assert host.log("t").high_watermark == 0


async def test_the_bytes_of_a_deleted_topic_go_and_those_next_to_them_stay(scratch: Path) -> None:
    clock, client = Clock(), Client()
    async with Embedded(scratch, clock, roll_age_ms=1) as host:
        await host.ask(CreateTopic("t", OLD, 1, {}))
        await host.ask(CreateTopic("kept", topic_id(3), 1, {}))
        for name in ("t", "kept", "t"):
            clock.now_ms += 10
            await host.send(name, 0, client.batch(name, 0))
        assert len(await host.objects()) == 3
        await host.ask(DeleteTopic(OLD))
        await host.sweep()
        clock.now_ms += GRACE_MS + 1
        await host.sweep()
        assert len(await host.objects()) == 1
        assert len(await host.read("kept")) == 1
