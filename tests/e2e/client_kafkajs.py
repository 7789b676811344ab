"""kafkajs: one Node.js runs js/records.js for the whole session."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.client import Ability, Record
from tests.support.client_program import ClientProgram, ProgramClient
from tests.support.made_once import made_once

SOURCES = Path(__file__).parent / "js"
LOCKED = ("package.json", "package-lock.json", ".npmrc")
INSTALL_TIMEOUT_S = 300.0


class KafkajsClient(ProgramClient):
    cannot: Mapping[Ability, str] = MappingProxyType(
        {Ability.CONSUME: "kafkajs reads only as a member of a group"}
    )

    def can_send(self, record: Record) -> bool:
        """It fails for a header without value."""
        return all(value is not None for _, value in record.headers)


def why_no_node() -> str | None:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"no {missing[0]} on PATH" if missing else None


def started_node(directory: Path) -> ClientProgram:
    return ClientProgram(["node", str(SOURCES / "records.js")], directory, node_environment())


def node_environment() -> dict[str, str]:
    """In which programs find the packages."""
    return {**os.environ, "NODE_PATH": str(installed() / "node_modules")}


def installed() -> Path:
    """The directory with the locked packages, installed again when the lock has changed.

    Errors: RuntimeError with npm's last words.
    """
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in LOCKED)).hexdigest()[:16]
    return made_once(f"e2e-js-{digest}", install)


def install(directory: Path) -> None:
    directory.mkdir()
    for name in LOCKED:
        shutil.copy(SOURCES / name, directory)
    done = subprocess.run(
        ["npm", "ci"],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        words = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"npm could not install the clients in Node.js:\n{words}")
