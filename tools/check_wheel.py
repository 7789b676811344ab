"""Builds the source distribution and the wheel into dist/, and tries the wheel: `make wheel`.

The wheel is built from the source distribution, so that what is missing in one shows. It is installed into a
fresh environment outside the tree, and a gateway of it takes and returns records on free ports.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
PACKAGES: Final = ("gateway", "ledger", "adapters", "pipeline")
READY_S: Final = 30.0
STOPPED_S: Final = 30.0


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stem = f"{project['name']}-{project['version']}"
    for old in (*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")):
        old.unlink()
    # In an environment of its own, where setuptools is the one that is pinned.
    pinned = os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    _run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], env=pinned)
    (wheel,), (source,) = DIST.glob(f"{stem}-*.whl"), DIST.glob(f"{stem}.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        missing = missing_in_wheel(archive.namelist(), stem)
    with tarfile.open(source) as tar:
        missing += missing_in_source(tar.getnames(), stem)
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="dragoman-wheel-") as directory:
        _try(wheel, project["version"], Path(directory))
    print(f"{wheel.relative_to(ROOT)} and {source.relative_to(ROOT)} are whole, and the wheel serves.")
    return 0


def missing_in_wheel(names: Iterable[str], stem: str) -> list[str]:
    """What a wheel should have and has not: every module of the tree, the markers of types, the licence."""
    wanted = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    wanted |= {f"{package}/py.typed" for package in PACKAGES}
    wanted |= {f"{stem}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    return sorted(f"{name} in the wheel" for name in wanted - set(names))


def missing_in_source(names: Iterable[str], stem: str) -> list[str]:
    wanted = {"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "constraints.txt", "deploy/Dockerfile"}
    have = {name.removeprefix(f"{stem}/") for name in names}
    return sorted(f"{name} in the source distribution" for name in wanted - have)


def _try(wheel: Path, version: str, directory: Path) -> None:
    environment = directory / "environment"
    venv.create(environment, with_pip=True)
    binaries = environment / "bin"
    install = [str(binaries / "pip"), "install", "-qq", "--disable-pip-version-check"]
    _run([*install, "-c", str(ROOT / "constraints.txt"), str(wheel)], cwd=directory)
    for command in ([str(binaries / "dragoman")], [str(binaries / "python"), "-m", "gateway"]):
        said = _run([*command, "--version"], cwd=directory, capture_output=True, text=True).stdout.strip()
        if said != version:
            raise SystemExit(f"{' '.join(command)} --version says {said!r}, not {version!r}")
    _serve(binaries / "dragoman", directory)


def _serve(dragoman: Path, directory: Path) -> None:
    """Start a gateway, produce and consume through it, and stop it; SystemExit where one of them fails."""
    ready = directory / "ready.json"
    flags = ["--listen", "PLAINTEXT://127.0.0.1:0", "--admin", "127.0.0.1:0"]
    flags += ["--data-dir", str(directory / "data"), "--ready-file", str(ready)]
    gateway = subprocess.Popen([str(dragoman), "serve", *flags], cwd=directory)
    try:
        deadline = time.monotonic() + READY_S
        while not ready.exists() and gateway.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        (listener,) = json.loads(ready.read_text())["listeners"]
        bootstrap = f"{listener['host']}:{listener['port']}"
        _run([str(dragoman), "demo", "--bootstrap", bootstrap], cwd=directory)
        gateway.send_signal(signal.SIGTERM)
        if code := gateway.wait(STOPPED_S):
            raise SystemExit(f"the gateway ended with exit code {code}")
    finally:
        gateway.kill()
        gateway.wait()


def _run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, **options)


if __name__ == "__main__":
    sys.exit(main())
