"""Executors of a standalone cluster get Dragoman with the job, as docs/pipeline.md has it: their own Python
has nothing but its standard library."""

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.test_compact_spark import filled, run
from tests.support.gateway import Gateway
from tests.support.spark import JAVA_OPTIONS
from tests.support.spark_cluster import SparkCluster, running_spark_cluster
from tests.support.versions import ROOT

__all__ = ["filled"]
PAGE = ROOT / "docs" / "pipeline.md"
IMPORTED = """
import sys
import pipeline.engines.spark_tasks
for name in {name.partition(".")[0] for name in sys.modules}:
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    if "site-packages" in path and not name.startswith("_"):
        print(path)
"""


@pytest.fixture
def cluster(filled: Gateway, tmp_path: Path) -> Iterator[SparkCluster]:
    with running_spark_cluster(tmp_path / "spark") as cluster:
        yield cluster


def packages(to: Path) -> Path:
    """What `pip install --target` would install, as far as executors import it over files."""
    found = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    sites = [Path(path) for path in found.stdout.splitlines()]
    own = [ROOT / name / "__init__.py" for name in ("ledger", "adapters", "pipeline")]
    with tarfile.open(to, "w:gz") as archive:
        for path in [*sites, *own]:
            place = path.parent if path.name == "__init__.py" else path
            for each in [place, *place.parent.glob(f"{place.stem}-*.dist-info")]:
                archive.add(each, each.name)
    return to


@pytest.mark.full
@pytest.mark.timeout(900)
def test_packages_that_are_sent_along_are_enough(
    filled: Gateway, cluster: SparkCluster, tmp_path: Path
) -> None:
    archive = packages(tmp_path / "packages.tar.gz")
    flags = re.findall(r"--spark-conf (spark\.\S+)", PAGE.read_text())
    wanted = [flag for flag in flags if flag.startswith(("spark.archives", "spark.executorEnv.PYTHONPATH"))]
    assert len(wanted) == 2
    base = {"PYSPARK_PYTHON": getattr(sys, "_base_executable", sys.executable)}
    java = ["--spark-conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"]
    command = ["--topics", "orders", "--json", "--engine", "spark", "--master", cluster.url, *java]
    without = run(filled, *command, environment=base)
    assert without.returncode == 1
    assert "the executors do not have Dragoman" in without.stderr
    shipped = [
        word for flag in wanted for word in ("--spark-conf", flag.replace("packages.tar.gz", str(archive)))
    ]
    merged = run(filled, *command, *shipped, environment=base)
    assert merged.returncode == 0, merged.stderr
    assert json.loads(merged.stdout)["summary"]["runs"] == 699
