"""An etcd that is put back from a backup of its own, with the same flags: what came after the backup is gone,
and a gateway says so before it gives those offsets again."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import EtcdServer, running_etcd
from tests.support.gateway import Gateway

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
MARKING_OFTEN = (
    "from gateway.coordination import marking; marking.EVERY_S = 0.2; "
    "from gateway.cli.main import main; main()"
)
WAIT_S = 60.0
READY_S = 60.0
REFUSED, FOUND = 4, 3
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
BARE = ("--set", "storage.image=none")
"""No image either, as on a host that was thrown away."""
BEFORE, AFTER = 20, 30


class OftenMarked(Gateway):
    """Which puts a mark five times a second, where others do it once a minute."""

    def _command(self) -> list[str]:
        _, _, _, *arguments = super()._command()
        return [sys.executable, "-c", MARKING_OFTEN, *arguments]


@pytest.fixture
def etcd_alone() -> Iterator[EtcdServer]:
    with running_etcd() as server:
        yield server


def dragoman(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=WAIT_S, env=env
    )


def succeeded(finished: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert finished.returncode == code, finished.stdout + finished.stderr
    return finished.stdout


def produce(gateway: Gateway, count: int) -> None:
    lines = "".join(f"{number}\n" for number in range(count))
    succeeded(dragoman("produce", "t", "-b", gateway.bootstrap, stdin=lines))


def records(gateway: Gateway) -> int:
    return len(
        succeeded(dragoman("consume", "t", "--to-end", "--json", "-b", gateway.bootstrap)).splitlines()
    )


def marked(shared: Path) -> str:
    """The newest mark."""
    return max((path.name for path in shared.glob("blobs/mark/0/*")), default="")


def wait_for_a_mark(shared: Path, later_than: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while marked(shared)[:20] <= later_than[:20]:
        assert time.monotonic() < deadline, "no mark was put"
        time.sleep(0.05)


def put_back(etcd: EtcdServer, copy: Path) -> None:
    etcd.stop()
    shutil.rmtree(etcd.data)
    shutil.copytree(copy, etcd.data)
    etcd.launch()


def refusal(gateway: Gateway) -> str:
    gateway.log_path.unlink()
    gateway.launch()
    assert gateway.wait_for_exit(READY_S) == REFUSED
    (said,) = [line for line in gateway.log_tail().splitlines() if line and not line.startswith("{")]
    return said


def write_around_a_backup(gateway: Gateway, etcd: EtcdServer, shared: Path, copy: Path) -> None:
    """One epoch, and no snapshot: neither claim nor snapshot shows that something is missing."""
    gateway.start(READY_S)
    succeeded(dragoman("topics", "create", "t", "-b", gateway.bootstrap))
    produce(gateway, BEFORE)
    etcd.stop()
    shutil.copytree(etcd.data, copy)
    etcd.launch()
    before = marked(shared)
    produce(gateway, AFTER)
    if isinstance(gateway, OftenMarked):
        wait_for_a_mark(shared, later_than=before)
        gateway.kill9()
    else:
        gateway.terminate()


def goes_on_elsewhere(gateway: Gateway, etcd: EtcdServer, shared: Path, directory: Path) -> None:
    """What etcd still has is backed up, and goes on at an empty place."""
    lost, backup = marked(shared), str(directory / "backup")
    succeeded(dragoman("ledger", "backup", "--to", backup, *gateway.options))
    elsewhere = ["--metadata", etcd.url(), "--data", f"file:{shared}", *BARE]
    succeeded(dragoman("ledger", "restore", "--from", backup, *elsewhere))
    assert marked(shared) == lost
    restored = Gateway(directory / "restored", elsewhere)
    for count in (0, 1):
        restored.start(READY_S)
        assert records(restored) == BEFORE + count
        produce(restored, 1)
        restored.terminate()
    assert marked(shared) != lost and len(list(shared.glob("blobs/mark/0/*"))) == 1
    assert "another copy" in refusal(gateway)


@pytest.mark.parametrize("kind", [Gateway, OftenMarked], ids=["stopped", "killed after a mark"])
def test_an_etcd_put_back_from_its_own_backup_is_refused_until_a_restore(
    etcd_alone: EtcdServer, tmp_path: Path, kind: type[Gateway]
) -> None:
    shared, copy = tmp_path / "shared", tmp_path / "copy"
    at = ["--metadata", etcd_alone.url(), "--data", f"file:{shared}", *BARE]
    gateway = kind(tmp_path / "gateway", at)
    write_around_a_backup(gateway, etcd_alone, shared, copy)
    put_back(etcd_alone, copy)
    for _ in range(2):
        said = refusal(gateway)
        assert "were durable, as mark/" in said and "ledger restore" in said
    diagnosis = json.loads(succeeded(dragoman("doctor", *at, "--json"), FOUND))
    assert [found for found in diagnosis["findings"] if "were durable, as mark/" in found]
    # A restore does not depend on how the gateway has ended.
    if FULL or kind is Gateway:
        goes_on_elsewhere(gateway, etcd_alone, shared, tmp_path)
