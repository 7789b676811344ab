"""deploy/compose/monitored.yaml without Docker: its settings load, its programs run, and Prometheus takes its
configuration."""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.config import SETTINGS, load_settings
from tests.support.gateway import GatewayFactory
from tests.support.prometheus import promtool
from tests.support.versions import ROOT

COMPOSE: Final = ROOT / "deploy" / "compose" / "monitored.yaml"
WAIT_S: Final = 30.0
TOKEN: Final = "of-the-file-that-the-head-of-the-page-makes"


def composed() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def configuration(name: str) -> Any:
    return yaml.safe_load(composed()["configs"][name]["content"])


def test_the_gateway_has_settings_that_load_and_a_token_for_its_console() -> None:
    gateway = composed()["services"]["gateway"]
    given = gateway["environment"]
    assert set(given) <= {setting.environment_name for setting in SETTINGS.values()}
    settings = load_settings({}, given)
    assert settings.metrics.topics and settings.listeners.advertise == ("localhost:9092", "gateway:19092")
    assert settings.admin.token_file == f"/run/secrets/{gateway['secrets'][0]}"
    assert int(gateway["stop_grace_period"].removesuffix("s")) * 1000 > settings.limits.drain_ms
    # Reached from this machine alone.
    for service in composed()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_producer_and_consumer_use_the_listener_of_containers_and_work(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    services = composed()["services"]
    advertised = services["gateway"]["environment"]["DRAGOMAN_LISTENERS_ADVERTISE"].split(",")[1]
    token = tmp_path / "token"
    token.write_text(TOKEN)
    gateway = gateway_factory(["--set", f"admin.token_file={token}", "--set", "metrics.topics=true"])
    gateway.start()
    # As in the image, where `dragoman` is on PATH.
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dragoman"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin", "DRAGOMAN_BOOTSTRAP": gateway.bootstrap}
    commands = {
        "producer": [sys.executable, "-u", "-c", *services["producer"]["command"]],
        "consumer": [str(program), *services["consumer"]["command"]],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}

    def keep_running() -> None:
        """As the policy says: what ends is started again, such as a consumer without its topic."""
        for name, command in commands.items():
            if name not in running or running[name].poll() is not None:
                with (tmp_path / name).open("ab") as log:
                    running[name] = subprocess.Popen(
                        command, cwd=ROOT, env=environment, stdout=log, stderr=log
                    )

    for name in commands:
        assert services[name]["environment"]["DRAGOMAN_BOOTSTRAP"] == advertised
        assert services[name]["restart"] == "unless-stopped"
    try:
        deadline = time.monotonic() + WAIT_S
        output = tmp_path / "consumer"
        keep_running()
        while output.read_text().count('{"number":') < 5 and time.monotonic() < deadline:
            keep_running()
            time.sleep(0.2)
        assert output.read_text().count('{"number":') >= 5, output.read_text()
    finally:
        for process in running.values():
            process.terminate()
            process.wait(WAIT_S)
    request = urllib.request.Request(
        f"http://{gateway.admin.address}/api/groups", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        assert [row["name"] for row in json.loads(response.read())["rows"]] == ["demo-readers"]


def test_prometheus_takes_its_configuration_with_the_alerts(tmp_path: Path) -> None:
    prometheus = composed()["services"]["prometheus"]
    (mounted,) = [one for one in prometheus["volumes"] if one.endswith(":ro")]
    source, target, _ = mounted.split(":")
    assert Path(target).name in configuration("prometheus")["rule_files"]
    shutil.copy((COMPOSE.parent / source).resolve(), tmp_path / Path(target).name)
    text = composed()["configs"]["prometheus"]["content"]
    (tmp_path / "prometheus.yml").write_text(text)
    assert "SUCCESS" in promtool(["check", "config", str(tmp_path / "prometheus.yml")])
    (scraped,) = configuration("prometheus")["scrape_configs"]
    # The rules know gateways by the name of this job.
    assert f'job="{scraped["job_name"]}"' in (tmp_path / "alerts.yml").read_text()


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    grafana = composed()["services"]["grafana"]
    (datasource,) = configuration("datasource")["datasources"]
    assert datasource["url"] == "http://prometheus:9090" and datasource["type"] == "prometheus"
    (provider,) = configuration("dashboards")["providers"]
    mounts = {one.split(":")[1]: one.split(":")[0] for one in grafana["volumes"]}
    folder = (COMPOSE.parent / mounts[provider["options"]["path"]]).resolve()
    boards = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert f"/d/{boards[0]['uid']}" in COMPOSE.read_text()


@pytest.mark.parametrize("name", ["configs", "secrets", "volumes"])
def test_what_services_name_is_defined(name: str) -> None:
    page = composed()
    for service in page["services"].values():
        for one in service.get(name, []):
            source = one["source"] if isinstance(one, dict) else one.split(":")[0]
            assert source.startswith("..") or source in page[name]
