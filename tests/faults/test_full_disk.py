"""A disk that records have filled is left through the product: a reserve for deletions, and no restart."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.faults.load import read_all
from tests.faults.small_disk import MIB, SmallDisk
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.topics import create_topics

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
WAIT_S = 60.0
FREED_S = 30.0


def dragoman(gateway: Gateway, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments, "-b", gateway.bootstrap]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S)


def lines_of(size: int, length: int) -> str:
    """As many lines of this length as have this size, about."""
    line = "x" * length
    return "".join(f"{number}{line}\n" for number in range(size // length))


def readiness(gateway: Gateway) -> str:
    try:
        with urllib.request.urlopen(f"http://{gateway.admin.address}/readyz", timeout=5) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


# The longer the lines, the larger the frames, and the more is allocated for the next ones.
@pytest.mark.parametrize("length", [7_000, pytest.param(700, marks=pytest.mark.full)])
@pytest.mark.timeout(240)
def test_invariant_10_a_disk_full_of_records_is_left_by_deleting_a_topic(
    disk: SmallDisk, gateway_factory: GatewayFactory, length: int
) -> None:
    some = lines_of(350_000, length)
    gateway = gateway_factory(data_dir=disk.path / "data")
    gateway.start()
    create_topics(gateway.bootstrap, {"kept": 1, "fill": 1})
    assert dragoman(gateway, "produce", "kept", stdin=some).returncode == 0

    filled = dragoman(gateway, "produce", "fill", stdin=lines_of(28 * MIB, length))
    assert filled.returncode == 1 and "KAFKA_STORAGE_ERROR" in filled.stderr, filled.stderr
    assert "storage.reserve_bytes" in filled.stderr
    assert disk.free_bytes > 24 * MIB // 40
    (disk_reason,) = [
        row["detail"] for row in json.loads(readiness(gateway))["reasons"] if row["reason"] == "disk"
    ]
    assert "storage.reserve_bytes" in disk_reason
    acked = len(read_all(gateway.bootstrap, {"fill": 1})["fill", 0])
    assert acked * length > 7_000_000

    deleted = dragoman(gateway, "topics", "delete", "fill", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    deadline = time.monotonic() + FREED_S
    while disk.free_bytes < 12 * MIB:
        assert time.monotonic() < deadline, (disk.free_bytes, gateway.log_tail())
        time.sleep(0.2)

    # A file of the log is held by the entries in it, until snapshots have passed them.
    assert "snapshot.written" in gateway.log_tail(1 << 20)

    again = dragoman(gateway, "produce", "kept", stdin=some)
    assert again.returncode == 0, again.stderr
    assert len(read_all(gateway.bootstrap, {"kept": 1})["kept", 0]) == 2 * some.count("\n")
    # One word about it in a minute, not one for each batch.
    assert gateway.log_tail(1 << 20).count("disk.full") <= 2
