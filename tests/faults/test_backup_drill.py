"""Backup and restore, as an operator would: the metadata is lost, all offsets up to the backup come back."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.contact import Contact
from gateway.cli.endpoint import Endpoint
from tests.faults.merge_jobs import merge
from tests.support.data_files import (
    damage_last_batch,
    files_with_records,
    in_log,
    in_sqlite,
    object_of,
    take_journal_away,
)
from tests.support.gateway import Gateway

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0

Records = list[dict[str, object]]
Written = tuple[Path, Records]
BackedUp = tuple[Gateway, Records]


def dragoman(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=WAIT_S)


def said(finished: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished.stdout


def produce(gateway: Gateway, topic: str, first: int, count: int) -> None:
    lines = "".join(f"{number % 7}:{number}\n" for number in range(first, first + count))
    said(dragoman("produce", topic, "-K", ":", "-b", gateway.bootstrap, stdin=lines))


def consume(gateway: Gateway, topic: str) -> list[dict[str, object]]:
    lines = said(dragoman("consume", topic, "--to-end", "--json", "-b", gateway.bootstrap)).splitlines()
    records = [json.loads(line) for line in lines]
    return sorted(records, key=lambda record: (record["partition"], record["offset"]))


def ends(gateway: Gateway, topic: str) -> list[int]:
    (found,) = json.loads(said(dragoman("topics", "describe", topic, "--json", "-b", gateway.bootstrap)))
    return [line["high_watermark"] for line in found["partitions"]]


def lose_metadata(data_dir: Path) -> None:
    take_journal_away(data_dir)
    for path in data_dir.glob("image.db*"):
        path.unlink()


def objects(data_dir: Path) -> set[str]:
    return {object_of(path) for path in files_with_records(data_dir)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The directory of a stopped gateway and its backup, and the records that are in the backup."""
    root = tmp_path_factory.mktemp("written")
    gateway = Gateway(root)
    gateway.start()
    try:
        said(dragoman("topics", "create", "orders", "-p", "3", "-b", gateway.bootstrap))
        produce(gateway, "orders", 0, 500)
        before = consume(gateway, "orders")
    finally:
        gateway.terminate()
    said(dragoman("ledger", "backup", "--data-dir", str(gateway.data_dir), "--to", str(root / "backup")))
    return root, before


@pytest.fixture
def backed_up(written: Written, tmp_path: Path) -> Iterator[BackedUp]:
    """A copy of that, the test's own."""
    root, before = written
    for name in ("data", "backup"):
        shutil.copytree(root / name, tmp_path / name)
    gateway = Gateway(tmp_path)
    yield gateway, before
    gateway.stop()


def test_after_a_restore_everything_up_to_the_backup_has_its_old_offsets(
    backed_up: BackedUp, tmp_path: Path
) -> None:
    gateway, before = backed_up
    assert len(before) == 500
    then = objects(gateway.data_dir)
    gateway.start()
    produce(gateway, "orders", 500, 200)
    with Endpoint(Contact(gateway.bootstrap)) as endpoint:
        topic_id = endpoint.topics(["orders"])["orders"].topic_id
    gateway.terminate()
    later = objects(gateway.data_dir) - then
    assert later

    lose_metadata(gateway.data_dir)
    restored = dragoman(
        *("ledger", "restore", "--from", str(tmp_path / "backup")),
        *("--data-dir", str(gateway.data_dir), "--json"),
    )
    returned = json.loads(said(restored))
    assert set(returned["kept"]) == later and not returned["missing"]
    assert "cluster epoch 2" in restored.stderr

    gateway.start()
    try:
        assert consume(gateway, "orders") == before
        with Endpoint(Contact(gateway.bootstrap)) as endpoint:
            assert endpoint.topics(["orders"])["orders"].topic_id == topic_id
        old_ends = ends(gateway, "orders")
        produce(gateway, "orders", 1000, 50)
        assert sum(ends(gateway, "orders")) == sum(old_ends) + 50
        assert consume(gateway, "orders") != before
    finally:
        gateway.terminate()
    assert later <= objects(gateway.data_dir)
    diagnosis = json.loads(said(dragoman("doctor", "--all", "--json", "--data-dir", str(gateway.data_dir))))
    (kept,) = [note for note in diagnosis["notes"] if note.startswith("kept objects: ")]
    assert all(locator in kept for locator in later)


