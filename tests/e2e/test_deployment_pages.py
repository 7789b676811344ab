"""docs/tls.md, docs/deployment.md, deploy/kubernetes.yaml: their commands run, their names exist."""

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.config import SETTINGS
from tests.support.command import run
from tests.support.gateway import Gateway, GatewayFactory
from tests.support.versions import ROOT

COMMAND = [sys.executable, "-m", "gateway.cli.main"]
PAGE = ROOT / "docs" / "tls.md"
DEPLOYMENT = ROOT / "docs" / "deployment.md"
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
WAIT_S = 60.0


def blocks() -> list[str]:
    """The commands of the page that are to be typed as they stand: CA, gateway, client."""
    return re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def in_bash(commands: str, directory: Path) -> None:
    subprocess.run(
        ["bash", "-e", "-c", commands], cwd=directory, check=True, capture_output=True, timeout=WAIT_S
    )


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory in which all commands of the page were run."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    for block in blocks():
        in_bash(block, tmp_path)
    return tmp_path


def listing(gateway: Gateway, *flags: str) -> subprocess.CompletedProcess[str]:
    port = gateway.port
    command = [*COMMAND, "topics", "list", "-b", f"SSL://localhost:{port}", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


def serving(factory: GatewayFactory, directory: Path, *more: str) -> Gateway:
    files = {"certificate": "gateway.pem", "key": "gateway.key"}
    options = [word for name, file in files.items() for word in ("--set", f"tls.{name}={directory / file}")]
    gateway = factory([*options, *more], listen="SSL://127.0.0.1:0")
    gateway.start()
    return gateway


def test_the_certificates_of_the_page_are_taken_and_renewed(
    gateway_factory: GatewayFactory, made: Path
) -> None:
    gateway = serving(gateway_factory, made)
    trusted = listing(gateway, "--tls-ca", str(made / "ca.pem"))
    assert trusted.returncode == 0, trusted.stderr
    stranger = listing(gateway)
    assert stranger.returncode == 1 and "is --tls-ca the CA" in stranger.stderr
    plain = subprocess.run(
        [*COMMAND, "topics", "list", "-b", gateway.bootstrap], capture_output=True, text=True, timeout=WAIT_S
    )
    assert plain.returncode == 1 and plain.stderr.count("?") <= 1
    assert "if it speaks TLS, name it --bootstrap SSL://" in plain.stderr
    before = ssl.get_server_certificate(("127.0.0.1", gateway.port))
    in_bash(blocks()[1], made)
    subprocess.run(["kill", "-HUP", str(gateway.pid)], check=True)
    deadline = time.monotonic() + WAIT_S
    while "tls.reloaded" not in gateway.log_tail() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ssl.get_server_certificate(("127.0.0.1", gateway.port)) != before
    assert listing(gateway, "--tls-ca", str(made / "ca.pem")).returncode == 0


def test_the_client_certificate_of_the_page_lets_in_and_names_the_client(
    gateway_factory: GatewayFactory, made: Path
) -> None:
    ca = str(made / "ca.pem")
    gateway = serving(gateway_factory, made, "--set", f"tls.ca={ca}", "--set", "tls.client_auth=required")
    missing = listing(gateway, "--tls-ca", ca)
    assert missing.returncode == 1 and "--tls-cert" in missing.stderr
    shown = ("--tls-ca", ca, "--tls-cert", str(made / "billing.pem"), "--tls-key", str(made / "billing.key"))
    assert listing(gateway, *shown).returncode == 0
    create = [*COMMAND, "topics", "create", "t", "-b", f"SSL://localhost:{gateway.port}", *shown]
    subprocess.run(create, check=True, capture_output=True, timeout=WAIT_S)
    assert gateway.terminate() == 0
    events = [json.loads(line) for line in gateway.log_tail(1 << 20).splitlines() if line.startswith("{")]
    assert "User:CN=billing" in [event.get("principal") for event in events]


def test_a_data_directory_is_moved_by_the_commands_of_the_page(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    (commands,) = re.findall(r"^```bash\n(.*?)^```", DEPLOYMENT.read_text(), re.DOTALL | re.MULTILINE)
    old, new = tmp_path / "old", tmp_path / "new"
    gateway = gateway_factory([], data_dir=old)
    gateway.start()
    lines = "".join(f"{number}\n" for number in range(100))
    assert run(gateway, "produce", "orders", stdin=lines).returncode == 0
    to = ("groups", "reset-offsets", "billing", "--topic", "orders", "--to", "40", "--execute")
    assert run(gateway, *to).returncode == 0
    cluster = json.loads(run(gateway, "cluster", "info", "--json").stdout)["cluster_id"]
    gateway.terminate()

    dragoman = tmp_path / "bin" / "dragoman"
    dragoman.parent.mkdir()
    dragoman.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    dragoman.chmod(0o755)
    environment = {**os.environ, "PATH": f"{dragoman.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=tmp_path,
        env={**environment, "OLD": str(old), "NEW": str(new), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not old.exists() and (tmp_path / "old.moved").exists()

    moved = gateway_factory([], data_dir=new)
    moved.start()
    assert json.loads(run(moved, "cluster", "info", "--json").stdout)["cluster_id"] == cluster
    rest = run(moved, "consume", "orders", "--group", "billing", "--to-end").stdout.split()
    assert rest == [str(number) for number in range(40, 100)]


def test_the_manifest_names_settings_ports_and_the_user_of_the_image() -> None:
    text = MANIFEST.read_text()
    names = set(re.findall(r"name: (DRAGOMAN_\w+)", text))
    assert names <= {setting.environment_name for setting in SETTINGS.values()} and names
    image = DOCKERFILE.read_text()
    (user,) = re.findall(r"^USER (\d+)", image, re.MULTILINE)
    assert {user} == set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", text))
    (ports,) = re.findall(r"^EXPOSE (.*)", image, re.MULTILINE)
    assert set(ports.split()) == set(re.findall(r"containerPort: (\d+)", text))
    assert "replicas: 1\n" in text and "enableServiceLinks: false" in text
    grace = int(re.findall(r"terminationGracePeriodSeconds: (\d+)", text)[0])
    assert grace * 1000 > SETTINGS["limits.drain_ms"].default
