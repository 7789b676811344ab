"""Data that belongs to another cluster: objects unknown to this journal are no orphans but its records."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapters.metadata.sqlite import SqliteMetadata
from gateway.assembly import RunningGateway, running_gateway
from gateway.config import load_settings
from gateway.host import clock_ms
from gateway.housekeeping.garbage import GarbageCollector
from gateway.produce.validation import TopicPolicy
from gateway.settings import Settings
from gateway.topics.creation import NewTopic
from ledger.batch.header import check_batches
from ledger.errors import StoreDamaged
from ledger.topics.state import Topic
from tests.support.completions import AwaitedProduce
from tests.support.reading import batch_of

WAIT_S = 10.0
DAY_MS = 24 * 3600 * 1000


def settings_of(data_dir: Path, **storage: str) -> Settings:
    flags: dict[str, Any] = {
        "storage.data_dir": str(data_dir),
        "listeners.listen": "PLAINTEXT://127.0.0.1:0",
        "admin.listen": "",
    }
    return load_settings({**flags, **{f"storage.{key}": value for key, value in storage.items()}}, {})


async def produce(gateway: RunningGateway) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    topic = await gateway.services.topics.create(NewTopic("t", 1, {}), deadline)
    assert isinstance(topic, Topic)
    completion = AwaitedProduce()
    batch = check_batches(memoryview(batch_of(b"acked")), 1 << 20)
    pending = gateway.services.produce.add(topic.partitions[0], batch, completion, TopicPolicy(1 << 20))
    await asyncio.wait_for(completion.completed, WAIT_S)
    assert pending.base_offset == 0


async def sweep_a_day_later(gateway: RunningGateway) -> None:
    segments = gateway.services.produce._segments
    collector = GarbageCollector(gateway.shard, segments, 60_000, lambda: clock_ms() + DAY_MS, WAIT_S)
    await collector.sweep(asyncio.get_running_loop().time)


def wal_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("wal/*/*.wal"))


async def test_a_gateway_with_other_metadata_is_refused_the_data_of_a_cluster(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_gateway(settings_of(first)) as gateway:
        await produce(gateway)
    stored = wal_files(first)
    assert len(stored) == 1
    async with running_gateway(settings_of(second)):
        pass
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="another cluster"):
            async with running_gateway(settings_of(second, data=f"file:{first}")) as gateway:
                await sweep_a_day_later(gateway)
        assert wal_files(first) == stored
        (second / "metadata.db").unlink(missing_ok=True)


async def test_a_gateway_whose_metadata_is_gone_leaves_the_data_alone(tmp_path: Path) -> None:
    async with running_gateway(settings_of(tmp_path)) as gateway:
        await produce(gateway)
    stored = wal_files(tmp_path)
    (tmp_path / "metadata.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreDamaged, match="another cluster"):
        async with running_gateway(settings_of(tmp_path)) as gateway:
            await sweep_a_day_later(gateway)
    assert wal_files(tmp_path) == stored

    # Nothing was begun there, so that a backup can be restored into it.
    begun = SqliteMetadata(tmp_path / "metadata.db")
    assert not await begun.scan("")
    await begun.close()
    (tmp_path / "elsewhere.db").replace(tmp_path / "metadata.db")
    async with running_gateway(settings_of(tmp_path)) as gateway:
        assert "t" in gateway.services.shard.state.topics.by_name
