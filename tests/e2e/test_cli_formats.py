"""What a released version has written opens for ever; what a newer one has written is refused."""

import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from crc32c import crc32c

from adapters.metadata.sqlite_file import CONTINUED_VERSION
from gateway.datadir import FORMAT_VERSION as DIRECTORY_VERSION
from ledger.formats import inline, snapshot, wal
from ledger.image import FORMAT_VERSION as IMAGE_VERSION
from ledger.rows import META, sealed
from tests.e2e.transactional_confluent import TIMEOUT_S, consumer, producer, read
from tests.support.command import run_here
from tests.support.data_files import take_journal_away
from tests.support.gateway import Gateway
from tests.support.image_rows import rewrite_image

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
FIXTURES = sorted((Path(__file__).parent.parent / "fixtures").glob("data_directory_*"))
V1 = FIXTURES[0]
V6 = V1.parent / "data_directory_v6"
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
BETWEEN = {"data_directory_v3", "data_directory_v4", "data_directory_v5"}
"""Opened in every run; only a full one restores their backups, and goes on in a log."""
SOME = pytest.mark.parametrize(
    "fixture",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.full] if path.name in BETWEEN else [])
        for path in FIXTURES
    ],
)
ENTRY = "journal/0/00000000000000000018"
NEWER = {"snapshot": snapshot.VERSION_IN_PIECES + 1, "archive": snapshot.VERSION + 1}
"""Versions that this build does not know."""


def dragoman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def dragoman_with_input(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], input=text, capture_output=True, text=True, timeout=60)


def records_of(gateway: Gateway) -> list[dict[str, object]]:
    finished = run_here(gateway, "consume", "orders", "--to-end", "--json")
    assert finished.returncode == 0, finished.stderr
    return in_order(finished.stdout)


