"""Copies of one metadata store over one place for data: one at a time, and none that was left behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.data_files import in_log, in_sqlite, journal_files
from tests.support.gateway import Gateway, GatewayFactory

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0
REFUSED, LOCKED = 4, 5


def dragoman(*arguments: str, stdin: str = "", data: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DRAGOMAN_STORAGE_DATA": f"file:{data}"} if data is not None else None
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=WAIT_S, env=env
    )


def produce(gateway: Gateway, count: int) -> None:
    lines = "".join(f"{number}\n" for number in range(count))
    finished = dragoman("produce", "t", "-b", gateway.bootstrap, stdin=lines)
    assert finished.returncode == 0, finished.stderr


def records(gateway: Gateway) -> int:
    finished = dragoman("consume", "t", "--to-end", "--json", "-b", gateway.bootstrap)
    assert finished.returncode == 0, finished.stderr
    return len([json.loads(line) for line in finished.stdout.splitlines()])


def copy_metadata(source: Path, target: Path) -> None:
    target.mkdir()
    for path in journal_files(source):
        if path.is_dir():
            shutil.copytree(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)
    shutil.copy(source / "format", target / "format")


def refusal(gateway: Gateway) -> tuple[int, str]:
    gateway.log_path.unlink(missing_ok=True)
    gateway.launch()
    code = gateway.wait_for_exit(20)
    (said,) = [line for line in gateway.log_tail().splitlines() if line and not line.startswith("{")]
    return code, said


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def options(shared: Path) -> Sequence[str]:
    return ["--data", f"file:{shared}", "--set", "ledger.orphan_grace_ms=60000"]


@pytest.fixture(params=["log", pytest.param("sqlite", marks=pytest.mark.full)])
def original(
    request: pytest.FixtureRequest,
    gateway_factory: GatewayFactory,
    tmp_path: Path,
    options: Sequence[str],
) -> Gateway:
    """A running gateway whose journal is in a log, or where earlier versions had it."""
    gateway = gateway_factory(options, data_dir=tmp_path / "a")
    gateway.options += (in_sqlite if request.param == "sqlite" else in_log)(gateway.data_dir)
    gateway.start()
    # From now on the directory says where its journal is.
    gateway.options = list(options)
    assert dragoman("topics", "create", "t", "-b", gateway.bootstrap).returncode == 0
    return gateway


def wal_files(shared: Path) -> set[str]:
    return {path.name for path in shared.glob("wal/*/*.wal")}


def test_a_copy_of_the_metadata_store_never_gets_at_the_data_of_the_original(
    original: Gateway,
    gateway_factory: GatewayFactory,
    tmp_path: Path,
    shared: Path,
    options: Sequence[str],
) -> None:
    produce(original, 20)
    original.terminate()
    copy_metadata(tmp_path / "a", tmp_path / "b")
    original.start()
    produce(original, 50)
    stored = wal_files(shared)

    copy = gateway_factory(options, data_dir=tmp_path / "b")
    code, said = refusal(copy)
    assert code == LOCKED
    assert str(shared) in said and str(original.pid) in said and "--data" in said
    original.terminate()
    for _ in range(2):
        code, said = refusal(copy)
        assert code == REFUSED
        assert "another copy of this metadata store" in said and "ledger restore" in said
    assert wal_files(shared) == stored
    checked = [dragoman("doctor", "--data-dir", str(tmp_path / name), data=shared) for name in "ab"]
    assert [finished.returncode for finished in checked] == [0, 3]
    assert "another copy of this metadata store" in " ".join(checked[1].stdout.split())

    original.start()
    assert records(original) == 70


def test_a_copy_that_continues_keeps_out_the_original(
    original: Gateway, gateway_factory: GatewayFactory, tmp_path: Path, options: Sequence[str]
) -> None:
    """The metadata is moved: the newest copy is as good as the original."""
    produce(original, 20)
    original.terminate()
    copy_metadata(tmp_path / "a", tmp_path / "b")
    moved = gateway_factory(options, data_dir=tmp_path / "b")
    moved.start()
    produce(moved, 10)
    assert records(moved) == 30
    moved.terminate()
    code, said = refusal(original)
    assert code == REFUSED and "another copy" in said


def test_a_restore_from_an_old_backup_claims_the_data(
    original: Gateway, tmp_path: Path, shared: Path
) -> None:
    gateway, data_dir = original, original.data_dir
    produce(gateway, 20)
    gateway.terminate()
    at, backup = ["--data-dir", str(data_dir)], tmp_path / "backup"
    assert dragoman("ledger", "backup", "--to", str(backup), *at, data=shared).returncode == 0
    for count in (5, 6):
        gateway.start()
        produce(gateway, count)
        gateway.terminate()
    before = tmp_path / "before"
    before.mkdir()
    for path in [*journal_files(data_dir), *data_dir.glob("image.db*")]:
        path.rename(before / path.name)
    restored = dragoman("ledger", "restore", "--from", str(backup), *at, data=shared)
    assert restored.returncode == 0, restored.stderr
    for _ in range(2):
        gateway.start()
        assert records(gateway) == 20
        gateway.terminate()
    for path in [*journal_files(data_dir), *data_dir.glob("image.db*")]:
        path.rename(tmp_path / f"restored-{path.name}")
    for path in before.iterdir():
        path.replace(data_dir / path.name)
    code, said = refusal(gateway)
    assert code == REFUSED and "another copy" in said


def test_another_gateway_may_not_use_the_directory_of_a_gateway_for_its_data(
    gateway_factory: GatewayFactory, gateway: Gateway, tmp_path: Path
) -> None:
    other = gateway_factory(["--data", f"file:{gateway.data_dir}"], data_dir=tmp_path / "other")
    code, said = refusal(other)
    assert code == LOCKED and str(gateway.pid) in said


def test_what_is_stored_is_for_its_user_alone(gateway: Gateway) -> None:
    assert dragoman("topics", "create", "t", "-b", gateway.bootstrap).returncode == 0
    produce(gateway, 5)
    open_to_others = [
        f"{path.stat().st_mode:o} {path}"
        for path in [gateway.data_dir, *gateway.data_dir.rglob("*")]
        if path.stat().st_mode & 0o077
    ]
    assert open_to_others == []
