"""Keys and values of stores: a gateway makes keys of known kinds, as older versions did, and no value
twice."""

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from adapters.journals.metadata import MetadataJournal, entry_key, start_key
from adapters.metadata.memory import MemoryMetadata
from adapters.names import check_key
from adapters.segments.locators import WalLocators
from gateway.assembly import running_gateway
from gateway.config import load_settings
from gateway.coordination.blob_keys import new_archive_key, new_snapshot_key
from gateway.coordination.holds import EVERYTHING, hold_key
from gateway.coordination.mark import new_mark_key
from ledger.keys import KEY_PARTS, index_locator, log_locator, segment_locator, settled_keys, uuid7
from ledger.partitions.requests import ReserveProducerIds
from ledger.ports import PutOutcome, Versioned
from ledger.types import ZERO_TOPIC_ID
from tests.support.shards import open_shard
from tests.support.versions import ROOT

FIXTURES = sorted((ROOT / "tests/fixtures").glob("data_directory_*"))


def keys_in(directory: Path) -> list[str]:
    """Of blobs, WAL and log files, and metadata stores below it."""
    blobs = [
        str(path.relative_to(blobs))
        for blobs in directory.rglob("blobs")
        for path in blobs.rglob("*")
        if path.is_file()
    ]
    wal = [str(path.relative_to(wal.parent)) for wal in directory.rglob("wal") for path in wal.rglob("*.wal")]
    logs = ["/".join(path.parts[-3:]) for path in directory.rglob("log/*/*.log")]
    return [
        *blobs,
        *wal,
        *logs,
        *(key for path in directory.rglob("metadata.db") for key in journal_keys(path)),
    ]


def journal_keys(path: Path) -> list[str]:
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return [key for (key,) in db.execute("SELECT key FROM entry")]
    finally:
        db.close()


@pytest.mark.parametrize("directory", FIXTURES, ids=lambda path: path.name)
def test_keys_of_every_released_format_are_accepted(directory: Path) -> None:
    keys = keys_in(directory)
    kinds = {check_key(key).partition("/")[0] for key in keys}
    records = {"journal", "wal"} if any(directory.rglob("metadata.db")) else {"log"}
    assert {"cluster-id", "snapshot", "archive", *records} <= kinds <= set(KEY_PARTS)


async def test_every_key_that_a_gateway_makes_is_of_a_known_kind(tmp_path: Path) -> None:
    flags = {
        "storage.data_dir": str(tmp_path / "data"),
        "listeners.listen": ("PLAINTEXT://127.0.0.1:0",),
        "admin.listen": "",
    }
    async with running_gateway(load_settings(flags, {})):
        pass
    made = [
        entry_key(0, 1),
        start_key(0),
        new_snapshot_key(0, 1, 1),
        new_archive_key(0, 0, 1, 1),
        new_mark_key(0, 1, 1, os.urandom),
        hold_key(0, (0, EVERYTHING, 1), str(uuid7(1, os.urandom(10)))),
        "proof/0123456789abcdef/race-0",
        log_locator(0, uuid7(1, os.urandom(10)).bytes),
        WalLocators(0, os.urandom).new(),
        WalLocators(0, os.urandom, ".wal").new(),
        segment_locator(ZERO_TOPIC_ID, 0, 0, 1, os.urandom(10)),
        index_locator(segment_locator(ZERO_TOPIC_ID, 0, 0, 1, os.urandom(10))),
        *settled_keys(ZERO_TOPIC_ID, 0, 1, os.urandom(10)),
        *keys_in(tmp_path),
    ]
    assert {check_key(key).partition("/")[0] for key in made} == set(KEY_PARTS)
    assert [key for key in made if key != key.lower()] == []


class Recorded(MemoryMetadata):
    """Promises no more than S3, and remembers the values that were put."""

    def __init__(self) -> None:
        super().__init__(exclusive=False, unique_versions=False)
        self.values: list[bytes] = []

    async def get(self, key: str) -> Versioned | None:
        found = await super().get(key)
        await asyncio.sleep(0)  # Both gateways read before one writes.
        return found

    async def put(self, key: str, value: bytes, expect: str | None) -> PutOutcome:
        self.values.append(bytes(value))
        return await super().put(key, value, expect)


async def test_no_value_of_a_metadata_store_is_put_twice() -> None:
    """Two gateways that do the same at the same time: their versions differ even as hashes of the values."""
    store = Recorded()
    for _ in range(2):
        shard = await open_shard(store, None, None, 1, lambda: 1_000)
        for _ in range(3):
            await shard.ask(ReserveProducerIds(1), asyncio.get_running_loop().time() + 5)
        await shard.close()
    journals = [MetadataJournal(store, 0) for _ in range(2)]
    await asyncio.gather(*(journal.raise_start(2) for journal in journals))
    await journals[0].raise_start(3)
    assert len(store.values) >= 2 * 4 + 2
    assert len(set(store.values)) == len(store.values)
