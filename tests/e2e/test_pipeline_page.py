"""docs/pipeline.md and deploy/merging are true of the code: their commands run and do what they say."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

from gateway.config import SETTINGS
from tests.support.certificates import Authority, principal_of
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.ports import free_ports
from tests.support.small_runs import OLD_ENOUGH_S, produce_runs
from tests.support.spark import why_no_spark
from tests.support.versions import ROOT

PAGE: Final = ROOT / "docs" / "pipeline.md"
DEPLOY: Final = ROOT / "deploy" / "merging"
WAIT_S: Final = 240.0
BOOTSTRAP: Final = "127.0.0.1:9092"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def environment(gateway: Gateway, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DRAGOMAN_BOOTSTRAP": gateway.bootstrap, **more}


def in_bash(commands: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.timeout(600)
def test_the_first_job_of_the_page_merges_and_says_what_it_shows(gateway: Gateway) -> None:
    if reason := why_no_spark():
        pytest.skip(reason)
    (program,) = blocks("python")
    subprocess.run(
        [sys.executable, "-c", program.replace(BOOTSTRAP, gateway.bootstrap)], check=True, timeout=WAIT_S
    )
    job, check = blocks("bash")
    assert gateway.data_dir == gateway.directory / "data"
    merged = in_bash(job, gateway.directory, environment(gateway))
    assert merged.returncode == 0, merged.stderr
    shown, checked = blocks("")
    # As on the page, but for sizes, which depend on the time, and durations.
    *plan, summary = shown.splitlines()
    lines = merged.stdout.splitlines()
    assert [line.split()[:4] for line in lines[:2]] == [line.split()[:4] for line in plan]
    assert lines[2:4] == lines[:2]
    assert [re.sub(r"\d+", "N", line) for line in lines[4:]] == [re.sub(r"\d+", "N", summary)]
    after = in_bash(check, gateway.directory, environment(gateway))
    assert after.returncode == 0
    assert sorted((after.stdout + after.stderr).splitlines()) == sorted(checked.splitlines())


@pytest.fixture
def filled(gateway_factory: GatewayFactory) -> Gateway:
    gateway = gateway_factory(["--set", "housekeeping.merge_runs=0"])
    gateway.start()
    produce_runs(gateway, "orders", 600)
    time.sleep(OLD_ENOUGH_S)
    return gateway


def merged_segments(gateway: Gateway) -> int:
    return len(list(gateway.data_dir.glob("blobs/seg/*/*/*.kfs")))


def test_the_line_for_cron_merges(filled: Gateway, tmp_path: Path) -> None:
    (line,) = [line for line in (DEPLOY / "cron").read_text().splitlines() if line.startswith("17 ")]
    *when, user, _ = line.split(maxsplit=6)
    command = line.split(maxsplit=6)[6]
    assert when == ["17", "*", "*", "*", "*"] and user == "dragoman"
    here = command.replace("/var/lib/dragoman", str(filled.data_dir)).replace("/run/lock", str(tmp_path))
    assert here.count(str(tmp_path)) >= 2
    ended = in_bash(here, tmp_path, environment(filled))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert merged_segments(filled) == 1


class _Operators(ModuleType):
    """In the place of Airflow: what the DAG was made of."""

    def __init__(self) -> None:
        super().__init__("airflow")
        self.made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def make(self, *arguments: Any, **options: Any) -> "_Operators":
        self.made.append((arguments, options))
        return self

    def __enter__(self) -> "_Operators":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Operators]:
    airflow = _Operators()
    for name, what in (("sdk", "DAG"), ("providers.standard.operators.bash", "BashOperator")):
        module = ModuleType(f"airflow.{name}")
        setattr(module, what, airflow.make)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "airflow", airflow)
    spec = importlib.util.spec_from_file_location("airflow_dag", DEPLOY / "airflow_dag.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield airflow


def test_the_command_of_the_dag_merges(filled: Gateway, dag: _Operators, tmp_path: Path) -> None:
    if reason := why_no_spark():
        pytest.skip(reason)
    (_, of_dag), (_, of_task) = dag.made
    assert of_dag["max_active_runs"] == 1 and of_task["append_env"] is True
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[storage]\ndata_dir = "{filled.data_dir}"\n')
    command = of_task["bash_command"]
    here = command.replace("/etc/dragoman/gateway.toml", str(settings)).replace(
        "spark://spark:7077", "'local[2,4]'"
    )
    assert "/etc" not in here and "spark://" not in here
    ended = in_bash(here, tmp_path, environment(filled, **of_task["env"]))
    assert ended.returncode == 0, ended.stderr
    assert merged_segments(filled) == 1


def test_the_cron_job_of_kubernetes_merges_over_tls(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    (manifest,) = yaml.safe_load_all((DEPLOY / "cronjob.yaml").read_text())
    assert manifest["kind"] == "CronJob"
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    known = {setting.environment_name for setting in SETTINGS.values()}
    assert {name for name in given if not name.startswith("DRAGOMAN_CLIENT_")} <= known
    assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    authority = Authority(tmp_path)
    server, jobs = authority.server(), authority.client("jobs")
    (port,) = free_ports(1)
    gateway = gateway_factory(
        [
            *("--set", "housekeeping.merge_runs=0", "--set", f"internal.listen=SSL://127.0.0.1:{port}"),
            *("--set", f"internal.principals={principal_of(jobs)}", "--set", f"internal.ca={authority.file}"),
            *("--set", f"tls.certificate={server.certificate}", "--set", f"tls.key={server.key}"),
        ]
    )
    gateway.start()
    produce_runs(gateway, "orders", 600)
    time.sleep(OLD_ENOUGH_S)
    places = {"/tls/ca.crt": authority.file, "/tls/tls.crt": jobs.certificate, "/tls/tls.key": jobs.key}
    here = {name: str(places.get(value, value)) for name, value in given.items()}
    here["DRAGOMAN_INTERNAL_LISTEN"] = here["DRAGOMAN_INTERNAL_LISTEN"].replace(
        "dragoman:9094", f"127.0.0.1:{port}"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", *container["args"]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **here},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert merged_segments(gateway) == 1
