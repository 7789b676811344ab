"""The servers of `bench.floors` acknowledge what clients of librdkafka send, in both languages."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from bench.clients import measure
from bench.floors import PARTITIONS, floors, paced_spec, record, single_spec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="direct I/O and epoll are of Linux")
RECORDS = 400
FULL = os.environ.get("DRAGOMAN_TEST_FULL") == "1"
IN_EVERY_RUN = {"in C, synced", "over uvloop, not written"}
"""Each language and each way; where there is no compiler, both ways in the other."""


def test_servers_that_only_write_acknowledge_all_records(tmp_path: Path) -> None:
    port, recorded = record(tmp_path)
    found = floors(tmp_path, recorded)
    in_c = ["in C, synced", "in C, not written"] if shutil.which("cc") else []
    assert [floor.name for floor in found] == [*in_c, "over uvloop, synced", "over uvloop, not written"]
    for floor in found:
        if in_c and not FULL and floor.name not in IN_EVERY_RUN:
            continue
        with floor.running(port) as pid:
            single = measure(pid, [("single", single_spec(port, RECORDS))]).results[0]
            assert single["records"] == RECORDS // PARTITIONS * PARTITIONS, floor.name
            assert single["requests"] >= RECORDS, floor.name
            paced = measure(pid, [("paced_produce", paced_spec(port, 1))]).results[0]
            assert len(paced["times_ms"]) == 500, floor.name
