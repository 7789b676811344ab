"""Programs from Debian packages, unpacked below `.cache` without installing anything: no root is needed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.made_once import made_once
from tests.support.versions import CACHE

FETCH_TIMEOUT_S = 300.0
LIBRARIES = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio")
NOT_FOLLOWED = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


@dataclass(frozen=True, slots=True)
class UnpackedProgram:
    path: Path
    environment: Mapping[str, str]
    """With the libraries that came with it."""


class PackageMissing(Exception):
    """The package could not be fetched; the text says why."""


def unpacked_program(package: str, program: str, folder: str = "usr/bin") -> UnpackedProgram:
    """`program` below a folder of a package, fetched when it is not there yet. Errors: PackageMissing."""
    root = made_once(f"debian-{package}", lambda fresh: fetch(package, fresh))
    libraries = sorted(str(path) for pattern in LIBRARIES for path in root.glob(pattern))
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    return UnpackedProgram(root / folder / program, environment)


def fetch(package: str, root: Path) -> None:
    """Unpack the package, and what it depends on that is not installed here, into `root`."""
    for tool in ("apt-get", "apt-cache", "dpkg-query", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise PackageMissing(f"no {tool} on PATH to fetch {package} with")
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        fresh = Path(name)
        options = options_to_know(package, fresh)
        missing = sorted(needed(package, options) - installed())
        downloads = fresh / "packages"
        downloads.mkdir()
        run(["apt-get", *options, "download", *missing], downloads)
        for archive in sorted(downloads.glob("*.deb")):
            run(["dpkg-deb", "-x", str(archive), str(fresh / "root")], fresh)
        os.rename(fresh / "root", root)


def options_to_know(package: str, scratch: Path) -> list[str]:
    """Options for apt: none where it knows the package, else package lists of our own, fetched now."""
    known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    if known.returncode == 0:
        return []
    lists, cache = scratch / "lists", scratch / "cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]
    run(["apt-get", *options, "update"], scratch)
    return options


def needed(package: str, options: Sequence[str]) -> set[str]:
    without = [f"--no-{kind}" for kind in NOT_FOLLOWED]
    text = run(["apt-cache", *options, "depends", "--recurse", *without, package], CACHE)
    # Lines with a blank describe a package; <...> is a virtual package of several that provide it.
    return {line for line in text.splitlines() if line and not line.startswith((" ", "<", "|"))}


def installed() -> set[str]:
    lines = run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n"], CACHE).splitlines()
    return {words[0] for words in map(str.split, lines) if words[1:] == ["ii"]}


def run(command: Sequence[str], directory: Path) -> str:
    """What the command printed. Errors: PackageMissing with its last words."""
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PackageMissing(f"{command[0]} took longer than {FETCH_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise PackageMissing(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