def in_order(lines: str) -> list[dict[str, object]]:
    records = [json.loads(line) for line in lines.splitlines()]
    return sorted(records, key=lambda record: (record["partition"], record["offset"]))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of version 1, to be written to."""
    return copied(V1 / "directory", tmp_path / "directory")


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def opened_and_read(tmp_path: Path, directory: Path) -> list[dict[str, object]]:
    gateway = Gateway(tmp_path, data_dir=directory)
    gateway.start()
    try:
        return records_of(gateway)
    finally:
        gateway.terminate()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
@pytest.mark.parametrize("without", ["", "image.db"], ids=["image", "journal"])
def test_a_data_directory_of_every_version_opens_with_its_records_at_their_offsets(
    tmp_path: Path, fixture: Path, without: str
) -> None:
    directory = copied(fixture / "directory", tmp_path / "directory")
    if without:
        (directory / without).unlink()
    expected = in_order((fixture / "records.jsonl").read_text())
    assert len(expected) == 100
    assert opened_and_read(tmp_path, directory) == expected
    if FULL or fixture in (V1, FIXTURES[-1]):
        # From the image that this version has written.
        assert opened_and_read(tmp_path, directory) == expected
    checked = dragoman("doctor", "--all", "--data-dir", str(directory))
    assert checked.returncode == 0, checked.stdout


def feature_level(directory: Path) -> int:
    shown = dragoman("ledger", "show", "--json", "--data-dir", str(directory))
    assert shown.returncode == 0, shown.stderr
    return int(json.loads(shown.stdout)["feature_level"])


def test_a_data_directory_of_version_1_goes_on_as_it_is_until_its_level_is_raised(tmp_path: Path) -> None:
    """Killed each time, so that journal, image and WAL files of both levels are read."""
    directory = copied(V1 / "directory", tmp_path / "directory")
    expected = in_order((V1 / "records.jsonl").read_text())
    for number, setting in enumerate(["ledger.feature_level=0", "ledger.feature_level=2", "log.level=info"]):
        gateway = Gateway(tmp_path, options=["--set", setting], data_dir=directory)
        gateway.start()
        try:
            assert [(r["partition"], r["offset"], r["value"]) for r in records_of(gateway)] == [
                (r["partition"], r["offset"], r["value"]) for r in expected
            ]
            sent = dragoman_with_input(f"more {number}\n", "produce", "orders", "-b", gateway.bootstrap)
            assert sent.returncode == 0, sent.stderr
            expected = records_of(gateway)
        finally:
            gateway.kill9()
        assert feature_level(directory) == (1 if number == 0 else 2)
    assert len(expected) == 103
    checked = dragoman("doctor", "--all", "--data-dir", str(directory))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "without", ["", pytest.param("image.db", marks=pytest.mark.full)], ids=["image", "journal"]
)
def test_transactions_of_an_older_version_are_committed_aborted_or_open_as_they_were(
    tmp_path: Path, without: str
) -> None:
    directory = copied(V6 / "directory", tmp_path / "directory")
    if without:
        (directory / without).unlink()
    kept = [
        record["value"]
        for record in in_order((V6 / "records.jsonl").read_text())
        if not str(record["value"]).endswith("lost")
    ]
    # Its transaction is old by now: it must not be aborted before it was looked at.
    late = ["--set", "transactions.transaction.abort.timed.out.transaction.cleanup.interval.ms=3600000"]
    gateway = Gateway(tmp_path, options=late, data_dir=directory)
    gateway.start()
    try:
        assert [value.decode() for value in read(gateway.bootstrap, "orders", "read_committed")] == sorted(
            map(str, kept)
        )
        assert len(read(gateway.bootstrap, "open", "read_uncommitted", 1)) == 3
        assert read(gateway.bootstrap, "open", "read_committed", 1) == []
        # The next producer of this id aborts it, and none of its offsets is committed.
        opened = producer(gateway.bootstrap, "tx-open")
        opened.begin_transaction()
        opened.produce("open", b"new")
        opened.commit_transaction(TIMEOUT_S)
        assert read(gateway.bootstrap, "open", "read_committed", 1) == [b"new"]
        group = consumer(gateway.bootstrap, "readers")
        places = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        assert [one.offset for one in group.committed(places, TIMEOUT_S)] == [20, OFFSET_INVALID]
        group.close()
    finally:
        gateway.terminate()


@SOME
def test_a_backup_of_every_version_is_restored(tmp_path: Path, fixture: Path) -> None:
    directory = copied(fixture / "directory", tmp_path / "directory")
    take_journal_away(directory)
    backup = copied(fixture / "backup", tmp_path / "backup")
    restored = dragoman("ledger", "restore", "--from", str(backup), "--data-dir", str(directory))
    assert restored.returncode == 0, restored.stderr
    assert opened_and_read(tmp_path, directory) == in_order((fixture / "records.jsonl").read_text())


@SOME
def test_a_data_directory_of_every_version_goes_on_in_a_log(tmp_path: Path, fixture: Path) -> None:
    directory = copied(fixture / "directory", tmp_path / "directory")
    expected = in_order((fixture / "records.jsonl").read_text())
    in_log = ["--metadata", f"file:{directory}"]
    for life, options in enumerate([in_log, []]):
        gateway = Gateway(tmp_path, options=options, data_dir=directory)
        gateway.start()
        try:
            assert records_of(gateway) == expected
            sent = dragoman_with_input(f"life {life}\n", "produce", "orders", "-b", gateway.bootstrap)
            assert sent.returncode == 0, sent.stderr
            expected = records_of(gateway)
            assert len(expected) == 101 + life
        finally:
            gateway.kill9()
    assert (directory / "format").read_text() == f"{DIRECTORY_VERSION}\n"
    for command in (["doctor", "--all"], ["audit"]):
        checked = dragoman(*command, "--data-dir", str(directory))
        assert checked.returncode == 0, checked.stdout
    elsewhere = ["--data-dir", str(tmp_path / "elsewhere")]
    refused = dragoman("ledger", "show", "--metadata", f"sqlite:{directory / 'metadata.db'}", *elsewhere)
    assert refused.returncode == 4 and "in its local log" in refused.stderr, refused.stderr


@pytest.mark.parametrize("fixture", [V1, FIXTURES[-1]], ids=lambda path: path.name)
def test_a_backup_of_an_older_version_is_restored_into_a_log(tmp_path: Path, fixture: Path) -> None:
    directory = copied(fixture / "directory", tmp_path / "directory")
    take_journal_away(directory)
    in_log = ["--data-dir", str(directory), "--metadata", f"file:{directory}"]
    restored = dragoman("ledger", "restore", "--from", str(fixture / "backup"), *in_log)
    assert restored.returncode == 0, restored.stderr
    assert opened_and_read(tmp_path, directory) == in_order((fixture / "records.jsonl").read_text())


def newer_directory(directory: Path) -> None:
    (directory / "format").write_text(f"{DIRECTORY_VERSION + 1}\n")


def newer_metadata(directory: Path) -> None:
    with sqlite3.connect(directory / "metadata.db") as db:
        db.execute(f"PRAGMA user_version = {CONTINUED_VERSION + 1}")
    db.close()


def newer_image(directory: Path) -> None:
    later = struct.pack(">H", IMAGE_VERSION + 1)
    rewrite_image(
        directory / "image.db",
        lambda rows: [
            sealed(row.section, row.key, later + (row.value or b"")[2:]) if row.section == META else row
            for row in rows
        ],
    )


def newer_entry(directory: Path) -> None:
    later = struct.pack(">H", inline.VERSION + 1)
    change_entry(directory, lambda head, body: (head[:4] + later + head[6:], body))


def newer_record(directory: Path) -> None:
    change_entry(directory, lambda head, body: (head, b"\xfe" + body[1:]))


def change_entry(directory: Path, change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    (directory / "image.db").unlink()
    with sqlite3.connect(directory / "metadata.db") as db:
        (value,) = db.execute("SELECT value FROM entry WHERE key = ?", (ENTRY,)).fetchone()
        head, body = change(value[:36], value[40:])
        sealed = head + struct.pack(">I", crc32c(body, crc32c(head))) + body
        db.execute("UPDATE entry SET value = ? WHERE key = ?", (sealed, ENTRY))
    db.close()


def newer_wal(directory: Path) -> None:
    (file,) = (directory / "wal" / "0").iterdir()
    set_version(file, wal.VERSION + 1)


def newer_snapshot(directory: Path) -> None:
    (directory / "image.db").unlink()
    copied_to = copied(V1 / "backup" / "blobs" / "snapshot", directory / "blobs" / "snapshot")
    set_version(newest(copied_to / "0"), NEWER["snapshot"])


def newest(directory: Path) -> Path:
    return max(directory.iterdir())


def set_version(file: Path, version: int) -> None:
    """In the formats that begin with a magic of four bytes and a version of two."""
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(data[:4] + struct.pack(">H", version) + data[6:])


@pytest.mark.parametrize(
    "make_newer",
    [newer_directory, newer_metadata, newer_entry, newer_record, newer_wal, newer_snapshot],
    ids=["directory", "metadata", "entry", "record", "wal", "snapshot"],
)
def test_a_store_of_a_newer_version_is_refused_with_one_sentence(
    directory: Path, make_newer: Callable[[Path], None]
) -> None:
    make_newer(directory)
    before = contents(directory)
    finished = dragoman(
        *("serve", "--data-dir", str(directory), "--admin", "127.0.0.1:0"),
        *("--listen", "PLAINTEXT://127.0.0.1:0"),
    )
    check_refused(finished)
    assert contents(directory) == before


def test_an_image_of_a_newer_version_is_put_aside_where_the_journal_says_all(
    tmp_path: Path, directory: Path
) -> None:
    newer_image(directory)
    assert opened_and_read(tmp_path, directory) == in_order((V1 / "records.jsonl").read_text())


@pytest.mark.parametrize("part", ["snapshot", "archive"])
def test_a_backup_of_a_newer_version_is_refused_with_one_sentence_and_restores_nothing(
    tmp_path: Path, directory: Path, part: str
) -> None:
    (directory / "metadata.db").unlink()
    backup = Path(shutil.copytree(V1 / "backup", tmp_path / "backup"))
    set_version(newest(backup / "blobs" / part / "0"), NEWER[part])
    before = contents(directory)
    refused = dragoman("ledger", "restore", "--from", str(backup), "--data-dir", str(directory))
    check_refused(refused)
    assert contents(directory) == before


def check_refused(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 4, finished.stderr
    sentences = [line for line in finished.stderr.splitlines() if line.startswith("dragoman: ")]
    assert len(sentences) == 1 and "version" in sentences[0]
    assert "Traceback" not in finished.stderr


def contents(directory: Path) -> dict[str, bytes]:
    """Of everything but the lock and what SQLite writes."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.suffix in ("", ".wal")]
    return {str(path): path.read_bytes() for path in files if path.name != "lock"}
