"""The Helm chart and the manifest in deploy/: what `helm template` makes of them is valid Kubernetes, and its
settings exist."""

import functools
import json
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.config import SETTINGS, load_settings
from tests.support.go_tools import go_tool, why_no_go
from tests.support.made_once import made_once
from tests.support.versions import ROOT, tool_version

DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "helm" / "dragoman"
WAIT_S: Final = 120.0
IN_WHEEL: Final = "kubernetes_validate/kubernetes-json-schema/"
FAR: Final = ("stores.metadata=etcd://etcd:2379/dragoman", "stores.data=s3://bucket/data")
EVERYTHING: Final = (
    *FAR,
    "stores.credentialsSecret=keys",
    "external.enabled=true",
    "external.type=NodePort",
    "external.nodePort=30092",
    "external.advertise=kafka.example:30092",
    "tls.secret=certificate",
    "tls.clientAuth=required",
    "console.tokenSecret=console",
    "console.hosts={console.example,other.example}",
    "console.readRecords=true",
    "settings.broker\\.num\\.partitions=3",
    "settings.limits\\.idle_ms=60000",
    "networkPolicy.monitoring[0].namespaceSelector.matchLabels.name=monitoring",
    "networkPolicy.clients[0].podSelector.matchLabels.kafka=client",
    "networkPolicy.egress[0].ports[0].port=2379",
    "serviceAccount.annotations.role=x",
    "podLabels.team=x",
    "priorityClassName=high",
    "imagePullSecrets[0].name=registry",
)
VALUES: Final[Mapping[str, tuple[str, ...]]] = {"embedded": (), "far": FAR, "everything": EVERYTHING}

pytestmark = pytest.mark.skipif(why_no_go() is not None, reason=why_no_go() or "")


@functools.cache
def rendered(values: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    helm = go_tool("helm")
    sets = [word for value in values for word in ("--set", value)]
    with tempfile.TemporaryDirectory() as home:
        # A helm that was built from its module alone would take itself for one of Kubernetes 1.20.
        cluster = ["--namespace", "kafka", "--kube-version", f"v{tool_version('kubernetes', 'newest')}"]
        command = [str(helm), "template", "dragoman", str(CHART), *cluster, *sets]
        environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=environment)


