"""Data that belongs to another cluster: objects unknown to this journal are no orphans but its records."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from adapters.metadata.sqlite import SqliteMetadata
from adapters.open import METADATA_FILE
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
from tests.support.data_files import files_with_records, has_entries, journal_files, take_journal_away
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


JOURNALS = ["log", "sqlite"]


def journal_in(kind: str, data_dir: Path) -> str:
    return f"sqlite:{data_dir / METADATA_FILE}" if kind == "sqlite" else f"file:{data_dir}"


@pytest.mark.parametrize("kind", JOURNALS)
async def test_a_gateway_with_other_metadata_is_refused_the_data_of_a_cluster(
    tmp_path: Path, kind: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_gateway(settings_of(first, metadata=journal_in(kind, first))) as gateway:
        await produce(gateway)
    stored = files_with_records(first)
    assert len(stored) == 1
    other = journal_in(kind, second)
    async with running_gateway(settings_of(second, metadata=other)):
        pass
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="another cluster"):
            async with running_gateway(settings_of(second, metadata=other, data=f"file:{first}")) as gateway:
                await sweep_a_day_later(gateway)
        assert files_with_records(first) == stored
        for path in journal_files(second):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


async def test_a_gateway_whose_metadata_is_gone_leaves_the_data_alone(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, metadata=journal_in("sqlite", tmp_path))
    async with running_gateway(settings) as gateway:
        await produce(gateway)
    stored = files_with_records(tmp_path)
    (tmp_path / "metadata.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreDamaged, match="another cluster"):
        async with running_gateway(settings_of(tmp_path)) as gateway:
            await sweep_a_day_later(gateway)
    assert files_with_records(tmp_path) == stored

    # Nothing was begun there, so that a backup can be restored into it.
    begun = SqliteMetadata(tmp_path / "metadata.db")
    assert not await begun.scan("")
    await begun.close()
    (tmp_path / "elsewhere.db").replace(tmp_path / "metadata.db")
    async with running_gateway(settings_of(tmp_path)) as gateway:
        assert "t" in gateway.services.shard.state.topics.by_name


async def test_a_gateway_whose_log_was_taken_away_leaves_the_data_alone(tmp_path: Path) -> None:
    """Its records are where a restore would read them."""
    async with running_gateway(settings_of(tmp_path, metadata=journal_in("log", tmp_path))) as gateway:
        await produce(gateway)
    take_journal_away(tmp_path)
    stored = files_with_records(tmp_path)
    assert len(stored) == 1
    with pytest.raises(StoreDamaged, match="another cluster"):
        async with running_gateway(settings_of(tmp_path)) as gateway:
            await sweep_a_day_later(gateway)
    assert files_with_records(tmp_path) == stored

    assert not has_entries(tmp_path), "a backup can be restored into it"
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "replaced" / "log").rename(tmp_path / "log")
    async with running_gateway(settings_of(tmp_path)) as gateway:
        assert "t" in gateway.services.shard.state.topics.by_name
