"""Python environments of their own, for applications whose packages do not fit next to those of the tests.

`python -m tests.support.environments` sets them up beforehand.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.versions import CACHE, ROOT

INSTALL_TIMEOUT_S = 600.0
QUIX_REQUIREMENTS = ROOT / "docs" / "examples" / "quix-streams" / "requirements.txt"


def python_with(requirements: Path) -> Path:
    """The interpreter of an environment with these packages, made again when they or Python have changed.

    Safe to call from several processes. Errors: RuntimeError with pip's last words.
    """
    digest = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()[:16]
    home = CACHE / f"environment-{requirements.parent.name}-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / ".stamp").exists():
            _install(requirements, home / "venv")
            (home / ".stamp").touch()
    return home / "venv" / "bin" / "python"


def _install(requirements: Path, venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    # The pip that runs here installs there.
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(venv / "bin" / "python"),
        "--disable-pip-version-check",
    ]
    _run([*pip, "install", "-qq", "-r", str(requirements)])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        words = done.stdout[-2000:].decode(errors="replace")
        raise RuntimeError(f"{' '.join(command)} has failed:\n{words}")


def main(arguments: Sequence[str]) -> None:
    if arguments:
        raise SystemExit("usage: python -m tests.support.environments")
    sys.stderr.write(f"Quix Streams: {python_with(QUIX_REQUIREMENTS)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