def text_of(values: tuple[str, ...]) -> str:
    done = rendered(values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects_of(values: tuple[str, ...]) -> dict[str, Any]:
    """By kind and name."""
    documents = [one for one in yaml.safe_load_all(text_of(values)) if one]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


def workload(objects: Mapping[str, Any]) -> Any:
    (found,) = [one for one in objects.values() if one["kind"] in ("StatefulSet", "Deployment")]
    return found


def container(objects: Mapping[str, Any]) -> Any:
    (found,) = workload(objects)["spec"]["template"]["spec"]["containers"]
    return found


def environment(objects: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(objects)["env"]}


def schemas() -> Path:
    """Schemas of Kubernetes, one directory a version, in which unknown fields are errors."""
    version, digest = tool_version("kubernetes", "schemas"), tool_version("kubernetes", "schemas_sha256")

    def fetch(made: Path) -> None:
        made.mkdir()
        wanted = made.parent / "requirements.txt"
        wanted.write_text(f"kubernetes-validate=={version} --hash=sha256:{digest}\n")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--require-hashes", "-r", str(wanted), "-d", str(made.parent)]
        subprocess.run(command, check=True, timeout=600)
        (wheel,) = made.parent.glob("*.whl")
        tested = [f"v{tool_version('kubernetes', age)}-local-strict" for age in ("oldest", "newest")]
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                folder, _, file = name.removeprefix("kubernetes_validate/kubernetes-json-schema/").partition(
                    "/"
                )
                if folder in tested:
                    (made / folder).mkdir(exist_ok=True)
                    (made / folder / file).write_text(json.dumps(_local(json.loads(packed.read(name)))))

    return made_once(f"kubernetes-schemas-{version}", fetch)


def _local(schema: Any) -> Any:
    """The same with references to files next to it: its own are to a site."""
    if isinstance(schema, list):
        return [_local(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    local = {name: _local(value) for name, value in schema.items() if name != "$id"}
    if isinstance(local.get("$ref"), str):
        local["$ref"] = local["$ref"].replace("/api/_definitions.json", "_definitions.json")
    return local


def judged(text: str, age: str) -> subprocess.CompletedProcess[str]:
    """What kubeconform says."""
    folder = schemas() / f"v{tool_version('kubernetes', age)}-local-strict"
    location = f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [str(go_tool("kubeconform"))]
    command += ["-strict", "-summary", "-schema-location", location]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=WAIT_S)


@pytest.mark.parametrize("age", ["oldest", "newest"])
@pytest.mark.parametrize("values", list(VALUES))
def test_what_the_chart_makes_is_valid(values: str, age: str) -> None:
    done = judged(text_of(VALUES[values]), age)
    assert done.returncode == 0, done.stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


@pytest.mark.parametrize("age", ["oldest", "newest"])
def test_the_manifest_is_valid_and_what_is_not_is_found(age: str) -> None:
    manifest = (DEPLOY / "kubernetes.yaml").read_text()
    assert judged(manifest, age).returncode == 0
    assert judged(manifest.replace("readinessProbe", "readynessProbe"), age).returncode == 1
    assert judged((DEPLOY / "merging" / "cronjob.yaml").read_text(), age).returncode == 0


def test_a_gateway_with_a_volume_is_a_stateful_set_and_one_that_keeps_nothing_a_deployment() -> None:
    embedded, far = workload(objects_of(())), workload(objects_of(FAR))
    assert (embedded["kind"], far["kind"]) == ("StatefulSet", "Deployment")
    assert [claim["metadata"]["name"] for claim in embedded["spec"]["volumeClaimTemplates"]] == ["data"]
    assert far["spec"]["strategy"] == {"type": "Recreate"}
    assert embedded["spec"]["replicas"] == far["spec"]["replicas"] == 1
    assert "volumeClaimTemplates" not in far["spec"]


@pytest.mark.parametrize("values", list(VALUES))
def test_the_environment_of_the_chart_are_settings_that_load(values: str) -> None:
    given = environment(objects_of(VALUES[values]))
    known = {setting.environment_name for setting in SETTINGS.values()}
    assert set(given) <= known
    settings = load_settings({}, {name: value for name, value in given.items() if "TOKEN" not in name})
    assert settings.listeners.advertise[0] == "dragoman.kafka.svc:9092"
    assert settings.log.format == "json"
    assert settings.admin.read_records is (values == "everything") and settings.admin.write is False
    if values == "everything":
        assert settings.listeners.listen == ("SSL://0.0.0.0:9092", "SSL://0.0.0.0:19092")
        assert settings.listeners.advertise[1] == "kafka.example:30092"
        assert settings.broker.num_partitions == 3 and settings.limits.idle_ms == 60_000
        assert settings.admin.hosts == ("console.example", "other.example")
        assert settings.storage.data == "s3://bucket/data"


@pytest.mark.parametrize("values", list(VALUES))
def test_the_pod_has_the_user_and_the_ports_of_the_image_and_no_rights(values: str) -> None:
    objects = objects_of(VALUES[values])
    pod = workload(objects)["spec"]["template"]["spec"]
    image = (DEPLOY / "Dockerfile").read_text()
    assert f"USER {pod['securityContext']['runAsUser']}\n" in image
    assert "EXPOSE 9092 9644" in image
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    assert (ports["kafka"], ports["admin"]) == (9092, 9644)
    assert container(objects)["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    drain_s = SETTINGS["limits.drain_ms"].default / 1000
    assert pod["terminationGracePeriodSeconds"] > drain_s
    mounts = {mount["name"] for mount in container(objects)["volumeMounts"]}
    claims = workload(objects)["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in pod["volumes"]} | {one["metadata"]["name"] for one in claims}
    assert mounts == volumes


@pytest.mark.parametrize(("values", "scheme"), [((), "HTTP"), (("settings.admin\\.tls=true",), "HTTPS")])
def test_probes_speak_what_the_admin_address_speaks(values: tuple[str, ...], scheme: str) -> None:
    found = container(objects_of((*values, "tls.secret=certificate")))
    probes = [found[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [probe.get("scheme", "HTTP") for probe in probes] == [scheme] * 3


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version


def test_selectors_find_the_pod_in_every_object() -> None:
    objects = objects_of(EVERYTHING)
    labels = workload(objects)["spec"]["template"]["metadata"]["labels"]
    for name, found in objects.items():
        spec = found.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector)
        assert wanted.items() <= labels.items(), name
    assert {"PodDisruptionBudget/dragoman", "NetworkPolicy/dragoman", "Service/dragoman-external"} <= set(
        objects
    )


def test_only_named_pods_reach_the_admin_address() -> None:
    (rules,) = [objects_of(())["NetworkPolicy/dragoman"]["spec"]["ingress"]]
    assert [port["port"] for rule in rules for port in rule["ports"]] == ["kafka"]
    rules = objects_of(EVERYTHING)["NetworkPolicy/dragoman"]["spec"]["ingress"]
    (admin,) = [rule for rule in rules if rule["ports"] == [{"port": "admin"}]]
    assert admin["from"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("stores.metadata=etcd://x:1/y",), "both metadata and data"),
        (("external.enabled=true",), "external.advertise"),
        (("settings.nonsense=3",), "nonsense"),
        (("stores.metadata=mysql://x", "stores.data=s3://x"), "metadata"),
        (("replicas=3",), "replicas"),
        (("console.write=maybe",), "write"),
    ],
    ids=["half-of-the-stores", "no-address", "no-section", "no-store", "replicas", "no-boolean"],
)
def test_values_that_cannot_work_are_refused(values: tuple[str, ...], reason: str) -> None:
    done = rendered(values)
    assert done.returncode != 0 and reason in done.stderr
