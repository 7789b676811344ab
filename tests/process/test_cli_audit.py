"""`dragoman audit` as it is called: what it prints, and its exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.data_files import damage_last_batch, files_with_records, object_of
from tests.support.gateway import Gateway, running_gateway
from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
TRANSACTIONS = ROOT / "tests" / "fixtures" / "data_directory_v6" / "directory"
WAIT_S = 60.0


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=given, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def fill(gateway: Gateway) -> None:
    lines = "".join(f"record {number}\n" for number in range(100))
    produced = run("produce", "orders", "-b", gateway.bootstrap, given=lines)
    assert produced.returncode == 0, produced.stderr


def test_a_stopped_gateway_is_audited_and_a_running_one_is_named(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        fill(gateway)
        data_dir = str(gateway.data_dir)
        refused = run("audit", "--data-dir", data_dir)
        assert (refused.returncode, refused.stdout) == (5, "")
        assert "is in use by the gateway with process id" in refused.stderr
    clean = run("audit", "--data-dir", data_dir, "--json")
    assert (clean.returncode, clean.stderr) == (0, "No damage.\n")
    said = json.loads(clean.stdout)
    assert said["damages"] == []
    assert said["totals"]["records"] == said["totals"]["offsets"] == 100
    objects = said["totals"]["objects"]
    shown = json.loads(run("ledger", "show", "--data-dir", data_dir, "--json").stdout)["objects"]
    assert (shown["live"], shown["live_bytes"]) == (objects["live"], objects["live_bytes"])
    (stored,) = files_with_records(Path(data_dir))
    damage_last_batch(stored)
    damaged = run("audit", "--data-dir", data_dir)
    assert (damaged.returncode, damaged.stderr) == (3, "1 damage.\n")
    found, *seen = damaged.stdout.splitlines()
    assert found.startswith("FOUND  damaged batch: orders-0, offset")
    assert f"{object_of(stored)} at byte " in found
    assert "does not match its CRC-32C; put the object back from a copy" in found
    assert all(line.startswith("seen   ") for line in seen)


def test_the_offsets_of_an_audit_are_those_of_records_and_of_markers(tmp_path: Path) -> None:
    directory = str(shutil.copytree(TRANSACTIONS, tmp_path / "directory"))
    totals = json.loads(run("audit", "--data-dir", directory, "--json").stdout)["totals"]
    assert totals["markers"] > 0
    assert totals["offsets"] == totals["records"] + totals["markers"]
    shown = run("audit", "--data-dir", directory).stdout
    assert f" of 2 topics, {totals['runs']} runs, {totals['markers']} transaction markers\n" in shown


def test_usage_and_stores_out_of_reach_are_one_sentence(tmp_path: Path) -> None:
    none = run("audit", "--data-dir", str(tmp_path / "none"), "--json")
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr.startswith("dragoman: there is no ledger in ")
    both = run("audit", "--data-dir", str(tmp_path), "--repair", "--topics", "orders")
    assert both.returncode == 2
    assert both.stderr == "dragoman: --repair looks at the whole ledger first: leave --topics out\n"
