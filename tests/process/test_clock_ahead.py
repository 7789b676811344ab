"""What a gateway shows whose journal is ahead of the clock."""

import asyncio
import json
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from adapters.metadata.sqlite import SqliteMetadata
from gateway.host import clock_ms
from tests.support.embedded import WAIT_S
from tests.support.gateway import GatewayFactory
from tests.support.shards import open_shard
from tests.support.topics import create_topics

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


TEN_YEARS_MS = 3650 * DAY_MS


async def write_entry(data_dir: Path, now_ms: int) -> None:
    data_dir.mkdir()
    store = SqliteMetadata(data_dir / "metadata.db")
    shard = await open_shard(store, None, None, 1, lambda: now_ms)
    await shard.close()
    await store.close()


def test_readyz_names_both_times_of_a_journal_that_is_ahead_and_clients_are_served(
    tmp_path: Path, gateway_factory: GatewayFactory
) -> None:
    ahead_ms = clock_ms() + TEN_YEARS_MS
    asyncio.run(write_entry(tmp_path / "data", ahead_ms))
    gateway = gateway_factory(data_dir=tmp_path / "data")
    gateway.start()

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://{gateway.admin.address}{path}", timeout=WAIT_S) as response:
            return str(response.read().decode())

    ready = json.loads(page("/readyz"))
    (warning,) = ready["warnings"]
    assert ready["ready"] and warning["reason"] == "clock_behind"
    years = [datetime.fromtimestamp(ms / 1000, UTC).year for ms in (ahead_ms, clock_ms())]
    assert all(f"{year}-" in warning["detail"] for year in years)
    lines = page("/metrics").splitlines()
    (behind,) = [line for line in lines if line.startswith("dragoman_clock_behind_seconds ")]
    assert TEN_YEARS_MS / 1000 - 3600 < float(behind.split()[1]) <= TEN_YEARS_MS / 1000 + 60
    create_topics(gateway.bootstrap, {"t": 1})
