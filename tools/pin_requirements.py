"""Writes requirements/*.txt: the pins of constraints.txt with the hashes of their files, one file an extra.

    python tools/pin_requirements.py        needs a package index and uv (extra `audit`): `make pins`

`run.txt` has what a gateway needs and what builds it, the others what their extra needs besides; `pip.txt`
has pip itself. The files hold for every supported version of Python on Linux and macOS. pip compares what it
downloads with them (--require-hashes), which it cannot do with a constraints file and an editable install.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
REQUIREMENTS: Final = ROOT / "requirements"
CONSTRAINTS: Final = ROOT / "constraints.txt"
OLDEST_PYTHON: Final = "3.11"
HEAD: Final = "# Written by tools/pin_requirements.py from constraints.txt (make pins); never by hand.\n"
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9][\w.\-]*)==(\S+)(?: ; (.+?))?(?= \\|$)", re.MULTILINE)


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = project["build-system"]["requires"]
    _write("pip", blocks(_compiled(["-"], ["pip"])))
    run = blocks(_compiled(["pyproject.toml", "-"], build))
    _write("run", run)
    for extra in project["project"]["optional-dependencies"]:
        both = _compiled(["pyproject.toml", "-", "--extra", extra], build)
        _write(extra, besides(blocks(both), run))
    return 0


def blocks(text: str) -> dict[str, str]:
    """Of a requirements file: each requirement with its hashes, by the package's name."""
    starts = list(_REQUIREMENT.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {
        name_of(start[1]): text[start.start() : end].rstrip() for start, end in zip(starts, ends, strict=True)
    }


def besides(requirements: Mapping[str, str], run: Mapping[str, str]) -> dict[str, str]:
    """Those that `run.txt` has not, or has only where a marker holds."""
    return {name: block for name, block in requirements.items() if run.get(name) != block}


def versions(text: str) -> dict[str, str]:
    """The pinned version of each package of a requirements or constraints file."""
    return {name_of(found[1]): found[2] for found in _REQUIREMENT.finditer(text)}


def name_of(package: str) -> str:
    """As indexes compare names."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _compiled(sources: Sequence[str], more: Sequence[str]) -> str:
    """All that the sources and `more` need, pinned and hashed."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "--no-emit-index-url", "--python-version", OLDEST_PYTHON]
    finished = subprocess.run(
        [*command, "-c", str(CONSTRAINTS), *sources],
        cwd=ROOT,
        input="\n".join(more),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return finished.stdout


def _write(name: str, requirements: Mapping[str, str]) -> None:
    REQUIREMENTS.mkdir(exist_ok=True)
    text = HEAD + "".join(f"{block}\n" for _, block in sorted(requirements.items()))
    (REQUIREMENTS / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
