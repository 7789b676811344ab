"""Programs that are built once from Go modules, which come from where Go's own settings say (GOPROXY).

`python -m tests.support.go_tools` builds them beforehand.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.made_once import made_once
from tests.support.versions import tool_version

BUILD_TIMEOUT_S = 1800.0


@functools.cache
def why_no_go() -> str | None:
    """The reason why nothing can be built with Go here, or None."""
    if shutil.which("go") is None:
        return "no go on PATH"
    minimum = tool_version("go", "minimum")
    found = go_version()
    if release(found) < release(minimum):
        return f"Go {minimum} or newer is needed, on PATH is {found}"
    return None


@functools.cache
def go_version() -> str:
    """Such as `go1.24.5`: that on PATH, which a module may replace by a newer one."""
    requested = subprocess.run(
        ["go", "env", "GOVERSION"], cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    return requested.stdout.strip()


def release(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


TOOLS: Final[Mapping[str, str]] = {
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
}
"""Packages, in the versions that `versions.toml` names."""


def go_tool(name: str) -> Path:
    """The program of one of TOOLS.

    Errors: RuntimeError with what Go said.
    """
    version = tool_version(name)

    def build(program: Path) -> None:
        binaries = program.parent / "bin"
        environment = {**os.environ, "GOBIN": str(binaries)}
        done = subprocess.run(
            ["go", "install", "-ldflags=-s -w", f"{TOOLS[name]}@v{version}"],
            cwd="/",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} was not built:\n{done.stdout[-2000:].decode(errors='replace')}")
        os.rename(binaries / name, program)

    return made_once(f"go-{name}-{version}", build)


def main() -> None:
    reason = why_no_go()
    if reason is not None:
        sys.stderr.write(f"Tests with Go tools will be skipped: {reason}\n")
        return
    for name in TOOLS:
        sys.stderr.write(f"{name}: {go_tool(name)}\n")


if __name__ == "__main__":
    main()
