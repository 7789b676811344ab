"""Commands on an offline ledger whose journal is in a local log: its records are in the same files."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.datadir import VERSION_WITH_LOG, format_of
from tests.faults.load import Ack, Load, problems, read_all
from tests.faults.merge_jobs import merge
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
PARTITIONS = 2
RECORDS = 80
OK, USAGE = 0, 2
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
MOVES = 3 if FULL else 2
LIVES = 2 if FULL else 1


def dragoman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def done(*arguments: str) -> str:
    finished = dragoman(*arguments)
    assert finished.returncode == OK, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def begun(factory: GatewayFactory) -> Gateway:
    """A gateway whose journal is in the log of its data directory, with a topic."""
    gateway = factory()
    gateway.options += ["--metadata", f"file:{gateway.data_dir}"]
    gateway.start()
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    return gateway


def produced(gateway: Gateway, name: str) -> list[Ack]:
    load = Load(gateway.bootstrap, name, "t", PARTITIONS, max_outstanding=8, max_records=RECORDS).start()
    load.complete()
    assert load.failures == []
    return load.acks


def check(gateway: Gateway, acks: Sequence[Ack]) -> None:
    """All of these are there, and nothing else is wrong."""
    assert problems(read_all(gateway.bootstrap, {"t": PARTITIONS}), acks) == []


def check_offline(*place: str) -> None:
    done("ledger", "show", *place)
    done("doctor", "--all", *place)
    assert "0 stray" in done("audit", *place)


def test_a_backup_is_restored_in_the_place_of_the_log_and_the_records_stay_readable(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    gateway = begun(gateway_factory)
    data, backup = gateway.data_dir, tmp_path / "backup"
    acks = produced(gateway, "before")
    assert gateway.terminate() == OK
    place = ["--data-dir", str(data)]
    done("ledger", "backup", "--to", str(backup), *place)
    gateway.start()
    later = produced(gateway, "after the backup")
    gateway.kill9()

    restore = ["ledger", "restore", "--from", str(backup), *place]
    refused = dragoman(*restore)
    assert refused.returncode == USAGE
    assert f"move {data / 'log'} to {data / 'replaced' / 'log'}" in refused.stderr
    (data / "replaced").mkdir()
    (data / "log").rename(data / "replaced" / "log")
    done(*restore)
    gateway.start()
    # Their offsets are given again; in time the restored ledger deletes nothing that may hold them.
    again = produced(gateway, "after the restore")
    assert {ack.place for ack in again} == {ack.place for ack in later}
    check(gateway, [*acks, *again])
    gateway.restart()
    check(gateway, [*acks, *again])
    assert gateway.terminate() == OK
    check_offline(*place)
    refused = dragoman(*restore)
    assert refused.returncode == USAGE
    assert f"move the files in {data / 'log' / '0'} to {data / 'replaced' / 'log' / '0'}" in refused.stderr


def test_a_directory_is_copied_while_its_gateway_is_stopped(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    gateway = begun(gateway_factory)
    acks = produced(gateway, "before")
    assert gateway.terminate() == OK
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(gateway.data_dir), str(copy)], check=True)
    check_offline("--data-dir", str(copy))
    other = gateway_factory(data_dir=copy)
    other.start()
    check(other, acks)
    assert format_of(copy) == VERSION_WITH_LOG


def test_a_ledger_moves_out_of_a_log_and_into_one(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    gateway = begun(gateway_factory)
    acks = produced(gateway, "in the log")
    assert gateway.terminate() == OK
    source = ["--data-dir", str(gateway.data_dir)]
    moves = [
        (f"sqlite:{tmp_path / 'first' / 'metadata.db'}", f"objects+file:{tmp_path / 'first'}"),
        (f"file:{tmp_path / 'second'}", f"objects+file:{tmp_path / 'second'}"),
        (f"sqlite:{tmp_path / 'third' / 'metadata.db'}", f"objects+file:{tmp_path / 'third'}"),
    ]
    for number, (metadata, data) in enumerate(moves[:MOVES], 1):
        directory = Path(metadata.partition(":")[2])
        (directory if metadata.startswith("file:") else directory.parent).mkdir()
        done("ledger", "move", *source, "--to-metadata", metadata, "--to-data", data)
        here = ["--metadata", metadata, "--data", data]
        moved = gateway_factory([*here, "--set", "storage.image=none"])
        moved.start()
        check(moved, acks)
        acks += produced(moved, f"after move {number}")
        check(moved, acks)
        assert moved.terminate() == OK
        source = [*here, "--data-dir", str(tmp_path / f"images {number}")]
        if FULL or number == MOVES:
            check_offline(*source)


def test_with_records_elsewhere_entries_alone_are_in_the_log(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    log, records = tmp_path / "log-here", tmp_path / "records-here"
    gateway = gateway_factory(["--metadata", f"file:{log}", "--data", f"file:{records}"])
    gateway.start()
    create_topics(gateway.bootstrap, {"t": PARTITIONS})
    acks = produced(gateway, "before")
    gateway.kill9()
    assert list(records.glob("wal/0/*.wal")) and list(log.glob("log/0/*.log"))
    locked = dragoman("ledger", "show", "--metadata", f"file:{log}", "--data", f"file:{records}")
    assert locked.returncode == OK
    gateway.start()
    held = dragoman("ledger", "show", "--metadata", f"file:{log}", "--data", f"file:{tmp_path / 'other'}")
    assert held.returncode == 5 and "--metadata" in held.stderr, held.stderr
    acks += produced(gateway, "after")
    check(gateway, acks)


def test_records_in_a_log_are_merged_beside_the_gateway(gateway_factory: GatewayFactory) -> None:
    gateway = begun(gateway_factory)
    acks: list[Ack] = []
    for life in range(LIVES):
        acks += produced(gateway, f"life {life}")
        gateway.kill9()
        gateway.start()
        merged = merge(gateway)
        assert merged["runs"] > PARTITIONS and not merged["damages"], merged
        check(gateway, acks)
    place = ["--data-dir", str(gateway.data_dir)]
    done("compact", "ledger", *place)
    assert gateway.terminate() == OK
    check_offline(*place)