def test_a_restored_ledger_is_itself_backed_up_and_restored(backed_up: BackedUp, tmp_path: Path) -> None:
    gateway, _ = backed_up
    data = str(gateway.data_dir)
    for epoch in (2, 3):
        lose_metadata(gateway.data_dir)
        restored = dragoman("ledger", "restore", "--from", str(tmp_path / "backup"), "--data-dir", data)
        assert f"cluster epoch {epoch}" in restored.stderr, restored.stderr
        gateway.start()
        produce(gateway, "orders", epoch * 1000, 10)
        before = consume(gateway, "orders")
        gateway.terminate()
        said(dragoman("ledger", "backup", "--data-dir", data, "--to", str(tmp_path / "backup")))
    lose_metadata(gateway.data_dir)
    said(dragoman("ledger", "restore", "--from", str(tmp_path / "backup"), "--data-dir", data))
    gateway.start()
    try:
        assert len(before) == 520 and consume(gateway, "orders") == before
    finally:
        gateway.terminate()


def test_after_a_restore_no_log_line_is_between_what_a_command_says(
    backed_up: BackedUp, tmp_path: Path
) -> None:
    """Next to the data is a snapshot of the journal that was replaced."""
    gateway, _ = backed_up
    data = str(gateway.data_dir)
    gateway.start()
    produce(gateway, "orders", 500, 10)
    said(dragoman("ledger", "snapshot", "--data-dir", data))
    gateway.terminate()
    lose_metadata(gateway.data_dir)
    said(dragoman("ledger", "restore", "--from", str(tmp_path / "backup"), "--data-dir", data))
    for command, sentence in (("doctor", "Nothing found.\n"), ("audit", "No damage.\n")):
        looked_at = dragoman(command, "--data-dir", data)
        assert (looked_at.returncode, looked_at.stderr) == (0, sentence)


def holds(gateway: Gateway, *arguments: str) -> list[dict[str, object]]:
    listed = dragoman("ledger", "holds", "--data-dir", str(gateway.data_dir), "--json", *arguments)
    return list(json.loads(said(listed)))


def test_the_hold_of_a_backup_is_listed_and_released_while_the_gateway_runs(
    backed_up: BackedUp, tmp_path: Path
) -> None:
    gateway, _ = backed_up
    gateway.start()
    try:
        (hold,) = holds(gateway)
        assert str(hold["backup"]).endswith("/backup")
        assert int(str(hold["until_ms"])) - int(str(hold["made_ms"])) == pytest.approx(
            48 * 3_600_000, abs=60_000
        )
        data = str(gateway.data_dir)
        unknown = dragoman("ledger", "holds", "--data-dir", data, "--release", "x", "--release", "y")
        assert unknown.returncode == 2 and "there is no hold x, y" in unknown.stderr
        assert holds(gateway, "--release", str(hold["name"])) == []
    finally:
        gateway.terminate()
    said(dragoman("ledger", "backup", "--data-dir", data, "--to", str(tmp_path / "b"), "--hold-hours", "0"))
    assert holds(gateway) == []


@pytest.mark.full
@pytest.mark.timeout(400)
def test_what_a_backup_names_is_kept_by_a_gateway_until_its_hold_is_released(backed_up: BackedUp) -> None:
    """Over an hour's grace that is a minute here."""
    gateway, before = backed_up
    gateway.options += ["--set", "ledger.orphan_grace_ms=60000", "--set", "housekeeping.merge_runs=0"]
    named = objects(gateway.data_dir)
    gateway.start()
    try:
        assert merge(gateway)["runs"] > 1
        time.sleep(100.0)
        assert named <= objects(gateway.data_dir)
        (hold,) = holds(gateway)
        assert holds(gateway, "--release", str(hold["name"])) == []
        deadline = time.monotonic() + 60.0
        while named & objects(gateway.data_dir):
            assert time.monotonic() < deadline, gateway.log_tail()
            time.sleep(0.5)
        assert consume(gateway, "orders") == before
    finally:
        gateway.terminate()


