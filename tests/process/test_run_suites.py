"""What `make test` runs, with the real pytest on a small tree."""

import subprocess
import sys
from pathlib import Path

import pytest

TREE = {
    "pytest.ini": """[pytest]
addopts = -p tests.support.workers -p tests.support.suite_table --import-mode=importlib
markers =
    full: long
    serial: alone
""",
    "tests/unit/test_a.py": """
import os, pytest

def test_shares(): assert os.environ["PYTEST_XDIST_WORKER"]

@pytest.mark.full
def test_long(): pass

def test_skips(): pytest.skip("no oar")

@pytest.mark.serial
def test_alone(): assert "PYTEST_XDIST_WORKER" not in os.environ
""",
    "tests/e2e/test_b.py": """
import os, pathlib, pytest

@pytest.mark.parametrize("client", ["java", "java-3.9"])
@pytest.mark.parametrize("number", range(9))
def test_each_client_has_one_worker(client, number):
    with pathlib.Path(f"{client}-{os.environ['PYTEST_XDIST_WORKER']}").open("w"): pass
""",
    "tests/hostile/test_c.py": """
import os

def test_alone(): assert "PYTEST_XDIST_WORKER" not in os.environ
""",
    "tests/wire/test_d.py": "import pytest\npytest.importorskip('no_such_module_at_all')\n",
    "tests/allowed_skips.txt": "tests/wire/: could not import\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    for variable in ("DRAGOMAN_TEST_FULL", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_real_pytest_runs_both_parts_and_refuses_a_skip_of_either(tree: Path) -> None:
    command = [sys.executable, "-m", "tests.support.run_suites"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    table, _, refused = done.stdout.partition("Skips that CI does not allow:")
    counts = [line.split()[:5] for line in table.splitlines()]
    assert ["e2e", "18", "18", "0", "0"] in counts
    assert ["hostile", "1", "1", "0", "0"] in counts
    assert ["unit", "2", "2", "0", "1"] in counts
    assert ["wire", "0", "0", "0", "1"] in counts
    assert "1 x no oar; 1 more in make test-full" in table
    assert refused.splitlines()[1] == "tests/unit/test_a.py::test_skips: no oar"
    # One worker a client.
    assert len(list(tree.glob("java*-gw*"))) == 2, done.stdout
