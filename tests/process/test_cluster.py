"""`make cluster`: a gateway over etcd and S3 with one command, which goes on with what they have."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.debian import PackageMissing
from tests.support.etcd import etcd_program
from tests.support.ports import free_ports
from tests.support.processes import kill_group
from tests.support.versions import ROOT

START_S = 120.0
STOP_S = 90.0


@contextmanager
def cluster(directory: Path) -> Iterator[int]:
    """The port for clients, while it runs. It ends as by Ctrl-C, with all that it has started."""
    port, admin_port = free_ports(2)
    command = [sys.executable, "-m", "tools.cluster", "--directory", str(directory)]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--admin-port", str(admin_port)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_S
        while not is_ready(admin_port):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    finally:
        if process.poll() is None:
            # Its children end with the files that they need; it could not stop them.
            kill_group(process)


def is_ready(admin_port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{admin_port}/readyz", timeout=5):
            return True
    except OSError:
        return False


def dragoman(port: int, *words: str, given: str = "") -> str:
    command = [sys.executable, "-m", "gateway.cli.main", *words, "-b", f"127.0.0.1:{port}"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=START_S, check=True)
    return done.stdout


def test_a_cluster_goes_on_where_it_was(tmp_path: Path) -> None:
    try:
        etcd_program()
    except PackageMissing as error:
        pytest.skip(str(error))
    directory = tmp_path / "cluster"
    with cluster(directory) as port:
        dragoman(port, "produce", "orders", given="first\nsecond\n")
    with cluster(directory) as port:
        dragoman(port, "produce", "orders", given="third\n")
        assert dragoman(port, "consume", "orders", "--to-end").split() == ["first", "second", "third"]
    # The key of its S3 is for this user alone.
    kept = directory / "cluster.json"
    assert kept.stat().st_mode & 0o077 == 0
    assert len(json.loads(kept.read_text())["secret_key"]) >= 24
    assert not [path for path in directory.rglob("*") if path.name in ("metadata.db", "image.db", "lock")]