def test_a_restore_never_writes_over_a_ledger(backed_up: BackedUp, tmp_path: Path) -> None:
    gateway, _ = backed_up
    refused = dragoman(
        "ledger", "restore", "--from", str(tmp_path / "backup"), "--data-dir", str(gateway.data_dir)
    )
    assert refused.returncode == 2 and "never writes over a ledger" in refused.stderr


def test_a_damaged_snapshot_is_passed_over_for_the_one_before_it_and_that_is_said(
    backed_up: BackedUp, tmp_path: Path
) -> None:
    gateway, before = backed_up
    gateway.start()
    produce(gateway, "orders", 500, 10)
    gateway.terminate()
    backup, data = str(tmp_path / "backup"), str(gateway.data_dir)
    said(dragoman("ledger", "backup", "--data-dir", data, "--to", backup))
    newest = max((tmp_path / "backup" / "blobs" / "snapshot" / "0").iterdir())
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.chmod(0o644)
    newest.write_bytes(content)
    lose_metadata(gateway.data_dir)
    restored = dragoman("ledger", "restore", "--from", backup, "--data-dir", data)
    assert restored.returncode == 0 and "Skipped a damaged snapshot" in restored.stderr
    gateway.start()
    try:
        assert consume(gateway, "orders") == before
    finally:
        gateway.terminate()


