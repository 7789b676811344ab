"""A damaged or lost metadata store, as an operator meets it: named, refused, and left by a restore."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from ledger.formats import local_log
from ledger.partitions.rows import PARTITION
from ledger.rows import Row
from tests.support.data_files import files_with_records, has_entries, is_in_log, take_journal_away
from tests.support.gateway import Gateway
from tests.support.image_rows import flipped, rewrite_image

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0
NOBODY = 65534
HIGH_WATERMARK_BIT = 35 * 8 + 6
"""Of the value of a partition's row, counted from its first byte."""


def dragoman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=WAIT_S)


def serve(data_dir: Path) -> subprocess.CompletedProcess[str]:
    """For gateways that must not come up."""
    return dragoman(
        "serve", "--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", str(data_dir)
    )


def restore(data_dir: Path, source: Path) -> subprocess.CompletedProcess[str]:
    return dragoman("ledger", "restore", "--data-dir", str(data_dir), "--from", str(source))


def sentence(finished: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in finished.stderr
    (line,) = [line for line in finished.stderr.splitlines() if line.startswith("dragoman: ")]
    return line


def produce(gateway: Gateway, partition: int, count: int) -> list[int]:
    """The offsets that they got."""
    offsets: list[int] = []

    def noted(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": gateway.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(count):
        producer.produce("t", value=str(number), partition=partition, on_delivery=noted)
    if producer.flush(WAIT_S):
        raise KafkaException("unanswered")
    return offsets


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a gateway that stopped after 200 records in t-1, and a backup of it."""
    root = tmp_path_factory.mktemp("written")
    made = Gateway(root)
    made.start()
    assert dragoman("topics", "create", "t", "-p", "3", "-b", made.bootstrap).returncode == 0
    assert produce(made, 1, 200) == list(range(200))
    assert made.terminate() == 0
    backup = dragoman("ledger", "backup", "--data-dir", str(made.data_dir), "--to", str(root / "backup"))
    assert backup.returncode == 0, backup.stderr
    return root


@pytest.fixture
def gateway(written: Path, tmp_path: Path) -> Iterator[Gateway]:
    """A copy of that, to be damaged."""
    for name in ("data", "backup"):
        shutil.copytree(written / name, tmp_path / name)
    made = Gateway(tmp_path)
    yield made
    made.stop()


def lose_journal(data_dir: Path) -> None:
    """And the image: the records stay."""
    take_journal_away(data_dir)
    remove(data_dir, "image.db")


def remove(data_dir: Path, *names: str) -> None:
    for name in names:
        for path in data_dir.glob(f"{name}*"):
            path.unlink()


def test_a_high_watermark_that_the_disk_has_changed_is_not_believed(gateway: Gateway) -> None:
    """What the disk said was 136; offsets from there on would have been given a second time."""

    def of_t1(rows: list[Row]) -> list[Row]:
        at = next(n for n, row in enumerate(rows) if row.section == PARTITION and (row.value or b"")[19] == 1)
        return [*rows[:at], flipped(rows[at], 8 * len(rows[at].key) + HIGH_WATERMARK_BIT), *rows[at + 1 :]]

    rewrite_image(gateway.data_dir / "image.db", of_t1)
    checked = dragoman("doctor", "--data-dir", str(gateway.data_dir))
    assert checked.returncode == 3 and "does not match its CRC-32C; delete" in checked.stdout
    gateway.start()
    assert produce(gateway, 1, 10) == list(range(200, 210))
    gateway.terminate()
    checked = dragoman("doctor", "--data-dir", str(gateway.data_dir))
    assert checked.returncode == 0, checked.stdout


def with_damaged_entry(data_dir: Path) -> str:
    """One bit of the journal is changed on the disk: of the head of an entry's frame in a log, or of a key,
    where a zero becomes a blank. Returns what names it."""
    if is_in_log(data_dir):
        (path,) = files_with_records(data_dir)
        data = bytearray(path.read_bytes())
        second = data.index(local_log.FRAME_MAGIC, local_log.HEADER_BYTES + 1)
        data[second + local_log.FRAME_HEAD_BYTES // 2] ^= 0x10
        path.write_bytes(data)
        return f"is damaged at {second}"
    path, key = data_dir / "metadata.db", b"journal/0/00000000000000000001"
    data = bytearray(path.read_bytes())
    assert data.count(key) == 1
    data[data.index(key) + 15] ^= 0x10
    path.write_bytes(data)
    return "journal/0/00000 00000000000001"


@pytest.mark.parametrize("with_image", [True, False], ids=["image", "no image"])
def test_a_damaged_key_of_the_journal_is_named_and_needs_an_operator(
    gateway: Gateway, with_image: bool
) -> None:
    key = with_damaged_entry(gateway.data_dir)
    if not with_image:
        remove(gateway.data_dir, "image.db")
    checked = dragoman("doctor", "--data-dir", str(gateway.data_dir))
    assert checked.returncode == 3 and key in checked.stdout, checked.stdout + checked.stderr
    assert "Traceback" not in checked.stderr
    refused = serve(gateway.data_dir)
    assert refused.returncode == 4 and key in sentence(refused)


@pytest.mark.parametrize("damage", [lambda _: b"not an image", lambda data: data[:4096] + bytes(4096)])
def test_doctor_finds_an_image_that_cannot_be_read(
    gateway: Gateway, damage: Callable[[bytes], bytes]
) -> None:
    image = gateway.data_dir / "image.db"
    image.write_bytes(damage(image.read_bytes()))
    checked = dragoman("doctor", "--data-dir", str(gateway.data_dir))
    assert checked.returncode == 3 and checked.stderr == "1 finding.\n"
    assert "FOUND  image: " in checked.stdout and "delete" in checked.stdout
    remove(gateway.data_dir, "image.db")
    checked = dragoman("doctor", "--data-dir", str(gateway.data_dir))
    assert checked.returncode == 0 and "image: there is none" in checked.stdout


def test_a_restore_from_nothing_leaves_nothing_that_hinders_the_right_one(gateway: Gateway) -> None:
    data_dir, empty = gateway.data_dir, gateway.directory / "empty"
    empty.mkdir()
    lose_journal(data_dir)
    before = sorted(data_dir.rglob("*"))
    wrong = restore(data_dir, empty)
    assert wrong.returncode == 4 and "there is no snapshot" in sentence(wrong)
    assert sorted(data_dir.rglob("*")) == before and list(empty.iterdir()) == []
    assert restore(data_dir, gateway.directory / "backup").returncode == 0
    gateway.start()
    assert produce(gateway, 1, 1) == [200]


def test_a_start_without_the_metadata_leaves_nothing_that_hinders_a_restore(gateway: Gateway) -> None:
    """As systemd does it once before an operator looks."""
    data_dir = gateway.data_dir
    take_journal_away(data_dir)
    refused = serve(data_dir)
    assert refused.returncode == 4 and "belongs to another cluster" in sentence(refused)
    assert not has_entries(data_dir)
    restored = restore(data_dir, gateway.directory / "backup")
    assert restored.returncode == 0, restored.stderr
    gateway.start()
    assert produce(gateway, 1, 1) == [200]


def test_a_restore_replaces_a_ledger_without_entries_and_no_other(gateway: Gateway) -> None:
    """A killed start, or an older build, may have left one."""
    data_dir, backup = gateway.data_dir, gateway.directory / "backup"
    refused = restore(data_dir, backup)
    assert refused.returncode == 2 and "never writes over a ledger; move " in sentence(refused)
    take_journal_away(data_dir)
    if not is_in_log(data_dir):
        (data_dir / "metadata.db").write_bytes(b"what is left of it" * 1000)
        refused = restore(data_dir, backup)
        assert refused.returncode == 2 and "never writes over a ledger; move it" in sentence(refused)
        (data_dir / "metadata.db").write_bytes(b"")
    assert restore(data_dir, backup).returncode == 0


def test_a_restore_whose_objects_are_missing_says_so_and_ends_with_3(gateway: Gateway) -> None:
    lose_journal(gateway.data_dir)
    (lost,) = files_with_records(gateway.data_dir)
    lost.unlink()
    restored = restore(gateway.data_dir, gateway.directory / "backup")
    assert restored.returncode == 3 and "1 object that the ledger names is not stored" in restored.stderr


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that other users may reach, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="dragoman-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def give_all(data_dir: Path) -> int:
    """To another user, if root runs this. Returns the user that has it."""
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    for path in [data_dir, *data_dir.rglob("*")]:
        os.chown(path, user, -1)
    return user


def owners(data_dir: Path) -> set[int]:
    return {path.stat().st_uid for path in data_dir.rglob("*")}


def test_what_a_backup_as_root_leaves_in_the_data_belongs_to_the_gateways_user(
    gateway: Gateway, open_directory: Path
) -> None:
    data_dir = Path(shutil.copytree(gateway.data_dir, open_directory / "data"))
    shutil.rmtree(data_dir / "blobs" / "hold", ignore_errors=True)
    user = give_all(data_dir)
    made = dragoman("ledger", "backup", "--data-dir", str(data_dir), "--to", str(open_directory / "copy"))
    assert made.returncode == 0, made.stderr
    assert list((data_dir / "blobs" / "hold").rglob("*"))
    assert owners(data_dir) == {user}


def test_after_a_restore_as_root_the_gateways_user_owns_every_file(
    gateway: Gateway, open_directory: Path
) -> None:
    data_dir = Path(shutil.copytree(gateway.data_dir, open_directory / "data"))
    lose_journal(data_dir)
    user = give_all(data_dir)
    restored = restore(data_dir, gateway.directory / "backup")
    assert restored.returncode == 0, restored.stderr
    assert owners(data_dir) == {user}
    # Everything is imported before: that user may not even reach this Python.
    opened = subprocess.run(
        [sys.executable, "-c", _OPEN_AS, str(user), str(data_dir)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert opened.returncode == 0 and opened.stdout.endswith("200 records\n"), opened.stderr


_OPEN_AS = """
import asyncio, os, sys
from pathlib import Path
from tests.faults.recovered import read_recovered
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
_, found = asyncio.run(read_recovered(Path(sys.argv[2])))
print(sum(map(len, found.values())), "records")
"""
