"""Where a gateway has its journal if no setting says so: in the local log of a new directory, and where it
was in one of an earlier version, until an operator has raised its feature level."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.open import METADATA_FILE
from gateway.assembly import RunningGateway, running_gateway
from gateway.config import load_settings
from gateway.datadir import FIRST_VERSION, FORMAT_FILE, VERSION_WITH_LOG, format_of
from gateway.settings import Settings
from gateway.store_assembly import opened_stores, urls_of
from gateway.topics.creation import NewTopic
from ledger.errors import StoreError
from ledger.records import LEVEL_WITH_PLACED, NEWEST_LEVEL
from ledger.topics.state import Topic
from tests.support.versions import ROOT

WAIT_S = 10.0
FIXTURES = ROOT / "tests/fixtures"
LEVELS: Final = {1: "data_directory_v1", 3: "data_directory_v5", 6: "data_directory_v6"}
"""Directories of earlier versions, by their feature levels."""
OLDER = [level for level in LEVELS if level < LEVEL_WITH_PLACED]


def settings_of(data_dir: Path, **more: Any) -> Settings:
    flags = {
        "storage.data_dir": str(data_dir),
        "listeners.listen": "PLAINTEXT://127.0.0.1:0",
        "admin.listen": "",
    }
    return load_settings({**flags, **{key.replace("__", "."): value for key, value in more.items()}}, {})


def directory_of_level(level: int, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / LEVELS[level] / "directory", tmp_path / "data"))


def in_sqlite(data_dir: Path) -> str:
    return f"sqlite:{data_dir / METADATA_FILE}"


def in_log(data_dir: Path) -> str:
    return f"file:{data_dir}"


async def create(gateway: RunningGateway, name: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    assert isinstance(await gateway.services.topics.create(NewTopic(name, 1, {}), deadline), Topic)


async def lived(settings: Settings, name: str) -> tuple[str, set[str]]:
    """Start a gateway, which makes a topic. Returns where its journal was, and the topics that it found."""
    async with running_gateway(settings) as gateway:
        before = set(gateway.shard.state.topics.by_name)
        await create(gateway, name)
        return gateway.urls.metadata, before


async def entries_in(settings: Settings) -> int:
    async with opened_stores(settings) as stores:
        count = await stores.journal.start()
        while await stores.journal.get(count) is not None:
            count += 1
        return count


async def test_a_new_directory_has_its_journal_in_the_log(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for life in range(2):
        where, before = await lived(settings_of(data_dir), f"t{life}")
        assert where == in_log(data_dir)
        assert before == {f"t{n}" for n in range(life)}
    assert format_of(data_dir) == VERSION_WITH_LOG
    assert any(data_dir.glob("log/0/*.log")) and not (data_dir / METADATA_FILE).exists()


@pytest.mark.parametrize("level", OLDER)
async def test_a_directory_that_older_versions_can_open_stays_as_it_is(tmp_path: Path, level: int) -> None:
    data_dir = directory_of_level(level, tmp_path)
    for life in range(2):
        where, before = await lived(settings_of(data_dir), f"t{life}")
        assert where == in_sqlite(data_dir)
        assert {f"t{n}" for n in range(life)} < before
    assert format_of(data_dir) == FIRST_VERSION and not (data_dir / "log").exists()


@pytest.mark.parametrize("level", LEVELS)
async def test_the_start_after_the_level_was_raised_goes_on_in_the_log(tmp_path: Path, level: int) -> None:
    data_dir = directory_of_level(level, tmp_path)
    raised = {"ledger__feature_level": LEVEL_WITH_PLACED} if level in OLDER else {}
    where, fixtures = await lived(settings_of(data_dir, **raised), "t0")
    assert where == in_sqlite(data_dir)
    assert format_of(data_dir) == VERSION_WITH_LOG
    for life in (1, 2):
        where, before = await lived(settings_of(data_dir), f"t{life}")
        assert where == in_log(data_dir)
        assert before == fixtures | {f"t{n}" for n in range(life)}
    assert any(data_dir.glob("log/0/*.log"))


@pytest.mark.parametrize("level", [None, 6], ids=["new", "of level 6"])
async def test_a_journal_that_is_named_stays_where_it_is_named(tmp_path: Path, level: int | None) -> None:
    data_dir = directory_of_level(level, tmp_path) if level else tmp_path / "data"
    settings = settings_of(data_dir, storage__metadata=in_sqlite(data_dir))
    for life in range(2):
        assert (await lived(settings, f"t{life}"))[0] == in_sqlite(data_dir)
    assert format_of(data_dir) == FIRST_VERSION and not (data_dir / "log").exists()
    assert NEWEST_LEVEL >= LEVEL_WITH_PLACED, "the newest level is not what keeps it there"


async def test_until_something_is_in_the_log_the_journal_may_be_named_in_sqlite(tmp_path: Path) -> None:
    data_dir = directory_of_level(6, tmp_path)
    named = settings_of(data_dir, storage__metadata=in_sqlite(data_dir))
    await lived(settings_of(data_dir), "t0")
    assert "t0" in (await lived(named, "t1"))[1]
    assert {"t0", "t1"} < (await lived(settings_of(data_dir), "t2"))[1]
    with pytest.raises(StoreError, match="is in its local log"):
        await lived(named, "t3")


@pytest.mark.parametrize("level", LEVELS)
async def test_commands_without_a_gateway_leave_the_journal_where_it_is(tmp_path: Path, level: int) -> None:
    data_dir = directory_of_level(level, tmp_path)
    assert await entries_in(settings_of(data_dir)) > 0
    assert urls_of(settings_of(data_dir).storage).metadata == in_sqlite(data_dir)
    assert format_of(data_dir) == FIRST_VERSION and not (data_dir / "log").exists()


async def test_a_format_that_cannot_be_raised_stops_no_start(tmp_path: Path) -> None:
    """As on a full disk."""
    data_dir = directory_of_level(6, tmp_path)
    draft = data_dir / f".{FORMAT_FILE}"
    draft.mkdir()
    assert (await lived(settings_of(data_dir), "t0"))[0] == in_sqlite(data_dir)
    assert format_of(data_dir) == FIRST_VERSION
    draft.rmdir()
    assert (await lived(settings_of(data_dir), "t1"))[0] == in_sqlite(data_dir)
    assert (await lived(settings_of(data_dir), "t2"))[0] == in_log(data_dir)


async def test_a_journal_without_a_format_next_to_it_is_no_new_directory(tmp_path: Path) -> None:
    """As in a copy that lacks the file."""
    data_dir = directory_of_level(1, tmp_path)
    (data_dir / FORMAT_FILE).unlink()
    where, before = await lived(settings_of(data_dir), "t0")
    assert where == in_sqlite(data_dir) and before


@pytest.mark.parametrize("level", LEVELS)
async def test_a_journal_that_was_moved_away_for_a_restore_leaves_the_directory_as_it_is(
    tmp_path: Path, level: int
) -> None:
    """The restored ledger may be of a level that older versions can open."""
    data_dir = directory_of_level(level, tmp_path)
    (data_dir / METADATA_FILE).unlink()
    assert urls_of(settings_of(data_dir).storage).metadata == in_sqlite(data_dir)


@pytest.mark.parametrize("text", ["", "one\n", "9\n"], ids=["empty", "damaged", "newer"])
def test_where_the_journal_is_can_be_said_of_a_format_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    """Opening the directory reports what is wrong with it."""
    (tmp_path / FORMAT_FILE).write_text(text)
    assert urls_of(settings_of(tmp_path).storage).metadata in {in_sqlite(tmp_path), in_log(tmp_path)}