def test_doctor_finds_a_lost_object_and_a_flipped_byte(tmp_path: Path) -> None:
    """Where records and journal are in files of their own."""
    gateway = Gateway(tmp_path)
    gateway.options += in_sqlite(gateway.data_dir)
    gateway.start()
    produce(gateway, "orders", 0, 100)
    gateway.terminate()
    data = gateway.data_dir
    healthy = dragoman("doctor", "--data-dir", str(data))
    assert healthy.returncode == 0, healthy.stdout
    (name,) = objects(data)
    whole = (data / name).read_bytes()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 0xFF
    (data / name).write_bytes(flipped)
    assert "does not match its CRC" in said(dragoman("doctor", "--all", "--data-dir", str(data)), 3)
    (data / name).write_bytes(whole[: len(whole) // 2])
    assert "bytes" in said(dragoman("doctor", "--data-dir", str(data)), 3)
    (data / name).unlink()
    assert "is missing" in said(dragoman("doctor", "--data-dir", str(data)), 3)
    (data / name).write_bytes(whole)
    shutil.copy(data / "image.db", tmp_path / "image.db")
    assert dragoman("doctor", "--data-dir", str(data)).returncode == 0


def test_doctor_finds_a_log_file_that_is_lost_or_short_and_a_flipped_byte(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.options += in_log(gateway.data_dir)
    gateway.start()
    produce(gateway, "orders", 0, 100)
    gateway.terminate()
    data = gateway.data_dir
    healthy = dragoman("doctor", "--data-dir", str(data))
    assert healthy.returncode == 0, healthy.stdout
    (path,) = files_with_records(data)
    damage_last_batch(path)
    assert "does not match its CRC" in said(dragoman("doctor", "--all", "--data-dir", str(data)), 3)
    damage_last_batch(path)
    whole = path.read_bytes()
    shutil.copytree(data, tmp_path / "whole")
    # The last frame is torn.
    path.write_bytes(whole[:-1])
    assert "were durable" in said(dragoman("doctor", "--data-dir", str(data)), 3)
    path.unlink()
    lost = said(dragoman("doctor", "--data-dir", str(data)), 3)
    assert "began at journal entry 0, which this copy does not have" in lost
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "whole", data)
    assert dragoman("doctor", "--data-dir", str(data)).returncode == 0


def test_commands_on_a_directory_in_use_end_with_5_and_name_its_process(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.start()
    try:
        data = str(gateway.data_dir)
        for arguments in (["doctor"], ["ledger", "show"]):
            finished = dragoman(*arguments, "--data-dir", data)
            assert finished.returncode == 5
            assert str(gateway.pid) in finished.stderr
    finally:
        gateway.terminate()


def lost_but_for(gateway: Gateway, copy: Path) -> Gateway:
    """Another gateway, on a copy of blobs and records: what the log has of those is beside its own log."""
    targets = {"blobs": "blobs", "wal": "wal", "log": "replaced/log"}
    for name, target in targets.items():
        if (gateway.data_dir / name).exists():
            shutil.copytree(gateway.data_dir / name, copy / "data" / target)
    shutil.copy(gateway.data_dir / "format", copy / "data" / "format")
    return Gateway(copy)


@pytest.mark.parametrize(
    ("way", "kind"),
    [("snapshot", "log"), ("backup", "log"), pytest.param("snapshot", "sqlite", marks=pytest.mark.full)],
)
def test_a_copy_taken_while_producers_run_is_restored_up_to_the_snapshot(
    tmp_path: Path, way: str, kind: str
) -> None:
    journal = in_sqlite if kind == "sqlite" else in_log
    gateway = Gateway(tmp_path / "running", journal(tmp_path / "running" / "data"))
    gateway.start()
    busy = subprocess.Popen(
        [*COMMAND, "produce", "busy", "-b", gateway.bootstrap], stdin=subprocess.PIPE, text=True
    )
    try:
        assert busy.stdin is not None
        said(dragoman("topics", "create", "orders", "-p", "3", "-b", gateway.bootstrap))
        produce(gateway, "orders", 0, 500)
        before = consume(gateway, "orders")
        for number in range(300):
            busy.stdin.write(f"{number}\n")
            busy.stdin.flush()
        data, to = str(gateway.data_dir), str(tmp_path / "backup")
        if way == "snapshot":
            taken = json.loads(said(dragoman("ledger", "snapshot", "--data-dir", data, "--json")))
            assert (gateway.data_dir / "blobs" / taken["key"]).exists() and taken["topics"] == 2
        else:
            finished = dragoman("ledger", "backup", "--data-dir", data, "--to", to, "--json")
            taken = json.loads(said(finished))
            assert taken["hold"] and "A gateway uses the data directory" in finished.stderr
            held = json.loads(said(dragoman("ledger", "holds", "--data-dir", data, "--json")))
            assert [(one["name"], one["backup"]) for one in held] == [(taken["hold"], to)]
            assert not held[0]["is_being_written"]
        for number in range(300):
            busy.stdin.write(f"{number}\n")
            busy.stdin.flush()
        copied = lost_but_for(gateway, tmp_path / "copy")
        produce(gateway, "orders", 500, 10)
    finally:
        busy.communicate()
        gateway.terminate()
    source = to if way == "backup" else str(copied.data_dir)
    restored = dragoman("ledger", "restore", "--from", source, "--data-dir", str(copied.data_dir))
    said(restored)
    copied.start()
    try:
        assert consume(copied, "orders") == before
        assert len(consume(copied, "busy")) <= 600
    finally:
        copied.terminate()


def test_a_snapshot_of_a_ledger_that_has_not_changed_is_the_one_that_is_there(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    gateway.start()
    try:
        said(dragoman("topics", "create", "t", "-b", gateway.bootstrap))
        data = str(gateway.data_dir)
        first, second = (
            json.loads(said(dragoman("ledger", "snapshot", "--data-dir", data, "--json"))) for _ in range(2)
        )
        assert first["key"] == second["key"]
        assert len(list((gateway.data_dir / "blobs" / "snapshot").rglob("*"))) == 2  # its shard, and itself
        said(dragoman("topics", "create", "u", "-b", gateway.bootstrap))
        third = json.loads(said(dragoman("ledger", "snapshot", "--data-dir", data, "--json")))
        assert third["entries"] > second["entries"] and third["topics"] == 2
    finally:
        gateway.terminate()
